//! The building blocks of Llama-style decoders: rotary position embeddings, gated feed-forward, attention with fewer heads for keys
//! than for queries, and a cache of keys and values. Parameters have the names Hugging Face's models give them.
//!
//! Sequences are `[batch, length, features]`. The rest of such a model is [`RMSNorm`](super::RMSNorm),
//! [`Embedding`](super::Embedding) and [`Linear`]; the example `llama.rs` puts them together.

use super::linear::{Linear, LinearOptions};
use super::options::options;
use firebrand_core::autograd::no_grad;
use firebrand_core::module::{Forward, Module, ModuleCore};
use firebrand_core::{DType, Error, Result, SymInt, Tensor, ops};

/// Rotary position embedding (RoPE): rotates pairs of features by angles that grow with the position, so that products of
/// queries and keys depend on their distance. The second half of the features is paired with the first, as in Hugging Face's models.
#[derive(Clone, Debug)]
pub struct RotaryEmbedding {
    /// Angle per position, for each pair.
    inv_freq: Tensor,
}

/// Cosines and sines of some positions, to rotate queries and keys with.
#[derive(Clone, Debug)]
pub struct Rotation {
    cos: Tensor,
    sin: Tensor,
}

impl RotaryEmbedding {
    /// For heads of this many features; `theta` is the base of the frequencies, 10,000 in most models.
    pub fn new(head_dim: usize, theta: f64) -> Result<RotaryEmbedding> {
        if head_dim == 0 || !head_dim.is_multiple_of(2) {
            return Err(Error::argument("RotaryEmbedding", format!("expected an even head_dim, found {head_dim}")));
        }
        let exponents: Vec<f32> = (0..head_dim).step_by(2).map(|i| i as f32 / head_dim as f32).collect();
        let powers = ops::pow(&Tensor::new(&vec![theta as f32; exponents.len()]), &Tensor::new(&exponents))?;
        Ok(RotaryEmbedding { inv_freq: ops::reciprocal(&powers)? })
    }

    /// The rotation of positions `start..start + length`.
    pub fn at(&self, start: usize, length: usize, dtype: DType) -> Result<Rotation> {
        let positions: Vec<f32> = (start..start + length).map(|p| p as f32).collect();
        let positions = ops::unsqueeze(&Tensor::new(&positions), 1)?;
        let angles = ops::mul(&positions, &ops::unsqueeze(&self.inv_freq, 0)?)?;
        let angles = ops::cat(&[angles.clone(), angles], -1)?;
        Ok(Rotation { cos: ops::cos(&angles)?.try_to_dtype(dtype)?, sin: ops::sin(&angles)?.try_to_dtype(dtype)? })
    }
}

impl Rotation {
    /// Rotates `[batch, heads, length, head_dim]`.
    pub fn turn(&self, x: &Tensor) -> Result<Tensor> {
        let half = x.shape().last().copied().unwrap_or(0) / 2;
        let first = ops::narrow(x, -1, 0.into(), half.into())?;
        let second = ops::narrow(x, -1, half.into(), half.into())?;
        let turned = ops::cat(&[ops::neg(&second)?, first], -1)?;
        ops::add(&ops::mul(x, &self.cos)?, &ops::mul(&turned, &self.sin)?, 1.into())
    }
}

/// Which keys a query may attend to: true where it may. Queries are the last `queries` of `keys` positions; with a window, only this
/// many of the latest keys, itself included.
pub fn causal_mask(queries: usize, keys: usize, window: Option<usize>) -> Result<Tensor> {
    let Some(offset) = keys.checked_sub(queries) else {
        let message = format!("{queries} queries cannot be the last of {keys} keys");
        return Err(Error::argument("causal_mask", message));
    };
    let query = ops::unsqueeze(&Tensor::arange(offset as i64, keys as i64, 1, DType::I64), 1)?;
    let key = ops::unsqueeze(&Tensor::arange(0, keys as i64, 1, DType::I64), 0)?;
    let past = ops::le(&key, &query)?;
    match window {
        None => Ok(past),
        Some(window) => {
            let oldest = ops::sub_scalar(&query, (window as i64).into(), 1.into())?;
            ops::logical_and(&past, &ops::gt(&key, &oldest)?)
        }
    }
}

/// Keys and values of the positions one attention layer has seen, in memory that is allocated once.
#[derive(Clone, Debug)]
pub struct KvCache {
    keys: Tensor,
    values: Tensor,
    length: usize,
}

impl KvCache {
    /// Room for `capacity` positions.
    pub fn new(batch: usize, kv_heads: usize, capacity: usize, head_dim: usize, dtype: DType) -> KvCache {
        let zeros = || Tensor::zeros([batch, kv_heads, capacity, head_dim], dtype);
        KvCache { keys: zeros(), values: zeros(), length: 0 }
    }

    /// Number of positions stored.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Clears the cache; the memory stays allocated.
    pub fn clear(&mut self) {
        self.length = 0;
    }

    /// Appends keys and values `[batch, kv_heads, length, head_dim]`; returns everything stored, as views.
    fn extend(&mut self, keys: &Tensor, values: &Tensor) -> Result<(Tensor, Tensor)> {
        let (new, capacity) = (keys.shape()[2], self.keys.shape()[2]);
        if self.length + new > capacity {
            let message =
                format!("the cache has room for {capacity} positions; {} plus {new} exceed that", self.length);
            return Err(Error::argument("KvCache", message));
        }
        no_grad(|| {
            for (all, part) in [(&self.keys, keys), (&self.values, values)] {
                let place = ops::narrow(all, 2, self.length.into(), new.into())?;
                ops::copy_(&place, part, false)?;
            }
            self.length += new;
            let seen = |t: &Tensor| ops::narrow(t, 2, 0.into(), self.length.into());
            Ok((seen(&self.keys)?, seen(&self.values)?))
        })
    }
}

options! {
    /// Options of a [`GroupedQueryAttention`] layer.
    pub struct GroupedQueryAttentionOptions(
        /// Features of each position.
        hidden_size: usize,
        /// Number of heads of queries.
        num_heads: usize,
        /// Number of heads of keys and values; each serves a group of queries.
        num_kv_heads: usize,
    ) {
        /// Features of each head; `hidden_size / num_heads` if not given.
        head_dim: Option<usize> = None,
        /// Whether queries, keys and values have a learnable bias.
        bias: bool = false,
        /// Base of the rotary frequencies.
        rope_theta: f64 = 10_000.0,
        /// Number of latest positions a query attends to; all if not given.
        sliding_window: Option<usize> = None,
    }
}

impl GroupedQueryAttentionOptions {
    /// Builds the layer, with initial values from the default generator.
    pub fn build(self) -> Result<GroupedQueryAttention> {
        let (heads, kv) = (self.num_heads, self.num_kv_heads);
        if heads == 0 || kv == 0 || !heads.is_multiple_of(kv) {
            let message = format!("expected heads of queries in equal groups, found {heads} for {kv} of keys");
            return Err(Error::argument("GroupedQueryAttention", message));
        }
        let head_dim = self.head_dim.unwrap_or(self.hidden_size / heads);
        let linear = |from, to, bias| LinearOptions { bias, ..LinearOptions::new(from, to) }.build();
        Ok(GroupedQueryAttention {
            q_proj: linear(self.hidden_size, heads * head_dim, self.bias)?,
            k_proj: linear(self.hidden_size, kv * head_dim, self.bias)?,
            v_proj: linear(self.hidden_size, kv * head_dim, self.bias)?,
            o_proj: linear(heads * head_dim, self.hidden_size, false)?,
            rotary: RotaryEmbedding::new(head_dim, self.rope_theta)?,
            head_dim,
            heads,
            kv_heads: kv,
            window: self.sliding_window,
            core: ModuleCore::new(),
        })
    }
}

/// Causal attention with rotary positions, in which several heads of queries share one of keys and values (GQA). With as many
/// of both it is multi-head attention, with one of keys multi-query attention.
#[derive(Module)]
pub struct GroupedQueryAttention {
    /// Projection to queries.
    pub q_proj: Linear,
    /// Projection to keys.
    pub k_proj: Linear,
    /// Projection to values.
    pub v_proj: Linear,
    /// Projection of the result.
    pub o_proj: Linear,
    #[module(skip)]
    rotary: RotaryEmbedding,
    head_dim: usize,
    heads: usize,
    kv_heads: usize,
    window: Option<usize>,
    core: ModuleCore,
}

impl GroupedQueryAttention {
    /// A cache for this layer.
    pub fn cache(&self, batch: usize, capacity: usize, dtype: DType) -> KvCache {
        KvCache::new(batch, self.kv_heads, capacity, self.head_dim, dtype)
    }

    /// Attends from these positions to themselves and to the cached ones, and appends them to the cache. Cached keys and values
    /// have no history: with a cache, keys and values get no gradients.
    pub fn attend(&self, x: &Tensor, cache: Option<&mut KvCache>) -> Result<Tensor> {
        let &[batch, length, _] = x.shape() else {
            let message = format!("expected [batch, length, features], found shape {:?}", x.shape());
            return Err(Error::argument("GroupedQueryAttention", message));
        };
        let split = |t: Tensor, heads: usize| {
            let sizes: [SymInt; 4] = [batch.into(), length.into(), heads.into(), self.head_dim.into()];
            ops::transpose(&ops::view(&t, &sizes)?, 1, 2)
        };
        let start = cache.as_ref().map_or(0, |c| c.len());
        let rotation = self.rotary.at(start, length, x.dtype())?;
        let q = rotation.turn(&split(self.q_proj.try_call(x)?, self.heads)?)?;
        let k = rotation.turn(&split(self.k_proj.try_call(x)?, self.kv_heads)?)?;
        let v = split(self.v_proj.try_call(x)?, self.kv_heads)?;
        let (mut k, mut v) = match cache {
            Some(cache) => cache.extend(&k, &v)?,
            None => (k, v),
        };
        let mut keys = start + length;
        // What no query of these sees is left out.
        if let Some(window) = self.window {
            let seen = keys.min(window + length - 1);
            k = ops::narrow(&k, 2, (keys - seen).into(), seen.into())?;
            v = ops::narrow(&v, 2, (keys - seen).into(), seen.into())?;
            keys = seen;
        }
        let plain = self.window.is_none_or(|window| keys <= window);
        let causal = plain && length == keys && length > 1;
        let mask = if causal || (plain && length == 1) { None } else { Some(causal_mask(length, keys, self.window)?) };
        let shared = self.heads != self.kv_heads;
        let out = ops::scaled_dot_product_attention(&q, &k, &v, mask.as_ref(), 0.0, causal, None, shared)?;
        let width = self.heads * self.head_dim;
        self.o_proj.try_call(&ops::reshape(&ops::transpose(&out, 1, 2)?, &[batch.into(), length.into(), width.into()])?)
    }
}

/// Without a cache.
impl Forward for GroupedQueryAttention {
    type Output = Tensor;
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.attend(x, None)
    }
}

/// A gated feed-forward block: `down(silu(gate(x)) * up(x))`.
#[derive(Module)]
pub struct SwiGLU {
    /// Projection to the gates.
    pub gate_proj: Linear,
    /// Projection to the gated values.
    pub up_proj: Linear,
    /// Projection back.
    pub down_proj: Linear,
    core: ModuleCore,
}

impl SwiGLU {
    /// From `hidden_size` to `intermediate_size` features and back, without biases.
    pub fn new(hidden_size: usize, intermediate_size: usize) -> Result<SwiGLU> {
        let linear = |from, to| LinearOptions { bias: false, ..LinearOptions::new(from, to) }.build();
        Ok(SwiGLU {
            gate_proj: linear(hidden_size, intermediate_size)?,
            up_proj: linear(hidden_size, intermediate_size)?,
            down_proj: linear(intermediate_size, hidden_size)?,
            core: ModuleCore::new(),
        })
    }
}

impl Forward for SwiGLU {
    type Output = Tensor;
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let gate = ops::silu(&self.gate_proj.try_call(x)?)?;
        self.down_proj.try_call(&ops::mul(&gate, &self.up_proj.try_call(x)?)?)
    }
}
