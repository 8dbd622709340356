//! `firebrand generate`: continues a prompt with an exported language model.

use crate::program::{self, WeightOptions};
use crate::refusal::{Done, Refusal, put, say};
use firebrand::language_model::ProgramLanguageModel;
use firebrand::nn::generate::{Generation, LanguageModel, Sampling, generate};
use firebrand::prelude::*;
use std::path::PathBuf;
use std::time::Instant;

/// How many tokens are made if nothing else is said.
const NEW: usize = 64;

/// Arguments of `firebrand generate`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Exported language model: takes token ids, returns logits
    #[arg(value_name = "MODEL.pt2")]
    model: PathBuf,
    /// Tokenizer of the model (tokenizer.json)
    #[cfg(feature = "text")]
    #[arg(long, value_name = "FILE", required_unless_present = "ids")]
    tokenizer: Option<PathBuf>,
    /// Text to continue
    #[cfg(feature = "text")]
    #[arg(long, value_name = "TEXT", required_unless_present = "ids")]
    prompt: Option<String>,
    /// Template for the prompt; `{prompt}` is replaced by it
    #[cfg(feature = "text")]
    #[arg(long, value_name = "TEXT", requires = "prompt")]
    template: Option<String>,
    /// Continue these token ids, separated by commas, instead of a text, and print ids
    #[arg(long, value_name = "ID,ID…", value_delimiter = ',', value_parser = token_id, required = cfg!(not(feature = "text")))]
    ids: Option<Vec<i64>>,
    /// Maximum number of tokens to generate [default: 64, or as many as the model has room for]
    #[arg(short = 'n', long, value_name = "N")]
    max_new_tokens: Option<usize>,
    /// Token ids that end the text, separated by commas [default: the tokenizer's end-of-text tokens]
    #[arg(long, value_name = "ID,ID…", value_delimiter = ',', value_parser = token_id)]
    stop: Option<Vec<i64>>,
    /// Sample with this temperature; decoding is greedy unless --temperature, --top-k or --top-p is given
    #[arg(long, value_name = "T", value_parser = temperature)]
    temperature: Option<f64>,
    /// Sample from the K most likely tokens
    #[arg(long, value_name = "K")]
    top_k: Option<usize>,
    /// Sample from the smallest set of most likely tokens whose probabilities add up to P
    #[arg(long, value_name = "P")]
    top_p: Option<f64>,
    /// Penalize tokens that already occurred (above 1) or favor them (below 1)
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    repetition_penalty: f64,
    /// Random seed for sampling
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// Compile the program
    #[arg(long)]
    compile: bool,
    /// Print one JSON object at the end instead of streaming the text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    weights: WeightOptions,
}

fn token_id(text: &str) -> std::result::Result<i64, String> {
    text.trim().parse().map_err(|_| "expected a token id, a whole number".to_string())
}

fn temperature(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(t) if t > 0.0 && t.is_finite() => Ok(t),
        _ => {
            Err("expected a positive number; without --temperature, --top-k and --top-p the most likely token is taken"
                .into())
        }
    }
}

/// Where tokens come from and go to.
enum Words {
    Ids,
    #[cfg(feature = "text")]
    Text(Box<crate::text::Tokenizer>),
}

impl Options {
    fn sampling(&self) -> Sampling {
        Sampling {
            sample: self.temperature.is_some() || self.top_k.is_some() || self.top_p.is_some(),
            temperature: self.temperature.unwrap_or(1.0),
            top_k: self.top_k,
            top_p: self.top_p,
            repetition_penalty: self.repetition_penalty,
        }
    }

    /// The prompt's tokens, and how to read those that follow.
    #[cfg(feature = "text")]
    fn prompt(&self) -> Done<(Vec<i64>, Words)> {
        if let Some(ids) = &self.ids {
            return Ok((ids.clone(), Words::Ids));
        }
        let (Some(path), Some(prompt)) = (&self.tokenizer, &self.prompt) else {
            return Err(Refusal::because("give --tokenizer and --prompt, or --ids"));
        };
        let tokenizer = crate::text::Tokenizer::read(path)?;
        let text = match &self.template {
            Some(template) => crate::text::filled(template, &[("prompt", prompt)])?,
            None => prompt.clone(),
        };
        Ok((tokenizer.beginning(&text)?, Words::Text(Box::new(tokenizer))))
    }

    #[cfg(not(feature = "text"))]
    fn prompt(&self) -> Done<(Vec<i64>, Words)> {
        let ids = self.ids.clone().ok_or_else(|| {
            Refusal::because("--ids is missing; prompts as text need a build with the feature `text`")
        })?;
        Ok((ids, Words::Ids))
    }
}

/// Runs the command.
pub(crate) fn run(options: &Options) -> Done {
    manual_seed(options.seed);
    let (prompt, words) = options.prompt()?;
    let mut module = program::load(&options.model, options.weights)?;
    if options.compile {
        module.set_evaluator(program::fused());
    }
    module.eval();
    let mut model = ProgramLanguageModel::over(module)?;
    let stop = match (&options.stop, &words) {
        (Some(ids), _) => ids.clone(),
        (None, Words::Ids) => Vec::new(),
        #[cfg(feature = "text")]
        (None, Words::Text(tokenizer)) => tokenizer.ends(),
    };
    // The last token is never fed.
    let room = model.max_length().map_or(usize::MAX, |limit| (limit + 1).saturating_sub(prompt.len()));
    let max_new_tokens = options.max_new_tokens.unwrap_or(NEW.min(room.max(1)));
    let generation = Generation { max_new_tokens, stop, sampling: options.sampling() };
    let began = Instant::now();
    let mut first = None;
    let mut printed = Done::Ok(());
    let mut shown = Shown::new(&words);
    let made = generate(&mut model, &prompt, &generation, |token| {
        first.get_or_insert_with(|| began.elapsed());
        if !options.json {
            printed = shown.next(token);
        }
        printed.is_ok()
    })?;
    printed?;
    let seconds = began.elapsed().as_secs_f64();
    // The time to the first token is that of processing the whole prompt.
    let prefill = first.map_or(seconds, |f| f.as_secs_f64());
    let rate = if made.len() > 1 { (made.len() - 1) as f64 / (seconds - prefill).max(1e-9) } else { 0.0 };
    if options.json {
        let mut report = serde_json::json!({
            "schema": "firebrand.generate/1",
            "prompt_tokens": prompt.len(),
            "tokens": made,
            "cache": model.has_cache(),
            "prefill_seconds": prefill,
            "tokens_per_second": rate,
        });
        if let Some(text) = shown.text(&made)? {
            report["text"] = text.into();
        }
        say!("{report}")?;
    } else {
        say!("")?;
        eprintln!("{} tokens at {rate:.1} tokens/s; prompt of {} tokens in {prefill:.2} s", made.len(), prompt.len());
    }
    Ok(())
}

/// Prints tokens as they are generated.
struct Shown<'a> {
    words: &'a Words,
    #[cfg(feature = "text")]
    tokens: Vec<i64>,
    #[cfg(feature = "text")]
    text: String,
    count: usize,
}

impl<'a> Shown<'a> {
    fn new(words: &'a Words) -> Shown<'a> {
        Shown {
            words,
            #[cfg(feature = "text")]
            tokens: Vec::new(),
            #[cfg(feature = "text")]
            text: String::new(),
            count: 0,
        }
    }

    fn next(&mut self, token: i64) -> Done {
        self.count += 1;
        match self.words {
            Words::Ids => {
                let comma = if self.count > 1 { "," } else { "" };
                put(&format!("{comma}{token}"))?;
            }
            #[cfg(feature = "text")]
            Words::Text(tokenizer) => {
                self.tokens.push(token);
                let text = tokenizer.decode(&self.tokens)?;
                // A character that spans several tokens is printed once it is complete.
                if !text.ends_with('\u{fffd}') && text.starts_with(&self.text) {
                    put(&text[self.text.len()..])?;
                    self.text = text;
                }
            }
        }
        std::io::Write::flush(&mut std::io::stdout())?;
        Ok(())
    }

    #[cfg_attr(not(feature = "text"), allow(unused_variables))]
    fn text(&self, tokens: &[i64]) -> Done<Option<String>> {
        match self.words {
            Words::Ids => Ok(None),
            #[cfg(feature = "text")]
            Words::Text(tokenizer) => tokenizer.decode(tokens).map(Some),
        }
    }
}
