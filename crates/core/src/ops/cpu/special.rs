//! Special functions: whatever the dtype, they are computed in f64.

use super::reduce::converted;
use super::{copy_into, expand};
use crate::{DType, Result, Spec, Tensor};
use firebrand_kernels::special::{self, Binary, Unary};

/// The result's elements in f64, one after another: the result itself, or a temporary that is stored at the end.
fn into(out: &Tensor, run: impl FnOnce(&Tensor) -> Result<()>) -> Result<()> {
    if out.dtype() == DType::F64 && out.is_contiguous() {
        return run(out);
    }
    let wide = Tensor::try_empty(Spec::new(out.shape(), DType::F64, out.device())?)?;
    run(&wide)?;
    copy_into(&wide, out)
}

/// An operand as the result's shape, in f64, one element after another.
fn wide(t: &Tensor, out: &Tensor) -> Result<Tensor> {
    if t.dtype() == DType::F64 && t.is_contiguous() && t.shape() == out.shape() {
        return Ok(t.clone());
    }
    let to = Tensor::try_empty(Spec::new(out.shape(), DType::F64, out.device())?)?;
    firebrand_kernels::copy(expand(&converted(t, DType::F64)?, out.shape())?.view(), to.write()?.view_mut());
    Ok(to)
}

fn unary(f: Unary, x: &Tensor, out: &Tensor) -> Result<()> {
    into(out, |to| {
        let x = wide(x, out)?;
        if !x.is_same(to) && !x.is_beside(to) {
            special::unary(f, x.read()?.view(), to.write()?.view_mut());
            return Ok(());
        }
        let to = to.write()?;
        special::unary(f, to.view(), to.view_mut());
        Ok(())
    })
}

fn binary(f: Binary, a: &Tensor, b: &Tensor, out: &Tensor) -> Result<()> {
    into(out, |to| {
        // What is written must not be held for reading at the same time.
        let apart = |t: Tensor| if t.is_beside(to) { fresh(&t) } else { Ok(t) };
        let (a, b) = (apart(wide(a, out)?)?, apart(wide(b, out)?)?);
        special::binary(f, a.read()?.view(), b.read()?.view(), to.write()?.view_mut());
        Ok(())
    })
}

fn fresh(t: &Tensor) -> Result<Tensor> {
    let copy = Tensor::try_empty(Spec::new(t.shape(), t.dtype(), t.device())?)?;
    copy_into(t, &copy)?;
    Ok(copy)
}

macro_rules! of_one {
    ($($name:ident $f:ident),* $(,)?) => {$(
        pub(crate) fn $name(x: &Tensor, out: &Tensor) -> Result<()> {
            unary(Unary::$f, x, out)
        }
    )*};
}
of_one! {
    i0 I0, i0e I0e, i1 I1, i1e I1e, modified_bessel_k0 K0, modified_bessel_k1 K1, scaled_modified_bessel_k0 ScaledK0,
    scaled_modified_bessel_k1 ScaledK1, bessel_j0 J0, bessel_j1 J1, bessel_y0 Y0, bessel_y1 Y1,
    spherical_bessel_j0 SphericalJ0, airy_ai AiryAi, erfcx Erfcx, ndtri Ndtri, log_ndtr LogNdtr,
}

macro_rules! of_two {
    ($($name:ident $f:ident),* $(,)?) => {$(
        pub(crate) fn $name(a: &Tensor, b: &Tensor, out: &Tensor) -> Result<()> {
            binary(Binary::$f, a, b, out)
        }
    )*};
}
of_two! {
    standard_gamma_grad StandardGammaGrad, xlog1py Xlog1py, igamma Igamma, igammac Igammac, chebyshev_t ChebyshevT, chebyshev_u ChebyshevU,
    chebyshev_v ChebyshevV, chebyshev_w ChebyshevW, shifted_t ShiftedT, shifted_u ShiftedU, shifted_v ShiftedV,
    shifted_w ShiftedW, hermite_h HermiteH, hermite_he HermiteHe, laguerre_l LaguerreL, legendre_p LegendreP,
}

/// Hurwitz zeta.
pub(crate) fn zeta(a: &Tensor, b: &Tensor, out: &Tensor) -> Result<()> {
    super::pointwise::binary_op(firebrand_kernels::pointwise::Op::Zeta, out.dtype(), a, b, out)
}
