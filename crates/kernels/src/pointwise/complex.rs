//! Complex registers: one instruction over pairs of floats.
//!
//! Arithmetic is plain loops over pairs, which vectorise; elementary functions are library calls. Values on branch cuts
//! are those of `num_complex`; functions that would lose digits or overflow in its formulas are written out here.
#![allow(unsafe_code)]

use super::Op;
use super::loops::{Arg, call1, call2, map1, map2, map3, undefined};
use crate::{Complex, DType};

macro_rules! complex_step {
    ($step:ident, $t:ident, $dtype:expr) => {
        /// # Safety
        /// As for [`super::loops::Step`].
        #[inline(always)]
        pub(super) unsafe fn $step(op: Op, d: *mut u8, args: &[Arg; 3], n: usize) {
            type T = $t;
            type C = Complex<T>;

            fn real(re: T) -> C {
                C::new(re, 0.0)
            }
            /// By the larger part of the divisor, so that squares neither overflow nor vanish.
            #[inline(always)]
            fn div(x: C, y: C) -> C {
                let s = y.re.abs().max(y.im.abs());
                let (c, d) = (y.re / s, y.im / s);
                let (a, b) = (x.re / s, x.im / s);
                let below = c * c + d * d;
                C::new((a * c + b * d) / below, (b * c - a * d) / below)
            }
            fn expm1(x: C) -> C {
                let (e, half) = (x.re.exp(), (x.im / 2.0).sin());
                // e^a cos b - 1, without cancellation near 0.
                C::new(x.re.exp_m1() * x.im.cos() - 2.0 * half * half, e * x.im.sin())
            }
            fn log1p(x: C) -> C {
                C::new((x.re * (2.0 + x.re) + x.im * x.im).ln_1p() / 2.0, x.im.atan2(1.0 + x.re))
            }
            fn log(x: C) -> C {
                C::new(x.re.hypot(x.im).ln(), x.im.atan2(x.re))
            }
            fn sgn(x: C) -> C {
                let r = x.re.hypot(x.im);
                if r == 0.0 { C::ZERO } else { C::new(x.re / r, x.im / r) }
            }
            /// (tanh a + i tan b) / (1 + i tanh a tan b)
            fn tanh(x: C) -> C {
                let (t, u) = (x.re.tanh(), x.im.tan());
                let below = 1.0 + t * t * u * u;
                let far = x.re.cosh();
                let im = if far.is_infinite() { 0.0 } else { u / (far * far) / below };
                C::new(t * (1.0 + u * u) / below, im)
            }
            /// tan z = -i tanh(i z)
            fn tan(x: C) -> C {
                let y = tanh(C::new(-x.im, x.re));
                C::new(y.im, -y.re)
            }
            fn pow(x: C, y: C) -> C {
                if y == C::ZERO {
                    return C::ONE;
                }
                if x == C::ZERO {
                    return if y.re > 0.0 { C::ZERO } else { C::new(T::NAN, T::NAN) };
                }
                (y * log(x)).exp()
            }
            fn sigmoid(x: C) -> C {
                div(C::ONE, C::ONE + (-x).exp())
            }
            fn any(x: C, f: impl Fn(T) -> bool) -> bool {
                f(x.re) | f(x.im)
            }
            let [a, b, _] = *args;
            // SAFETY: passed on from the caller; the closures name the types of this register.
            unsafe {
                match op {
                    Op::Copy => map1(d, a, n, |x: C| x),
                    Op::Neg => map1(d, a, n, |x: C| -x),
                    Op::Conj => map1(d, a, n, |x: C| x.conj()),
                    Op::Abs => call1(d, a, n, |x: C| real(x.re.hypot(x.im))),
                    Op::Angle => call1(d, a, n, |x: C| real(x.im.atan2(x.re))),
                    Op::Sign => call1(d, a, n, sgn),
                    Op::Square => map1(d, a, n, |x: C| x * x),
                    Op::Sqrt => call1(d, a, n, |x: C| x.sqrt()),
                    Op::Rsqrt => call1(d, a, n, |x: C| div(C::ONE, x.sqrt())),
                    Op::Reciprocal => map1(d, a, n, |x: C| div(C::ONE, x)),
                    Op::Exp => call1(d, a, n, |x: C| x.exp()),
                    Op::Exp2 => call1(d, a, n, |x: C| (x * T::ln(2.0)).exp()),
                    Op::Expm1 => call1(d, a, n, expm1),
                    Op::Log => call1(d, a, n, log),
                    Op::Log2 => call1(d, a, n, |x: C| log(x) / T::ln(2.0)),
                    Op::Log10 => call1(d, a, n, |x: C| log(x) / T::ln(10.0)),
                    Op::Log1p => call1(d, a, n, log1p),
                    Op::Sin => call1(d, a, n, |x: C| x.sin()),
                    Op::Cos => call1(d, a, n, |x: C| x.cos()),
                    Op::Tan => call1(d, a, n, tan),
                    Op::Asin => call1(d, a, n, |x: C| x.asin()),
                    Op::Acos => call1(d, a, n, |x: C| x.acos()),
                    Op::Atan => call1(d, a, n, |x: C| x.atan()),
                    Op::Sinh => call1(d, a, n, |x: C| x.sinh()),
                    Op::Cosh => call1(d, a, n, |x: C| x.cosh()),
                    Op::Tanh => call1(d, a, n, tanh),
                    Op::Asinh => call1(d, a, n, |x: C| x.asinh()),
                    Op::Acosh => call1(d, a, n, |x: C| x.acosh()),
                    Op::Atanh => call1(d, a, n, |x: C| x.atanh()),
                    Op::Sigmoid => call1(d, a, n, sigmoid),
                    Op::Silu => call1(d, a, n, |x: C| div(x, C::ONE + (-x).exp())),
                    Op::Isnan => map1(d, a, n, |x: C| any(x, T::is_nan)),
                    Op::Isinf => map1(d, a, n, |x: C| any(x, T::is_infinite)),
                    Op::Isfinite => map1(d, a, n, |x: C| !any(x, |v| !v.is_finite())),
                    Op::LogicalNot => map1(d, a, n, |x: C| x == C::ZERO),
                    Op::Add => map2(d, a, b, n, |x: C, y: C| x + y),
                    Op::Sub => map2(d, a, b, n, |x: C, y: C| x - y),
                    Op::Mul => map2(d, a, b, n, |x: C, y: C| x * y),
                    Op::Div => map2(d, a, b, n, div),
                    Op::Pow => call2(d, a, b, n, pow),
                    Op::Eq => map2(d, a, b, n, |x: C, y: C| x == y),
                    Op::Ne => map2(d, a, b, n, |x: C, y: C| x != y),
                    Op::LogicalAnd => map2(d, a, b, n, |x: C, y: C| (x != C::ZERO) & (y != C::ZERO)),
                    Op::LogicalOr => map2(d, a, b, n, |x: C, y: C| (x != C::ZERO) | (y != C::ZERO)),
                    Op::LogicalXor => map2(d, a, b, n, |x: C, y: C| (x != C::ZERO) ^ (y != C::ZERO)),
                    Op::MulAdd => map3(d, args, n, |x: C, y: C, z: C| x * y + z),
                    Op::Lerp => {
                        map3(
                            d,
                            args,
                            n,
                            |x: C, y: C, w: C| {
                                if w.norm_sqr() < 0.25 { x + w * (y - x) } else { y - (y - x) * (C::ONE - w) }
                            },
                        )
                    }
                    Op::Where => map3(d, args, n, |w: u8, x: C, y: C| if w != 0 { x } else { y }),
                    _ => undefined(op, $dtype),
                }
            }
        }
    };
}
complex_step!(step_c64, f32, DType::C64);
complex_step!(step_c128, f64, DType::C128);
