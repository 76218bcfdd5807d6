//! HTTP(S) clients of a node agent: the only user of ureq.
//!
//! Layer L1, called on agent threads; blocking, with a deadline and a byte limit on everything. Decides
//! nothing, and hands out no type of the HTTP library.

pub mod fetch;
