//! Equality with PyTorch's numbers: integers exactly, floats within what another order of summation explains.

use crate::call::Outcome;
use crate::row::{Argument, Numbers, TensorData};
use firebrand_core::dispatch::Value;
use firebrand_core::{Complex, DType, Scalar, Tensor};

/// Relative and absolute tolerance.
pub(crate) fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F64 | DType::C128 => 1e-10,
        DType::F32 | DType::C64 => 1e-5,
        DType::F16 => 2e-3,
        DType::BF16 => 2e-2,
        _ => 0.0,
    }
}

fn close(got: f64, want: f64, tolerance: f64) -> bool {
    got == want || (got.is_nan() && want.is_nan()) || (got - want).abs() <= tolerance + tolerance * want.abs()
}

/// Complex numbers are as far apart as their parts, measured by the whole.
fn close_complex(got: Complex<f64>, want: Complex<f64>, tolerance: f64) -> bool {
    let size = want.norm();
    let scale = if size.is_finite() { 1.0 + size } else { 1.0 };
    close(got.re, want.re, tolerance * scale) && close(got.im, want.im, tolerance * scale)
}

/// Dtype and shape.
pub(crate) fn same_kind(got: &Tensor, want: &TensorData) -> Outcome {
    if got.dtype() != want.dtype {
        return Err(format!("dtype {}, expected {}", got.dtype(), want.dtype));
    }
    if got.shape() != want.shape {
        return Err(format!("shape {:?}, expected {:?}", got.shape(), want.shape));
    }
    Ok(())
}

/// Dtype, shape and numbers.
pub(crate) fn same_tensor(got: &Tensor, want: &TensorData) -> Outcome {
    same_kind(got, want)?;
    want.data.as_ref().map_or(Ok(()), |data| same_numbers(got, data, tolerance(want.dtype)))
}

/// Numbers only; `got` may have another dtype than the numbers were listed for.
pub(crate) fn same_numbers(got: &Tensor, want: &Numbers, tolerance: f64) -> Outcome {
    let differ = |k: usize, g: &dyn std::fmt::Display, w: &dyn std::fmt::Display| {
        Err(format!("element {k} of shape {:?} is {g}, expected {w}", got.shape()))
    };
    match want {
        Numbers::Ints(want) => {
            let got: Vec<i64> = got.try_to_vec().map_err(|e| e.to_string())?;
            match got.iter().zip(want).position(|(g, w)| g != w) {
                Some(k) => differ(k, &got[k], &want[k]),
                None => Ok(()),
            }
        }
        Numbers::Floats(want) => {
            let got: Vec<f64> = got.try_to_vec().map_err(|e| e.to_string())?;
            match got.iter().zip(want).position(|(g, w)| !close(*g, *w, tolerance)) {
                Some(k) => differ(k, &got[k], &want[k]),
                None => Ok(()),
            }
        }
        Numbers::Complex(want) => {
            let got: Vec<Complex<f64>> = got.try_to_vec().map_err(|e| e.to_string())?;
            match got.iter().zip(want).position(|(g, w)| !close_complex(*g, *w, tolerance)) {
                Some(k) => differ(k, &got[k], &want[k]),
                None => Ok(()),
            }
        }
    }
}

/// One result.
pub(crate) fn same_value(got: &Value, want: &Argument) -> Outcome {
    let number = |v: &Value| match v {
        Value::Scalar(s) => Some(*s),
        Value::Int(i) => Some(Scalar::Int(i.int())),
        Value::Float(f) => Some(Scalar::Float(*f)),
        Value::Bool(b) => Some(Scalar::Bool(*b)),
        _ => None,
    };
    let equal = match (got, want) {
        (Value::Tensor(t), Argument::Tensor(w)) => return same_tensor(t, w),
        (Value::None, Argument::None) => true,
        // A gradient that was not requested has no elements.
        (Value::Tensor(t), Argument::None) => t.numel() == 0,
        (v, Argument::Int(w)) => number(v) == Some(Scalar::Int(*w)),
        (v, Argument::Bool(w)) => number(v) == Some(Scalar::Bool(*w)),
        (v, Argument::Float(w)) => number(v).is_some_and(|s| s.is_float() && close(s.to_f64(), *w, 1e-10)),
        (v, Argument::Complex(w)) => {
            number(v).is_some_and(|s| s.is_complex() && close_complex(s.to_complex(), *w, 1e-10))
        }
        (Value::DType(d), Argument::DType(w)) => d == w,
        _ => false,
    };
    if equal { Ok(()) } else { Err(format!("{got:?}, expected {want:?}")) }
}

/// All results: at least those that are listed.
pub(crate) fn same_results(got: &[Value], want: &[Argument]) -> Outcome {
    if got.len() < want.len() {
        return Err(format!("{} results, expected {}", got.len(), want.len()));
    }
    for (k, (g, w)) in got.iter().zip(want).enumerate() {
        same_value(g, w).map_err(|e| format!("result {k}: {e}"))?;
    }
    Ok(())
}

/// The bits of the numbers, for comparisons that allow no difference.
pub(crate) fn bits(t: &Tensor) -> Vec<u64> {
    if t.is_complex() {
        t.to_vec::<Complex<f64>>().into_iter().flat_map(|z| [z.re.to_bits(), z.im.to_bits()]).collect()
    } else if t.is_floating_point() {
        t.to_vec::<f64>().into_iter().map(f64::to_bits).collect()
    } else {
        t.to_vec::<i64>().into_iter().map(|v| v as u64).collect()
    }
}
