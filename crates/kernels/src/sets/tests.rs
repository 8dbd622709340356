//! Every operation of vectors against what it says, on every instruction set of this machine.
use super::*;
use crate::cpu::{available, set_isa};
use crate::real::alone;

/// What each operation makes of sixteen and sixteen values, one result after another.
struct Everything<'a> {
    a: &'a [f32; 32],
    b: &'a [f32; 32],
    mask: u16,
}

impl TileKernel for Everything<'_> {
    type Out = Vec<f32>;
    #[inline(always)]
    unsafe fn run<V: Vector, const R: usize, const N: usize>(self) -> Vec<f32> {
        let mut out = Vec::new();
        let mut put = |v: V| {
            let mut lanes = [0.0; LANES];
            // SAFETY: sixteen values.
            unsafe { v.store(lanes.as_mut_ptr()) };
            out.extend(lanes);
        };
        // SAFETY: both have 32 values; offsets go to 31.
        unsafe {
            let (a, b) = (V::load(self.a.as_ptr()), V::load(self.b.as_ptr()));
            [a.add(b), a.sub(b), a.mul(b), a.mul_add(b, a), V::splat(self.a[3]), V::zero()]
                .into_iter()
                .for_each(&mut put);
            a.unzip(b).into_iter().for_each(&mut put);
            a.zip(b).into_iter().for_each(&mut put);
            put(a.load_over(self.mask, self.b.as_ptr()));
            put(V::load_some(self.mask, self.b.as_ptr()));
            let mut offsets = [0; LANES];
            for (l, o) in offsets.iter_mut().enumerate() {
                *o = (31 - 2 * l) as i32;
            }
            put(V::gather(self.mask, self.b.as_ptr(), &offsets));
            let mut written = *self.b;
            a.store_some(self.mask, written.as_mut_ptr());
            put(V::load(written.as_ptr()));
            a.store_halves(written.as_mut_ptr().add(8), written.as_mut_ptr());
            put(V::load(written.as_ptr()));
        }
        out
    }
}

fn expected(a: &[f32; 32], b: &[f32; 32], mask: u16) -> Vec<f32> {
    let lanes = |f: &dyn Fn(usize) -> f32| (0..LANES).map(f).collect::<Vec<f32>>();
    let kept = |l: usize| mask >> l & 1 != 0;
    let both = [&a[..LANES], &b[..LANES]].concat();
    [
        lanes(&|l| a[l] + b[l]),
        lanes(&|l| a[l] - b[l]),
        lanes(&|l| a[l] * b[l]),
        lanes(&|l| a[l] * b[l] + a[l]),
        lanes(&|_| a[3]),
        lanes(&|_| 0.0),
        lanes(&|l| both[2 * l]),
        lanes(&|l| both[2 * l + 1]),
        lanes(&|l| if l % 2 == 0 { a[l / 2] } else { b[l / 2] }),
        lanes(&|l| if l % 2 == 0 { a[8 + l / 2] } else { b[8 + l / 2] }),
        lanes(&|l| if kept(l) { b[l] } else { a[l] }),
        lanes(&|l| if kept(l) { b[l] } else { 0.0 }),
        lanes(&|l| if kept(l) { b[31 - 2 * l] } else { 0.0 }),
        lanes(&|l| if kept(l) { a[l] } else { b[l] }),
        lanes(&|l| a[(l + 8) % LANES]),
    ]
    .concat()
}

#[test]
fn operations_do_what_they_say_on_every_set() {
    let _turn = alone();
    let best = isa();
    // Small integers: a product and a sum of them is exact, fused or not.
    let a = std::array::from_fn(|i| (i * 7 % 32) as f32 - 9.0);
    let b = std::array::from_fn(|i| (i * 13 % 32) as f32 - 16.0);
    for set in available() {
        set_isa(set);
        for mask in [0, 1, 0x8000, 0xffff, 0x00ff, 0x0ff0, 0x1234, 0xfffe, 0x7fff] {
            // SAFETY: it reads inside of `a` and `b`.
            let got = unsafe { tiles(Everything { a: &a, b: &b, mask }) };
            assert_eq!(got, expected(&a, &b, mask), "{set:?}, mask {mask:#x}");
        }
    }
    set_isa(best);
}

/// A transposed square of a larger matrix, some of it left out.
struct Turned<'a> {
    from: &'a [f32],
    step: usize,
    rows: usize,
    mask: u16,
}

impl TileKernel for Turned<'_> {
    type Out = [[f32; LANES]; LANES];
    #[inline(always)]
    unsafe fn run<V: Vector, const R: usize, const N: usize>(self) -> Self::Out {
        let mut out = [[f32::NAN; LANES]; LANES];
        // SAFETY: the caller's promise, and sixteen places.
        unsafe {
            V::transpose(self.from.as_ptr(), self.step, self.rows, self.mask, |l, v| v.store(out[l].as_mut_ptr()));
        }
        out
    }
}

#[test]
fn squares_are_transposed_on_every_set() {
    let _turn = alone();
    let best = isa();
    let step = 19;
    let all: Vec<f32> = (0..LANES * step).map(|i| i as f32).collect();
    for set in available() {
        set_isa(set);
        for (rows, count) in [(16, 16), (40, 16), (16, 3), (5, 16), (1, 1), (0, 16), (15, 15)] {
            // Memory ends with the last value that counts: nothing beyond may be read.
            let mask = first(count);
            let end = if rows == 0 { 0 } else { (rows.min(LANES) - 1) * step + count };
            // SAFETY: the rows and values that count lie in the slice.
            let got = unsafe { tiles(Turned { from: &all[..end], step, rows, mask }) };
            for (l, row) in got.iter().enumerate() {
                for (r, &v) in row.iter().enumerate() {
                    let want = if r < rows && l < count { all[r * step + l] } else { 0.0 };
                    assert_eq!(v, want, "{set:?}: value {l} of row {r}, {rows} rows of {count}");
                }
            }
        }
    }
    set_isa(best);
}
