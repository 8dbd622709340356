//! Text generation with a language model, token by token: greedy, or sampled with temperature, top-k, top-p and repetition penalty.
//!
//! The steps from logits to a token are those of the Python library transformers, in its order: repetition penalty, temperature,
//! top-k, top-p, softmax, one draw from the default generator. So greedy tokens are identical, and sampled ones are for the same
//! seed. A model is anything that returns logits for the tokens it is given ([`LanguageModel`]); tokenization is not part of this module.
//!
//! ```
//! # mod firebrand { pub use firebrand_core::*; pub use firebrand_nn::{data, optim, train}; pub use firebrand_nn as nn; }
//! use firebrand::{Result, Tensor};
//! use firebrand::nn::generate::{Generation, LanguageModel, generate};
//!
//! /// After `n` comes `n + 1`.
//! struct Counter;
//! impl LanguageModel for Counter {
//!     fn feed(&mut self, tokens: &[i64]) -> Result<Tensor> {
//!         let mut logits = vec![0f32; 10];
//!         logits[(tokens[tokens.len() - 1] as usize + 1) % 10] = 1.0;
//!         Ok(Tensor::new(&logits))
//!     }
//!     fn reset(&mut self) -> Result<()> {
//!         Ok(())
//!     }
//! }
//!
//! let made = generate(&mut Counter, &[3], &Generation { max_new_tokens: 4, ..Generation::default() }, |_| true)?;
//! assert_eq!(made, [4, 5, 6, 7]);
//! # Ok::<(), firebrand::Error>(())
//! ```

use firebrand_core::autograd::no_grad;
use firebrand_core::{DType, Error, Result, Tensor, ops};

/// A language model. It remembers the sequence so far.
pub trait LanguageModel {
    /// Appends these tokens (at least one) to the sequence; returns the logits of the token after the last, `[vocabulary]`.
    fn feed(&mut self, tokens: &[i64]) -> Result<Tensor>;

    /// Forgets the sequence.
    fn reset(&mut self) -> Result<()>;

    /// The maximum number of tokens of a sequence, if there is a limit.
    fn max_length(&self) -> Option<usize> {
        None
    }
}

/// How the next token is chosen from logits. The default is greedy.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// Whether to sample; otherwise decoding is greedy.
    pub sample: bool,
    /// Logits are divided by it before sampling.
    pub temperature: f64,
    /// Sample only from this many of the most likely tokens.
    pub top_k: Option<usize>,
    /// Sample only from the most likely tokens that together have this probability.
    pub top_p: Option<f64>,
    /// Logits of tokens that already occurred are divided by it if positive, multiplied if negative.
    pub repetition_penalty: f64,
}

impl Default for Sampling {
    fn default() -> Sampling {
        Sampling { sample: false, temperature: 1.0, top_k: None, top_p: None, repetition_penalty: 1.0 }
    }
}

impl Sampling {
    fn check(&self) -> Result<()> {
        let refuse = |message: String| Err(Error::argument("generate", message));
        let positive = |v: f64| v.is_finite() && v > 0.0;
        if !positive(self.temperature) {
            return refuse(format!(
                "the temperature must be positive, found {}; for greedy decoding, turn sampling off",
                self.temperature
            ));
        }
        if !positive(self.repetition_penalty) {
            return refuse(format!("the repetition penalty must be positive, found {}", self.repetition_penalty));
        }
        if self.top_k == Some(0) {
            return refuse("top-k must be at least 1".to_string());
        }
        match self.top_p {
            Some(p) if !(p > 0.0 && p <= 1.0) => refuse(format!("top-p must be in (0, 1], found {p}")),
            _ => Ok(()),
        }
    }

    /// Chooses the next token, given logits of shape `[vocabulary]` and the sequence so far.
    pub fn choose(&self, logits: &Tensor, sequence: &[i64]) -> Result<i64> {
        self.check()?;
        let vocabulary = logits.numel();
        if logits.ndim() != 1 || vocabulary == 0 {
            let message = format!("expected logits of one token, found a tensor of shape {:?}", logits.shape());
            return Err(Error::argument("generate", message));
        }
        no_grad(|| {
            let mut scores = logits.detach().try_to_dtype(DType::F32)?;
            if self.repetition_penalty != 1.0 {
                scores = self.penalized(&scores, sequence)?;
            }
            if !self.sample {
                return ops::argmax(&scores, None, false)?.try_item::<i64>();
            }
            if self.temperature != 1.0 {
                scores = ops::div_scalar(&scores, self.temperature.into())?;
            }
            if let Some(k) = self.top_k.filter(|&k| k < vocabulary) {
                let (largest, _) = ops::topk(&scores, (k as i64).into(), -1, true, true)?;
                let least = ops::select(&largest, 0, (k as i64 - 1).into())?;
                scores = without(&scores, &ops::lt(&scores, &least)?)?;
            }
            if let Some(p) = self.top_p.filter(|&p| p < 1.0) {
                scores = nucleus(&scores, p)?;
            }
            let probabilities = ops::softmax(&scores, -1, None)?;
            ops::multinomial(&probabilities, 1.into(), false)?.try_item::<i64>()
        })
    }

    fn penalized(&self, scores: &Tensor, sequence: &[i64]) -> Result<Tensor> {
        let mut seen: Vec<i64> =
            sequence.iter().copied().filter(|&t| t >= 0 && (t as usize) < scores.numel()).collect();
        seen.sort_unstable();
        seen.dedup();
        let index = Tensor::new(&seen);
        let penalty = self.repetition_penalty;
        let old = ops::gather(scores, 0, &index, false)?;
        let (more, less) = (ops::mul_scalar(&old, penalty.into())?, ops::div_scalar(&old, penalty.into())?);
        let new = ops::where_self(&ops::lt_scalar(&old, 0.into())?, &more, &less)?;
        ops::scatter(scores, 0, &index, &new)
    }
}

/// Scores with minus infinity where the mask is true.
fn without(scores: &Tensor, mask: &Tensor) -> Result<Tensor> {
    ops::masked_fill(scores, mask, f64::NEG_INFINITY.into())
}

/// Keeps the most likely tokens that together have probability `p`, at least one.
fn nucleus(scores: &Tensor, p: f64) -> Result<Tensor> {
    let (sorted, order) = ops::sort(scores, -1, false)?;
    let sums = ops::cumsum(&ops::softmax(&sorted, -1, None)?, -1, None)?;
    let mut unlikely: Vec<bool> = ops::le_scalar(&sums, (1.0 - p).into())?.to_vec();
    if let Some(most_likely) = unlikely.last_mut() {
        *most_likely = false;
    }
    without(scores, &ops::scatter(&Tensor::new(&unlikely), 0, &order, &Tensor::new(&unlikely))?)
}

/// How a sequence is generated.
#[derive(Clone, Debug, PartialEq)]
pub struct Generation {
    /// Maximum number of new tokens.
    pub max_new_tokens: usize,
    /// Tokens that end the sequence; the one that did is included as the last.
    pub stop: Vec<i64>,
    /// How each token is chosen.
    pub sampling: Sampling,
}

impl Default for Generation {
    fn default() -> Generation {
        Generation { max_new_tokens: 64, stop: Vec::new(), sampling: Sampling::default() }
    }
}

/// Continues a prompt. `made` is called with every token as it is generated and returns whether to continue. Returns the new tokens.
///
/// # Errors
/// If the prompt is empty, or the sequence would exceed the model's limit.
pub fn generate(
    model: &mut dyn LanguageModel,
    prompt: &[i64],
    options: &Generation,
    mut made: impl FnMut(i64) -> bool,
) -> Result<Vec<i64>> {
    options.sampling.check()?;
    if prompt.is_empty() {
        return Err(Error::argument(
            "generate",
            "the prompt has no tokens; start with the model's beginning-of-text token",
        ));
    }
    // The last token is never fed.
    let longest = (prompt.len() + options.max_new_tokens).saturating_sub(1);
    if let Some(limit) = model.max_length().filter(|&limit| longest > limit) {
        let (given, new) = (prompt.len(), options.max_new_tokens);
        let message = format!(
            "the model is limited to {limit} tokens; {given} of the prompt plus {new} new ones exceed that: generate fewer"
        );
        return Err(Error::argument("generate", message));
    }
    model.reset()?;
    let mut sequence = prompt.to_vec();
    for step in 0..options.max_new_tokens {
        let new = if step == 0 { prompt } else { &sequence[sequence.len() - 1..] };
        let logits = no_grad(|| model.feed(new))?;
        let token = options.sampling.choose(&logits, &sequence)?;
        sequence.push(token);
        if !made(token) || options.stop.contains(&token) {
            break;
        }
    }
    Ok(sequence.split_off(prompt.len()))
}
