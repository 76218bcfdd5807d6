//! Where one part's need meets another part's offer, and neither may know the other.

use std::time::Duration;

use crate::agents::pod_worker::HttpGet;
use crate::kube::fetch::{Fetcher, Redirects, Request};

/// The answer's body is not looked at.
const BODY_KEPT: usize = 1024;

/// Runs httpGet hooks over the HTTP port: no certificate is verified, as in the API's contract.
pub(super) struct HookHttp {
    fetcher: Fetcher,
}

impl HookHttp {
    pub(super) fn new() -> Self {
        Self { fetcher: Fetcher::for_pods("kube-lifecycle/1.36") }
    }
}

impl HttpGet for HookHttp {
    fn get(&self, url: &str, headers: &[(String, String)], timeout: Duration) -> Result<u16, String> {
        let request = Request { url, headers, timeout, max_body: BODY_KEPT, redirects: Redirects::SameHost(10) };
        self.fetcher.get(&request).map(|answer| answer.status).map_err(|error| error.to_string())
    }
}
