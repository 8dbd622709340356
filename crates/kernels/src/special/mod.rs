//! Special functions, element by element, in f64 whatever the dtype.
//!
//! [`Unary`] and [`Binary`] name them; a call is a table of plain functions and a loop. They are too rare and too long
//! for the tile executor. Accuracy is a few units in the last place where the function is well conditioned; orders of
//! polynomials are cut to integers. No argument panics, and no order takes more than a hundred thousand steps.
#![allow(unsafe_code)]

mod airy;
mod bessel;
mod error_functions;
mod gamma;
mod polynomials;
mod tables;

use crate::real::Ptr;
use crate::{DType, View, ViewMut, parallel};

/// `c[0] + c[1] T1(u) + …`
fn chebyshev(c: &[f64], u: f64) -> f64 {
    let (mut a, mut b) = (0.0, 0.0);
    for &c in c[1..].iter().rev() {
        (a, b) = (2.0 * u * a - b + c, a);
    }
    u * a - b + c[0]
}

macro_rules! functions {
    ($(#[$about:meta])* $kind:ident($($x:ident),*) { $($(#[$doc:meta])* $name:ident = $f:path,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $kind { $($(#[$doc])* $name,)* }

        impl $kind {
            /// Every one of them.
            pub const ALL: &'static [$kind] = &[$($kind::$name),*];

            /// Its value.
            pub fn at(self, $($x: f64),*) -> f64 {
                self.function()($($x),*)
            }

            fn function(self) -> fn($(functions!(@float $x)),*) -> f64 {
                match self { $($kind::$name => $f,)* }
            }
        }
    };
    (@float $x:ident) => { f64 };
}

functions! {
    /// A function of one number.
    Unary(x) {
        /// The modified Bessel function `I0`.
        I0 = bessel::i0,
        /// `e^-|x| I0(x)`
        I0e = bessel::i0e,
        /// The modified Bessel function `I1`.
        I1 = bessel::i1,
        /// `e^-|x| I1(x)`
        I1e = bessel::i1e,
        /// The modified Bessel function `K0`.
        K0 = bessel::k0,
        /// `e^x K0(x)`
        ScaledK0 = bessel::k0e,
        /// The modified Bessel function `K1`.
        K1 = bessel::k1,
        /// `e^x K1(x)`
        ScaledK1 = bessel::k1e,
        /// The Bessel function `J0`.
        J0 = bessel::j0,
        /// The Bessel function `J1`.
        J1 = bessel::j1,
        /// The Bessel function `Y0`.
        Y0 = bessel::y0,
        /// The Bessel function `Y1`.
        Y1 = bessel::y1,
        /// `sin(x) / x`
        SphericalJ0 = bessel::spherical_j0,
        /// The Airy function `Ai`.
        AiryAi = airy::ai,
        /// `e^(x^2) erfc(x)`
        Erfcx = error_functions::erfcx,
        /// The quantiles of the normal distribution.
        Ndtri = error_functions::ndtri,
        /// The logarithm of the normal distribution's cumulative probability.
        LogNdtr = error_functions::log_ndtr,
    }
}

functions! {
    /// A function of two numbers; for polynomials the argument, then the order.
    Binary(a, b) {
        /// `a log(1 + b)`, and 0 where `a` is 0.
        Xlog1py = error_functions::xlog1py,
        /// The lower regularized incomplete gamma function of order `a`.
        Igamma = gamma::igamma,
        /// The upper one.
        Igammac = gamma::igammac,
        /// The slope of a gamma-distributed number `b` in the shape `a` of its distribution.
        StandardGammaGrad = gamma::standard_gamma_grad,
        /// Chebyshev's, first kind.
        ChebyshevT = polynomials::chebyshev_t,
        /// Chebyshev's, second kind.
        ChebyshevU = polynomials::chebyshev_u,
        /// Chebyshev's, third kind.
        ChebyshevV = polynomials::chebyshev_v,
        /// Chebyshev's, fourth kind.
        ChebyshevW = polynomials::chebyshev_w,
        /// Chebyshev's, first kind, on [0, 1].
        ShiftedT = polynomials::shifted_t,
        /// Chebyshev's, second kind, on [0, 1].
        ShiftedU = polynomials::shifted_u,
        /// Chebyshev's, third kind, on [0, 1].
        ShiftedV = polynomials::shifted_v,
        /// Chebyshev's, fourth kind, on [0, 1].
        ShiftedW = polynomials::shifted_w,
        /// Hermite's, as physicists define it.
        HermiteH = polynomials::hermite_h,
        /// Hermite's, as probabilists define it.
        HermiteHe = polynomials::hermite_he,
        /// Laguerre's.
        LaguerreL = polynomials::laguerre_l,
        /// Legendre's.
        LegendreP = polynomials::legendre_p,
    }
}

/// Elements that are worth a thread.
const GRAIN: usize = 1 << 10;

fn check(all: &[&View<'_>], out: &ViewMut<'_>) {
    assert!(out.dtype() == DType::F64 && out.is_contiguous());
    for v in all {
        assert!(v.dtype() == DType::F64 && v.is_contiguous() && v.numel() == out.numel());
    }
}

/// `out = function(x)`: contiguous f64 tensors, of which `out` may be `x`.
pub fn unary(function: Unary, x: View<'_>, out: ViewMut<'_>) {
    check(&[&x], &out);
    let f = function.function();
    let (x, to) = (Ptr::at_address(x.ptr::<f64>().cast_mut()), Ptr::at_address(out.ptr::<f64>()));
    parallel::split(out.numel(), GRAIN, |range| {
        for i in range {
            // SAFETY: element `i` of both, which `check` has counted; no other chunk touches it.
            unsafe { *to.at(i) = f(*x.at(i)) }
        }
    });
}

/// `out = function(a, b)`: contiguous f64 tensors, of which `out` may be one of the others.
pub fn binary(function: Binary, a: View<'_>, b: View<'_>, out: ViewMut<'_>) {
    check(&[&a, &b], &out);
    let f = function.function();
    let [a, b] = [a, b].map(|v| Ptr::at_address(v.ptr::<f64>().cast_mut()));
    let to = Ptr::at_address(out.ptr::<f64>());
    parallel::split(out.numel(), GRAIN, |range| {
        for i in range {
            // SAFETY: element `i` of all three, which `check` has counted; no other chunk touches it.
            unsafe { *to.at(i) = f(*a.at(i), *b.at(i)) }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Infinities, zeros, NaN and huge orders give a number, and soon.
    #[test]
    fn nothing_panics_or_runs_on() {
        let hostile = [0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -2.5, 1e-300, 1e300, -1e300, f64::MAX, f64::INFINITY];
        let hostile = hostile.iter().copied().chain([f64::NEG_INFINITY, f64::NAN, 1e6, 1e9, -1e9, 9e18]);
        let hostile: Vec<f64> = hostile.collect();
        for &x in &hostile {
            for f in Unary::ALL {
                f.at(x);
            }
            for f in Binary::ALL {
                hostile.iter().for_each(|&n| _ = f.at(x, n));
            }
        }
    }

    /// Values in thirty digits, rounded; where PyTorch's own are not exact.
    #[test]
    fn values() {
        let near = |a: f64, b: f64, what: &str| assert!((a - b).abs() <= 5e-15 * b.abs(), "{what}: {a} instead of {b}");
        #[rustfmt::skip]
        let one = [
            (Unary::J0, 4.9, -0.20973832758532632), (Unary::J0, 50.0, 0.055812327669251816),
            (Unary::J1, 5.1, -0.33709720201823185), (Unary::Y0, 4.9, -0.29205459424401414),
            (Unary::Y1, 3.5, 0.41018841788751187), (Unary::AiryAi, -2.5, -0.11232506769296609),
            (Unary::AiryAi, -9.5, 0.3191032477191282), (Unary::AiryAi, -1.5, 0.4642565777488694),
            (Unary::AiryAi, 1.75, 0.05056988080579487), (Unary::AiryAi, 8.25, 2.2837139444822283e-08),
            (Unary::I0e, 7.5, 0.14831583007739552), (Unary::I1, 8.5, 641.6199025400667),
            (Unary::ScaledK0, 0.25, 1.9793338485985688), (Unary::K1, 30.0, 2.1677320018915495e-14),
            (Unary::Erfcx, -3.5, 417962.4224457703), (Unary::Erfcx, 7.25, 0.0770991803512599),
            (Unary::LogNdtr, -12.5, -81.57596787074388), (Unary::LogNdtr, 6.0, -9.865876455243758e-10),
        ];
        for (f, x, value) in one {
            near(f.at(x), value, &format!("{f:?} at {x}"));
        }
        #[rustfmt::skip]
        let two = [
            (30.0, 31.0, 0.5953478209656109, 0.4046521790343891), (200.0, 190.0, 0.2433474271006238, 0.7566525728993762),
            (10000.0, 10100.0, 0.8413487504471796, 0.15865124955282037), (0.05, 0.9, 0.9863864260345634, 0.013613573965436629),
            (0.01, 1e-5, 0.8963367982671973, 0.1036632017328028), (2.5, 40.0, 0.9999999999999991, 8.391825114831611e-16),
        ];
        for (a, x, lower, upper) in two {
            let loose =
                |a: f64, b: f64, what: &str| assert!((a - b).abs() <= 1e-13 * b.abs(), "{what}: {a} instead of {b}");
            loose(Binary::Igamma.at(a, x), lower, "igamma");
            loose(Binary::Igammac.at(a, x), upper, "igammac");
        }
    }

    /// Wronskians, and functions that are one another's inverse.
    #[test]
    fn functions_know_each_other() {
        let near =
            |a: f64, b: f64, what: &str| assert!((a - b).abs() <= 1e-13 * b.abs().max(1e-3), "{what}: {a} and {b}");
        for x in [0.01, 0.5, 1.9, 2.1, 3.0, 7.9, 8.1, 20.0, 300.0] {
            near(
                Unary::I0e.at(x) * Unary::ScaledK1.at(x) + Unary::I1e.at(x) * Unary::ScaledK0.at(x),
                1.0 / x,
                "I and K",
            );
            near(
                Unary::J1.at(x) * Unary::Y0.at(x) - Unary::J0.at(x) * Unary::Y1.at(x),
                2.0 / (std::f64::consts::PI * x),
                "J and Y",
            );
            for a in [0.1, 1.0, 2.5, 30.0, 300.0] {
                near(Binary::Igamma.at(a, x) + Binary::Igammac.at(a, x), 1.0, "both incomplete gammas");
            }
            near(Unary::Erfcx.at(x.min(20.0)) * (-x.min(20.0).powi(2)).exp(), libm::erfc(x.min(20.0)), "erfcx");
        }
        for p in [1e-300, 1e-20, 1e-3, 0.1, 0.4999, 0.5, 0.75, 0.999] {
            near(Unary::LogNdtr.at(Unary::Ndtri.at(p)), p.ln(), "ndtri and log_ndtr");
        }
    }
}
