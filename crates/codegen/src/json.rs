//! A JSON writer with the layout of dumps: one space of indent, sorted keys, nothing escaped without need.
//!
//! Callers give the keys of an object in sorted order; debug builds check it.

/// Builds JSON text.
pub(crate) struct Json {
    out: String,
    depth: usize,
}

/// An object being written.
pub(crate) struct Object<'a> {
    json: &'a mut Json,
    empty: bool,
    last_key: String,
}

/// Indentation; deeper lines take it several times.
const SPACES: &str = "                ";

impl Json {
    /// The text of one object, with a final newline.
    pub(crate) fn document(fill: impl FnOnce(&mut Object<'_>)) -> String {
        let mut json = Json { out: String::with_capacity(1 << 16), depth: 0 };
        json.object(fill);
        json.out.push('\n');
        json.out
    }

    fn line(&mut self) {
        self.out.push('\n');
        let mut left = self.depth;
        while left > 0 {
            let some = left.min(SPACES.len());
            self.out.push_str(&SPACES[..some]);
            left -= some;
        }
    }

    fn item(&mut self, first: bool) {
        if !first {
            self.out.push(',');
        }
        self.line();
    }

    /// Text.
    pub(crate) fn str(&mut self, text: &str) {
        self.out.push('"');
        // Nearly no text needs escapes, and looking at all of it without a way out is quick.
        let special = |byte: u8| byte < 0x20 || byte == b'"' || byte == b'\\';
        if !text.bytes().fold(false, |found, byte| found | special(byte)) {
            self.out.push_str(text);
            self.out.push('"');
            return;
        }
        let mut copied = 0;
        for (at, byte) in text.bytes().enumerate() {
            let escape = match byte {
                b'"' => "\\\"",
                b'\\' => "\\\\",
                b'\n' => "\\n",
                b'\r' => "\\r",
                b'\t' => "\\t",
                0x08 => "\\b",
                0x0c => "\\f",
                0..0x20 => "",
                _ => continue,
            };
            self.out.push_str(&text[copied..at]);
            if escape.is_empty() {
                self.out.push_str(&format!("\\u{byte:04x}"));
            } else {
                self.out.push_str(escape);
            }
            copied = at + 1;
        }
        self.out.push_str(&text[copied..]);
        self.out.push('"');
    }

    /// A truth value.
    pub(crate) fn bool(&mut self, value: bool) {
        self.out.push_str(if value { "true" } else { "false" });
    }

    /// A number.
    pub(crate) fn int(&mut self, value: usize) {
        self.out.push_str(&value.to_string());
    }

    /// Nothing.
    pub(crate) fn null(&mut self) {
        self.out.push_str("null");
    }

    /// A list.
    pub(crate) fn list<T>(&mut self, items: impl IntoIterator<Item = T>, mut write: impl FnMut(&mut Json, T)) {
        self.out.push('[');
        self.depth += 1;
        let mut empty = true;
        for item in items {
            self.item(std::mem::take(&mut empty));
            write(self, item);
        }
        self.depth -= 1;
        if !empty {
            self.line();
        }
        self.out.push(']');
    }

    /// A list of texts.
    pub(crate) fn strs<T: AsRef<str>>(&mut self, items: impl IntoIterator<Item = T>) {
        self.list(items, |json, item| json.str(item.as_ref()));
    }

    /// An object.
    pub(crate) fn object(&mut self, fill: impl FnOnce(&mut Object<'_>)) {
        self.out.push('{');
        self.depth += 1;
        let mut object = Object { json: self, empty: true, last_key: String::new() };
        fill(&mut object);
        let empty = object.empty;
        self.depth -= 1;
        if !empty {
            self.line();
        }
        self.out.push('}');
    }
}

impl Object<'_> {
    /// Begins a field; the caller writes its value.
    pub(crate) fn key(&mut self, key: &str) -> &mut Json {
        debug_assert!(self.empty || self.last_key.as_str() < key, "{key} after {}", self.last_key);
        self.json.item(std::mem::take(&mut self.empty));
        self.json.str(key);
        self.json.out.push_str(": ");
        if cfg!(debug_assertions) {
            self.last_key = key.to_owned();
        }
        self.json
    }

    /// A text field.
    pub(crate) fn str(&mut self, key: &str, value: &str) {
        self.key(key).str(value);
    }

    /// A text field or null.
    pub(crate) fn opt_str(&mut self, key: &str, value: Option<&str>) {
        match value {
            Some(value) => self.str(key, value),
            None => self.key(key).null(),
        }
    }

    /// A truth field.
    pub(crate) fn bool(&mut self, key: &str, value: bool) {
        self.key(key).bool(value);
    }

    /// A list-of-texts field.
    pub(crate) fn strs<T: AsRef<str>>(&mut self, key: &str, items: impl IntoIterator<Item = T>) {
        self.key(key).strs(items);
    }
}
