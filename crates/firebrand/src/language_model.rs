//! Exported programs as language models, for [`crate::nn::generate`].
//!
//! A program takes token ids `[batch, length]` and returns logits `[batch, length, vocabulary]`, in one of three ways:
//! with a *cache* in its buffers and an input of positions, as transformers exports decoders with a static cache (it is given only
//! the new tokens); without one and with a *dynamic* length (it is given the whole sequence each time); or of a *fixed* length, for
//! which the sequence is padded at its end, which a causal model does not see. A float or integer mask among the inputs, by
//! its name, gets ones.

use crate::graph::interpret::Value;
use crate::graph::ir::{Symbolic, TensorMeta};
use crate::graph::{Error as GraphError, ExportedProgram, ProgramModule};
use crate::nn::generate::LanguageModel;
use crate::{DType, Error, Result, Tensor, ops};
use firebrand_core::autograd::no_grad;
use firebrand_core::module::Module;

/// The role of an input.
#[derive(Debug)]
enum Role {
    Tokens,
    /// The place of every token in the sequence.
    Positions,
    /// Ones.
    Mask,
}

#[derive(Debug)]
struct Input {
    role: Role,
    dtype: DType,
    dims: usize,
}

/// A program that continues sequences, in evaluation mode.
#[derive(Debug)]
pub struct ProgramLanguageModel {
    module: ProgramModule,
    inputs: Vec<Input>,
    /// Length of the token ids, if it cannot vary.
    fixed: Option<usize>,
    /// How many sequences the program takes at once; all get the same tokens.
    batch: usize,
    limit: Option<usize>,
    /// What was fed, as far as it must be fed again; with a cache only its length.
    sequence: Vec<i64>,
    cached: bool,
}

impl ProgramLanguageModel {
    /// Wraps a program; returns an error that names an input that is not understood.
    pub fn new(program: &ExportedProgram) -> Result<ProgramLanguageModel> {
        let module = program.module()?;
        module.eval();
        ProgramLanguageModel::over(module)
    }

    /// Like [`ProgramLanguageModel::new`], over a module that is already made (and perhaps compiled).
    pub fn over(module: ProgramModule) -> Result<ProgramLanguageModel> {
        let refuse = |message: String| Error::argument("generate", message);
        let program = module.program();
        let given = module.tensor_inputs()?;
        let (mut inputs, mut tokens) = (Vec::new(), None::<TensorMeta>);
        for (name, meta) in &given {
            let dtype =
                meta.dtype.dtype().ok_or_else(|| refuse(format!("input {name}: {} is not supported", meta.dtype)))?;
            let dims = meta.sizes.len();
            let role = if name.contains("mask") {
                Role::Mask
            } else if name.contains("position") && is_integer(dtype) {
                Role::Positions
            } else if tokens.is_none() && is_integer(dtype) && dims == 2 {
                tokens = Some((*meta).clone());
                Role::Tokens
            } else {
                let known = "token ids [batch, length], positions (`…position…`) and masks (`…mask…`)";
                return Err(refuse(format!("input {name} ({meta}) is not understood; a language model takes {known}")));
            };
            inputs.push(Input { role, dtype, dims });
        }
        let Some(tokens) = tokens else {
            let found: Vec<String> = given.iter().map(|(n, m)| format!("{n} {m}")).collect();
            return Err(refuse(format!("no input of token ids [batch, length] among {}", found.join(", "))));
        };
        let cached =
            program.buffers().map(|(n, _)| n).chain(program.constants.keys().map(String::as_str)).any(is_cache)
                && inputs.iter().any(|i| matches!(i.role, Role::Positions));
        let number = |s: &Symbolic<i64>| s.known().and_then(|n| usize::try_from(n).ok());
        let batch = match (number(&tokens.sizes[0]), tokens.sizes[0].expr().and_then(|e| e.symbol())) {
            (Some(n), _) => n,
            (None, symbol) => {
                let range = symbol.and_then(|s| program.range_constraints.get(s));
                range.and_then(|r| r.min).and_then(|n| usize::try_from(n).ok()).unwrap_or(1).max(1)
            }
        };
        let fixed = number(&tokens.sizes[1]);
        let range = tokens.sizes[1].expr().and_then(|e| e.symbol()).and_then(|s| program.range_constraints.get(s));
        let longest = range.and_then(|r| r.max).and_then(|n| usize::try_from(n).ok());
        let limit = if cached { cache_length(&program) } else { fixed.or(longest) };
        drop(given);
        Ok(ProgramLanguageModel { module, inputs, fixed, batch, limit, sequence: Vec::new(), cached })
    }

    /// Whether only new tokens are computed.
    pub fn has_cache(&self) -> bool {
        self.cached
    }

    /// The module that runs.
    pub fn module(&self) -> &ProgramModule {
        &self.module
    }

    /// Says which of the tokens the model has no logits for. (Some models know more tokens than they give logits for, so this is an
    /// explanation of an error and not one itself.)
    fn unknown(&self, tokens: &[i64]) -> Option<String> {
        let mut metas = (0..self.module.output_names().len()).filter_map(|i| self.module.output_meta(i));
        let logits = metas.find(|m| m.dtype.dtype().is_some_and(|d| d.is_floating_point()))?;
        let vocabulary = logits.sizes.last()?.known()?;
        let token = tokens.iter().find(|t| !(0..vocabulary).contains(*t))?;
        Some(format!("token {token} is not one of the model's {vocabulary} tokens; is this the model's tokenizer?"))
    }

    /// Runs on tokens that begin at a position; gives the logits after one of them.
    fn run(&self, tokens: &[i64], start: usize, last: usize) -> Result<Tensor> {
        let repeated = |row: Tensor, dims: usize| -> Result<Tensor> {
            let length = row.numel();
            if dims < 2 {
                return Ok(row);
            }
            let row = ops::reshape(&row, &[1.into(), length.into()])?;
            ops::expand(&row, &[self.batch.into(), length.into()], false)?.try_contiguous()
        };
        let mut values = Vec::with_capacity(self.inputs.len());
        for input in &self.inputs {
            let row = match input.role {
                Role::Tokens => Tensor::new(tokens),
                Role::Positions => Tensor::new(&(start as i64..(start + tokens.len()) as i64).collect::<Vec<i64>>()),
                Role::Mask => Tensor::ones([tokens.len()], DType::F32),
            };
            values.push(repeated(row.try_to_dtype(input.dtype)?, input.dims)?);
        }
        let outputs = no_grad(|| self.module.run(&values)).map_err(|e| match (self.unknown(tokens), e) {
            (Some(message), _) => Error::argument("generate", message),
            (None, GraphError::Core(e)) => e,
            (None, e) => Error::user(e),
        })?;
        let float = |v: &Value| matches!(v, Value::Tensor(t) if t.is_floating_point());
        let Some(Value::Tensor(logits)) = outputs.into_iter().find(float) else {
            return Err(Error::argument("generate", "the program gives no float tensor, so no logits"));
        };
        let first = |t: &Tensor| ops::select(t, 0, 0.into());
        match logits.ndim() {
            3 => {
                let rows = logits.shape()[1];
                let last = if rows == tokens.len() { last } else { rows.saturating_sub(1) };
                ops::select(&first(&logits)?, 0, last.into())
            }
            2 if logits.shape()[0] == self.batch => first(&logits),
            2 => ops::select(&logits, 0, last.into()),
            _ => {
                let message = format!("expected logits [batch, length, vocabulary], found shape {:?}", logits.shape());
                Err(Error::argument("generate", message))
            }
        }
    }
}

fn is_integer(dtype: DType) -> bool {
    matches!(dtype, DType::I32 | DType::I64)
}

fn is_cache(name: &str) -> bool {
    name.contains("cache")
}

/// The longest of the caches: those of sliding windows are shorter.
fn cache_length(program: &ExportedProgram) -> Option<usize> {
    let names = program.state_dict.keys().chain(program.constants.keys()).filter(|name| name.contains("key_cache"));
    names.filter_map(|name| program.state(name)).filter(|t| t.ndim() == 4).map(|t| t.shape()[2]).max()
}

impl LanguageModel for ProgramLanguageModel {
    fn feed(&mut self, tokens: &[i64]) -> Result<Tensor> {
        let start = self.sequence.len();
        self.sequence.extend_from_slice(tokens);
        match (self.cached, self.fixed) {
            // A cache that takes several tokens at once, or a program that takes any length.
            (true, None) => self.run(tokens, start, tokens.len() - 1),
            (true, Some(width)) => {
                let mut logits = None;
                if width != 1 {
                    let message = format!(
                        "the program with a cache takes {width} tokens at a time; export it for 1 or any number"
                    );
                    return Err(Error::argument("generate", message));
                }
                for (i, token) in tokens.iter().enumerate() {
                    logits = Some(self.run(&[*token], start + i, 0)?);
                }
                logits.ok_or_else(|| Error::argument("generate", "no token to feed"))
            }
            (false, None) => self.run(&self.sequence, 0, self.sequence.len() - 1),
            (false, Some(width)) => {
                if self.sequence.len() > width {
                    let message = format!("the program takes {width} tokens, the sequence has {}", self.sequence.len());
                    return Err(Error::argument("generate", message));
                }
                let mut padded = self.sequence.clone();
                padded.resize(width, 0);
                self.run(&padded, 0, self.sequence.len() - 1)
            }
        }
    }

    fn reset(&mut self) -> Result<()> {
        self.sequence.clear();
        Ok(())
    }

    fn max_length(&self) -> Option<usize> {
        self.limit
    }
}
