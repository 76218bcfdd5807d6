//! Who we are to the API server, at this moment: TLS settings and the Authorization header.
//!
//! Called on the threads that make requests; owns the last good credentials behind a lock. Files are
//! looked at again every few seconds while requests are made, and no thread wakes for them. A file that
//! cannot be read leaves the last good credentials in force. It never shows a credential.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustls::ClientConfig;

use super::exec::{self, Printed};
use super::kubeconfig::{Access, Auth, ExecPlugin, Pem};
use super::tls::{self, Identity, Roots};
use crate::api::base64;
use crate::api::moment::Moment;
use crate::util::cancel::Cancel;
use crate::util::clock;
use crate::util::file_mark::FileMark;
use crate::util::fs::read_bounded;

/// How often files are looked at, at most.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How old a token from a file may be; a file on a network may change unseen.
const TOKEN_AGE: Duration = Duration::from_secs(60);
/// How long a plugin that failed is left alone.
const PLUGIN_REST: Duration = Duration::from_secs(5);
/// Largest file of credentials.
const MAX_FILE: u64 = 1 << 20;

/// `user:password` in base64, as the Basic scheme wants it.
pub(super) fn basic(user: &str, password: &str) -> String {
    base64(format!("{user}:{password}").as_bytes())
}

/// What a request is made with.
#[derive(Clone)]
pub(super) struct Current {
    /// Grows when the TLS settings change: connections of an older one are not used for new requests.
    pub(super) generation: u64,
    /// `None` for plain HTTP.
    pub(super) tls: Option<Arc<ClientConfig>>,
    /// Value of the Authorization header.
    pub(super) authorization: Option<String>,
}

/// The credentials of one access.
pub(super) struct Credentials {
    access: Access,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    generation: u64,
    tls: Option<Arc<ClientConfig>>,
    /// The files as they were when they were last read.
    seen: Vec<(PathBuf, Option<FileMark>)>,
    looked_at: Option<Moment>,
    token: Option<String>,
    token_at: Option<Moment>,
    /// What a plugin printed last, and until when it is good.
    printed: Option<Printed>,
    printed_until: Option<Moment>,
    /// When the plugin failed last, and why.
    failed: Option<(Moment, String)>,
    /// What the log was told last, so that it is told once.
    told: Option<String>,
}

impl Credentials {
    pub(super) fn new(access: Access) -> Self {
        Self { access, state: Mutex::default() }
    }

    pub(super) fn access(&self) -> &Access {
        &self.access
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the next request is made with.
    ///
    /// # Errors
    /// There are no credentials and never were: a sentence that names what is missing.
    pub(super) fn current(&self, stop: &Cancel) -> Result<Current, String> {
        let mut state = self.lock();
        let now = clock::moment();
        if let Auth::Exec(plugin) = &self.access.auth {
            self.refresh_plugin(plugin, &mut state, now, stop)?;
        }
        if self.access.is_tls {
            self.refresh_tls(&mut state, now)?;
        }
        let authorization = self.authorization(&mut state, now)?;
        Ok(Current { generation: state.generation, tls: state.tls.clone(), authorization })
    }

    /// The generation of the credentials that the newest request was made with.
    pub(super) fn generation(&self) -> u64 {
        self.lock().generation
    }

    /// Files are read again for the next request: somebody has changed them, or the server did not know us.
    pub(super) fn look_again(&self) {
        let mut state = self.lock();
        state.looked_at = None;
        state.token_at = None;
        state.printed_until = Some(Moment::default());
    }

    /// Runs the plugin where what it printed is old or was refused.
    fn refresh_plugin(&self, plugin: &ExecPlugin, state: &mut State, now: Moment, stop: &Cancel) -> Result<(), String> {
        if state.printed.is_some() && state.printed_until.is_none_or(|until| now < until) {
            return Ok(());
        }
        if let Some((at, why)) = &state.failed
            && now.since(*at) < PLUGIN_REST
        {
            return Err(why.clone());
        }
        let wall = clock::wall() / 1_000_000_000;
        match exec::ask(plugin, wall, stop) {
            Ok(printed) => {
                let identity = |printed: &Printed| printed.identity.as_ref().map(|own| own.chain.clone());
                if state.printed.as_ref().and_then(identity) != identity(&printed) {
                    state.tls = None;
                }
                state.printed_until = printed.good_for.map(|good_for| now + good_for);
                state.printed = Some(printed);
                state.failed = None;
                Ok(())
            }
            Err(why) => {
                state.failed = Some((clock::moment(), why.clone()));
                Err(why)
            }
        }
    }

    fn refresh_tls(&self, state: &mut State, now: Moment) -> Result<(), String> {
        let is_fresh = state.looked_at.is_some_and(|at| now.since(at) < LOOK_EVERY);
        if is_fresh && state.tls.is_some() {
            return Ok(());
        }
        let pems = [self.access.ca.as_ref()].into_iter().flatten();
        let pems = pems.chain(self.access.identity.iter().flat_map(|(certificate, key)| [certificate, key]));
        let files = pems.filter_map(|pem| match pem {
            Pem::File(path) => Some(path),
            Pem::Inline(_) => None,
        });
        let seen: Vec<_> = files.map(|path| (path.clone(), FileMark::of(path))).collect();
        state.looked_at = Some(now);
        if state.tls.is_some() && state.seen == seen {
            return Ok(());
        }
        match self.load_tls(state.printed.as_ref().and_then(|printed| printed.identity.as_ref())) {
            Ok(config) => {
                if state.generation > 0 {
                    log::info!("the API server's CA or the client certificate changed, it is used from now on");
                }
                state.generation += 1;
                state.tls = Some(Arc::new(config));
                state.seen = seen;
                state.told = None;
                Ok(())
            }
            // Key and certificate are two files: the next look finds both of them new.
            Err(why) if state.tls.is_some() => {
                if state.told.as_ref() != Some(&why) {
                    log::warn!("the changed credentials are not used yet: {why}");
                    state.told = Some(why);
                }
                Ok(())
            }
            Err(why) => Err(why),
        }
    }

    fn load_tls(&self, printed: Option<&Identity>) -> Result<ClientConfig, String> {
        let roots = match &self.access.ca {
            _ if self.access.insecure => Roots::Insecure,
            Some(pem) => Roots::Pem(read(pem)?),
            None => Roots::System,
        };
        let identity = match &self.access.identity {
            Some((chain, key)) => Some(Identity { chain: read(chain)?, key: read(key)? }),
            None => None,
        };
        tls::client_config(&roots, identity.as_ref().or(printed))
    }

    fn authorization(&self, state: &mut State, now: Moment) -> Result<Option<String>, String> {
        let token = match &self.access.auth {
            Auth::None => return Ok(None),
            Auth::Exec(_) => match state.printed.as_ref().and_then(|printed| printed.token.as_deref()) {
                Some(token) => token,
                None => return Ok(None),
            },
            Auth::Basic(word) => return Ok(Some(format!("Basic {word}"))),
            Auth::Token(token) => token.as_str(),
            Auth::TokenFile { path, first } => {
                if state.token_at.is_none_or(|at| now.since(at) >= TOKEN_AGE) {
                    state.token_at = Some(now);
                    match read_token(path) {
                        Ok(token) => state.token = Some(token),
                        Err(why) if state.token.is_some() || first.is_some() => {
                            log::warn!("the last known token stays in use: {why}");
                        }
                        Err(why) => {
                            state.token_at = None;
                            return Err(why);
                        }
                    }
                }
                state.token.as_deref().or(first.as_deref()).unwrap_or_default()
            }
        };
        Ok(Some(format!("Bearer {token}")))
    }
}

pub(super) fn read(pem: &Pem) -> Result<Vec<u8>, String> {
    match pem {
        Pem::Inline(bytes) => Ok(bytes.clone()),
        Pem::File(path) => read_bounded(path, MAX_FILE).map_err(|error| explain(&error)),
    }
}

fn read_token(path: &Path) -> Result<String, String> {
    let bytes = read_bounded(path, MAX_FILE).map_err(|error| explain(&error))?;
    let token = String::from_utf8(bytes).map_err(|_| format!("{} holds no token", path.display()))?;
    let token = token.trim();
    if token.is_empty() || token.contains(|c: char| c.is_control() || !c.is_ascii()) {
        return Err(format!("{} holds no token", path.display()));
    }
    Ok(token.to_owned())
}

/// An error with its cause.
fn explain(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}
