//! Normal samples by the Box-Muller transform, in PyTorch's two variants.
//!
//! Fewer than sixteen elements, or elements with gaps: pairs in double, the second value waiting in the generator for
//! the next call. Sixteen or more without gaps: all uniforms first, then blocks of sixteen transformed in place, eight
//! pairs each; a ragged end is made by drawing the last sixteen anew. The two give different numbers, also here.
//!
//! The f32 blocks use the polynomials of [`super::vector_math`], as PyTorch does on x86; f64 uses the system's functions.
#![allow(unsafe_code)]

use super::Generator;
use super::distributions::{fill_floats, narrow};
use super::vector_math::{ln, sin_cos};
use crate::{DType, Element, ViewMut, bf16, f16};
use std::f64::consts::TAU;

const BLOCK: usize = 16;

impl Generator {
    /// One normal number from a pair, in double.
    #[inline]
    pub(super) fn normal_f64(&mut self) -> f64 {
        if let Some(v) = self.next_normal.take() {
            return v;
        }
        let (u1, u2) = (self.uniform_f64(), self.uniform_f64());
        let radius = (-2.0 * (-u2).ln_1p()).sqrt();
        let (sin, cos) = ((TAU * u1).sin(), (TAU * u1).cos());
        self.next_normal = Some(radius * sin);
        radius * cos
    }

    /// Normal samples, as `normal_` (and `randn` with 0 and 1).
    pub fn normal(&mut self, out: &ViewMut, mean: f64, std: f64) {
        let n = out.numel();
        if n < BLOCK || !out.is_contiguous() {
            return fill_floats(out, || self.normal_f64() * std + mean);
        }
        match out.dtype() {
            DType::F32 => {
                let (mean, std) = (mean as f32, std as f32);
                blocks(contiguous::<f32>(out), || self.uniform_f32(), |block| pairs(block, mean, std))
            }
            DType::F64 => {
                let uniforms = || self.uniform_f64();
                blocks(contiguous::<f64>(out), uniforms, |block| {
                    for j in 0..BLOCK / 2 {
                        let radius = (-2.0 * (1.0 - block[j]).ln()).sqrt();
                        let theta = TAU * block[j + BLOCK / 2];
                        block[j] = radius * theta.cos() * std + mean;
                        block[j + BLOCK / 2] = radius * theta.sin() * std + mean;
                    }
                })
            }
            DType::F16 => half_blocks::<f16>(self, out, mean as f32, std as f32),
            DType::BF16 => half_blocks::<bf16>(self, out, mean as f32, std as f32),
            dtype => unreachable!("normal on {dtype}: callers check for floating point"),
        }
    }

    /// Exponentials of normal samples, as `log_normal_`.
    pub fn log_normal(&mut self, out: &ViewMut, mean: f64, std: f64) {
        fill_floats(out, || (self.normal_f64() * std + mean).exp())
    }
}

/// Sixteen uniforms become eight pairs.
#[inline(always)]
fn pairs_body(block: &mut [f32; BLOCK], mean: f32, std: f32) {
    for j in 0..BLOCK / 2 {
        let radius = (-2.0 * ln(1.0 - block[j])).sqrt();
        let (sin, cos) = sin_cos(TAU as f32 * block[j + BLOCK / 2]);
        block[j] = (radius * cos).mul_add(std, mean);
        block[j + BLOCK / 2] = (radius * sin).mul_add(std, mean);
    }
}

/// [`pairs_body`], in vectors where the machine has fused steps: the same bits, without a call per step.
fn pairs(block: &mut [f32; BLOCK], mean: f32, std: f32) {
    #[cfg(all(target_arch = "x86_64", feature = "avx2"))]
    {
        crate::sets::avx2::for_avx2! {
            fn fused(block: &mut [f32; BLOCK], mean: f32, std: f32) {
                pairs_body(block, mean, std)
            }
        }
        if crate::cpu::isa() >= crate::cpu::Isa::Avx2 {
            // SAFETY: the machine has the set.
            return unsafe { fused(block, mean, std) };
        }
    }
    pairs_body(block, mean, std)
}

/// Half types go through f32, sixteen at a time: the same numbers, but the elements of a ragged end are drawn once only.
fn half_blocks<T: Element>(g: &mut Generator, out: &ViewMut, mean: f32, std: f32) {
    let all = contiguous::<T>(out);
    let mut fill = |block: &mut [T]| {
        let mut wide = std::array::from_fn(|_| g.uniform_f32());
        pairs(&mut wide, mean, std);
        block.iter_mut().zip(wide).for_each(|(v, w)| *v = narrow(f64::from(w)));
    };
    all.chunks_exact_mut(BLOCK).for_each(&mut fill);
    if !all.len().is_multiple_of(BLOCK) {
        let from = all.len() - BLOCK;
        fill(&mut all[from..]);
    }
}

/// The elements of a view that the caller knows to have no gaps.
fn contiguous<'a, T: Element>(out: &ViewMut<'a>) -> &'a mut [T] {
    assert!(out.is_contiguous() && out.dtype() == T::DTYPE);
    // SAFETY: contiguous elements of this type, which nothing else touches while a kernel writes them.
    unsafe { std::slice::from_raw_parts_mut(out.ptr::<T>(), out.numel()) }
}

/// Uniforms everywhere, then `pairs` on every sixteen; a ragged end takes sixteen new ones.
fn blocks<T: Copy>(all: &mut [T], mut draw: impl FnMut() -> T, pairs: impl Fn(&mut [T; BLOCK])) {
    all.iter_mut().for_each(|v| *v = draw());
    let (whole, rest) = all.as_chunks_mut::<BLOCK>();
    whole.iter_mut().for_each(&pairs);
    if !rest.is_empty() {
        let end = all.last_chunk_mut::<BLOCK>().expect("at least one block");
        end.iter_mut().for_each(|v| *v = draw());
        pairs(end);
    }
}
