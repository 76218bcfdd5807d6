//! From a request to its answer: who asks, may they, is the endpoint switched on, what does it say.
//!
//! On the threads that serve requests. It owns the count of answers that last long; it never writes to a connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::auth::Auth;
use super::counts::Counts;
use super::endpoint::{Endpoint, Found, Group, Lasts, find};
use super::http::connection::Connection;
use super::http::head::Head;
use super::http::{Caller, Reply, Request};
use super::parts::NodeParts;
use crate::util::thread::catch;

/// Bytes of a body that nobody wanted, and that are read nevertheless so that the connection can go on.
const SKIPPED: usize = 64 << 10;
/// How long they may take; a caller that is not let in is waited for no longer than it takes to look.
const SKIPPED_WITHIN: Duration = Duration::from_secs(1);

/// What the configuration switches on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switches {
    /// `enableDebuggingHandlers`
    pub debugging: bool,
    /// `enableSystemLogHandler`
    pub system_logs: bool,
    /// `enableProfilingHandler`
    pub profiling: bool,
    /// `enableDebugFlagsHandler`
    pub debug_flags: bool,
}

impl Switches {
    /// As the port without authentication has it.
    pub const READ_ONLY: Self = Self { debugging: false, system_logs: false, profiling: false, debug_flags: false };

    fn is_on(self, group: Group) -> bool {
        match group {
            Group::Always => true,
            Group::Debugging => self.debugging,
            Group::SystemLogs => self.debugging && self.system_logs,
            Group::Profiling => self.debugging && self.profiling,
            Group::DebugFlags => self.debugging && self.debug_flags,
        }
    }

    /// What is said of a path that is switched off, whoever's it is; `None` for one that is not, or of which nothing is said.
    fn says_off(self, path: &str) -> Option<&'static str> {
        let is_below = |roots: &[&str]| is_below(path, roots);
        const DEBUGGING: &[&str] =
            &["/run", "/exec", "/attach", "/portForward", "/containerLogs", "/runningpods", "/debug/pprof", "/logs"];
        match self {
            Self { debugging: false, .. } => is_below(DEBUGGING).then_some("Debug endpoints are disabled."),
            Self { system_logs: false, .. } if is_below(&["/logs"]) => Some("logs endpoint is disabled."),
            Self { profiling: false, .. } if is_below(&["/debug/pprof"]) => Some("profiling endpoint is disabled."),
            Self { debug_flags: false, .. } if is_below(&["/debug/flags/v"]) => Some("flags endpoint is disabled."),
            _ => None,
        }
    }
}

/// Below these paths upstream has another word for what is not there.
const SERVICES: &[&str] = &[
    "/attach",
    "/checkpoint",
    "/containerLogs",
    "/exec",
    "/logs",
    "/pods",
    "/portForward",
    "/run",
    "/runningpods",
    "/stats",
];

/// Whether a path is one of these, or below one.
fn is_below(path: &str, roots: &[&str]) -> bool {
    roots.iter().any(|root| path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
}

/// Whose doors stand open to whom.
#[derive(Debug)]
pub(super) enum Door {
    /// 10250.
    Secure(Box<Auth>),
    /// 10255: nobody is asked who they are.
    ReadOnly,
}

/// Answers requests of one port.
#[derive(Debug)]
pub(super) struct Dispatch {
    pub(super) door: Door,
    pub(super) switches: Switches,
    pub(super) parts: Arc<NodeParts>,
    pub(super) routes: &'static [Endpoint],
    pub(super) counts: Arc<Counts>,
    pub(super) long: Arc<LongAnswers>,
}

/// How many answers may last long at a time.
#[derive(Debug)]
pub(super) struct LongAnswers {
    pub(super) most: usize,
    pub(super) now: AtomicUsize,
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub(super) struct LongAnswer(Arc<LongAnswers>);

impl Drop for LongAnswer {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::AcqRel);
    }
}

impl LongAnswers {
    fn begin(self: &Arc<Self>) -> Option<LongAnswer> {
        let next = |now: usize| (now < self.most).then_some(now + 1);
        self.now.fetch_update(Ordering::AcqRel, Ordering::Acquire, next).ok()?;
        Some(LongAnswer(Arc::clone(self)))
    }
}

/// An answer, with its place if it lasts long.
pub(super) struct Answer {
    pub(super) reply: Reply,
    pub(super) long: Option<LongAnswer>,
    /// Whether the caller was one who may ask this.
    pub(super) is_let_in: bool,
}

impl From<Reply> for Answer {
    fn from(reply: Reply) -> Self {
        Self { reply, long: None, is_let_in: true }
    }
}

impl Dispatch {
    /// Answers the request with this head, whose body is still to be read.
    pub(super) fn answer(&self, head: Head, connection: &mut Connection) -> Answer {
        let caller = match self.admit(&head, connection) {
            Ok(caller) => caller,
            Err(reply) => {
                let answer = Answer { reply, long: None, is_let_in: false };
                return end(Request::new(head, Caller::default(), connection), answer, Duration::ZERO);
            }
        };
        if let Some(text) = self.switches.says_off(&head.path) {
            return finish(Request::new(head, caller, connection), Reply::error(405, text).into());
        }
        let (endpoint, params) = match find(self.routes, head.method, &head.path) {
            Found::Endpoint(endpoint, params) if self.switches.is_on(endpoint.group) => (endpoint, params),
            Found::OtherMethods(methods) => {
                let allowed: Vec<&str> = methods.iter().map(|method| method.as_str()).collect();
                let reply = Reply::text(405, "405: Method Not Allowed").with_header("Allow", allowed.join(", "));
                return finish(Request::new(head, caller, connection), reply.into());
            }
            Found::Endpoint(..) | Found::Nothing => {
                let reply = if is_below(&head.path, SERVICES) {
                    Reply::text(404, "404: Page Not Found")
                } else {
                    Reply::error(404, "404 page not found")
                };
                return finish(Request::new(head, caller, connection), reply.into());
            }
        };
        let long = match endpoint.lasts {
            Lasts::Short => None,
            Lasts::Long => match self.long.begin() {
                Some(long) => Some(long),
                None => {
                    let text = format!("{} answers that last long are under way, and no more fit", self.long.most);
                    let reply = Reply::error(503, &text).with_header("Retry-After", "1");
                    return finish(Request::new(head, caller, connection), reply.into());
                }
            },
        };
        let mut request = Request::new(head, caller, connection);
        request.params = params;
        let reply = catch(|| (endpoint.handle)(&self.parts, &mut request)).unwrap_or_else(|panic| {
            log::error!("{} failed in a way that it should not: {panic}", endpoint.path);
            Reply::error(500, "the node's server failed in a way that it should not; its log says more").closing()
        });
        finish(request, Answer { reply, long, is_let_in: true })
    }

    fn admit(&self, head: &Head, connection: &Connection) -> Result<Caller, Reply> {
        match &self.door {
            Door::ReadOnly => Ok(Caller::anonymous()),
            Door::Secure(auth) => {
                let caller = auth.authenticate(connection.wire().client_certificates(), head)?;
                auth.authorize(&caller, head)?;
                Ok(caller)
            }
        }
    }
}

fn finish(request: Request<'_>, answer: Answer) -> Answer {
    end(request, answer, SKIPPED_WITHIN)
}

/// Passes over what is left of the body; where that is too much or too slow, the connection ends with this answer.
fn end(mut request: Request<'_>, mut answer: Answer, within: Duration) -> Answer {
    if !request.body().skip(SKIPPED, within) {
        answer.reply = answer.reply.closing();
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_switched_off_says_so_in_upstreams_words() {
        let all = Switches { debugging: true, system_logs: true, profiling: true, debug_flags: true };
        let off = Some("Debug endpoints are disabled.");
        for (switches, path, expect) in [
            (all, "/exec/a/b/c", None),
            (Switches::READ_ONLY, "/exec/a/b/c", off),
            (Switches::READ_ONLY, "/runningpods/", off),
            (Switches::READ_ONLY, "/runningpods", off),
            (Switches::READ_ONLY, "/logs/a", off),
            (Switches::READ_ONLY, "/debug/pprof/heap", off),
            (Switches::READ_ONLY, "/logsx", None),
            (Switches::READ_ONLY, "/configz", None),
            (Switches::READ_ONLY, "/pods", None),
            (Switches { system_logs: false, ..all }, "/logs/", Some("logs endpoint is disabled.")),
            (Switches { profiling: false, ..all }, "/debug/pprof/", Some("profiling endpoint is disabled.")),
            (Switches { debug_flags: false, ..all }, "/debug/flags/v", Some("flags endpoint is disabled.")),
            (Switches { debugging: false, ..all }, "/debug/flags/v", None),
        ] {
            assert_eq!(switches.says_off(path), expect, "{switches:?} {path}");
        }
        assert!(!Switches { debugging: false, ..all }.is_on(Group::SystemLogs));
        assert!(all.is_on(Group::DebugFlags) && Switches::READ_ONLY.is_on(Group::Always));
    }

    #[test]
    fn long_answers_are_of_a_bounded_number() {
        let long = Arc::new(LongAnswers { most: 2, now: AtomicUsize::new(0) });
        let (first, second) = (long.begin(), long.begin());
        assert!(first.is_some() && second.is_some() && long.begin().is_none());
        drop(first);
        assert!(long.begin().is_some());
        drop(second);
        assert_eq!(long.now.load(Ordering::Acquire), 0);
    }
}
