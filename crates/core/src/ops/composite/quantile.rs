//! Quantiles: a sort, the two elements on either side of each rank, and interpolation between them.

use crate::ops::shape::wrap_dim;
use crate::{DType, Error, Result, Scalar, Tensor, ops};

/// What lies between two elements.
#[derive(Clone, Copy, PartialEq)]
enum Between {
    Linear,
    Lower,
    Higher,
    Midpoint,
    Nearest,
}

impl Between {
    fn named(op: &'static str, name: &str) -> Result<Between> {
        Ok(match name {
            "linear" => Between::Linear,
            "lower" => Between::Lower,
            "higher" => Between::Higher,
            "midpoint" => Between::Midpoint,
            "nearest" => Between::Nearest,
            _ => {
                let m = format!(
                    "interpolation is \"linear\", \"lower\", \"higher\", \"midpoint\" or \"nearest\", found {name:?}"
                );
                return Err(Error::argument(op, m));
            }
        })
    }
}

/// What can be said without looking at numbers; a q outside [0, 1] asks for an element that is not there.
fn check(op: &'static str, t: &Tensor, q: &Tensor) -> Result<()> {
    let message = if t.numel() == 0 {
        "a tensor without elements has no quantiles".to_string()
    } else if !matches!(t.dtype(), DType::F32 | DType::F64) || q.dtype() != t.dtype() {
        format!("expected float32 or float64, and q of the same dtype, found {} and {}", t.dtype(), q.dtype())
    } else if q.ndim() > 1 {
        format!("q must be a number or a vector, found shape {:?}", q.shape())
    } else {
        return Ok(());
    };
    Err(Error::argument(op, message))
}

fn along(
    op: &'static str,
    t: &Tensor,
    q: &Tensor,
    dim: Option<i64>,
    keepdim: bool,
    between: &str,
    skip_nan: bool,
) -> Result<Tensor> {
    let between = Between::named(op, between)?;
    check(op, t, q)?;
    // Elements last, sorted: NaNs come at the end.
    let (lined, d) = match dim {
        None => (ops::reshape(t, &[(-1).into()])?, 0),
        Some(_) if t.ndim() == 0 => (ops::unsqueeze(t, 0)?, 0),
        Some(dim) => {
            let d = wrap_dim(op, dim, t.ndim())?;
            (ops::movedim(t, d as i64, -1)?, d)
        }
    };
    let (sorted, _) = ops::sort(&lined, -1, false)?;
    let last = (sorted.shape().last().copied().unwrap_or(1) - 1) as i64;
    let one = Scalar::Int(1);
    // Ranks in f64, as PyTorch takes them: in f32 a rank among many elements has few digits left for its fraction.
    let q_row =
        ops::to_dtype(&if q.ndim() == 0 { ops::unsqueeze(q, 0)? } else { q.clone() }, DType::F64, false, false, None)?;
    let rank = if skip_nan {
        let count = ops::sum_dim(&ops::logical_not(&ops::isnan(&sorted)?)?, Some(&[-1]), true, None)?;
        ops::clamp_min(&ops::mul(&q_row, &ops::sub_scalar(&count, one, one)?)?, Scalar::Int(0))?
    } else {
        let rank = ops::mul_scalar(&q_row, Scalar::Int(last))?;
        // A row with a NaN has only that quantile, and its last element is one.
        let broken = ops::isnan(&ops::narrow(&sorted, -1, last.into(), 1.into())?)?;
        ops::where_self(&broken, &Tensor::try_wrapped_number(Scalar::Int(last))?, &rank)?
    };
    let at = |rank: &Tensor| ops::gather(&sorted, -1, &ops::to_dtype(rank, DType::I64, false, false, None)?, false);
    let low = ops::floor(&rank)?;
    let found = match between {
        Between::Lower => at(&low)?,
        Between::Higher => at(&ops::ceil(&rank)?)?,
        Between::Nearest => at(&ops::round(&rank)?)?,
        Between::Midpoint => ops::lerp_scalar(&at(&low)?, &at(&ops::ceil(&rank)?)?, Scalar::Float(0.5))?,
        Between::Linear => {
            let weight = ops::to_dtype(&ops::sub(&rank, &low, one)?, t.dtype(), false, false, None)?;
            ops::lerp(&at(&low)?, &at(&ops::ceil(&rank)?)?, &weight)?
        }
    };
    let found = match (keepdim, dim) {
        (false, _) => found,
        (true, Some(_)) if t.ndim() > 0 => ops::unsqueeze(&found, d as i64)?,
        (true, _) => (0..t.ndim()).try_fold(found, |found, _| ops::unsqueeze(&found, 0))?,
    };
    if q.ndim() == 0 { ops::squeeze_dim(&found, -1) } else { ops::movedim(&found, -1, 0) }
}

fn number(op: &'static str, t: &Tensor, q: f64) -> Result<Tensor> {
    if !(0.0..=1.0).contains(&q) {
        return Err(Error::argument(op, format!("q must lie between 0 and 1, found {q}")));
    }
    ops::scalar_tensor(Scalar::Float(q), Some(t.dtype()), Some(t.device()))
}

macro_rules! quantiles {
    ($($name:ident $scalar:ident $op:literal $skip_nan:literal)*) => {$(
        pub(crate) fn $name(t: &Tensor, q: &Tensor, dim: Option<i64>, keepdim: bool, between: &str) -> Result<Tensor> {
            along($op, t, q, dim, keepdim, between, $skip_nan)
        }

        pub(crate) fn $scalar(t: &Tensor, q: f64, dim: Option<i64>, keepdim: bool, between: &str) -> Result<Tensor> {
            along($op, t, &number($op, t, q)?, dim, keepdim, between, $skip_nan)
        }
    )*};
}
quantiles! {
    quantile quantile_scalar "quantile" false
    nanquantile nanquantile_scalar "nanquantile" true
}
