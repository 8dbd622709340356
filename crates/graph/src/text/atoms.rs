//! Printing of leaves: numbers as Python does, strings as JSON does.

use std::fmt::{self, Write};

/// A float in its shortest form that reads back to the same number, as Python prints it.
pub(super) fn write_float(out: &mut impl Write, v: f64) -> fmt::Result {
    if v.is_nan() {
        return out.write_str("nan");
    }
    if v.is_infinite() {
        return out.write_str(if v > 0.0 { "inf" } else { "-inf" });
    }
    let text = format!("{v:?}");
    match text.split_once('e') {
        // `1e-5` is `1e-05` there, and `1e16` is `1e+16`.
        Some((digits, exponent)) => {
            let (sign, power) = match exponent.strip_prefix('-') {
                Some(power) => ('-', power),
                None => ('+', exponent),
            };
            write!(out, "{}e{sign}{power:0>2}", digits.strip_suffix(".0").unwrap_or(digits))
        }
        None => out.write_str(&text),
    }
}

/// A string in JSON quotes, with other than ASCII characters escaped.
pub(super) fn write_string(out: &mut impl Write, s: &str) -> fmt::Result {
    out.write_char('"')?;
    for c in s.chars() {
        match c {
            '"' => out.write_str("\\\"")?,
            '\\' => out.write_str("\\\\")?,
            '\n' => out.write_str("\\n")?,
            '\r' => out.write_str("\\r")?,
            '\t' => out.write_str("\\t")?,
            ' '..='~' => out.write_char(c)?,
            _ => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    write!(out, "\\u{unit:04x}")?;
                }
            }
        }
    }
    out.write_char('"')
}

/// Whether a word can stand without quotes as a key or path.
pub(super) fn is_word(s: &str) -> bool {
    !s.is_empty() && s.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_as_python_prints_them() {
        let cases = [
            (1.0, "1.0"),
            (1e-5, "1e-05"),
            (1.5e-7, "1.5e-07"),
            (1e16, "1e+16"),
            (1e100, "1e+100"),
            (-0.0, "-0.0"),
            (0.0001, "0.0001"),
            (123456789.125, "123456789.125"),
            (f64::INFINITY, "inf"),
        ];
        for (value, text) in cases {
            let mut out = String::new();
            write_float(&mut out, value).unwrap();
            assert_eq!(out, text);
        }
    }
}
