//! The header of an npy file: a Python dictionary with exactly the keys `descr`, `fortran_order` and `shape`.
//!
//! Only what NumPy writes is understood, without recursion, so that no header can exhaust the stack.

use crate::{Error, Result};

/// What the header says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) descr: String,
    pub(crate) fortran_order: bool,
    pub(crate) shape: Vec<usize>,
}

struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    fn refuse<T>(&self, reason: impl Into<String>) -> Result<T> {
        Err(Error::Header { reason: reason.into(), at: self.at })
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn skip_space(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
    }

    /// Consumes `token` if it comes next, after any white space.
    fn take(&mut self, token: &str) -> bool {
        self.skip_space();
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn expect(&mut self, token: &str) -> Result<()> {
        if self.take(token) { Ok(()) } else { self.refuse(format!("`{token}` expected")) }
    }

    fn string(&mut self) -> Result<&'a str> {
        self.skip_space();
        let quote = match self.rest().chars().next() {
            Some(q @ ('\'' | '"')) => q,
            _ => return self.refuse("expected a quoted string (arrays of records are not supported)"),
        };
        let inside = &self.rest()[1..];
        let Some(end) = inside.find(quote) else { return self.refuse("unfinished string") };
        self.at += end + 2;
        Ok(&inside[..end])
    }

    fn bool(&mut self) -> Result<bool> {
        match () {
            () if self.take("True") => Ok(true),
            () if self.take("False") => Ok(false),
            () => self.refuse("expected True or False"),
        }
    }

    fn size(&mut self) -> Result<usize> {
        self.skip_space();
        let digits = self.rest().len() - self.rest().trim_start_matches(|c: char| c.is_ascii_digit()).len();
        match self.rest()[..digits].parse() {
            Ok(n) => {
                self.at += digits;
                Ok(n)
            }
            Err(_) => self.refuse("expected a size"),
        }
    }

    fn shape(&mut self) -> Result<Vec<usize>> {
        self.expect("(")?;
        let mut shape = Vec::new();
        while !self.take(")") {
            shape.push(self.size()?);
            if !self.take(",") {
                self.expect(")")?;
                break;
            }
        }
        Ok(shape)
    }
}

impl Header {
    /// Reads the dictionary.
    pub(crate) fn parse(text: &str) -> Result<Header> {
        let mut c = Cursor { text, at: 0 };
        let (mut descr, mut fortran_order, mut shape) = (None, None, None);
        c.expect("{")?;
        while !c.take("}") {
            let key = c.string()?;
            c.expect(":")?;
            let first = match key {
                "descr" => descr.replace(c.string()?.to_string()).is_none(),
                "fortran_order" => fortran_order.replace(c.bool()?).is_none(),
                "shape" => shape.replace(c.shape()?).is_none(),
                other => return c.refuse(format!("unknown key `{other}`")),
            };
            if !first {
                return c.refuse(format!("duplicate key `{key}`"));
            }
            if !c.take(",") {
                c.expect("}")?;
                break;
            }
        }
        c.skip_space();
        if !c.rest().is_empty() {
            return c.refuse("unexpected trailing text");
        }
        match (descr, fortran_order, shape) {
            (Some(descr), Some(fortran_order), Some(shape)) => Ok(Header { descr, fortran_order, shape }),
            _ => c.refuse("expected `descr`, `fortran_order` and `shape`"),
        }
    }

    /// The dictionary as NumPy writes it.
    pub(crate) fn print(&self) -> String {
        let sizes: Vec<String> = self.shape.iter().map(usize::to_string).collect();
        let shape = match &sizes[..] {
            [one] => format!("({one},)"),
            many => format!("({})", many.join(", ")),
        };
        let order = if self.fortran_order { "True" } else { "False" };
        format!("{{'descr': '{}', 'fortran_order': {order}, 'shape': {shape}, }}", self.descr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_read() {
        for shape in [vec![], vec![3], vec![2, 0, 5]] {
            let h = Header { descr: "<f4".into(), fortran_order: shape.len() == 1, shape };
            assert_eq!(Header::parse(&h.print()).expect("own header"), h);
        }
    }

    #[test]
    fn other_dictionaries_are_refused() {
        for text in [
            "",
            "{",
            "{}",
            "{'descr': '<f4', 'fortran_order': False}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (3,)",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (3,)} x",
            "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': ()}",
            "{'descr': '<f4', 'fortran_order': 0, 'shape': ()}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999999,)}",
            "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': ()}",
            "{'descr': '<f4, 'fortran_order': False, 'shape': ()}",
            "{'colour': 'red'}",
            "{'descr': ((((((((((",
        ] {
            assert!(Header::parse(text).is_err(), "{text}");
        }
    }
}
