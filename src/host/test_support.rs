//! What tests of this port share: a mount namespace of their own.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use nix::mount::MsFlags;
use nix::sched::CloneFlags;

/// Runs a test's body on a fresh thread with its own mount namespace and a temporary folder, so that
/// no mount of a test is seen outside or survives it. Without the right to make a namespace the test
/// says so and ends.
pub(crate) fn in_private_mounts(body: impl FnOnce(&Path) + Send) {
    let dir = tempfile::tempdir().expect("temporary folder");
    let path = dir.path().canonicalize().expect("temporary folder");
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            if let Err(e) = nix::sched::unshare(CloneFlags::CLONE_FS | CloneFlags::CLONE_NEWNS) {
                report(&format!("skipped: this user may not make a mount namespace ({e})"));
                return;
            }
            let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
            nix::mount::mount(None::<&str>, "/", None::<&str>, private, None::<&str>).expect("private mounts");
            body(&path);
        });
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    });
}

/// Makes two paths change places in one step, again and again until told to stop: what a container can do
/// to a folder and a link in its volume while somebody walks there.
pub(crate) fn swap_until(stop: &AtomicBool, a: &Path, b: &Path) {
    while !stop.load(Ordering::Relaxed) {
        renameat2(AT_FDCWD, a, AT_FDCWD, b, RenameFlags::RENAME_EXCHANGE).expect("both paths exist");
    }
}

/// A plain word in the test's output.
#[allow(clippy::print_stderr)]
pub(crate) fn report(text: &str) {
    eprintln!("{text}");
}
