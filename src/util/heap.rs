//! How the process keeps memory: little, because the agent lives for months on small machines.
//!
//! [`keep_small`] is called once by the main thread, before others start; [`give_back`] by the main thread when all have
//! started, and by a pod worker when the last one ends. It owns nothing and never changes what memory holds. Of allocators
//! only glibc's has anything to be told.
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

/// Gives back to the kernel what is not needed now: pages that hold nothing, and the program's code, of which the pages that
/// are in use come back from the page cache by themselves. Takes a millisecond or less.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim takes the allocator's own locks and touches only pages without allocations.
    let _whether_there_was_any = unsafe { nix::libc::malloc_trim(0) };
    // Without /proc there is nothing to be known, and nothing to be had.
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let exe = std::fs::read_link("/proc/self/exe").unwrap_or_default();
    for (start, length) in exe.to_str().into_iter().flat_map(|exe| code_of(&maps, exe)) {
        // SAFETY: the range is a mapping of the program's file that nobody can write to, so that what is dropped and what
        // is read again are the same; other threads wait for their page at most. The address is only told to the kernel.
        let _dropped =
            unsafe { nix::libc::madvise(std::ptr::without_provenance_mut(start), length, nix::libc::MADV_DONTNEED) };
    }
}

/// Address and length of each mapping of code that a file has in a process's `maps`.
fn code_of<'a>(maps: &'a str, file: &'a str) -> impl Iterator<Item = (usize, usize)> + 'a {
    maps.lines().filter_map(move |line| {
        let mut fields = line.splitn(6, ' ');
        let (range, access) = (fields.next()?, fields.next()?);
        let named = fields.nth(3)?.trim_start();
        let (start, end) = range.split_once('-')?;
        let address = |text| usize::from_str_radix(text, 16).ok();
        let (start, end) = (address(start)?, address(end)?);
        (access == "r-xp" && named == file).then(|| Some((start, end.checked_sub(start)?))).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_what_runs_and_cannot_be_written() {
        let maps = "\
01000000-01010000 r--p 00000000 fe:00 42                                 /usr/bin/ferrolet
01010000-01900000 r-xp 00010000 fe:00 42                                 /usr/bin/ferrolet
01900000-01910000 rw-p 00900000 fe:00 42                                 /usr/bin/ferrolet
01910000-01920000 r-xp 00000000 fe:00 43                                 /usr/lib/libc.so.6
01920000-01930000 r-xp 00000000 00:00 0
01930000-01940000 rwxp 00000000 fe:00 42                                 /usr/bin/ferrolet
nonsense
";
        let found: Vec<_> = code_of(maps, "/usr/bin/ferrolet").collect();
        assert_eq!(found, [(0x0101_0000, 0x008f_0000)]);
        assert_eq!(code_of(maps, "/usr/bin/other").count(), 0);
    }

    #[test]
    fn this_program_goes_on_without_its_code() {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("a list of mappings");
        let exe = std::env::current_exe().expect("a program");
        assert_ne!(code_of(&maps, exe.to_str().expect("a path")).count(), 0, "{maps}");
        give_back();
    }

    #[test]
    fn what_is_held_stays_when_pages_are_given_back() {
        keep_small();
        let blocks: Vec<Vec<u8>> = (0..=255).map(|n| vec![n; 40_000]).collect();
        let kept: Vec<Vec<u8>> = blocks.into_iter().step_by(7).collect();
        give_back();
        assert!(kept.iter().zip((0..=255).step_by(7)).all(|(block, n)| block.iter().all(|byte| *byte == n)));
    }
}
