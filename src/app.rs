//! The composition root: builds every channel, starts and joins every thread. Layer L4.
