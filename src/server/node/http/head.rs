//! The head of a request: from bytes that anybody may have sent to what they ask for, or a refusal.
//!
//! Pure; called on the thread that waits for requests. It owns nothing and never guesses: wherever two readers could
//! find different requests in the same bytes (two lengths, a length beside chunks, lines that end in a line feed alone, a
//! header folded over two lines), there is no request.

use super::target;

/// Most bytes of a head. The API server passes headers of its own clients on, and cookies of some are large.
pub const MAX_HEAD: usize = 64 << 10;
/// Most headers.
pub const MAX_HEADERS: usize = 100;
/// Most bytes of path and query.
pub const MAX_TARGET: usize = 16 << 10;
/// Longest method: the longest that anybody registered has 17 letters.
const MAX_METHOD: usize = 20;

/// Why there is no request; the connection ends with this answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// 400, 414, 417, 431, 501 or 505.
    pub status: u16,
    /// What is wrong, for people.
    pub why: &'static str,
}

const fn bad(why: &'static str) -> Refusal {
    Refusal { status: 400, why }
}

/// The method. Methods that no endpoint has are one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Method {
    /// GET
    Get,
    /// HEAD
    Head,
    /// POST
    Post,
    /// PUT
    Put,
    /// PATCH
    Patch,
    /// DELETE
    Delete,
    /// OPTIONS
    Options,
    /// Another.
    Other,
}

impl Method {
    /// The word; `OTHER` for one that is not known.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
            Self::Options => "OPTIONS",
            Self::Other => "OTHER",
        }
    }

    fn read(word: &str) -> Self {
        let all = [Self::Get, Self::Head, Self::Post, Self::Put, Self::Patch, Self::Delete, Self::Options];
        all.into_iter().find(|method| method.as_str() == word).unwrap_or(Self::Other)
    }
}

/// How long the body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// So many bytes; 0 where nothing is said.
    Length(u64),
    /// In chunks, until an empty one.
    Chunked,
}

/// What a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Method.
    pub method: Method,
    /// Path, decoded; starts with a slash.
    pub path: String,
    /// Path and query as they were sent.
    pub target: String,
    /// Query, decoded, in order; a name may be there more than once.
    pub query: Vec<(String, String)>,
    /// Headers as they were sent, in order. Bytes beyond ASCII that are no UTF-8 are read as Latin-1.
    pub headers: Vec<(String, String)>,
    /// How long its body is.
    pub framing: Framing,
    /// HTTP/1.0, whose clients know no chunks.
    pub is_old: bool,
    /// No further request comes on this connection.
    pub closes: bool,
    /// The client waits for a word before it sends the body.
    pub expects_continue: bool,
}

impl Head {
    /// The first header of this name, whatever its letters' case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// The protocol that the client wants to go on with (`SPDY/3.1`, `websocket`), if it says so in both headers.
    pub fn upgrade(&self) -> Option<&str> {
        let asks = |value: &str| value.split(',').any(|word| word.trim().eq_ignore_ascii_case("upgrade"));
        let mut connection = self.headers.iter().filter(|(key, _)| key.eq_ignore_ascii_case("connection"));
        connection.any(|(_, value)| asks(value)).then(|| self.header("upgrade")).flatten()
    }
}

/// Reads a head: itself and how many bytes it takes; `None` if it is not whole yet.
///
/// # Errors
/// What there is can't become a request that is served.
pub fn parse(bytes: &[u8]) -> Result<Option<(Head, usize)>, Refusal> {
    // Empty lines before a request are passed over, as the RFC asks, but not without end.
    let leading = bytes.iter().take(8).take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
    let looked_at = &bytes[..bytes.len().min(MAX_HEAD + leading)];
    if bytes.get(leading).is_some_and(|byte| matches!(byte, b'\r' | b'\n')) {
        return Err(bad("there are only empty lines"));
    }
    line_ends(looked_at, leading)?;
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let length = match request.parse(&looked_at[leading..]) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) if bytes.len() >= MAX_HEAD => {
            return Err(match request.path {
                Some(path) if path.len() <= MAX_TARGET => Refusal { status: 431, why: "the headers are too large" },
                _ => Refusal { status: 414, why: "the path is too long" },
            });
        }
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(Refusal { status: 431, why: "too many headers" }),
        Err(httparse::Error::Version) if names_a_version(&looked_at[leading..]) => {
            return Err(Refusal { status: 505, why: "only HTTP/1.1 is spoken here" });
        }
        Err(_) => return Err(bad("this is no HTTP request")),
    };
    let (Some(method), Some(target), Some(minor)) = (request.method, request.path, request.version) else {
        return Err(bad("this is no HTTP request"));
    };
    if method.len() > MAX_METHOD {
        return Err(bad("the method is too long"));
    }
    if target.len() > MAX_TARGET {
        return Err(Refusal { status: 414, why: "the path is too long" });
    }
    let headers = request.headers.iter().map(|header| (header.name.to_owned(), text(header.value))).collect();
    let parsed = target::parse(target).ok_or(bad("the path is not one that can be read"))?;
    let mut head = Head {
        method: Method::read(method),
        path: parsed.path,
        target: parsed.sent,
        query: parsed.query,
        headers,
        framing: Framing::Length(0),
        is_old: minor == 0,
        closes: minor == 0,
        expects_continue: false,
    };
    judge(&mut head)?;
    Ok(Some((head, leading + length)))
}

/// Whether the first line has the three words of a request, and the last one is about HTTP.
fn names_a_version(bytes: &[u8]) -> bool {
    let line = bytes.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|byte| *byte == b' ').skip(2);
    words.next().is_some_and(|word| word.starts_with(b"HTTP/")) && words.next().is_none()
}

/// Every line ends in carriage return and line feed, and neither stands anywhere else in a head.
fn line_ends(bytes: &[u8], leading: usize) -> Result<(), Refusal> {
    let mut line_start = leading;
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'\n' if at == 0 || bytes[at - 1] != b'\r' => return Err(bad("a line ends without a carriage return")),
            b'\n' if at >= leading => {
                if at == line_start + 1 {
                    // The empty line: what follows is no head.
                    return Ok(());
                }
                line_start = at + 1;
            }
            b'\r' if bytes.get(at + 1).is_some_and(|next| *next != b'\n') => {
                return Err(bad("a carriage return stands in a line"));
            }
            b' ' | b'\t' if at == line_start && at > leading => return Err(bad("a header goes over two lines")),
            0 => return Err(bad("a zero byte stands in a line")),
            _ => {}
        }
    }
    Ok(())
}

fn text(value: &[u8]) -> String {
    match std::str::from_utf8(value) {
        Ok(text) => text.to_owned(),
        Err(_) => value.iter().map(|byte| char::from(*byte)).collect(),
    }
}

/// What the headers say of the message itself.
fn judge(head: &mut Head) -> Result<(), Refusal> {
    let (mut hosts, mut lengths, mut codings) = (0, 0, 0);
    // A client of HTTP/1.0 that wants to go on would have to be promised it; few are left.
    let mut closes = head.is_old;
    for (name, value) in &head.headers {
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        if is("host") {
            hosts += 1;
        } else if is("content-length") {
            lengths += 1;
            let is_number = !value.is_empty() && value.len() <= 18 && value.bytes().all(|byte| byte.is_ascii_digit());
            let length = value.parse().ok().filter(|_| is_number);
            head.framing = Framing::Length(length.ok_or(bad("Content-Length is no number"))?);
        } else if is("transfer-encoding") {
            codings += 1;
            if !value.eq_ignore_ascii_case("chunked") {
                return Err(Refusal { status: 501, why: "the only Transfer-Encoding that is understood is chunked" });
            }
        } else if is("connection") {
            for word in value.split(',').map(str::trim) {
                closes |= word.eq_ignore_ascii_case("close");
            }
        } else if is("expect") {
            if !value.eq_ignore_ascii_case("100-continue") {
                return Err(Refusal { status: 417, why: "the only expectation that is met is 100-continue" });
            }
            head.expects_continue = !head.is_old;
        }
    }
    if hosts > 1 || (hosts == 0 && !head.is_old) {
        return Err(bad("a request has one Host header"));
    }
    if lengths > 1 {
        return Err(bad("there is more than one Content-Length"));
    }
    if codings > 1 || (codings == 1 && (lengths == 1 || head.is_old)) {
        return Err(bad("the length of the body is said in two ways"));
    }
    if codings == 1 {
        head.framing = Framing::Chunked;
    }
    head.closes = closes;
    if head.upgrade().is_some() && head.framing != Framing::Length(0) {
        return Err(bad("a request to go on with another protocol has no body"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
