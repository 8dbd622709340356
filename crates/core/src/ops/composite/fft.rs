//! `torch.fft`: sizes, norm modes and dtypes around the three transforms `_fft_c2c`, `_fft_r2c` and `_fft_c2r`.

use crate::layout::Dims;
use crate::ops::shape::{wrap_dim, wrap_dims};
use crate::sym::SymInts;
use crate::{DType, Error, ErrorKind, Result, Scalar, SymInt, Tensor, ops};
use smallvec::smallvec;

/// What the result is divided by: 0 nothing, 1 the root of the length, 2 the length.
fn normalization(op: &'static str, norm: Option<&str>, forward: bool) -> Result<i64> {
    match (norm, forward) {
        (None | Some("backward"), true) | (Some("forward"), false) => Ok(0),
        (Some("ortho"), _) => Ok(1),
        (None | Some("backward"), false) | (Some("forward"), true) => Ok(2),
        (Some(other), _) => {
            Err(Error::argument(op, format!("norm should be \"backward\", \"ortho\" or \"forward\", found {other:?}")))
        }
    }
}

/// f32 or f64: integers become the default float type.
fn real_type(op: &'static str, d: DType) -> Result<DType> {
    match crate::dtype::to_float(d) {
        d @ (DType::F32 | DType::F64) => Ok(d),
        found => Err(ErrorKind::DTypeUnsupported { op, found, expected: "float32, float64 or integers" }.into()),
    }
}

fn to_real(op: &'static str, t: &Tensor) -> Result<Tensor> {
    ops::formulas::cast(t, real_type(op, t.dtype())?)
}

fn to_complex(op: &'static str, t: &Tensor) -> Result<Tensor> {
    let dtype = if t.is_complex() { t.dtype() } else { real_type(op, t.dtype())?.to_complex() };
    ops::formulas::cast(t, dtype)
}

/// Dimensions and the length along each.
struct Lines {
    dims: Dims,
    sizes: Vec<usize>,
}

impl Lines {
    /// One dimension.
    fn one(op: &'static str, t: &Tensor, n: Option<SymInt>, dim: i64) -> Result<Lines> {
        if t.ndim() == 0 {
            return Err(Error::argument(op, "a 0-dim tensor has nothing to transform"));
        }
        let d = wrap_dim(op, dim, t.ndim())?;
        Ok(Lines { dims: smallvec![d], sizes: vec![length(op, n, t.shape()[d])?] })
    }

    /// Several: those given, or the last ones if only sizes are given, or all.
    fn many(op: &'static str, t: &Tensor, s: Option<&[SymInt]>, dim: Option<&[i64]>) -> Result<Lines> {
        let ndim = t.ndim();
        let dims: Dims = match (dim, s) {
            (Some([]), _) => Dims::new(),
            (Some(dims), _) if ndim == 0 && !dims.is_empty() => {
                return Err(Error::argument(op, format!("dimensions {dims:?} of a tensor that has none")));
            }
            (Some(dims), _) => wrap_dims(op, dims, ndim)?,
            (None, Some(s)) if s.len() <= ndim => (ndim - s.len()..ndim).collect(),
            (None, Some(s)) => {
                return Err(Error::argument(op, format!("{} sizes for a tensor of {ndim} dimensions", s.len())));
            }
            (None, None) => (0..ndim).collect(),
        };
        if s.is_some_and(|s| s.len() != dims.len()) {
            let message = format!("{} sizes for {} dimensions", s.map_or(0, <[SymInt]>::len), dims.len());
            return Err(Error::argument(op, message));
        }
        let wanted = |k: usize| s.map(|s| s[k]).filter(|n| n.int() != -1);
        let sizes = dims.iter().enumerate().map(|(k, &d)| length(op, wanted(k), t.shape()[d]));
        Ok(Lines { sizes: sizes.collect::<Result<_>>()?, dims })
    }

    /// The tensor with these lengths: cut, or filled up with zeros at the end.
    fn fit(&self, t: &Tensor) -> Result<Tensor> {
        let mut t = t.clone();
        for (&d, &n) in self.dims.iter().zip(&self.sizes) {
            let have = t.shape()[d];
            if n < have {
                t = ops::slice(&t, d as i64, None, Some(n.into()), 1.into())?;
            } else if n > have {
                let mut pad: SymInts = smallvec![SymInt::from(0); 2 * (t.ndim() - d)];
                pad[2 * (t.ndim() - d) - 1] = (n - have).into();
                t = ops::constant_pad_nd(&t, &pad, Scalar::Int(0))?;
            }
        }
        Ok(t)
    }

    fn places(&self) -> Vec<i64> {
        self.dims.iter().map(|&d| d as i64).collect()
    }
}

fn length(op: &'static str, n: Option<SymInt>, have: usize) -> Result<usize> {
    let n = n.map_or(Some(have), SymInt::to_usize);
    n.filter(|&n| n > 0)
        .ok_or_else(|| Error::argument(op, "a transform needs at least one number; give a positive length"))
}

fn c2c(op: &'static str, t: &Tensor, lines: &Lines, norm: Option<&str>, forward: bool) -> Result<Tensor> {
    let norm = normalization(op, norm, forward)?;
    let t = lines.fit(&to_complex(op, t)?)?;
    if lines.dims.is_empty() {
        return Ok(t);
    }
    let dims: SymInts = lines.dims.iter().map(|&d| d.into()).collect();
    ops::fft_c2c(&t, &dims, norm, forward)
}

/// Real numbers to half of their spectrum; `forward` is false for the conjugate (`ihfft`).
fn r2c(op: &'static str, t: &Tensor, lines: &Lines, norm: Option<&str>, forward: bool) -> Result<Tensor> {
    if t.is_complex() {
        return Err(ErrorKind::DTypeUnsupported { op, found: t.dtype(), expected: "real numbers" }.into());
    }
    let norm = normalization(op, norm, forward)?;
    need_dims(op, lines)?;
    let out = ops::fft_r2c(&lines.fit(&to_real(op, t)?)?, &lines.places(), norm, true)?;
    if forward { Ok(out) } else { ops::conj(&out) }
}

/// Half of a spectrum to real numbers, the last length of `lines` of them; `forward` reads the conjugate (`hfft`).
fn c2r(op: &'static str, t: &Tensor, lines: Lines, norm: Option<&str>, forward: bool) -> Result<Tensor> {
    let norm = normalization(op, norm, forward)?;
    need_dims(op, &lines)?;
    let last = lines.sizes[lines.sizes.len() - 1];
    let places = lines.places();
    let mut half = lines;
    if let Some(n) = half.sizes.last_mut() {
        *n = *n / 2 + 1;
    }
    let t = half.fit(&to_complex(op, t)?)?;
    let t = if forward { ops::conj(&t)? } else { t };
    ops::fft_c2r(&t, &places, norm, last.into())
}

fn need_dims(op: &'static str, lines: &Lines) -> Result<()> {
    if lines.dims.is_empty() {
        Err(Error::argument(op, "expected at least one dimension to transform"))
    } else {
        Ok(())
    }
}

/// Without a size given, half a spectrum of `m` stands for `2 (m - 1)` numbers.
fn doubled(given: Option<SymInt>, t: &Tensor, dim: usize) -> SymInt {
    let have = t.shape().get(dim).copied().unwrap_or(1) as i64;
    given.filter(|n| n.int() != -1).unwrap_or_else(|| (2 * (have - 1)).into())
}

macro_rules! along_one {
    ($($name:ident $kind:ident $forward:literal),*) => {$(
        pub(crate) fn $name(t: &Tensor, n: Option<SymInt>, dim: i64, norm: Option<&str>) -> Result<Tensor> {
            $kind(stringify!($name), t, &Lines::one(stringify!($name), t, n, dim)?, norm, $forward)
        }
    )*};
}
along_one! { fft_fft c2c true, fft_ifft c2c false, fft_rfft r2c true, fft_ihfft r2c false }

macro_rules! along_one_to_real {
    ($($name:ident $forward:literal),*) => {$(
        pub(crate) fn $name(t: &Tensor, n: Option<SymInt>, dim: i64, norm: Option<&str>) -> Result<Tensor> {
            const OP: &str = stringify!($name);
            let d = wrap_dim(OP, dim, t.ndim())?;
            c2r(OP, t, Lines::one(OP, t, Some(doubled(n, t, d)), dim)?, norm, $forward)
        }
    )*};
}
along_one_to_real! { fft_irfft false, fft_hfft true }

macro_rules! along_many {
    ($($name:ident $two:ident $kind:ident $forward:literal),*) => {$(
        pub(crate) fn $name(
            t: &Tensor,
            s: Option<&[SymInt]>,
            dim: Option<&[i64]>,
            norm: Option<&str>,
        ) -> Result<Tensor> {
            $kind(stringify!($name), t, &Lines::many(stringify!($name), t, s, dim)?, norm, $forward)
        }

        pub(crate) fn $two(t: &Tensor, s: Option<&[SymInt]>, dim: &[i64], norm: Option<&str>) -> Result<Tensor> {
            $name(t, s, Some(dim), norm)
        }
    )*};
}
along_many! {
    fft_fftn fft_fft2 c2c true, fft_ifftn fft_ifft2 c2c false, fft_rfftn fft_rfft2 r2c true,
    fft_ihfftn fft_ihfft2 r2c false
}

macro_rules! along_many_to_real {
    ($($name:ident $two:ident $forward:literal),*) => {$(
        pub(crate) fn $name(
            t: &Tensor,
            s: Option<&[SymInt]>,
            dim: Option<&[i64]>,
            norm: Option<&str>,
        ) -> Result<Tensor> {
            const OP: &str = stringify!($name);
            let mut lines = Lines::many(OP, t, s, dim)?;
            if let (Some(&d), Some(n)) = (lines.dims.last(), lines.sizes.last_mut()) {
                *n = length(OP, Some(doubled(s.and_then(|s| s.last().copied()), t, d)), 0)?;
            }
            c2r(OP, t, lines, norm, $forward)
        }

        pub(crate) fn $two(t: &Tensor, s: Option<&[SymInt]>, dim: &[i64], norm: Option<&str>) -> Result<Tensor> {
            $name(t, s, Some(dim), norm)
        }
    )*};
}
along_many_to_real! { fft_irfftn fft_irfft2 false, fft_hfftn fft_hfft2 true }

fn shifted(op: &'static str, t: &Tensor, dim: Option<&[i64]>, back: bool) -> Result<Tensor> {
    let dims: Dims = match dim {
        Some(dims) => wrap_dims(op, dims, t.ndim())?,
        None => (0..t.ndim()).collect(),
    };
    if dims.is_empty() {
        return Ok(t.clone());
    }
    let half = |&d: &usize| SymInt::from(if back { t.shape()[d].div_ceil(2) } else { t.shape()[d] / 2 });
    let shifts: SymInts = dims.iter().map(half).collect();
    ops::roll(t, &shifts, &dims.iter().map(|&d| d as i64).collect::<Vec<_>>())
}

/// The frequency 0 in the middle.
pub(crate) fn fft_fftshift(t: &Tensor, dim: Option<&[i64]>) -> Result<Tensor> {
    shifted("fft_fftshift", t, dim, false)
}

/// Undoes [`fft_fftshift`].
pub(crate) fn fft_ifftshift(t: &Tensor, dim: Option<&[i64]>) -> Result<Tensor> {
    shifted("fft_ifftshift", t, dim, true)
}
