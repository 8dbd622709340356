//! Texts for a language model: a plain file, or JSON lines of texts, of prompts with completions, or of chats.
//!
//! A prompt becomes the tokens that `firebrand generate` feeds for it, template included, so a model is asked as it was taught.
//! Only completions, what assistants say, and plain texts are learned.

use super::{Batch, DataOptions, Fnv, Samples, Source, list, named};
use crate::program::TARGET;
use crate::refusal::{Done, Refusal};
use crate::text::{Tokenizer, filled};
use crate::train::subject::InputSpec;
use clap::ValueEnum;
use firebrand::data::Dataset;
use firebrand::data::text::{TokenDataset, TokenSequence};
use firebrand::io::{Budget, plain, read_text};
use firebrand::prelude::*;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// Tokens of a packed row if nothing else is said.
const LENGTH: usize = 256;
/// How many characters of a text are shown for it.
const SHOWN: usize = 80;

/// How texts become rows of one length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Rows {
    /// Texts one after another, split wherever a row is full
    Packed,
    /// One text per row, padded at the end
    Padded,
}

/// Arguments about texts.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct TextOptions {
    /// Tokenizer of a language model (tokenizer.json); --data is then a text (.txt), or JSON lines with `text`, with `prompt` and `completion`, or with `messages`
    #[arg(long, value_name = "FILE", help_heading = "Texts")]
    pub(crate) tokenizer: Option<PathBuf>,
    /// Template for prompts: `{prompt}`, or any other field of the line in braces, is replaced by its value; for messages, the template of one of them, with `{role}` and `{content}`
    #[arg(long, value_name = "TEXT", help_heading = "Texts", requires = "tokenizer")]
    pub(crate) template: Option<String>,
    /// How to split texts into rows [default: packed for plain texts, padded for prompts and messages]
    #[arg(long, value_name = "HOW", help_heading = "Texts", requires = "tokenizer")]
    pub(crate) rows: Option<Rows>,
    /// Tokens per row [default: the length the program was exported for, or the longest text, or 256 if packed]
    #[arg(long, value_name = "N", help_heading = "Texts", requires = "tokenizer", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) length: Option<u32>,
    /// Token appended to every text and completion [default: the tokenizer's end-of-text token]
    #[arg(long, value_name = "TOKEN", help_heading = "Texts", requires = "tokenizer")]
    pub(crate) end_token: Option<String>,
}

/// What an input of the program is given.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    Tokens,
    Mask,
    /// The place of every token in its row.
    Positions,
    /// The tokens again, where they are learned: the program compares with the next one itself.
    Labels,
}

/// What the inputs of a program are given, in order, and in which dtype.
type Roles = Vec<(Role, DType)>;

/// Texts as rows of tokens.
pub(super) struct Texts {
    rows: TokenDataset,
    inputs: Roles,
    tokenizer: Tokenizer,
}

/// What the lines of a file are.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Text,
    Prompts,
    Messages,
}

/// Texts as token sequences.
struct Reader<'a> {
    options: &'a DataOptions,
    tokenizer: &'a Tokenizer,
    end: Option<i64>,
}

impl Reader<'_> {
    /// What is given and what is learned of a text, in turns, as tokens. Only the first part has the tokens that begin a text.
    fn sequence(&self, parts: &[(String, bool)], ends: bool) -> Done<TokenSequence> {
        let mut all = TokenSequence::new();
        for (text, learned) in parts {
            let tokens = match all.tokens().is_empty() {
                true => self.tokenizer.beginning(text)?,
                false => self.tokenizer.encode(text, false)?,
            };
            all = if *learned { all.learned(&tokens) } else { all.given(&tokens) };
        }
        Ok(if ends { all.learned(self.end.as_slice()) } else { all })
    }

    /// The field that is learned.
    fn completion(&self) -> &str {
        if self.options.target == TARGET { "completion" } else { &self.options.target }
    }

    fn kind(&self, line: &Map<String, Value>) -> Done<Kind> {
        let has = |name: &str| line.contains_key(name);
        match () {
            () if has("messages") => Ok(Kind::Messages),
            () if has(self.completion()) => Ok(Kind::Prompts),
            () if has("text") => Ok(Kind::Text),
            () => {
                let found: Vec<&str> = line.keys().map(String::as_str).collect();
                Err(Refusal::because(format!(
                    "expected `text`, `prompt` and `{}`, or `messages`, found {}; --target names the field that is learned",
                    plain(self.completion()),
                    list(&found)
                )))
            }
        }
    }

    fn line(&self, kind: Kind, line: &Map<String, Value>) -> Done<TokenSequence> {
        match kind {
            Kind::Text => self.sequence(&[(text(line, "text")?.to_string(), true)], true),
            Kind::Prompts => {
                let prompt = match &self.options.text.template {
                    None => text(line, "prompt")?.to_string(),
                    Some(template) => {
                        let shown = |v: &Value| v.as_str().map_or_else(|| v.to_string(), str::to_string);
                        let fields: Vec<(&str, String)> = line.iter().map(|(k, v)| (k.as_str(), shown(v))).collect();
                        let fields: Vec<(&str, &str)> = fields.iter().map(|(k, v)| (*k, v.as_str())).collect();
                        filled(template, &fields)?
                    }
                };
                let completion = text(line, self.completion())?.to_string();
                self.sequence(&[(prompt, false), (completion, true)], true)
            }
            Kind::Messages => self.messages(line),
        }
    }

    /// A chat: what comes before the words of an assistant is given, up to them at one go, as `generate` reads a prompt.
    fn messages(&self, line: &Map<String, Value>) -> Done<TokenSequence> {
        let Some((before, after)) = self.options.text.template.as_deref().and_then(|t| t.split_once("{content}"))
        else {
            let message =
                "messages need --template with `{content}` and `{role}`, such as \"<|{role}|>{content}<|end|>\"";
            return Err(Refusal::because(message));
        };
        let Some(messages) = line["messages"].as_array() else {
            return Err(Refusal::because("`messages`: expected a list of objects with `role` and `content`"));
        };
        let mut parts = vec![(String::new(), false)];
        for message in messages {
            let message =
                message.as_object().ok_or_else(|| Refusal::because("expected every message to be a JSON object"))?;
            let (role, content) = (text(message, "role")?, text(message, "content")?);
            let around = |part: &str| filled(part, &[("role", role)]);
            parts.last_mut().expect("there is one").0 += &around(before)?;
            let words = content.to_string() + &around(after)?;
            match role {
                "assistant" => parts.extend([(words, true), (String::new(), false)]),
                _ => parts.last_mut().expect("there is one").0 += &words,
            }
        }
        parts.retain(|(text, _)| !text.is_empty());
        self.sequence(&parts, false)
    }
}

/// A field that is text.
fn text<'a>(line: &'a Map<String, Value>, name: &str) -> Done<&'a str> {
    match line.get(name) {
        Some(Value::String(text)) => Ok(text),
        Some(other) => Err(Refusal::because(format!("`{}`: expected text, found {other}", plain(name)))),
        None => {
            let found: Vec<&str> = line.keys().map(String::as_str).collect();
            Err(Refusal::because(format!("no field `{}`; the line has {}", plain(name), list(&found))))
        }
    }
}

impl Texts {
    /// Reads texts for a program with these inputs.
    pub(super) fn read(path: &Path, options: &DataOptions, inputs: &[InputSpec]) -> Done<Samples> {
        let file = options.text.tokenizer.as_deref().expect("only called with one");
        let tokenizer = Tokenizer::read(file)?;
        let end = match &options.text.end_token {
            None => tokenizer.ends().first().copied(),
            Some(token) => Some(tokenizer.id(token).ok_or_else(|| {
                named(file, format!("--end-token {}: the tokenizer has no such token", plain(token)))
            })?),
        };
        let reader = Reader { options, tokenizer: &tokenizer, end };
        let (kind, texts) = reader.file(path)?;
        let (roles, tokens) = roles(inputs).map_err(|e| named(path, e))?;
        let packed = match options.text.rows {
            Some(rows) => rows == Rows::Packed,
            None => kind == Kind::Text,
        };
        let length = row_length(options, tokens, &texts, packed).map_err(|e| named(path, e))?;
        let padding = tokenizer.padding().or(end).unwrap_or(0);
        let rows = match packed {
            true => TokenDataset::packed(&texts, length, None),
            false => TokenDataset::padded(&texts, length, padding),
        };
        let rows = rows.map_err(|e| named(path, e))?;
        let mut notes = Vec::new();
        if end.is_none() && kind != Kind::Messages {
            notes.push("the tokenizer has no usual end token, so texts have none; --end-token names one".to_string());
        }
        let all: usize = texts.iter().map(|t| t.tokens().len()).sum();
        if rows.dropped() > 0 {
            let way = if packed { "they do not fill a row" } else { "their texts are longer, or of one token" };
            notes.push(format!("rows have {length} tokens: {} of {all} are left out, {way}", rows.dropped()));
        }
        Ok(Samples::new(Texts { rows, inputs: roles, tokenizer }, None, notes))
    }
}

impl Reader<'_> {
    /// All texts of a file.
    fn file(&self, path: &Path) -> Done<(Kind, Vec<TokenSequence>)> {
        let content = read_text(path)?;
        if !path.extension().is_some_and(|e| e.eq_ignore_ascii_case("jsonl") || e.eq_ignore_ascii_case("json")) {
            self.check_template(Kind::Text).map_err(|e| named(path, e))?;
            return Ok((Kind::Text, vec![self.sequence(&[(content, true)], true)?]));
        }
        let budget = Budget::for_input(content.len() as u64);
        let (mut texts, mut kind) = (Vec::new(), None);
        for (number, line) in content.lines().enumerate().filter(|(_, l)| !l.trim().is_empty()) {
            let refused = |e: &dyn std::fmt::Display| named(path, format!("line {}: {e}", number + 1));
            budget.take_json(line).map_err(|e| refused(&e))?;
            let line: Map<String, Value> =
                serde_json::from_str(line).map_err(|e| refused(&format!("expected a JSON object, {e}")))?;
            let found = self.kind(&line).map_err(|e| refused(&e))?;
            if kind.is_none() {
                self.check_template(found).map_err(|e| refused(&e))?;
            }
            if *kind.get_or_insert(found) != found {
                return Err(refused(&"it has other fields than the lines before it; keep texts of one kind in a file"));
            }
            texts.push(self.line(found, &line).map_err(|e| refused(&e))?);
        }
        let kind = kind.ok_or_else(|| named(path, "no texts"))?;
        Ok((kind, texts))
    }

    fn check_template(&self, kind: Kind) -> Done {
        if kind == Kind::Text && self.options.text.template.is_some() {
            return Err(Refusal::because("--template is for prompts and messages; these are plain texts"));
        }
        Ok(())
    }
}

/// What every input is given, and the one that takes tokens.
fn roles(inputs: &[InputSpec]) -> std::result::Result<(Roles, &InputSpec), String> {
    let mut tokens = None;
    let mut roles = Vec::new();
    for input in inputs {
        let integers = matches!(input.dtype, DType::I32 | DType::I64);
        let role = match input.name.as_str() {
            _ if input.sizes.len() != 2 => None,
            name if name.contains("mask") => Some(Role::Mask),
            name if name.contains("position") && integers => Some(Role::Positions),
            "labels" if integers => Some(Role::Labels),
            _ if integers && tokens.is_none() => {
                tokens = Some(input);
                Some(Role::Tokens)
            }
            _ => None,
        };
        let Some(role) = role else {
            let name = plain(&input.name);
            return Err(format!(
                "input `{name}` ({}, {} dimensions) is not understood; with texts a program takes token ids [batch, length], masks (`…mask…`), positions (`…position…`) and `labels`",
                input.dtype,
                input.sizes.len()
            ));
        };
        roles.push((role, input.dtype));
    }
    Ok((roles, tokens.ok_or("the program has no input of token ids [batch, length]")?))
}

/// Tokens of a row: as asked for, or as the program and the texts want it.
fn row_length(
    options: &DataOptions,
    tokens: &InputSpec,
    texts: &[TokenSequence],
    packed: bool,
) -> std::result::Result<usize, String> {
    let (least, most) = tokens.ranges[1];
    if let Some(length) = options.text.length.map(|n| n as usize) {
        if !(least..=most).contains(&length) {
            let upper = if most == usize::MAX { "or more".to_string() } else { format!("to {most}") };
            return Err(format!("--length {length}: the program takes rows of {least} {upper} tokens"));
        }
        return Ok(length);
    }
    let count = |t: &TokenSequence| t.tokens().len();
    // The last token of a text is only ever a label.
    let wanted = match packed {
        true => LENGTH.min(texts.iter().map(count).sum::<usize>().saturating_sub(1)),
        false => texts.iter().map(count).max().unwrap_or(0).saturating_sub(1),
    };
    Ok(wanted.clamp(least, most.max(least)).max(1))
}

impl Source for Texts {
    fn len(&self) -> usize {
        self.rows.len()
    }

    fn batch(&self, rows: &[usize]) -> Result<Batch> {
        let made = self.rows.batch(rows)?;
        let length = self.rows.row_length();
        let input = |&(role, dtype): &(Role, DType)| {
            let values = match role {
                Role::Tokens => made.input_ids.clone(),
                Role::Mask => made.attention_mask.clone(),
                Role::Labels => made.unshifted_labels.clone(),
                Role::Positions => {
                    let row = 0..length as i64;
                    let all: Vec<i64> = rows.iter().flat_map(|_| row.clone()).collect();
                    Tensor::try_from_vec(all, [rows.len(), length])?
                }
            };
            values.try_to_dtype(dtype)
        };
        Ok(Batch {
            inputs: self.inputs.iter().map(input).collect::<Result<_>>()?,
            target: Some(made.labels),
            index: rows.to_vec(),
        })
    }

    /// They are tokens, which [`Source::largest_token`] bounds; all at once they would take much memory.
    fn labels(&self, _: &[usize]) -> Done<Option<Tensor>> {
        Ok(None)
    }

    fn name(&self, row: usize) -> String {
        let number = match self.rows.text(row) {
            Some(text) => format!("text {}", text + 1),
            None => format!("row {}", row + 1),
        };
        let words = self.tokenizer.decode(self.rows.row(row)).unwrap_or_default();
        let mut shown: String = words.chars().take(SHOWN).collect();
        if shown.len() < words.len() {
            shown.push('…');
        }
        format!("{number}: {shown}")
    }

    fn fingerprint(&self, hash: &mut Fnv) -> Done {
        use std::hash::Hasher;
        hash.write(&self.rows.row_length().to_le_bytes());
        for (token, learned) in self.rows.tokens().iter().zip(self.rows.learned()) {
            hash.write(&(2 * token + i64::from(*learned)).to_le_bytes());
        }
        Ok(())
    }

    fn largest_token(&self) -> Option<i64> {
        self.rows.tokens().iter().max().copied()
    }
}
