//! The sync loop: one thread, one select!, one owner of every decision's state. Layer L3.
