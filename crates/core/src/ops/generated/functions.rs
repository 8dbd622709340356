#![allow(unused, clippy::todo, missing_docs)]
use crate::dispatch::MemoryFormat;
use crate::sym::*;
use crate::*;
pub fn add(a: &Tensor, b: &Tensor, al: Scalar) -> Result<Tensor> {
    todo!()
}
pub fn add_<'a>(a: &'a Tensor, b: &Tensor, al: Scalar) -> Result<&'a Tensor> {
    todo!()
}
pub fn add_scalar(a: &Tensor, b: Scalar, al: Scalar) -> Result<Tensor> {
    todo!()
}
pub fn sub(a: &Tensor, b: &Tensor, al: Scalar) -> Result<Tensor> {
    todo!()
}
pub fn rsub_scalar(a: &Tensor, b: Scalar, al: Scalar) -> Result<Tensor> {
    todo!()
}
pub fn mul(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    todo!()
}
pub fn mul_scalar(a: &Tensor, b: Scalar) -> Result<Tensor> {
    todo!()
}
pub fn div(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    todo!()
}
pub fn remainder(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    todo!()
}
pub fn ne(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    todo!()
}
pub fn neg(a: &Tensor) -> Result<Tensor> {
    todo!()
}
pub fn any(a: &Tensor) -> Result<Tensor> {
    todo!()
}
pub fn alias(a: &Tensor) -> Result<Tensor> {
    todo!()
}
pub fn reciprocal(a: &Tensor) -> Result<Tensor> {
    todo!()
}
pub fn zero_(a: &Tensor) -> Result<&Tensor> {
    todo!()
}
pub fn copy_<'a>(a: &'a Tensor, b: &Tensor, n: bool) -> Result<&'a Tensor> {
    crate::ops::manual::copy_(a, b, n)
}
pub fn to_copy(a: &Tensor, d: Option<DType>, e: Option<Device>, n: bool, m: Option<MemoryFormat>) -> Result<Tensor> {
    todo!()
}
pub fn clone(a: &Tensor, m: Option<MemoryFormat>) -> Result<Tensor> {
    todo!()
}
pub fn sum_dim(a: &Tensor, d: Option<&[i64]>, k: bool, t: Option<DType>) -> Result<Tensor> {
    todo!()
}
pub fn view(a: &Tensor, d: &[SymInt]) -> Result<Tensor> {
    todo!()
}
pub fn reshape(a: &Tensor, d: &[SymInt]) -> Result<Tensor> {
    todo!()
}
pub fn expand(a: &Tensor, d: &[SymInt], i: bool) -> Result<Tensor> {
    todo!()
}
pub fn select(a: &Tensor, d: i64, i: SymInt) -> Result<Tensor> {
    todo!()
}
pub fn stack(a: &[Tensor], d: i64) -> Result<Tensor> {
    todo!()
}
pub fn as_strided(a: &Tensor, d: &[SymInt], i: &[SymInt], o: Option<SymInt>) -> Result<Tensor> {
    todo!()
}
pub fn index_add(a: &Tensor, d: i64, i: &Tensor, s: &Tensor, al: Scalar) -> Result<Tensor> {
    todo!()
}
pub fn index_select(a: &Tensor, d: i64, i: &Tensor) -> Result<Tensor> {
    todo!()
}
