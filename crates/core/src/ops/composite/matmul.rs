//! Products of any ranks, composed of products of vectors, matrices and batches of matrices.
//!
//! Operands are folded by views where memory allows; the kernels take any strides, so nothing is copied to transpose it.

use crate::ops::formulas::{maybe_multiply, sym};
use crate::ops::shape::{self, broadcast, is_expandable_to, wrap_dim};
use crate::{DType, Error, Result, Scalar, SymInt, Tensor, ops};

const ONE: Scalar = Scalar::Int(1);

fn reshape(t: &Tensor, sizes: &[usize]) -> Result<Tensor> {
    if t.shape() == sizes { Ok(t.clone()) } else { ops::reshape(t, &sym(sizes)) }
}

/// A product that has not been shared yet, with other sizes.
fn unfold(t: &Tensor, sizes: &[usize]) -> Result<Tensor> {
    if t.shape() == sizes { Ok(t.clone()) } else { ops::unsafe_view(t, &sym(sizes)) }
}

/// The sizes of `lead`, then `tail`.
fn joined(lead: &[usize], tail: &[usize]) -> Vec<usize> {
    [lead, tail].concat()
}

/// The product over the last dimension of one and the last but one of the other, broadcast over the rest.
pub(crate) fn matmul(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    match (a.ndim(), b.ndim()) {
        (2, 2) => ops::mm(a, b),
        (0, _) | (_, 0) => Err(Error::argument(
            "matmul",
            format!("expected operands with dimensions, found shapes {:?} and {:?}", a.shape(), b.shape()),
        )),
        (1, 1) => ops::dot(a, b),
        (2, 1) => ops::mv(a, b),
        (1, 2) => ops::squeeze_dim(&ops::mm(&ops::unsqueeze(a, 0)?, b)?, 0),
        (_, 1 | 2) if folds(a, b) => fold(a, b),
        (1 | 2, _) => {
            let turned = ops::transpose(b, -2, -1)?;
            match a.ndim() {
                _ if !folds(&turned, a) => batched(a, b),
                1 => fold(&turned, a),
                _ => ops::transpose(&fold(&turned, &ops::t(a)?)?, -2, -1),
            }
        }
        _ => batched(a, b),
    }
}

/// Whether the leading dimensions of `a` become rows of one matrix: if that costs no copy, or saves gradients of `b`
/// that would have to be summed over the batch.
fn folds(a: &Tensor, b: &Tensor) -> bool {
    let (last, lead) = a.shape().split_last().expect("three dimensions or more");
    b.requires_grad() || a.numel() == 0 || a.layout().view_strides(&[lead.iter().product(), *last]).is_some()
}

/// Three dimensions or more times a matrix or vector, as one product of matrices.
fn fold(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let (&k, lead) = a.shape().split_last().expect("three dimensions or more");
    if k != b.shape()[0] {
        return Err(mismatch(a, b));
    }
    let rows = reshape(a, &[lead.iter().product(), k])?;
    if b.ndim() == 1 {
        return unfold(&ops::mv(&rows, b)?, lead);
    }
    unfold(&ops::mm(&rows, b)?, &joined(lead, &b.shape()[1..]))
}

fn mismatch(a: &Tensor, b: &Tensor) -> Error {
    Error::argument("matmul", format!("shapes {:?} and {:?} cannot be multiplied", a.shape(), b.shape()))
}

fn batched(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let (row, column) = (a.ndim() == 1, b.ndim() == 1);
    let a = if row { ops::unsqueeze(a, 0)? } else { a.clone() };
    let b = if column { ops::unsqueeze(b, 1)? } else { b.clone() };
    let (&[ref lead_a @ .., m, k], &[ref lead_b @ .., l, n]) = (a.shape(), b.shape()) else {
        unreachable!("both have two dimensions now")
    };
    if k != l {
        return Err(mismatch(&a, &b));
    }
    let lead = broadcast("matmul", lead_a, lead_b)?;
    let count = lead.iter().product();
    let stack = |t: &Tensor, rows, columns| -> Result<Tensor> {
        let whole = joined(&lead, &[rows, columns]);
        let t = if t.shape() == whole { t.clone() } else { ops::expand(t, &sym(&whole), false)? };
        reshape(&t, &[count, rows, columns])
    };
    let product = ops::bmm(&stack(&a, m, k)?, &stack(&b, k, n)?)?;
    let tail: &[usize] = match (row, column) {
        (false, false) => &[m, n],
        (true, false) => &[n],
        (false, true) => &[m],
        (true, true) => &[],
    };
    unfold(&product, &joined(&lead, tail))
}

/// `input @ weight.T + bias`: one product with the bias added in it, if the input folds to a matrix.
pub(crate) fn linear(input: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    let Some(&k) = input.shape().last().filter(|_| matches!(weight.ndim(), 1 | 2)) else {
        let (input, weight) = (input.shape(), weight.shape());
        let message = format!("expected an input with dimensions and a weight matrix, found {input:?} and {weight:?}");
        return Err(Error::argument("linear", message));
    };
    if weight.shape().last() != Some(&k) {
        let (input, weight) = (input.shape(), weight.shape());
        let message =
            format!("expected a weight whose rows have the input's last size {k}, found {input:?} and {weight:?}");
        return Err(Error::argument("linear", message));
    }
    let transposed = ops::t(weight)?;
    let Some(bias) = bias else { return matmul(input, &transposed) };
    if weight.ndim() == 2 {
        let lead = &input.shape()[..input.ndim() - 1];
        let rows = lead.iter().product();
        if input.ndim() == 2 {
            return ops::addmm(bias, input, &transposed, ONE, ONE);
        }
        if input.ndim() > 2 && input.layout().view_strides(&[rows, k]).is_some() {
            let sums = ops::addmm(bias, &reshape(input, &[rows, k])?, &transposed, ONE, ONE)?;
            return reshape(&sums, &joined(lead, &weight.shape()[..1]));
        }
    }
    let product = matmul(input, &transposed)?;
    if !is_expandable_to(bias.shape(), product.shape()) {
        let message = format!("expected a bias for the result's {:?}, found {:?}", product.shape(), bias.shape());
        return Err(Error::argument("linear", message));
    }
    ops::add(&product, bias, ONE)
}

/// `input1[i] * weight[o, i, j] * input2[j]`, summed over `i` and `j`.
pub(crate) fn bilinear(x: &Tensor, y: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    let refuse = || {
        let (x, y, w) = (x.shape(), y.shape(), weight.shape());
        let message = format!("expected inputs [.., i] and [.., j] and a weight [o, i, j], found {x:?}, {y:?}, {w:?}");
        Error::argument("bilinear", message)
    };
    let &[o, i, j] = weight.shape() else { return Err(refuse()) };
    let (Some((&xi, lead)), Some((&yj, lead_y))) = (x.shape().split_last(), y.shape().split_last()) else {
        return Err(refuse());
    };
    if xi != i || yj != j || lead != lead_y {
        return Err(refuse());
    }
    let n: usize = lead.iter().product();
    let weight = reshape(&ops::permute(weight, &[1, 0, 2])?, &[i, o * j])?;
    let rows = reshape(&ops::mm(&reshape(x, &[n, i])?, &weight)?, &[n, o, j])?;
    let sums = reshape(&ops::bmm(&rows, &reshape(y, &[n, j, 1])?)?, &joined(lead, &[o]))?;
    match bias {
        Some(b) if !is_expandable_to(b.shape(), sums.shape()) => Err(refuse()),
        Some(b) => ops::add(&sums, b, ONE),
        None => Ok(sums),
    }
}

pub(crate) fn vdot(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    ops::dot(&ops::conj(a)?, b)
}

/// Over the last dimension of both.
pub(crate) fn inner(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    if a.ndim() == 0 || b.ndim() == 0 {
        return ops::mul(a, b);
    }
    tensordot(a, b, &[-1], &[-1])
}

pub(crate) fn outer(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    if a.ndim() != 1 || b.ndim() != 1 {
        let message = format!("expected two vectors, found shapes {:?} and {:?}", a.shape(), b.shape());
        return Err(Error::argument("outer", message));
    }
    ops::mul(&ops::unsqueeze(a, 1)?, b)
}

/// `beta * term + alpha * outer`; with `beta == 0` no number of the term is read, and its gradient is zero.
pub(crate) fn addr(term: &Tensor, a: &Tensor, b: &Tensor, beta: Scalar, alpha: Scalar) -> Result<Tensor> {
    // Among truth values, factors are truth values too.
    let truths = [term, a, b].iter().all(|t| t.dtype() == DType::Bool);
    let [beta, alpha] = [beta, alpha].map(|s| if truths { Scalar::Bool(!s.equals(0.0)) } else { s });
    let product = maybe_multiply(&outer(a, b)?, alpha)?;
    if !is_expandable_to(term.shape(), product.shape()) {
        let message = format!("expected a term that broadcasts to {:?}, found {:?}", product.shape(), term.shape());
        return Err(Error::argument("addr", message));
    }
    let term = match beta.equals(0.0) {
        true => ops::masked_fill(term, &ops::ones_like(term, Some(DType::Bool), None, None)?, Scalar::Int(0))?,
        false => maybe_multiply(term, beta)?,
    };
    ops::add(&term, &product, ONE)
}

/// `beta * term + alpha * (sum of products over the batch)`: one product of matrices laid side by side.
pub(crate) fn addbmm(term: &Tensor, a: &Tensor, b: &Tensor, beta: Scalar, alpha: Scalar) -> Result<Tensor> {
    shape::bmm("addbmm", a, b)?;
    let &[count, m, k] = a.shape() else { unreachable!("the shape function has seen three dimensions") };
    let wide = reshape(&ops::permute(a, &[1, 0, 2])?, &[m, count * k])?;
    let tall = reshape(b, &[count * k, b.shape()[2]])?;
    ops::addmm(term, &wide, &tall, beta, alpha)
}

/// Sums over the products of the named dimensions.
pub(crate) fn tensordot(a: &Tensor, b: &Tensor, dims_a: &[i64], dims_b: &[i64]) -> Result<Tensor> {
    const OP: &str = "tensordot";
    if dims_a.len() != dims_b.len() {
        let message = format!("expected as many dimensions of both tensors, found {dims_a:?} and {dims_b:?}");
        return Err(Error::argument(OP, message));
    }
    let wrap = |t: &Tensor, dims: &[i64]| -> Result<Vec<usize>> {
        let dims = dims.iter().map(|&d| wrap_dim(OP, d, t.ndim())).collect::<Result<Vec<_>>>()?;
        match dims.iter().enumerate().find(|(k, d)| dims[..*k].contains(d) || **d >= t.ndim()) {
            Some((_, d)) => {
                Err(Error::argument(OP, format!("dimension {d} cannot be summed over (twice) in {dims:?}")))
            }
            None => Ok(dims),
        }
    };
    let (over_a, over_b) = (wrap(a, dims_a)?, wrap(b, dims_b)?);
    let (mut a, mut b) = (a.clone(), b.clone());
    let mut depth = 1;
    for (&p, &q) in over_a.iter().zip(&over_b) {
        match (a.shape()[p], b.shape()[q]) {
            (n, m) if n == m => depth *= n,
            // A single element multiplies all of the other's: their sum.
            (1, _) => b = ops::sum_dim(&b, Some(&[q as i64]), true, None)?,
            (_, 1) => a = ops::sum_dim(&a, Some(&[p as i64]), true, None)?,
            (n, m) => {
                let message = format!("dimensions {p} and {q} are summed together but have sizes {n} and {m}");
                return Err(Error::argument(OP, message));
            }
        }
    }
    let free = |t: &Tensor, over: &[usize]| (0..t.ndim()).filter(|d| !over.contains(d)).collect::<Vec<_>>();
    let (free_a, free_b) = (free(&a, &over_a), free(&b, &over_b));
    let dims = |first: &[usize], then: &[usize]| first.iter().chain(then).map(|&d| d as i64).collect::<Vec<_>>();
    let sizes = |t: &Tensor, dims: &[usize]| dims.iter().map(|&d| t.shape()[d]).collect::<Vec<_>>();
    let (rows, columns) = (sizes(&a, &free_a), sizes(&b, &free_b));
    if free_a.is_empty() && free_b.is_empty() {
        // A product of vectors; as in PyTorch, autocast leaves it alone.
        let flat = |t: &Tensor, over: &[usize]| reshape(&ops::permute(t, &dims(over, &[]))?, &[depth]);
        return ops::dot(&flat(&a, &over_a)?, &flat(&b, &over_b)?);
    }
    let left = reshape(&ops::permute(&a, &dims(&free_a, &over_a))?, &[rows.iter().product(), depth])?;
    let right = reshape(&ops::permute(&b, &dims(&over_b, &free_b))?, &[depth, columns.iter().product()])?;
    reshape(&ops::mm(&left, &right)?, &joined(&rows, &columns))
}

/// The product of several matrices, in the order that costs least.
pub(crate) fn chain_matmul(matrices: &[Tensor]) -> Result<Tensor> {
    const OP: &str = "chain_matmul";
    if matrices.is_empty() || matrices.iter().any(|m| m.ndim() != 2) {
        let shapes: Vec<_> = matrices.iter().map(Tensor::shape).collect();
        return Err(Error::argument(OP, format!("expected one or more matrices, found shapes {shapes:?}")));
    }
    let n = matrices.len();
    // cost[i][len]: of the best product of `len + 1` matrices from the i-th, and after how many it is cut.
    let mut cost = vec![vec![(0f64, 0usize); n]; n];
    for len in 1..n {
        for i in 0..n - len {
            let (rows, columns) = (matrices[i].shape()[0] as f64, matrices[i + len].shape()[1] as f64);
            let price = |cut: usize| {
                let depth = matrices[i + cut].shape()[1] as f64;
                cost[i][cut].0 + cost[i + cut + 1][len - cut - 1].0 + rows * depth * columns
            };
            let best = (0..len).map(|c| (price(c), c)).min_by(|a, b| a.0.total_cmp(&b.0));
            cost[i][len] = best.expect("at least one place to cut");
        }
    }
    fn multiply(ms: &[Tensor], first: usize, cost: &[Vec<(f64, usize)>]) -> Result<Tensor> {
        let [.., _, _] = ms else { return Ok(ms[0].clone()) };
        let cut = cost[first][ms.len() - 1].1 + 1;
        let (left, right) = ms.split_at(cut);
        ops::mm(&multiply(left, first, cost)?, &multiply(right, first + cut, cost)?)
    }
    multiply(matrices, 0, &cost)
}

/// Every product of an element of `a` with `b`, block by block.
pub(crate) fn kron(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let n = a.ndim().max(b.ndim());
    let at = |t: &Tensor, d: usize| if d + t.ndim() < n { 1 } else { t.shape()[d + t.ndim() - n] };
    let blocks: Vec<usize> = (0..n).flat_map(|d| [at(a, d), 1]).collect();
    let inside: Vec<usize> = (0..n).flat_map(|d| [1, at(b, d)]).collect();
    let sizes: Vec<usize> = (0..n).map(|d| at(a, d).saturating_mul(at(b, d))).collect();
    reshape(&ops::mul(&reshape(a, &blocks)?, &reshape(b, &inside)?)?, &sizes)
}

/// The cross product along `dim`, which has size 3.
pub(crate) fn linalg_cross(a: &Tensor, b: &Tensor, dim: i64) -> Result<Tensor> {
    const OP: &str = "linalg_cross";
    let sizes = broadcast(OP, a.shape(), b.shape())?;
    let d = wrap_dim(OP, dim, sizes.len())?;
    if a.ndim() != b.ndim() || a.shape().get(d) != Some(&3) || b.shape().get(d) != Some(&3) {
        let (a, b) = (a.shape(), b.shape());
        return Err(Error::argument(
            OP,
            format!("expected size 3 along dimension {dim}, found shapes {a:?} and {b:?}"),
        ));
    }
    let part = |t: &Tensor, k: usize| ops::select(t, d as i64, SymInt::from(k % 3));
    let component = |k: usize| {
        let plus = ops::mul(&part(a, k + 1)?, &part(b, k + 2)?)?;
        ops::sub(&plus, &ops::mul(&part(a, k + 2)?, &part(b, k + 1)?)?, ONE)
    };
    ops::stack(&[component(0)?, component(1)?, component(2)?], d as i64)
}

/// Like [`linalg_cross`]; without a dimension, the first of size 3.
pub(crate) fn cross(a: &Tensor, b: &Tensor, dim: Option<i64>) -> Result<Tensor> {
    let dim = match dim {
        Some(d) => d,
        None => a.shape().iter().position(|&n| n == 3).ok_or_else(|| {
            Error::argument("cross", format!("expected a dimension of size 3, found shape {:?}", a.shape()))
        })? as i64,
    };
    linalg_cross(a, b, dim)
}
