//! HTTP(S) clients: the only user of ureq.
