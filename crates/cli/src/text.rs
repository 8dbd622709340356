//! Tokenization with Hugging Face tokenizers (`tokenizer.json`), and templates with named placeholders.

use crate::refusal::{Done, Refusal};
use firebrand::io::{plain, read_regular};
use std::path::Path;

/// A tokenizer.
pub(crate) struct Tokenizer(tokenizers::Tokenizer);

impl Tokenizer {
    /// Reads a `tokenizer.json`.
    pub(crate) fn read(path: &Path) -> Done<Tokenizer> {
        let bytes = read_regular(path)?;
        let refuse = |e: tokenizers::Error| {
            Refusal::because(format!("{}: not a tokenizer.json: {e}", plain(&path.display().to_string())))
        };
        tokenizers::Tokenizer::from_bytes(bytes).map(Tokenizer).map_err(refuse)
    }

    /// The tokens of a text; `special` adds those that the tokenizer puts around every text. A long text is read in parts that
    /// end with lines, because the library needs some hundred bytes for a token.
    pub(crate) fn encode(&self, text: &str, special: bool) -> Done<Vec<i64>> {
        let mut tokens = Vec::new();
        for (k, part) in parts(text, PART).enumerate() {
            let encoding = self.0.encode_fast(part, special && k == 0).map_err(Refusal::because)?;
            tokens.extend(encoding.get_ids().iter().map(|&id| i64::from(id)));
        }
        Ok(tokens)
    }

    /// The tokens of a text that goes on: with those that begin every text, without one that ends it.
    pub(crate) fn beginning(&self, text: &str) -> Done<Vec<i64>> {
        let mut tokens = self.encode(text, true)?;
        let ends = self.ends();
        // Unless the text itself has it there.
        if tokens.len() > 1 && tokens.last().is_some_and(|t| ends.contains(t)) && tokens != self.encode(text, false)? {
            tokens.pop();
        }
        Ok(tokens)
    }

    /// The token that fills rows, if the tokenizer has a usual one.
    pub(crate) fn padding(&self) -> Option<i64> {
        ["<pad>", "[PAD]", "<|pad|>", "<|padding|>", "<|endoftext|>"].iter().find_map(|t| self.id(t))
    }

    /// The text of tokens, without special ones.
    pub(crate) fn decode(&self, tokens: &[i64]) -> Done<String> {
        let known = |&t: &i64| u32::try_from(t).ok();
        let ids: Vec<u32> = tokens.iter().filter_map(known).collect();
        self.0.decode(&ids, true).map_err(Refusal::because)
    }

    /// The id of a token by its text.
    pub(crate) fn id(&self, token: &str) -> Option<i64> {
        self.0.token_to_id(token).map(i64::from)
    }

    /// The common end-of-text tokens that this tokenizer has.
    pub(crate) fn ends(&self) -> Vec<i64> {
        const USUAL: [&str; 7] =
            ["</s>", "<|endoftext|>", "<|im_end|>", "<|eot_id|>", "<|end_of_text|>", "<eos>", "<end_of_turn>"];
        USUAL.iter().filter_map(|t| self.id(t)).collect()
    }
}

/// Bytes of a long text that are read at once.
const PART: usize = 1 << 18;

/// A text in parts of at most `most` bytes that end with lines where there are any. An empty text is one part.
fn parts(text: &str, most: usize) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let all = rest.take()?;
        if all.len() <= most {
            return Some(all);
        }
        let full = (1..=most).rev().find(|&at| all.is_char_boundary(at)).unwrap_or(all.len());
        let end = all[..full].rfind('\n').map_or(full, |at| at + 1);
        rest = Some(&all[end..]);
        Some(&all[..end])
    })
}

/// A template with `{name}` replaced by texts; `{{` and `}}` are braces.
pub(crate) fn filled(template: &str, texts: &[(&str, &str)]) -> Done<String> {
    let mut out = String::new();
    let mut rest = template;
    while let Some(at) = rest.find(['{', '}']) {
        out.push_str(&rest[..at]);
        let brace = &rest[at..at + 1];
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix(brace) {
            out.push_str(brace);
            rest = after;
            continue;
        }
        let name = (brace == "{").then(|| rest.find('}').map(|end| (&rest[..end], &rest[end + 1..]))).flatten();
        let Some((name, after)) = name else {
            return Err(Refusal::because("the template has an unmatched brace; write {{ or }} for a literal brace"));
        };
        let Some((_, text)) = texts.iter().find(|(known, _)| *known == name) else {
            let known: Vec<&str> = texts.iter().map(|(k, _)| *k).collect();
            let message =
                format!("the template uses the unknown name {{{}}}; expected one of {}", plain(name), known.join(", "));
            return Err(Refusal::because(message));
        };
        out.push_str(text);
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::{filled, parts};

    #[test]
    fn long_texts_are_read_by_lines() {
        let of = |text: &'static str, most| parts(text, most).collect::<Vec<_>>();
        assert_eq!(of("", 4), [""]);
        assert_eq!(of("ab\ncd\nefg", 4), ["ab\n", "cd\n", "efg"]);
        assert_eq!(of("äöüß", 5), ["äö", "üß"]);
    }

    #[test]
    fn templates() {
        assert_eq!(filled("<{a}|{b}>{{x}}", &[("a", "1"), ("b", "2")]).expect("it is well formed"), "<1|2>{x}");
        assert!(filled("{c}", &[("a", "1")]).is_err());
        assert!(filled("open {", &[]).is_err());
        assert!(filled("close }", &[]).is_err());
    }
}
