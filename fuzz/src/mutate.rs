//! Mutation of inputs: bytes, numbers, stretches, words of the corpus, and splices of two inputs.

/// Makes new inputs from a corpus and from what was kept.
pub(crate) struct Mutator {
    state: u64,
    pool: Vec<Vec<u8>>,
    seeds: usize,
    words: Vec<Vec<u8>>,
}

/// Inputs kept besides the corpus, so that mutations build on each other.
const KEPT: usize = 256;
/// Longer inputs find nothing that shorter ones do not.
const MAX_LEN: usize = 1 << 14;
/// Numbers at which sizes, offsets and counts go wrong.
const NUMBERS: [u64; 16] = [
    0,
    1,
    2,
    8,
    64,
    65,
    255,
    1 << 15,
    u16::MAX as u64,
    1 << 31,
    u32::MAX as u64,
    1 << 40,
    1 << 62,
    i64::MAX as u64,
    1 << 63,
    u64::MAX,
];

impl Mutator {
    /// A mutator that is deterministic for a seed.
    pub(crate) fn new(seed: u64, corpus: Vec<Vec<u8>>) -> Self {
        let is_word = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
        let mut words: Vec<Vec<u8>> =
            corpus.iter().flat_map(|c| c.chunk_by(move |a, b| is_word(a) == is_word(b))).map(<[u8]>::to_vec).collect();
        words.sort();
        words.dedup();
        // Neighbouring seeds must not begin alike.
        let state = (seed.wrapping_add(0x2545_F491_4F6C_DD1D)).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        Mutator { state, seeds: corpus.len(), pool: corpus, words }
    }

    /// The next input.
    pub(crate) fn next(&mut self, input: &mut Vec<u8>) {
        // Half of the inputs begin with the corpus itself: what was accepted tends to get shorter, down to nothing.
        let most = if self.below(2) == 0 { self.seeds } else { self.pool.len() };
        let at = self.below(most);
        input.clear();
        input.extend_from_slice(&self.pool[at]);
        for _ in 0..=self.below(4) {
            self.mutate(input);
        }
        input.truncate(MAX_LEN);
    }

    /// Keeps an input to build on, in place of an earlier one when there are many. Long ones would slow everything down.
    pub(crate) fn keep(&mut self, input: &[u8]) {
        let longest = self.pool[..self.seeds].iter().map(Vec::len).max().unwrap_or(0);
        if input.len() > longest + 256 {
            return;
        }
        if self.pool.len() < self.seeds + KEPT {
            self.pool.push(input.to_vec());
        } else {
            let slot = self.seeds + self.below(KEPT);
            self.pool[slot].clear();
            self.pool[slot].extend_from_slice(input);
        }
    }

    fn mutate(&mut self, input: &mut Vec<u8>) {
        let at = self.below(input.len() + 1);
        let end = (at + self.below(16)).min(input.len());
        match self.below(9) {
            0 if at < input.len() => input[at] = self.random() as u8,
            1 => drop(input.drain(at..end)),
            2 => {
                let piece = input[at..end].to_vec();
                let times = 1 + self.below(8);
                input.splice(at..at, piece.repeat(times));
            }
            3 | 4 if !self.words.is_empty() => {
                let word = self.below(self.words.len());
                let replaced = if self.below(2) == 0 { at } else { end };
                input.splice(at..replaced, self.words[word].iter().copied());
            }
            5 => {
                let other = self.below(self.pool.len());
                let from = self.below(self.pool[other].len() + 1);
                input.truncate(at);
                input.extend_from_slice(&self.pool[other][from..]);
            }
            6 => {
                let number = match self.below(4) {
                    0 => input.len() as u64,
                    _ => NUMBERS[self.below(NUMBERS.len())].wrapping_add(self.below(3) as u64),
                };
                let width = 1 << self.below(4);
                let bytes = match self.below(4) {
                    0 => (number << (64 - 8 * width)).to_be_bytes(),
                    _ => number.to_le_bytes(),
                };
                let end = (at + width).min(input.len());
                input[at..end].copy_from_slice(&bytes[..end - at]);
            }
            7 if at < input.len() => input[at] ^= 1 << self.below(8),
            _ => {
                const MARKS: &[u8] = b"()[]{}<>!?*&|=,.:;-+#'\"\\ \n\t_0a\xff";
                input.insert(at, MARKS[self.below(MARKS.len())]);
            }
        }
    }

    fn random(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.random() % bound.max(1) as u64) as usize
    }
}
