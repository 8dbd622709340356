"""Fourier transforms: the three primitives and `torch.fft` around them, every norm mode, lengths that cut and that fill up."""

from .base import I, S, T, Z, c64, c128, f32


def samples(t):
    t.op("_fft_c2c", S(Z(3, 4), [1], 0, True), S(Z(3, 4), [0, 1], 1, False), S(Z(5), [0], 2, True), S(Z(2, 7, 3), [1], 2, False), dtypes=[c64], err=[S(T(3), [0], 0, True), S(Z(3), [1], 0, True)])
    t.op("_fft_r2c", S(T(3, 4), [1], 0, True), S(T(3, 5), [0, 1], 1, True), S(T(5), [0], 2, True), S(T(2, 4, 3), [1, 2], 2, False), dtypes=[f32], err=[S(Z(3), [0], 0, True), S(T(3), [1], 0, True)])
    t.op("_fft_c2r", S(Z(3, 3), [1], 0, 4), S(Z(3, 3), [0, 1], 1, 5), S(Z(4), [0], 2, 6), S(Z(1), [0], 2, 1), dtypes=[c64], err=[S(T(3), [0], 0, 4)])
    norms = [None, "backward", "ortho", "forward"]
    for name in ("fft_fft", "fft_ifft"):
        t.op(name, S(Z(2, 5)), S(T(2, 5)), *[S(Z(6), norm=n) for n in norms[2:]], S(Z(3, 4), 6, 0), S(Z(3, 4), 2, -1), S(I(4)), dtypes=[c64], err=[S(Z(3), 0), S(Z(3), None, 2), S(Z(3), norm="other"), S(Z())])
    t.op("fft_rfft", S(T(2, 5)), S(T(2, 6)), *[S(T(6), norm=n) for n in norms[2:]], S(T(3, 4), 6, 0), S(T(4), 3), S(I(4)), dtypes=[f32], err=[S(Z(3)), S(T(3), 0)])
    t.op("fft_irfft", S(Z(2, 4)), S(Z(2, 4), 7), *[S(Z(4), norm=n) for n in norms[2:]], S(Z(3, 4), 4, 0), S(Z(4), 10), S(T(4)), dtypes=[c64], err=[S(Z(3), 0), S(Z(1))])
    t.op("fft_hfft", S(Z(2, 4)), S(Z(2, 4), 7), *[S(Z(4), norm=n) for n in norms[1:]], dtypes=[c64], err=[S(Z(1))])
    t.op("fft_ihfft", S(T(2, 5)), S(T(2, 6)), *[S(T(6), norm=n) for n in norms[1:]], dtypes=[f32], err=[S(Z(3))])
    for name in ("fft_fft2", "fft_ifft2"):
        t.op(name, S(Z(2, 3, 4)), S(Z(3, 4), [2, 5]), S(Z(2, 3, 4), None, [0, 2], "ortho"), dtypes=[c64])
    for name in ("fft_fftn", "fft_ifftn"):
        t.op(name, S(Z(2, 3)), S(Z(2, 3, 2)), S(Z(2, 3, 4), [5]), S(Z(2, 3, 4), [2, -1], [0, 2]), S(T(2, 3), norm="forward"), dtypes=[c64], err=[S(Z(2, 3), [1, 2, 3]), S(Z(2, 3), [1], [0, 1]), S(Z(2, 3), None, [0, 0])])
    t.op("fft_rfftn", S(T(2, 3)), S(T(2, 3, 4), [2, 6], [1, 2]), S(T(2, 4), norm="ortho"), dtypes=[f32], err=[S(Z(2, 3))])
    t.op("fft_rfft2", S(T(2, 3, 4)), dtypes=[f32])
    t.op("fft_irfftn", S(Z(2, 3)), S(Z(2, 3, 4), [2, 7], [1, 2]), S(Z(2, 4), norm="ortho"), S(Z(2, 4), [3, -1]), dtypes=[c64])
    t.op("fft_irfft2", S(Z(2, 3, 4)), dtypes=[c64])
    t.op("fft_hfftn", S(Z(2, 3)), S(Z(2, 3, 4), [2, 7], [1, 2]), S(Z(2, 4), norm="ortho"), S(Z(2, 4), norm="forward"), dtypes=[c64])
    t.op("fft_hfft2", S(Z(2, 3, 4)), dtypes=[c64])
    t.op("fft_ihfftn", S(T(2, 3)), S(T(2, 3, 4), [2, 6], [1, 2]), S(T(2, 4), norm="ortho"), dtypes=[f32], err=[S(Z(2, 3))])
    t.op("fft_ihfft2", S(T(2, 3, 4)), dtypes=[f32])
    t.op("fft_fftshift fft_ifftshift", S(T(5)), S(Z(4, 3)), S(T(4, 3), [1]), dtypes=[c64])
    t.op("fft_fftfreq fft_rfftfreq", S(5), S(8), S(8, 0.5), S(4, 2.0, dtype=f32), S(0), dtypes=[])
