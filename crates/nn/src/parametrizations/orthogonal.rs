//! Orthogonal weights: columns (or rows, if there are fewer) of length 1 at right angles, whatever the parameter becomes.

use super::{Parametrization, Parametrized};
use firebrand_core::autograd::no_grad;
use firebrand_core::module::{Buffer, Module, ModuleCore, ModuleVisitor, Parameter, fmt_module};
use firebrand_core::{DType, Error, Result, SymInt, Tensor, ops};

/// How a free matrix becomes an orthogonal one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrthogonalMap {
    /// The exponential of a skew-symmetric matrix.
    MatrixExp,
    /// `(I + A/2)(I − A/2)⁻¹` of a skew-symmetric matrix `A`.
    Cayley,
    /// A product of reflections; real matrices only.
    Householder,
}

/// Options of [`orthogonal`], with PyTorch's defaults.
#[derive(Clone, Copy, Debug)]
pub struct OrthogonalOptions {
    /// Which map; `None` is the exponential for square or complex matrices, reflections for others.
    pub orthogonal_map: Option<OrthogonalMap>,
    /// Whether the map is applied around the weight that the layer has, which a buffer keeps.
    pub use_trivialization: bool,
}

impl Default for OrthogonalOptions {
    fn default() -> OrthogonalOptions {
        OrthogonalOptions { orthogonal_map: None, use_trivialization: true }
    }
}

/// A weight, or a batch of them, that is orthogonal (unitary if complex).
pub struct Orthogonal {
    original: Parameter,
    map: OrthogonalMap,
    around: Around,
    core: ModuleCore,
}

/// What the map is multiplied onto.
#[derive(Module)]
struct Around {
    base: Option<Buffer>,
    core: ModuleCore,
}

impl Module for Orthogonal {
    fn core(&self) -> &ModuleCore {
        &self.core
    }
    fn visit<'a>(&'a self, visitor: &mut dyn ModuleVisitor<'a>) {
        visitor.parameter("original", &self.original);
        visitor.module("0", &self.around);
    }
}

impl std::fmt::Debug for Orthogonal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        fmt_module(self, f)
    }
}

fn sizes(t: &Tensor) -> (usize, usize) {
    let n = t.ndim();
    (t.shape()[n - 2], t.shape()[n - 1])
}

fn turned(t: &Tensor) -> Result<Tensor> {
    ops::transpose(t, -2, -1)
}

fn diagonal(t: &Tensor) -> Result<Tensor> {
    ops::diagonal(t, 0, -2, -1)
}

/// Appends columns to every matrix of a batch.
fn widened(t: &Tensor, columns: Tensor) -> Result<Tensor> {
    ops::cat(&[t.clone(), columns], -1)
}

/// The sizes of a batch of matrices with other rows and columns.
fn matrices(t: &Tensor, rows: usize, columns: usize) -> Vec<SymInt> {
    let mut sizes = t.sym_sizes().to_vec();
    let n = sizes.len();
    (sizes[n - 2], sizes[n - 1]) = (rows.into(), columns.into());
    sizes
}

/// The orthogonal factor of a QR decomposition whose triangular one has a positive diagonal.
fn orthogonal_factor(matrix: &Tensor) -> Result<Tensor> {
    let (reflectors, tau) = ops::geqrf(matrix)?;
    let q = ops::linalg_householder_product(&reflectors, &tau)?;
    ops::mul(&q, &ops::unsqueeze(&ops::sgn(&diagonal(&reflectors)?)?, -2)?)
}

fn is_orthogonal(q: &Tensor) -> Result<bool> {
    let (n, k) = sizes(q);
    let precision = if q.dtype().to_real() == DType::F64 { f64::EPSILON } else { f32::EPSILON.into() };
    let product = ops::matmul(&ops::adjoint(q)?, q)?;
    let identity = ops::expand_as(&ops::eye(k.into(), Some(q.dtype()), None)?, &product)?;
    ops::allclose(&product, &identity, 1e-5, 10.0 * n as f64 * precision, false)
}

impl Orthogonal {
    /// The parameter that gives this weight, and what the map is applied around.
    fn start(weight: &Tensor, trivialize: bool) -> Result<(Tensor, Option<Tensor>)> {
        let (rows, columns) = sizes(weight);
        let wide = rows < columns;
        let mut q = if wide { turned(weight)? } else { weight.clone() };
        let (n, k) = sizes(&q);
        if !trivialize {
            // The inverse of the product of reflections; the diagonal holds the signs of R's.
            let (reflectors, tau) = ops::geqrf(&q)?;
            let on = diagonal(&reflectors)?;
            let kept = ops::eq_scalar(&tau, 0.into())?;
            let signs = ops::sgn(&on)?;
            ops::copy_(&on, &ops::where_self(&kept, &ops::neg(&signs)?, &signs)?, false)?;
            let start = if wide { turned(&reflectors)? } else { reflectors };
            return Ok((ops::clone(&start, None)?, None));
        }
        if n != k {
            let random = ops::randn(&matrices(&q, n, n - k), Some(q.dtype()), None)?;
            q = orthogonal_factor(&widened(&q, random)?)?;
        } else if !is_orthogonal(&q)? {
            q = orthogonal_factor(&q)?;
        } else {
            q = ops::clone(&q, None)?;
        }
        let minus_identity = ops::zeros_like(weight, None, None, None)?;
        ops::fill_(&diagonal(&minus_identity)?, (-1).into())?;
        Ok((minus_identity, Some(q)))
    }
}

impl Parametrization for Orthogonal {
    fn compute(&self) -> Result<Tensor> {
        let (rows, columns) = sizes(&self.original);
        let wide = rows < columns;
        let x = if wide { turned(&self.original)? } else { Tensor::clone(&self.original) };
        let (n, k) = sizes(&x);
        let mut q = if self.map == OrthogonalMap::Householder {
            let below = ops::tril(&x, (-1).into())?;
            let lengths = ops::sum_dim(&ops::mul(&below, &below)?, Some(&[-2]), false, None)?;
            let tau = ops::mul_scalar(&ops::reciprocal(&ops::add_scalar(&lengths, 1.into(), 1.into())?)?, 2.0.into())?;
            let signs = ops::to_dtype(&diagonal(&x)?.detach(), DType::I32, false, false, None)?;
            ops::mul(&ops::linalg_householder_product(&below, &tau)?, &ops::unsqueeze(&signs, -2)?)?
        } else {
            let mut below = ops::tril(&x, 0.into())?;
            if n != k {
                let zeros = ops::new_zeros(&below, &matrices(&below, n, n - k), None, None)?;
                below = widened(&below, zeros)?;
            }
            let skew = ops::sub(&below, &ops::adjoint(&below)?, 1.into())?;
            let q = if self.map == OrthogonalMap::MatrixExp {
                ops::matrix_exp(&skew)?
            } else {
                let identity = ops::eye(n.into(), Some(skew.dtype()), None)?;
                let half = |sign: f64| ops::add(&identity, &skew, (0.5 * sign).into());
                ops::linalg_solve(&half(-1.0)?, &half(1.0)?, true)?
            };
            if n == k { q } else { ops::slice(&q, -1, None, Some(k.into()), 1.into())? }
        };
        if let Some(base) = &self.around.base {
            q = ops::matmul(&base.get(), &q)?;
        }
        if wide { turned(&q) } else { Ok(q) }
    }
}

/// A layer whose parameter `name` is orthogonal: a matrix, or a batch of them.
pub fn orthogonal<L: Module>(layer: L, name: &str, options: OrthogonalOptions) -> Result<Parametrized<L, Orthogonal>> {
    Parametrized::new(layer, name, |weight| {
        let wrong = |m: String| Err(Error::argument("orthogonal", m));
        if weight.ndim() < 2 {
            return wrong(format!("expected a matrix or a batch of matrices, found shape {:?}", weight.shape()));
        }
        let (rows, columns) = sizes(weight);
        let map = options.orthogonal_map.unwrap_or(if rows == columns || weight.is_complex() {
            OrthogonalMap::MatrixExp
        } else {
            OrthogonalMap::Householder
        });
        if weight.is_complex() && map == OrthogonalMap::Householder {
            return wrong("reflections make real matrices only; choose MatrixExp or Cayley".into());
        }
        if !options.use_trivialization && map != OrthogonalMap::Householder {
            return wrong(format!(
                "{map:?} has no inverse to start from; set use_trivialization, or choose Householder"
            ));
        }
        let (start, base) = no_grad(|| Orthogonal::start(weight, options.use_trivialization))?;
        let around = Around { base: base.map(Buffer::new), core: ModuleCore::new() };
        Ok(Orthogonal { original: Parameter::try_new(start)?, map, around, core: ModuleCore::new() })
    })
}
