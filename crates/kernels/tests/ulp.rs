//! Error of the elementary functions in units of the last place: f32 against f64, f64 against the library.

use firebrand_kernels::{vmath as m, vmath64 as w};

/// Distance in ulps of the f32 nearest the truth (never finer than the smallest subnormal).
fn ulps(got: f32, truth: f64) -> f64 {
    if got.is_infinite() && truth.abs() > f64::from(f32::MAX) && (got > 0.0) == (truth > 0.0) {
        return 0.0;
    }
    let e = truth.abs().max(f64::from(f32::MIN_POSITIVE)).log2().floor() as i32;
    (f64::from(got) - truth).abs() / 2f64.powi(e - 23)
}

/// Largest error over samples of both signs within `lo <= |x| <= hi` where the truth is a number, and where it is.
fn worst(lo: f32, hi: f32, f: impl Fn(f32) -> f32, truth: impl Fn(f64) -> f64) -> (f64, f32) {
    let mut w = (0.0, 0.0);
    let (from, to) = (lo.to_bits(), hi.to_bits());
    let step = ((to - from) / 20_000).max(1) | 1;
    for bits in (from..=to).step_by(step as usize) {
        for x in [f32::from_bits(bits), -f32::from_bits(bits)] {
            let t = truth(f64::from(x));
            if t.is_nan() {
                assert!(f(x).is_nan(), "{x} should give NaN");
                continue;
            }
            let e = ulps(f(x), t);
            if e > w.0 || e.is_nan() {
                w = (e, x)
            }
        }
    }
    w
}

macro_rules! rows {
    ($($name:ident, $lo:expr, $hi:expr, $limit:expr, $truth:expr;)*) => {
        [$((stringify!($name), worst($lo, $hi, m::$name::<true>, $truth), worst($lo, $hi, m::$name::<false>, $truth), $limit),)*]
    };
}

#[test]
fn f32_errors_stay_small() {
    let max = f32::MAX;
    let gelu = |x: f64| 0.5 * x * libm::erfc(-x / std::f64::consts::SQRT_2);
    let gelu_tanh = |x: f64| x / (1.0 + (-2.0 * 0.7978845608028654 * (x + 0.044715 * x * x * x)).exp());
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let rows = rows! {
        exp, 0.0, 104.0, 1.1, f64::exp;
        exp2, 0.0, 150.0, 1.6, f64::exp2;
        expm1, 0.0, 104.0, 0.51, f64::exp_m1;
        log, 0.0, max, 1.0, f64::ln;
        log2, 0.0, max, 0.51, f64::log2;
        log10, 0.0, max, 0.51, f64::log10;
        log1p, 0.0, max, 0.51, f64::ln_1p;
        tanh, 0.0, 30.0, 2.0, f64::tanh;
        sigmoid, 0.0, 104.0, 2.2, sigmoid;
        silu, 0.0, 80.0, 3.5, |x| x * sigmoid(x);
        logsigmoid, 0.0, 100.0, 0.51, |x: f64| if x < 0.0 { x - x.exp().ln_1p() } else { -(-x).exp().ln_1p() };
        mish, 0.0, 80.0, 0.51, |x: f64| x * x.exp().ln_1p().tanh();
        erf, 0.0, 10.0, 2.0, libm::erf;
        gelu_erf, 0.0, 4.0, 6.0, gelu;
        gelu_tanh, 0.0, 2.0, 10.0, gelu_tanh;
        sin, 0.0, 1e6, 0.51, f64::sin;
        cos, 0.0, 1e6, 0.51, f64::cos;
        tan, 0.0, 1e6, 0.51, f64::tan;
        sin, 1.0, 100.0, 0.51, f64::sin;
        cos, 1.0, 100.0, 0.51, f64::cos;
        asin, 0.0, 2.0, 0.51, f64::asin;
        acos, 0.0, 2.0, 0.51, f64::acos;
        atan, 0.0, max, 0.51, f64::atan;
        sinh, 0.0, 89.0, 0.51, f64::sinh;
        cosh, 0.0, 89.0, 0.51, f64::cosh;
        asinh, 0.0, max, 0.51, libm::asinh;
        acosh, 0.0, max, 0.51, f64::acosh;
        atanh, 0.0, 1.5, 0.51, libm::atanh;
        erfinv, 0.0, 1.0, 0.51, w::erfinv::<true>;
    };
    for (name, fused, plain, _) in &rows {
        println!("{name:12} FMA {:5.2} ulp at {:e}, without {:5.2} at {:e}", fused.0, fused.1, plain.0, plain.1);
    }
    for (name, fused, plain, limit) in &rows {
        assert!(fused.0 <= *limit, "{name}: {} ulp at {}", fused.0, fused.1);
        assert!(plain.0 <= limit * 1.5 + 0.01, "{name} without FMA: {} ulp at {}", plain.0, plain.1);
    }
}

#[test]
fn f32_functions_of_two_numbers() {
    let xs = [0.0f32, -0.0, 1.0, -1.0, 0.3, -2.5, 3.0, -3.0, 1e-3, 77.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
    for x in xs {
        for y in xs {
            let (a, b) = (f64::from(x), f64::from(y));
            for (name, got, want) in [
                ("pow", m::pow::<true>(x, y), a.powf(b)),
                ("pow", m::pow::<false>(x, y), a.powf(b)),
                ("atan2", m::atan2::<true>(x, y), a.atan2(b)),
                ("hypot", m::hypot::<true>(x, y), a.hypot(b)),
            ] {
                let same = (got.is_nan() && want.is_nan())
                    || (f64::from(got) == want && got.is_sign_negative() == want.is_sign_negative());
                assert!(same || ulps(got, want) < 0.51, "{name}({x}, {y}) = {got}, not {want}");
            }
        }
    }
}

#[test]
fn f64_errors_stay_small() {
    let off = |got: f64, want: f64| {
        if got == want || (got.is_nan() && want.is_nan()) { 0.0 } else { ((got - want) / want).abs() / f64::EPSILON }
    };
    let sigmoid = |x: f64| 1.0 / (1.0 + libm::exp(-x));
    let mut worst = [(0.0, 0.0); 9];
    for i in -40_000..40_000 {
        let x = f64::from(i) * 0.01771 + 1e-7;
        let small = x * 1e-3;
        for (k, (at, e)) in [
            (x, off(w::exp::<true>(x), x.exp()) * f64::from(u8::from(x > -700.0))), // subnormals have fewer digits
            (small, off(w::expm1::<true>(small), small.exp_m1())),
            (x, off(w::log::<true>(x), x.ln())),
            (small, off(w::log::<true>(1.0 + small), (1.0 + small).ln())),
            (small, off(w::log1p::<true>(small), small.ln_1p())),
            (small, off(w::tanh::<true>(small * 10.0), (small * 10.0).tanh())),
            (x, if x > -700.0 { off(w::sigmoid::<true>(x), sigmoid(x)) } else { 0.0 }),
            (small, off(w::sinh::<true>(small), small.sinh())),
            (small, off(w::atanh::<true>(small), small.atanh())),
        ]
        .into_iter()
        .enumerate()
        {
            if e > worst[k].0 {
                worst[k] = (e, at)
            }
        }
    }
    println!("{worst:?}");
    assert!(worst.iter().all(|w| w.0 < 3.0), "{worst:?}");
    assert!((w::digamma::<true>(1.0) + 0.577_215_664_901_532_9).abs() < 1e-15);
    assert!((w::digamma::<true>(-1.5) - 0.703_156_640_645_243_2).abs() < 1e-14);
    let pi2 = std::f64::consts::PI * std::f64::consts::PI;
    assert!((w::zeta::<true>(2.0, 1.0) / (pi2 / 6.0) - 1.0).abs() < 1e-15);
    assert!((w::zeta::<true>(2.0, -0.5) / (pi2 / 2.0 + 4.0) - 1.0).abs() < 1e-14);
    assert!((w::zeta::<true>(3.0, 1.0) / 1.202_056_903_159_594_2 - 1.0).abs() < 1e-15);
    assert!((libm::erf(w::erfinv::<true>(0.7)) - 0.7).abs() < 1e-15);
}

#[test]
fn special_values() {
    let inf = f32::INFINITY;
    let all = [
        m::exp::<true>,
        m::tanh::<true>,
        m::sigmoid::<true>,
        m::log::<true>,
        m::erf::<true>,
        m::gelu_erf::<true>,
        m::gelu_tanh::<true>,
        m::silu::<true>,
        m::mish::<true>,
        m::sin::<true>,
        m::cos::<true>,
        m::tan::<true>,
        m::atan::<true>,
        m::expm1::<true>,
        m::log1p::<true>,
        m::exp2::<true>,
        m::asinh::<true>,
        m::acosh::<true>,
        m::sinh::<true>,
        m::cosh::<true>,
        m::logsigmoid::<true>,
        m::asin::<true>,
        m::acos::<true>,
        m::atanh::<true>,
        m::erfinv::<true>,
        m::digamma::<true>,
        m::lgamma::<true>,
    ];
    assert!(all.iter().all(|f| f(f32::NAN).is_nan()));
    assert_eq!((m::exp::<true>(inf), m::exp::<true>(-inf), m::exp::<true>(0.0)), (inf, 0.0, 1.0));
    assert_eq!((m::exp2::<true>(inf), m::exp2::<true>(-inf), m::exp2::<true>(10.0)), (inf, 0.0, 1024.0));
    assert_eq!((m::tanh::<true>(inf), m::tanh::<true>(-inf)), (1.0, -1.0));
    assert_eq!((m::log::<true>(0.0), m::log::<true>(inf), m::log::<true>(1.0)), (-inf, inf, 0.0));
    assert_eq!((m::erf::<true>(inf), m::sigmoid::<true>(-inf), m::sigmoid::<true>(inf)), (1.0, 0.0, 1.0));
    assert_eq!((m::expm1::<true>(-inf), m::expm1::<true>(inf), m::log1p::<true>(-1.0)), (-1.0, inf, -inf));
    assert_eq!((m::gelu_erf::<true>(-inf), m::gelu_tanh::<true>(-inf), m::mish::<true>(-inf)), (0.0, 0.0, 0.0));
    assert_eq!((m::log2::<true>(8.0), m::log10::<true>(1000.0), m::cosh::<true>(-inf)), (3.0, 3.0, inf));
    for f in [m::tanh::<true>, m::erf::<true>, m::sin::<true>, m::expm1::<true>, m::log1p::<true>, m::atan::<true>] {
        assert!(f(-0.0) == 0.0 && f(-0.0).is_sign_negative());
    }
}

#[test]
fn halves_convert_exactly() {
    use firebrand_kernels::{bf16, f16};
    for bits in 0..=u16::MAX {
        let (h, b) = (f16::from_bits(bits), bf16::from_bits(bits));
        let (x, y) = (m::from_f16(bits), m::from_bf16(bits));
        assert!(x == h.to_f32() || (x.is_nan() && h.is_nan()));
        assert!(y == b.to_f32() || (y.is_nan() && b.is_nan()));
        // There and back, and the neighbourhood of each tie.
        for x in [x, x * 1.000_244_1, x * 0.999_9, x + 2e-8, y, y * 1.001_953_1, y * 1.003_906_2] {
            if !x.is_nan() {
                assert_eq!(m::to_f16(x), f16::from_f32(x).to_bits(), "{x}");
                assert_eq!(m::to_bf16(x), bf16::from_f32(x).to_bits(), "{x}");
            }
        }
    }
    assert!(f16::from_bits(m::to_f16(f32::NAN)).is_nan() && bf16::from_bits(m::to_bf16(f32::NAN)).is_nan());
}
