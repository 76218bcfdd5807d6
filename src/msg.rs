//! Every message that crosses a thread. Layer L0: plain data.
