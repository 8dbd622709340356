//! Single precision logarithm, sine and cosine by the Cephes polynomials, for arguments that Box-Muller produces.
//!
//! PyTorch's vector code for `normal_` uses these, and its results depend on their last bits, so the order of
//! operations and the fused steps here are part of the contract. Not general: `ln` wants a positive normal number.

const LN: [f32; 9] = [
    7.037_683_6e-2,
    -0.115_146_1,
    1.167_699_9e-1,
    -1.242_014_1e-1,
    1.424_932_3e-1,
    -1.666_805_8e-1,
    2.000_071_5e-1,
    -2.499_999_4e-1,
    3.333_333e-1,
];

/// Natural logarithm of a positive normal number.
#[inline(always)]
pub(super) fn ln(v: f32) -> f32 {
    let bits = v.max(f32::MIN_POSITIVE).to_bits();
    // v = m * 2^e with m in [0.5, 1), then moved to [sqrt(0.5), sqrt(2)) - 1.
    let m = f32::from_bits(bits & 0x007f_ffff | 0x3f00_0000);
    let mut e = ((bits >> 23) as i32 - 126) as f32;
    let mut x = m - 1.0;
    if m < std::f32::consts::FRAC_1_SQRT_2 {
        e -= 1.0;
        x += m;
    }
    let z = x * x;
    let mut y = LN[0];
    #[expect(clippy::needless_range_loop, reason = "counted, it unrolls early and the callers' loops become vectors")]
    for k in 1..LN.len() {
        y = y.mul_add(x, LN[k]);
    }
    y *= x;
    // ln 2 in two parts, the small one first.
    y = y.mul_add(z, e * -2.121_944_4e-4);
    y = z.mul_add(-0.5, y);
    e.mul_add(0.693_359_4, x + y)
}

/// Sine and cosine of a small non-negative angle.
#[inline(always)]
pub(super) fn sin_cos(v: f32) -> (f32, f32) {
    // The octant, rounded up to even, and the rest after three-step subtraction of its multiple of pi/4.
    let octant = ((v * std::f32::consts::FRAC_2_PI * 2.0) as i32 + 1) & !1;
    let j = octant as f32;
    let mut x = v;
    x = j.mul_add(-0.785_156_25, x);
    x = j.mul_add(-2.418_756_5e-4, x);
    x = j.mul_add(-3.774_895e-8, x);
    let z = x * x;
    let mut c = 2.443_315_7e-5_f32;
    c = c.mul_add(z, -1.388_731_6e-3);
    c = c.mul_add(z, 4.166_664_6e-2);
    c = (c * z).mul_add(z, -(z * 0.5)) + 1.0;
    let mut s = -1.951_529_6e-4_f32;
    s = s.mul_add(z, 8.332_161e-3);
    s = s.mul_add(z, -1.666_665_5e-1);
    s = (s * z).mul_add(x, x);
    let (sin, cos) = if octant & 2 == 0 { (s, c) } else { (c, s) };
    (if octant & 4 == 0 { sin } else { -sin }, if (octant + 2) & 4 == 0 { cos } else { -cos })
}
