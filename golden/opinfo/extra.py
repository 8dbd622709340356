"""Numbers in the place of tensors, and ops that belong to no larger family."""

from .base import B, I, S, T, X, Z, b1, f32, f64, i32, i64, u8


def samples(t):
    plain = dict(dtypes=[], nc=False)
    t.op("isin.Tensor_Scalar", S(I(2, 3), 3), S(I(2, 3), 3, invert=True), S(T(3, grad=False), 0.5), **plain)
    t.op("isin.Scalar_Tensor", S(3, I(2, 3)), S(3, I(4), assume_unique=True), **plain)
    t.op("bitwise_and.Scalar_Tensor bitwise_or.Scalar_Tensor bitwise_xor.Scalar_Tensor", S(5, I(2, 3)), S(5, I(3, dt=u8)), S(True, B(3)), S(5, B(3)), err=[S(1.5, I(3))], **plain)
    t.op("bitwise_left_shift.Scalar_Tensor bitwise_right_shift.Scalar_Tensor", S(5, I(2, 3, hi=4)), S(5, I(3, hi=4, dt=i32)), **plain)
    t.op("bucketize.Scalar", S(2.5, X([1.0, 2.0, 3.0], grad=False)), S(2, X([1, 2, 3]), right=True, out_int32=True), **plain)
    foreach(t)


def foreach(t):
    two, other = [T(2, 3), T(4)], [T(2, 3, lo=0.25, hi=3.0), T(4, lo=0.25, hi=3.0)]
    inside, short = [T(2, 3, lo=-0.9, hi=0.9), T(4, lo=-0.9, hi=0.9)], [T(2, 3)]
    few = dict(dtypes=[f32], nc=False)
    for form in ("", "_"):
        names = lambda words: " ".join(f"_foreach_{word}{form}" for word in words.split())
        t.op(names("abs atan ceil cos cosh erf erfc expm1 floor frac round sigmoid sign sin sinh tanh trunc"), S(two), S([T(1)]), err=[S([])], **few)
        t.op(names("lgamma log log10 log1p log2 reciprocal rsqrt"), S(other), **few)
        t.op(names("acos asin tan"), S(inside), **few)
        for name in ("clamp_min", "clamp_max", "maximum", "minimum"):
            t.op(f"_foreach_{name}{form}.List", S(two, other), err=[S(two, short)], **few)
            t.op(f"_foreach_{name}{form}.Scalar", S(two, 0.51), **few)
            t.op(f"_foreach_{name}{form}.ScalarList", S(two, [0.51, -0.51]), err=[S(two, [1.0])], **few)
        t.op(f"_foreach_pow{form}.List", S(other, two), err=[S(other, short)], **few)
        t.op(f"_foreach_pow{form}.Scalar", S(two, 2), S(other, 1.5), **few)
        t.op(f"_foreach_pow{form}.ScalarList", S(other, [2.0, 1.5]), err=[S(two, [1.0])], **few)
    t.op("_foreach_pow.ScalarAndTensor", S(2.5, two), **few)
    t.op("_foreach_max", S(two), **few)
    t.op("_foreach_mm", S([T(2, 3), T(3, 2)], [T(3, 2), T(2, 2)]), err=[S([T(2, 3)], [T(2, 3)])], **few)
