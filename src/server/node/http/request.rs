//! A request as an endpoint sees it.
//!
//! On the thread that serves the request. The head is owned; the body is read from the connection while the endpoint wants it.

use std::io::{self, Read};

use super::body::{Body, Carrier};
use super::head::{Head, Method};
use super::reply::Reply;

/// Who asks.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Caller {
    /// User name.
    pub name: String,
    /// Its uid; empty if nobody said one.
    pub uid: String,
    /// Its groups.
    pub groups: Vec<String>,
    /// What else the authenticator said.
    pub extra: Vec<(String, Vec<String>)>,
}

impl Caller {
    /// Who shows no credentials, where that is allowed.
    pub fn anonymous() -> Self {
        Self {
            name: "system:anonymous".to_owned(),
            groups: vec!["system:unauthenticated".to_owned()],
            ..Self::default()
        }
    }
}

/// One request.
#[derive(Debug)]
pub struct Request<'c> {
    /// Its head: method, path, query, headers.
    pub head: Head,
    /// Who asks.
    pub caller: Caller,
    /// What stood in the places of the endpoint's path, by their names.
    pub params: Vec<(&'static str, String)>,
    body: Body<'c>,
}

impl<'c> Request<'c> {
    /// A request whose body is read from `carrier`.
    pub fn new(head: Head, caller: Caller, carrier: &'c mut dyn Carrier) -> Self {
        let body = Body::new(&head, carrier);
        Self { head, caller, params: Vec::new(), body }
    }

    /// Method.
    pub fn method(&self) -> Method {
        self.head.method
    }

    /// What stood in a place of the endpoint's path; empty where there is no such place.
    pub fn param(&self, name: &str) -> &str {
        self.params.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value)
    }

    /// The first value of this name in the query.
    pub fn query(&self, name: &str) -> Option<&str> {
        self.head.query.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// All values of this name in the query.
    pub fn query_all<'r>(&'r self, name: &'r str) -> impl Iterator<Item = &'r str> {
        self.head.query.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The first header of this name, whatever its letters' case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.header(name)
    }

    /// The body, to be read piece by piece. [`io::ErrorKind::InvalidData`] is the client's mistake.
    pub fn body(&mut self) -> &mut Body<'c> {
        &mut self.body
    }

    /// The whole body.
    ///
    /// # Errors
    /// The answer to give: the body is longer than `limit`, broken, or too slow.
    pub fn read_body(&mut self, limit: usize) -> Result<Vec<u8>, Reply> {
        let mut bytes = Vec::new();
        let most = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
        match (&mut self.body).take(most).read_to_end(&mut bytes) {
            Ok(_) if bytes.len() > limit => {
                Err(Reply::error(413, &format!("the body is larger than {limit} bytes")).closing())
            }
            Ok(_) => Ok(bytes),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                Err(Reply::error(408, "the body did not come in time").closing())
            }
            Err(error) => Err(Reply::error(400, &error.to_string()).closing()),
        }
    }
}

/// A request without a connection, for tests of endpoints: runs `serve` with it.
#[cfg(test)]
pub(in crate::server::node) fn with_request<T>(text: &str, body: &str, serve: impl FnOnce(&mut Request<'_>) -> T) -> T {
    let mut carrier = super::body::testing::Script::of(&[body]);
    let (method, target) = text.split_once(' ').expect("a method and a path");
    let upgrade = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    let head = format!("{method} {target} HTTP/1.1\r\nHost: n\r\n{upgrade}\r\n");
    let (head, _) = super::head::parse(head.as_bytes()).expect("no refusal").expect("whole");
    let caller = Caller { name: "tester".to_owned(), ..Caller::default() };
    serve(&mut Request::new(head, caller, &mut carrier))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_has_a_limit() {
        for (limit, expect) in [(5, Ok(b"hello".to_vec())), (4, Err(413))] {
            let got = with_request("POST /x", "hello", |request| request.read_body(limit));
            assert_eq!(got.map_err(|reply| reply.status()), expect, "{limit}");
        }
    }

    #[test]
    fn values_are_found_by_their_names() {
        with_request("GET /x?command=a&tty=1&command=b", "", |request| {
            request.params.push(("pod", "web".to_owned()));
            assert_eq!((request.param("pod"), request.param("uid")), ("web", ""));
            assert_eq!(request.query_all("command").collect::<Vec<_>>(), ["a", "b"]);
            assert_eq!((request.query("tty"), request.query("stdin")), (Some("1"), None));
            assert_eq!(request.header("HOST"), Some("n"));
        });
    }
}
