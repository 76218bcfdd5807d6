//! The terminal of a tool: its size, and raw mode for interactive sessions. Used on the main thread of a
//! tool and its input thread; the agent has no terminal.
//!
//! Owns the settings that were in force before raw mode and puts them back on drop. Never touches
//! anything that is no terminal.

use std::io::{self, IsTerminal as _};

use nix::libc;
use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};

mod request {
    //! The one request, in a module of its own because the macro writes a public function.
    #![allow(missing_docs)]
    nix::ioctl_read_bad!(window_size, nix::libc::TIOCGWINSZ, nix::libc::winsize);
}

/// Columns and rows of the terminal that is our standard output; `None` if it is none.
pub fn size() -> Option<(u16, u16)> {
    let mut found = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the kernel writes one winsize to the place given, which lives until after the call.
    unsafe { request::window_size(libc::STDOUT_FILENO, &mut found) }.ok()?;
    (found.ws_col > 0 && found.ws_row > 0).then_some((found.ws_col, found.ws_row))
}

/// Whether our standard input is a terminal.
pub fn is_input() -> bool {
    io::stdin().is_terminal()
}

/// Raw mode of our standard input: every key goes to the session, Ctrl-C too. Ends on drop.
#[derive(Debug)]
pub struct RawMode {
    before: Termios,
}

impl RawMode {
    /// Begins it.
    ///
    /// # Errors
    /// Standard input is no terminal.
    pub fn begin() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        cfmakeraw(&mut raw);
        tcsetattr(io::stdin(), SetArg::TCSADRAIN, &raw)?;
        Ok(Self { before })
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        // A terminal that went away needs no settings.
        let _gone = tcsetattr(io::stdin(), SetArg::TCSADRAIN, &self.before);
    }
}
