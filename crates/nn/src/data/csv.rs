//! Numeric tables as text (CSV): fields separated by commas or another character, with or without a header line.

use firebrand_core::{Error, Result, Tensor};
use std::path::Path;

/// The format of a table.
#[derive(Clone, Copy, Debug)]
pub struct CsvOptions {
    /// Field separator.
    pub separator: char,
    /// Whether the first line holds column names.
    pub header: bool,
}

impl Default for CsvOptions {
    fn default() -> CsvOptions {
        CsvOptions { separator: ',', header: true }
    }
}

/// Reads a table of numbers: names of the columns (empty without a header) and an f64 tensor `[rows, columns]`.
pub fn read_csv(path: impl AsRef<Path>, options: &CsvOptions) -> Result<(Vec<String>, Tensor)> {
    super::read_file(path.as_ref(), |bytes| {
        let text = std::str::from_utf8(bytes).map_err(|e| Error::argument("read_csv", format!("not UTF-8: {e}")))?;
        parse_csv(text, options)
    })
}

/// Like [`read_csv`], from text. Empty fields are NaN.
pub fn parse_csv(text: &str, options: &CsvOptions) -> Result<(Vec<String>, Tensor)> {
    let refused = |line: usize, what: String| Error::argument("read_csv", format!("line {}: {what}", line + 1));
    let budget = super::budget(text.as_bytes());
    let pay = |line: usize, bytes: usize| budget.take(bytes as u64).map_err(|e| refused(line, e.to_string()));
    let mut lines = text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty());
    let separator = options.separator;
    fn fields(line: &str, separator: char) -> impl Iterator<Item = &str> {
        line.split(separator).map(|f| f.trim().trim_matches('"'))
    }
    let mut names = Vec::new();
    if options.header
        && let Some((at, line)) = lines.next()
    {
        pay(at, line.len() + 2 * size_of::<String>() * fields(line, separator).count())?;
        names.extend(fields(line, separator).map(str::to_string));
    }
    let (mut numbers, mut rows, mut columns) = (Vec::new(), 0usize, options.header.then_some(names.len()));
    for (at, line) in lines {
        let found = fields(line, separator).count();
        let expected = *columns.get_or_insert(found);
        if found != expected {
            return Err(refused(at, format!("expected {expected} fields, found {found}")));
        }
        // A number in a list that may be twice as long, and in the tensor.
        pay(at, 3 * size_of::<f64>() * found)?;
        for field in fields(line, separator) {
            let number = if field.is_empty() { Ok(f64::NAN) } else { field.parse::<f64>() };
            numbers.push(
                number
                    .map_err(|_| refused(at, format!("expected a number, found `{}`", firebrand_io::plain(field))))?,
            );
        }
        rows += 1;
    }
    Ok((names, Tensor::try_from_vec(numbers, &[rows, columns.unwrap_or(0)][..])?))
}
