//! The on-disk records that survive a power cut.
