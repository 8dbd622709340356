//! Tables of numbers as text: rows of fields between commas (or another separator), with or without a line of names.

use firebrand_core::{Error, Result, Tensor};
use std::path::Path;

/// How a table is written.
#[derive(Clone, Copy, Debug)]
pub struct CsvOptions {
    /// What stands between fields.
    pub separator: char,
    /// Whether the first line holds names.
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

/// As [`read_csv`], of text. Empty fields are not a number (NaN).
pub fn parse_csv(text: &str, options: &CsvOptions) -> Result<(Vec<String>, Tensor)> {
    let refused = |line: usize, what: String| Error::argument("read_csv", format!("line {}: {what}", line + 1));
    let mut lines = text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty());
    let fields = |line: &str| line.split(options.separator).map(|f| f.trim().trim_matches('"').to_string()).collect();
    let names: Vec<String> =
        if options.header { lines.next().map_or_else(Vec::new, |(_, l)| fields(l)) } else { vec![] };
    let (mut numbers, mut rows, mut columns) = (Vec::new(), 0usize, options.header.then_some(names.len()));
    for (at, line) in lines {
        let row: Vec<String> = fields(line);
        let expected = *columns.get_or_insert(row.len());
        if row.len() != expected {
            return Err(refused(at, format!("expected {expected} fields, found {}", row.len())));
        }
        for field in row {
            let number = if field.is_empty() { Ok(f64::NAN) } else { field.parse::<f64>() };
            numbers.push(number.map_err(|_| refused(at, format!("expected a number, found `{field}`")))?);
        }
        rows += 1;
    }
    Ok((names, Tensor::try_from_vec(numbers, &[rows, columns.unwrap_or(0)][..])?))
}
