//! Sparse tensors in coordinate form (COO), as far as gradients need them.
//!
//! A sparse tensor has the shape, dtype and device of the dense one, indices and values beside it ([`Coo`]), and no memory of
//! its own. Its flags name both devices, so the test that every op with several operands makes anyway (`ops::devices`) finds
//! it: `add` and `add_` take a sparse second operand, all others refuse it by name. An op with one operand fails where it asks for
//! memory (`Tensor::read`). So no op computes with a sparse tensor by accident, and dense ones pay nothing.
//!
//! Here are the gradients of `embedding`, `embedding_bag` and `gather`, their sums as PyTorch makes them, `coalesce` and
//! `to_dense`. There are no derivatives of these, no layers and no transforms: such a gradient is refused where it would arise.

use crate::autograd::{NoGrad, forward, record};
use crate::dispatch::{Op, Outputs, Value};
use crate::error::expect_ok;
use crate::ops::lists;
use crate::ops::shape::wrap_dim;
use crate::sym::checked_sizes;
use crate::tensor::{DEVICES, Tensor};
use crate::{DType, Device, Error, ErrorKind, Result, Scalar, Spec, SymInt, ops, state};
use firebrand_kernels::Storage;
use smallvec::smallvec;

/// What a sparse tensor holds. Positions may occur several times; their values count as a sum.
#[derive(Clone)]
pub(crate) struct Coo {
    /// `[sparse dimensions, entries]`, i64.
    indices: Tensor,
    /// `[entries, dense sizes…]`.
    values: Tensor,
    /// Whether positions ascend and are different.
    coalesced: bool,
}

const ONE: Scalar = Scalar::Int(1);

fn integers(values: Vec<i64>) -> Result<Tensor> {
    let n = values.len();
    Tensor::try_from_vec(values, [n])
}

impl Coo {
    fn into_tensor(self, shape: &[usize]) -> Result<Tensor> {
        let spec = Spec::new(shape, self.values.dtype(), Device::Cpu)?;
        let t = Tensor::from_parts(Storage::meta(0), spec, DEVICES);
        let _ = t.extras().sparse.set(self);
        Ok(t)
    }

    fn sparse_dim(&self) -> usize {
        self.indices.shape()[0]
    }

    fn entries(&self) -> usize {
        self.indices.shape()[1]
    }

    /// For every entry, where its position lies among all of them.
    fn positions(&self, shape: &[usize]) -> Result<Vec<i64>> {
        let (n, all) = (self.entries(), self.indices.try_to_vec::<i64>()?);
        let mut at = all[..n].to_vec();
        for (d, row) in all.chunks_exact(n.max(1)).enumerate().skip(1) {
            at.iter_mut().zip(row).for_each(|(a, i)| *a = *a * shape[d] as i64 + i);
        }
        Ok(at)
    }

    /// New values at these entries of the indices: `sums` adds rows, each to one of `n` groups.
    fn regrouped(&self, kept: Vec<i64>, sums: &[(&Tensor, Vec<i64>, Scalar)], coalesced: bool) -> Result<Coo> {
        let mut sizes = self.values.sym_sizes();
        sizes[0] = kept.len().into();
        let mut values = ops::new_zeros(&self.values, &sizes, None, None)?;
        for (rows, groups, alpha) in sums {
            values = ops::index_add(&values, 0, &integers(groups.clone())?, rows, *alpha)?;
        }
        Ok(Coo { indices: ops::index_select(&self.indices, 1, &integers(kept)?)?, values, coalesced })
    }

    /// With ascending positions, each once.
    fn coalesced(&self, shape: &[usize]) -> Result<Coo> {
        if self.coalesced || self.entries() < 2 {
            return Ok(Coo { coalesced: true, ..self.clone() });
        }
        let at = self.positions(shape)?;
        let mut order: Vec<usize> = (0..at.len()).collect();
        order.sort_by_key(|&k| at[k]); // stable: values of one position are added in their order
        let (mut kept, mut groups) = (Vec::new(), vec![0; at.len()]);
        for (i, &k) in order.iter().enumerate() {
            if i == 0 || at[order[i - 1]] != at[k] {
                kept.push(k as i64);
            }
            groups[k] = kept.len() as i64 - 1;
        }
        self.regrouped(kept, &[(&self.values, groups, ONE)], true)
    }

    /// The sum of two, merged as PyTorch does: one pass over both, in which equal positions that meet become one entry.
    fn plus(&self, other: &Coo, alpha: Scalar, shape: &[usize]) -> Result<Coo> {
        let (a, b) = (self.positions(shape)?, other.positions(shape)?);
        // Entries of both, one list after the other.
        let both = Coo { indices: ops::cat(&[self.indices.clone(), other.indices.clone()], 1)?, ..self.clone() };
        let (mut i, mut j, mut kept, mut to) = (0, 0, Vec::new(), (Vec::new(), Vec::new()));
        while i < a.len() || j < b.len() {
            let group = kept.len() as i64;
            let first = j == b.len() || (i < a.len() && a[i] <= b[j]);
            let second = i == a.len() || (j < b.len() && b[j] <= a[i]);
            kept.push(if first { i } else { a.len() + j } as i64);
            if first {
                to.0.push(group);
                i += 1;
            }
            if second {
                to.1.push(group);
                j += 1;
            }
        }
        let sums = [(&self.values, to.0, ONE), (&other.values, to.1, alpha)];
        both.regrouped(kept, &sums, self.coalesced && other.coalesced)
    }

    /// `dense += alpha * self`, entry by entry.
    fn add_to(&self, dense: &Tensor, alpha: Scalar) -> Result<()> {
        if self.sparse_dim() == 1 {
            return ops::index_add_(dense, 0, &ops::select(&self.indices, 0, 0.into())?, &self.values, alpha).map(drop);
        }
        let values = if alpha == ONE { self.values.clone() } else { ops::mul_scalar(&self.values, alpha)? };
        let rows = ops::unbind(&self.indices, 0)?;
        ops::index_put_(dense, &rows.into_iter().map(Some).collect::<Vec<_>>(), &values, true).map(drop)
    }
}

impl Tensor {
    /// A sparse tensor: entry `k` of `values` stands at position `indices[.., k]`, zeros everywhere else. Values have the sizes of
    /// the dimensions that `indices` does not name after their first.
    ///
    /// ```
    /// # use firebrand_core as firebrand;
    /// use firebrand::Tensor;
    ///
    /// let rows = Tensor::from_slice(&[2i64, 0, 2], [1, 3]);
    /// let t = Tensor::sparse_coo_tensor(&rows, &Tensor::new(&[1.0f32, 2.0, 3.0]), &[4]);
    /// assert_eq!(t.nnz(), 3);
    /// assert_eq!(t.coalesce().values().to_vec::<f32>(), [2.0, 4.0]);
    /// assert_eq!(t.to_dense().to_vec::<f32>(), [2.0, 0.0, 4.0, 0.0]);
    /// ```
    pub fn try_sparse_coo_tensor(indices: &Tensor, values: &Tensor, shape: &[usize]) -> Result<Tensor> {
        const OP: &str = "sparse_coo_tensor";
        let wrong = |m: String| Err(Error::argument(OP, m));
        let &[dims, n] = indices.shape() else {
            return wrong(format!("expected indices of shape [dimensions, entries], found {:?}", indices.shape()));
        };
        if indices.dtype() != DType::I64 {
            return wrong(format!("expected indices of dtype int64, found {}", indices.dtype()));
        }
        if dims == 0 || dims > shape.len() || values.shape() != [&[n], &shape[dims..]].concat() {
            let found = (indices.shape(), values.shape());
            return wrong(format!("indices and values of shapes {found:?} do not make a tensor of shape {shape:?}"));
        }
        [indices, values].iter().try_for_each(|t| t.need_data(OP))?;
        if values.requires_grad() && state::is(state::GRAD) {
            return wrong("sparse tensors have no derivatives; detach the values".into());
        }
        let found = indices.try_to_vec::<i64>()?;
        for (d, row) in found.chunks_exact(n.max(1)).enumerate() {
            if let Some(i) = row.iter().find(|&&i| !(0..shape[d] as i64).contains(&i)) {
                return wrong(format!("the index {i} is outside of dimension {d}, whose size is {}", shape[d]));
            }
        }
        let (indices, values) = (ops::clone(&indices.detach(), None)?, ops::clone(&values.detach(), None)?);
        Coo { indices, values, coalesced: n < 2 }.into_tensor(shape)
    }

    /// As [`Tensor::try_sparse_coo_tensor`].
    ///
    /// # Panics
    /// If indices and values do not make a tensor of this shape.
    #[track_caller]
    pub fn sparse_coo_tensor(indices: &Tensor, values: &Tensor, shape: &[usize]) -> Tensor {
        expect_ok(Tensor::try_sparse_coo_tensor(indices, values, shape))
    }

    /// Whether it is a sparse tensor: indices and values in place of an array of all elements.
    #[inline]
    pub fn is_sparse(&self) -> bool {
        self.flags() & DEVICES == DEVICES
    }

    fn coo(&self, op: &'static str) -> Result<&Coo> {
        let coo = self.extras_if_any().filter(|_| self.is_sparse()).and_then(|e| e.sparse.get());
        coo.ok_or_else(|| Error::argument(op, "expected a sparse tensor, found a dense one or a view of a sparse one"))
    }

    /// How many entries a sparse tensor has, repeated positions counted as often as they occur; 0 for a dense one.
    pub fn nnz(&self) -> usize {
        self.coo("nnz").map_or(0, Coo::entries)
    }

    /// How many leading dimensions of a sparse tensor are named by its indices; 0 for a dense one.
    pub fn sparse_dim(&self) -> usize {
        self.coo("sparse_dim").map_or(0, Coo::sparse_dim)
    }

    /// How many dimensions the values of an entry have.
    pub fn dense_dim(&self) -> usize {
        self.ndim() - self.sparse_dim()
    }

    /// Whether positions ascend and occur once.
    pub fn is_coalesced(&self) -> bool {
        self.coo("is_coalesced").is_ok_and(|c| c.coalesced)
    }

    /// A sparse tensor whose positions ascend, with the sum of the values of each.
    pub fn try_coalesce(&self) -> Result<Tensor> {
        let coo = self.coo("coalesce")?;
        let _plain = NoGrad::new();
        if coo.coalesced { Ok(self.clone()) } else { coo.coalesced(self.shape())?.into_tensor(self.shape()) }
    }

    /// As [`Tensor::try_coalesce`].
    ///
    /// # Panics
    /// If the tensor is dense.
    #[track_caller]
    pub fn coalesce(&self) -> Tensor {
        expect_ok(self.try_coalesce())
    }

    fn coalesced_part(&self, op: &'static str) -> Result<&Coo> {
        let coo = self.coo(op)?;
        if coo.coalesced {
            Ok(coo)
        } else {
            Err(Error::argument(op, "expected a coalesced tensor; call coalesce() first"))
        }
    }

    /// The positions of a coalesced tensor, `[sparse dimensions, entries]`.
    pub fn try_indices(&self) -> Result<Tensor> {
        self.coalesced_part("indices").map(|c| c.indices.clone())
    }

    /// As [`Tensor::try_indices`].
    ///
    /// # Panics
    /// If the tensor is dense or not coalesced.
    #[track_caller]
    pub fn indices(&self) -> Tensor {
        expect_ok(self.try_indices())
    }

    /// The values of a coalesced tensor, `[entries, dense sizes…]`.
    pub fn try_values(&self) -> Result<Tensor> {
        self.coalesced_part("values").map(|c| c.values.clone())
    }

    /// As [`Tensor::try_values`].
    ///
    /// # Panics
    /// If the tensor is dense or not coalesced.
    #[track_caller]
    pub fn values(&self) -> Tensor {
        expect_ok(self.try_values())
    }

    /// An array of all elements; a dense tensor as it is.
    pub fn try_to_dense(&self) -> Result<Tensor> {
        if !self.is_sparse() {
            return Ok(self.clone());
        }
        let coo = self.coo("to_dense")?;
        let _plain = NoGrad::new();
        let dense = ops::new_zeros(&coo.values, &self.sym_sizes(), None, None)?;
        coo.add_to(&dense, ONE)?;
        dense.set_version_counter(0);
        Ok(dense)
    }

    /// As [`Tensor::try_to_dense`].
    ///
    /// # Panics
    /// If there is no memory for all elements.
    #[track_caller]
    pub fn to_dense(&self) -> Tensor {
        expect_ok(self.try_to_dense())
    }
}

// ---- what happens to sparse tensors elsewhere

/// Whether one of two is sparse.
#[inline]
pub(crate) fn either(a: &Tensor, b: &Tensor) -> bool {
    a.is_sparse() || b.is_sparse()
}

/// The refusal by an op that reads or writes memory.
#[cold]
pub(crate) fn refused(op: &'static str, argument: &str) -> Error {
    ErrorKind::SparseOperand { op, argument: argument.into() }.into()
}

/// Lets an alias of a whole sparse tensor be one too.
pub(crate) fn share(from: &Tensor, alias: &Tensor) {
    if let Ok(coo) = from.coo("alias")
        && from.layout().sizes() == alias.layout().sizes()
    {
        let _ = alias.extras().sparse.set(coo.clone());
    }
}

/// Another tensor with a copy of the values.
pub(crate) fn copy(t: &Tensor) -> Result<Tensor> {
    let coo = t.coo("clone")?;
    let _plain = NoGrad::new();
    Coo { indices: ops::clone(&coo.indices, None)?, values: ops::clone(&coo.values, None)?, ..*coo }
        .into_tensor(t.shape())
}

/// Whether some value is NaN.
pub(crate) fn has_nan(t: &Tensor) -> Result<bool> {
    ops::formulas::has_nan(&t.coo("isnan")?.values)
}

/// Indices and values for printing, however they are ordered.
pub(crate) fn parts(t: &Tensor) -> Option<(&Tensor, &Tensor)> {
    t.coo("print").ok().map(|c| (&c.indices, &c.values))
}

/// `a + alpha * b`: sparse if both are, else dense. The dense one is written only where `may_write`.
fn sum(op: &'static str, a: &Tensor, b: &Tensor, alpha: Scalar, may_write: bool) -> Result<Tensor> {
    if a.layout().sizes() != b.layout().sizes() || a.dtype() != b.dtype() {
        let (expected, found) = ((a.dtype(), a.shape()), (b.dtype(), b.shape()));
        return Err(Error::argument(op, format!("expected a sparse operand like {expected:?}, found {found:?}")));
    }
    let _plain = NoGrad::new();
    match (a.is_sparse(), b.is_sparse()) {
        (true, true) => {
            let (x, y) = (a.coo(op)?, b.coo(op)?);
            if x.sparse_dim() != y.sparse_dim() {
                return Err(Error::argument(op, "expected sparse tensors with the same number of sparse dimensions"));
            }
            x.plus(y, alpha, a.shape())?.into_tensor(a.shape())
        }
        (false, _) => {
            let dense = if may_write { a.clone() } else { ops::clone(a, None)? };
            b.coo(op)?.add_to(&dense, alpha)?;
            Ok(dense)
        }
        (true, false) => Err(Error::argument(op, "a sparse tensor takes no dense one; add the sparse to the dense")),
    }
}

/// The sum of two gradients of which one or both are sparse. `may_write`: the first, if it is dense, may hold the sum.
pub(crate) fn sum_gradients(a: &Tensor, b: &Tensor, may_write: bool) -> Result<Tensor> {
    const OP: &str = "add";
    if b.is_sparse() { sum(OP, a, b, ONE, may_write) } else { sum(OP, b, a, ONE, false) }
}

/// A call of an op that has a sparse operand: `add` and `add_` of one to a dense tensor, or of two.
pub(crate) fn call(op: Op, args: &[Value]) -> Result<Option<Outputs>> {
    let (Some(Value::Tensor(a)), Some(Value::Tensor(b)), Some(Value::Scalar(alpha))) =
        (args.first(), args.get(1), args.get(2))
    else {
        return Ok(None);
    };
    let in_place = op == Op::ADD__TENSOR;
    if !either(a, b) || !(in_place || op == Op::ADD_TENSOR) || (in_place && a.is_sparse()) {
        return Ok(None);
    }
    sum(op.base(), a, b, *alpha, in_place).map(|t| Some(smallvec![Value::Tensor(t)]))
}

// ---- gradients that are sparse

/// Refuses a sparse gradient where it would lose a derivative, or where someone watches ops and could not follow it.
fn need_plain(op: &'static str, option: &str, grad: &Tensor) -> Result<()> {
    let layered = |s: &mut state::Stacks| !s.layers.is_empty() || !s.inner.is_empty() || s.tracer.is_some();
    let why = if state::is(state::GRAD) && record::wants_grad(grad) {
        "in a backward pass that is recorded (create_graph)"
    } else if state::is(state::LEVEL) || state::stacks(layered) {
        "under a transform, a layer or a capture"
    } else if forward::tangent(grad).is_some() {
        "in forward mode"
    } else if grad.is_meta() {
        "on the meta device"
    } else {
        return Ok(());
    };
    Err(Error::argument(op, format!("there is no sparse gradient {why}; pass {option}=false")))
}

/// The gradient of `embedding` with `sparse=true`: a row for every index, but for the padding.
pub(crate) fn embedding_gradient(
    grad: &Tensor,
    indices: &Tensor,
    num_weights: SymInt,
    padding_idx: SymInt,
    scale_grad_by_freq: bool,
) -> Result<Tensor> {
    const OP: &str = "embedding_backward";
    need_plain(OP, "sparse", grad)?;
    if scale_grad_by_freq {
        return Err(Error::argument(
            OP,
            "scale_grad_by_freq is not supported with sparse gradients; pass sparse=false",
        ));
    }
    let width = grad.shape().last().copied().unwrap_or(1);
    let mut at = ops::reshape(&ops::to_dtype(indices, DType::I64, false, false, None)?, &[(-1).into()])?;
    let mut rows = ops::reshape(grad, &[at.numel().into(), width.into()])?;
    if padding_idx >= 0i64 {
        let kept = ops::select(&ops::nonzero(&ops::ne_scalar(&at, padding_idx.into())?)?, 1, 0.into())?;
        (at, rows) = (ops::index_select(&at, 0, &kept)?, ops::index_select(&rows, 0, &kept)?);
    }
    let n = at.numel();
    let indices = ops::reshape(&at, &[1.into(), n.into()])?;
    Coo { indices, values: rows, coalesced: false }.into_tensor(&[checked_sizes(OP, &[num_weights])?[0], width])
}

/// The gradient of `gather` with `sparse_grad=true`: an entry for every element that was read.
pub(crate) fn gather_gradient(grad: &Tensor, sizes: &[SymInt], dim: i64, index: &Tensor) -> Result<Tensor> {
    const OP: &str = "gather_backward";
    need_plain(OP, "sparse_grad", grad)?;
    let shape = checked_sizes(OP, sizes)?;
    let flat = |t: &Tensor| ops::reshape(t, &[(-1).into()]);
    if shape.is_empty() {
        return ops::reshape(grad, sizes); // one element: nothing to save
    }
    let dim = wrap_dim(OP, dim, shape.len())?;
    let ndim = shape.len();
    let inside = |(d, (&n, &size)): (usize, (&usize, &usize))| d == dim || n <= size;
    let read = if index.ndim() == 0 { &[1] } else { index.shape() }; // a 0-dim index is one of one element
    let fits = read.len() == ndim && read.iter().zip(&shape).enumerate().all(inside);
    if !fits || grad.shape() != index.shape() {
        let m = format!(
            "expected a gradient and an index of one shape, inside {shape:?} but along {dim}; found {:?} and {:?}",
            grad.shape(),
            index.shape()
        );
        return Err(Error::argument(OP, m));
    }
    let coordinate = |d: usize| {
        if d == dim {
            return flat(&ops::to_dtype(index, DType::I64, false, false, None)?);
        }
        let n = index.shape()[d];
        let line: Vec<SymInt> = (0..ndim).map(|k| if k == d { n.into() } else { 1.into() }).collect();
        let counted = ops::reshape(&integers(lists::collected(n, 0..n as i64)?)?, &line)?;
        flat(&ops::expand(&counted, &index.sym_sizes(), false)?)
    };
    let rows = (0..ndim).map(coordinate).collect::<Result<Vec<_>>>()?;
    Coo { indices: ops::stack(&rows, 0)?, values: flat(grad)?, coalesced: false }.into_tensor(&shape)
}
