//! The Mersenne twister mt19937 of Matsumoto and Nishimura, with the bookkeeping PyTorch saves (`left`, `next`).

/// Words of state.
pub(super) const N: usize = 624;
const M: usize = 397;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Mersenne {
    pub(super) words: Box<[u32; N]>,
    /// Draws until new words are made, counting the one that makes them.
    pub(super) left: usize,
    pub(super) next: usize,
}

impl Mersenne {
    pub(super) fn new(seed: u32) -> Mersenne {
        let mut words = Box::new([seed; N]);
        for i in 1..N {
            let before = words[i - 1];
            words[i] = 1_812_433_253u32.wrapping_mul(before ^ before >> 30).wrapping_add(i as u32);
        }
        Mersenne { words, left: 1, next: 0 }
    }

    #[inline]
    pub(super) fn next(&mut self) -> u32 {
        self.left -= 1;
        if self.left == 0 {
            self.twist();
        }
        let mut y = self.words[self.next];
        self.next += 1;
        y ^= y >> 11;
        y ^= y << 7 & 0x9d2c_5680;
        y ^= y << 15 & 0xefc6_0000;
        y ^ y >> 18
    }

    fn twist(&mut self) {
        let w = &mut self.words;
        let mix = |here: u32, after: u32| {
            (here & 0x8000_0000 | after & 0x7fff_ffff) >> 1 ^ if after & 1 == 1 { 0x9908_b0df } else { 0 }
        };
        // Indices wrap, so three loops without a remainder in them.
        for i in 0..N - M {
            w[i] = w[i + M] ^ mix(w[i], w[i + 1]);
        }
        for i in N - M..N - 1 {
            w[i] = w[i + M - N] ^ mix(w[i], w[i + 1]);
        }
        w[N - 1] = w[M - 1] ^ mix(w[N - 1], w[0]);
        self.left = N;
        self.next = 0;
    }
}
