//! How the allocator keeps memory: little, because the agent lives for months on small machines.
//!
//! [`keep_small`] is called once by the main thread, before others start; [`give_back`] by a pod worker when the last one ends.
//! It owns nothing and never changes what memory holds. Only glibc has anything to be told; elsewhere both do nothing.
//!
//! The static program has an allocator of its own for what is Rust. musl's keeps a group of equal slots as long as one of them is
//! in use, and after a hundred pods had started at once four fifths of what it held was free.

/// Joins free neighbours, whatever their sizes were, and gives the kernel back what is free at a segment's end.
#[cfg(target_env = "musl")]
#[global_allocator]
static HEAP: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

/// From this size on memory comes from the kernel for itself, and goes back when it is freed; also how much free memory the heap
/// may keep at its end. glibc raises both by itself after large allocations, unless it is told.
#[cfg(target_env = "gnu")]
const THRESHOLD: nix::libc::c_int = 128 * 1024;

/// One heap for all threads. By default glibc makes up to eight for each CPU, and each pod worker that ever ran
/// leaves its mark on one of them. Threads here wait for the runtime and hardly ever for one another's allocations.
pub fn keep_small() {
    #[cfg(target_env = "gnu")]
    {
        use nix::libc::{M_ARENA_MAX, M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, mallopt};
        for (parameter, value) in [(M_ARENA_MAX, 1), (M_MMAP_THRESHOLD, THRESHOLD), (M_TRIM_THRESHOLD, THRESHOLD)] {
            // SAFETY: mallopt takes numbers only, and stores them for later allocations.
            let _taken_or_as_before = unsafe { mallopt(parameter, value) };
        }
    }
}

/// Gives pages that hold nothing back to the kernel. Takes a millisecond or less.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim takes the allocator's own locks and touches only pages without allocations.
    let _whether_there_was_any = unsafe { nix::libc::malloc_trim(0) };
}

#[cfg(all(test, target_env = "gnu"))]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_stays_when_pages_are_given_back() {
        keep_small();
        let blocks: Vec<Vec<u8>> = (0..=255).map(|n| vec![n; 40_000]).collect();
        let kept: Vec<Vec<u8>> = blocks.into_iter().step_by(7).collect();
        give_back();
        assert!(kept.iter().zip((0..=255).step_by(7)).all(|(block, n)| block.iter().all(|byte| *byte == n)));
    }
}
