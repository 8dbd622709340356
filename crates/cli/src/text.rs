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
        let refuse = |e: tokenizers::Error| Refusal::because(format!("{}: {e}", plain(&path.display().to_string())));
        tokenizers::Tokenizer::from_bytes(bytes).map(Tokenizer).map_err(refuse)
    }

    /// The tokens of a text; `special` adds the special tokens that the tokenizer puts around every text.
    pub(crate) fn encode(&self, text: &str, special: bool) -> Done<Vec<i64>> {
        let encoding = self.0.encode_fast(text, special).map_err(Refusal::because)?;
        Ok(encoding.get_ids().iter().map(|&id| id.into()).collect())
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
    use super::filled;

    #[test]
    fn templates() {
        assert_eq!(filled("<{a}|{b}>{{x}}", &[("a", "1"), ("b", "2")]).expect("it is well formed"), "<1|2>{x}");
        assert!(filled("{c}", &[("a", "1")]).is_err());
        assert!(filled("open {", &[]).is_err());
        assert!(filled("close }", &[]).is_err());
    }
}
