//! Why a command ended early.

use std::fmt::Display;

/// What every command returns.
pub(crate) type Done<T = ()> = Result<T, Refusal>;

/// Why a command ended early.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The input was refused; the reason, for people.
    Because(String),
    /// Standard output was closed by its reader (`| head`), which is no fault.
    ReaderGone,
}

impl Refusal {
    /// A refusal with a reason.
    pub(crate) fn because(reason: impl Display) -> Refusal {
        Refusal::Because(reason.to_string())
    }
}

impl From<firebrand::Error> for Refusal {
    fn from(e: firebrand::Error) -> Refusal {
        Refusal::because(e)
    }
}

impl From<firebrand::io::Error> for Refusal {
    fn from(e: firebrand::io::Error) -> Refusal {
        Refusal::because(e)
    }
}

impl From<std::io::Error> for Refusal {
    fn from(e: std::io::Error) -> Refusal {
        if e.kind() == std::io::ErrorKind::BrokenPipe { Refusal::ReaderGone } else { Refusal::because(e) }
    }
}

/// Prints a line to standard output.
macro_rules! say {
    ($($t:tt)*) => {
        std::io::Write::write_fmt(&mut std::io::stdout().lock(), format_args!("{}\n", format_args!($($t)*)))
    };
}
pub(crate) use say;
