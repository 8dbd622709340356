//! The little JSON that checks exchange with their scripts: lines of flat objects of strings.

/// A string as JSON writes it.
pub(super) fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            c if (c as u32) < 0x20 => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// A field of an object on one line, as Python's `json.dumps` writes it with ASCII only.
pub(super) fn field(line: &str, name: &str) -> Option<String> {
    let start = line.find(&format!("\"{name}\": \""))? + name.len() + 5;
    let mut out = String::new();
    let mut chars = line[start..].chars();
    loop {
        match chars.next()? {
            '"' => return Some(out),
            '\\' => match chars.next()? {
                'n' => out.push('\n'),
                't' => out.push('\t'),
                'r' => out.push('\r'),
                'u' => {
                    let digits: String = chars.by_ref().take(4).collect();
                    out.push(u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32).unwrap_or('\u{fffd}'));
                }
                other => out.push(other),
            },
            c => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{field, quoted};

    #[test]
    fn what_is_written_is_read() {
        for text in ["", "plain", "a \"quoted\" word", "two\nlines\\", "\u{1}"] {
            let line = format!("{{\"other\": \"x\", \"message\": {}}}", quoted(text));
            assert_eq!(field(&line, "message").as_deref(), Some(text), "{line}");
        }
        assert_eq!(field("{}", "message"), None);
    }
}
