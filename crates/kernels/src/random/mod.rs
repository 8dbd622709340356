//! PyTorch's CPU generator, bit for bit: mt19937, its seeding, its saved state and its cached normal.
//!
//! The same seed gives the same numbers as `torch.manual_seed` in PyTorch 2.15, draw for draw, for every distribution in
//! this folder; `golden/generator.json` holds the proof. One exception lies with PyTorch: on Intel processors it hands
//! `bernoulli_(p)` and `exponential_` to a vendor library with its own streams, so those two agree with what PyTorch
//! draws on every other processor. Filling is sequential by nature; thread counts do not enter.

mod distributions;
mod mersenne;
mod normal;
mod rejection;
mod vector_math;

#[cfg(test)]
pub(crate) use distributions::fill;
use mersenne::Mersenne;

/// A source of random numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Generator {
    engine: Mersenne,
    seed: u64,
    /// The second value of the last Box-Muller pair, which the next single normal uses up.
    next_normal: Option<f64>,
}

/// Bytes that are not a saved generator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidState;

impl std::fmt::Display for InvalidState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "these bytes are not the state of a CPU generator (expected {STATE_BYTES} of them)")
    }
}
impl std::error::Error for InvalidState {}

/// PyTorch's default seed.
const DEFAULT_SEED: u64 = 67_280_421_310_721;

// PyTorch's layout: seed, left, seeded, next, 624 words widened to 64 bits, three doubles of which the second is the
// cached normal, whether it is valid, padding, and a float cache that is never filled.
const WORDS_AT: usize = 24;
const NORMAL_AT: usize = WORDS_AT + 8 * mersenne::N + 8;
const VALID_AT: usize = NORMAL_AT + 16;
const STATE_BYTES: usize = VALID_AT + 16;

impl Default for Generator {
    fn default() -> Self {
        Generator::new(DEFAULT_SEED)
    }
}

impl Generator {
    /// A generator seeded as [`Generator::manual_seed`] does.
    pub fn new(seed: u64) -> Generator {
        Generator { engine: Mersenne::new(seed as u32), seed, next_normal: None }
    }

    /// Starts over from `seed`, of which the engine uses the low 32 bits.
    pub fn manual_seed(&mut self, seed: u64) {
        *self = Generator::new(seed)
    }

    /// The seed of the last start.
    pub fn initial_seed(&self) -> u64 {
        self.seed
    }

    /// 32 random bits.
    #[inline]
    pub fn random(&mut self) -> u32 {
        self.engine.next()
    }

    /// 64 random bits: two draws, the first one on top.
    #[inline]
    pub fn random64(&mut self) -> u64 {
        let high = u64::from(self.random());
        high << 32 | u64::from(self.random())
    }

    /// A double in [0, 1): 53 bits of a 64-bit draw.
    #[inline]
    pub fn uniform_f64(&mut self) -> f64 {
        (self.random64() & ((1 << 53) - 1)) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// A float in [0, 1): 24 bits of a 32-bit draw.
    #[inline]
    pub fn uniform_f32(&mut self) -> f32 {
        (self.random() & ((1 << 24) - 1)) as f32 * (1.0 / (1u32 << 24) as f32)
    }

    /// The whole state, in the layout of `torch.get_rng_state()`.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(STATE_BYTES);
        bytes.extend(self.seed.to_le_bytes());
        bytes.extend((self.engine.left as u32).to_le_bytes());
        bytes.extend(1u32.to_le_bytes());
        bytes.extend((self.engine.next as u64).to_le_bytes());
        self.engine.words.iter().for_each(|&w| bytes.extend(u64::from(w).to_le_bytes()));
        bytes.extend(0f64.to_le_bytes());
        bytes.extend(self.next_normal.unwrap_or(0.0).to_le_bytes());
        bytes.extend(0f64.to_le_bytes());
        bytes.extend(u32::from(self.next_normal.is_some()).to_le_bytes());
        bytes.resize(STATE_BYTES, 0);
        bytes
    }

    /// The generator that [`Generator::to_bytes`] or `torch.get_rng_state()` saved.
    pub fn from_bytes(bytes: &[u8]) -> Result<Generator, InvalidState> {
        if bytes.len() != STATE_BYTES {
            return Err(InvalidState);
        }
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let (left, seeded, next) = (word(8) as u32 as usize, word(8) >> 32, word(16));
        if left == 0 || left > mersenne::N || seeded != 1 || next > mersenne::N as u64 {
            return Err(InvalidState);
        }
        // Draws read `words[next]` until `left` is used up, when new words are made and both start over; so the two move
        // together, or there is one draw left, which makes new words whatever `next` is.
        if left > 1 && left as u64 + next != mersenne::N as u64 + 1 {
            return Err(InvalidState);
        }
        let words = std::array::from_fn(|i| word(WORDS_AT + 8 * i) as u32);
        let valid = word(VALID_AT) as u32 != 0;
        Ok(Generator {
            engine: Mersenne { words: Box::new(words), left, next: next as usize },
            seed: word(0),
            next_normal: valid.then(|| f64::from_bits(word(NORMAL_AT))),
        })
    }
}

#[cfg(test)]
mod tests;
