//! Reasons for ending a command early, and printing that escapes control characters.

use firebrand::io::plain;
use std::borrow::Cow;
use std::fmt::Display;
use std::io::Write;

/// What every command returns.
pub(crate) type Done<T = ()> = Result<T, Refusal>;

/// Why a command ended early.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The input is invalid, with the reason to print.
    Because(String),
    /// The arguments cannot be combined, with the reason to print.
    Usage(String),
    /// A signal stopped the work and the progress is saved, with advice on what to do next.
    Stopped(String),
    /// Everything is said, by this process or by another; the exit code.
    Said(u8),
    /// Standard output was closed by its reader (`| head`), which is not an error.
    ReaderGone,
}

/// `1 epoch`, `2 epochs`.
pub(crate) fn counted(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

impl Refusal {
    /// A refusal with a reason.
    pub(crate) fn because(reason: impl Display) -> Refusal {
        Refusal::Because(reason.to_string())
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Refusal::Because(reason) | Refusal::Usage(reason) | Refusal::Stopped(reason) => f.write_str(reason),
            Refusal::Said(_) => f.write_str("another process failed"),
            Refusal::ReaderGone => f.write_str("standard output was closed"),
        }
    }
}

/// Carries a refusal through a closure that the library calls, and back.
impl From<Refusal> for firebrand::Error {
    fn from(refusal: Refusal) -> firebrand::Error {
        firebrand::Error::user(refusal.to_string())
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

/// What a workload of `firebrand bench` ended with: its own error, or that of printing.
impl From<Box<dyn std::error::Error>> for Refusal {
    fn from(e: Box<dyn std::error::Error>) -> Refusal {
        e.downcast::<std::io::Error>().map_or_else(Refusal::because, |e| Refusal::from(*e))
    }
}

impl From<std::io::Error> for Refusal {
    fn from(e: std::io::Error) -> Refusal {
        if e.kind() == std::io::ErrorKind::BrokenPipe { Refusal::ReaderGone } else { Refusal::because(e) }
    }
}

/// Text with all control characters but line ends and tabs escaped, because names come from untrusted files. Escapes
/// are JSON's, so that JSON stays valid.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    let plain_line = |line: &str| line.split('\t').map(plain).collect::<Vec<_>>().join("\t");
    if text.split(['\n', '\t']).all(|part| matches!(plain(part), Cow::Borrowed(_))) {
        return text.into();
    }
    text.split('\n').map(plain_line).collect::<Vec<_>>().join("\n").into()
}

/// Writes text to standard output.
pub(crate) fn put(text: &str) -> std::io::Result<()> {
    std::io::stdout().lock().write_all(printable(text).as_bytes())
}

/// Prints a line to standard output.
macro_rules! say {
    ($($t:tt)*) => {
        $crate::refusal::put(&format!("{}\n", format_args!($($t)*)))
    };
}
pub(crate) use say;

/// Whether notes are printed.
static NOTES: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(true);

/// Switches notes off.
pub(crate) fn silence_notes() {
    NOTES.store(false, std::sync::atomic::Ordering::Relaxed);
}

/// Writes a note to standard error: something that was decided for the user.
pub(crate) fn put_note(text: &str) {
    if NOTES.load(std::sync::atomic::Ordering::Relaxed) {
        eprintln!("note: {}", printable(text));
    }
}

/// Prints a note to standard error, unless `--quiet` is given.
macro_rules! note {
    ($($t:tt)*) => {
        $crate::refusal::put_note(&format!($($t)*))
    };
}
pub(crate) use note;

#[cfg(test)]
mod tests {
    use super::printable;

    #[test]
    fn only_line_ends_and_tabs_are_left_of_control_characters() {
        assert_eq!(printable("a\tb\nc\n"), "a\tb\nc\n");
        assert_eq!(
            printable("a\tb\u{1b}[2J\nc\r\u{202e}d\u{9b}\u{7f}"),
            "a\tb\\u001b[2J\nc\\u000d\\u202ed\\u009b\\u007f"
        );
    }
}
