//! Aliases of ops, which programs keep.

pub(crate) use crate::ops::{
    acos as arccos, acosh as arccosh, asin as arcsin, asinh as arcsinh, atan as arctan, atan2 as arctan2,
    atanh as arctanh, cat as concatenate, clamp_tensor as clip_tensor, div as divide, div_mode as divide_mode,
    div_scalar as divide_scalar, div_scalar as true_divide_scalar, div_scalar_mode as divide_scalar_mode,
    ge as greater_equal, ge_scalar as greater_equal_scalar, gt as greater, gt_scalar as greater_scalar,
    le as less_equal, le_scalar as less_equal_scalar, lt as less, lt_scalar as less_scalar, matmul as linalg_matmul,
    mul as multiply, mul_scalar as multiply_scalar, ne as not_equal, ne_scalar as not_equal_scalar, neg as negative,
    polygamma as special_polygamma, sub as subtract, sub_scalar as subtract_scalar, vstack as row_stack,
};
