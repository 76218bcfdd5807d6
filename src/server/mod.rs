//! Servers: 10248 and the local socket. Layer L2.
