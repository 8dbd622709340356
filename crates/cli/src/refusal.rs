//! Why a command ended early, and printing that escapes control characters.

use firebrand::io::plain;
use std::borrow::Cow;
use std::fmt::Display;
use std::io::Write;

/// What every command returns.
pub(crate) type Done<T = ()> = Result<T, Refusal>;

/// Why a command ended early.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The input is invalid; the reason, for people.
    Because(String),
    /// Standard output was closed by its reader (`| head`), which is not an error.
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
