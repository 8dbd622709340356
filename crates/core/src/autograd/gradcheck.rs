//! Checking derivatives against finite differences.
//!
//! Slow mode compares whole Jacobians; fast mode compares one product vᵀJu per pair of output and input, with random
//! u and v, and falls back to the Jacobians only to explain a mismatch. Both then test what a backward may get wrong
//! without a wrong Jacobian: gradients that ignore the incoming one, undefined incoming gradients, batches of them.
//! Values are compared outside of any op, so that a broken op cannot hide itself. The user's random stream is not
//! touched. The function is always called with the caller's own tensors: they are perturbed in place and restored.
//! A complex number counts as two real ones: the gradient of a real loss by both is what backward returns for it.

use super::api::{GradOptions, grad};
use super::forward::{dual_level, make_dual, unpack_dual};
use super::node::{Backward, Gradients, Needs, Node, boxed};
use super::record;
use crate::func::vmap;
use crate::warnings::warn;
use crate::{Complex, DType, Device, ErrorKind, Result, Spec, Tensor};
use firebrand_kernels::random::Generator;
use firebrand_kernels::write_slice;
use smallvec::smallvec;

/// Options of [`gradcheck`] and [`gradgradcheck`].
#[derive(Clone, Debug)]
pub struct GradcheckOptions {
    /// Step of the finite differences.
    pub eps: f64,
    /// Absolute tolerance.
    pub atol: f64,
    /// Tolerance relative to the numerical value.
    pub rtol: f64,
    /// Whether a failed check is an error or `false`. Other errors are errors either way.
    pub raise_exception: bool,
    /// Tolerance between two runs of the same backward.
    pub nondet_tol: f64,
    /// Undefined incoming gradients must count as zeros.
    pub check_undefined_grad: bool,
    /// Gradients must have the dtype of their input.
    pub check_grad_dtypes: bool,
    /// A batch of incoming gradients must give the same results as the gradients one by one.
    pub check_batched_grad: bool,
    /// A batch of tangents must give the same results as the tangents one by one.
    pub check_batched_forward_grad: bool,
    /// Check forward mode. In [`gradgradcheck`]: forward mode of the gradient.
    pub check_forward_ad: bool,
    /// Check backward mode. In [`gradgradcheck`]: the gradient of the gradient.
    pub check_backward_ad: bool,
    /// Random projections instead of whole Jacobians.
    pub fast_mode: bool,
}

impl Default for GradcheckOptions {
    fn default() -> Self {
        GradcheckOptions {
            eps: 1e-6,
            atol: 1e-5,
            rtol: 1e-3,
            raise_exception: true,
            nondet_tol: 0.0,
            check_undefined_grad: true,
            check_grad_dtypes: false,
            check_batched_grad: false,
            check_batched_forward_grad: false,
            check_forward_ad: false,
            check_backward_ad: true,
            fast_mode: false,
        }
    }
}

/// Checks the first derivatives of `f` at `inputs`, with respect to those that require grad.
pub fn gradcheck(
    f: impl Fn(&[Tensor]) -> Result<Vec<Tensor>>,
    inputs: &[Tensor],
    options: &GradcheckOptions,
) -> Result<bool> {
    let assertion = if !options.check_forward_ad && !options.check_backward_ad {
        Some("Expected at least one of check_forward_ad or check_backward_ad to be True")
    } else if options.check_batched_grad && !options.check_backward_ad {
        Some("check_batched_grad needs check_backward_ad")
    } else if options.check_batched_forward_grad && !options.check_forward_ad {
        Some("check_batched_forward_grad needs check_forward_ad")
    } else {
        None
    };
    if let Some(message) = assertion {
        return Err(ErrorKind::GradcheckAssertion { message }.into());
    }
    match (Checker { f: &f, inputs, wanted: wanted(inputs)?, options }).check() {
        Ok(()) => Ok(true),
        Err(e) if !options.raise_exception && matches!(e.kind(), ErrorKind::Gradcheck { .. }) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Checks the second derivatives of `f`: the derivatives of its gradient with respect to inputs and incoming gradients.
/// Without `grad_outputs`, random values in [-1, 1) that require grad are used.
pub fn gradgradcheck(
    f: impl Fn(&[Tensor]) -> Result<Vec<Tensor>>,
    inputs: &[Tensor],
    grad_outputs: Option<&[Tensor]>,
    options: &GradcheckOptions,
) -> Result<bool> {
    let seeds = match grad_outputs {
        Some(given) => given.to_vec(),
        None => {
            let mut random = Generator::new(SEED);
            let outputs = f(inputs)?;
            let seeds = outputs.iter().filter(|o| o.requires_grad()).map(|o| {
                let numbers: Vec<f64> = (0..count(o)).map(|_| 2.0 * random.uniform_f64() - 1.0).collect();
                tensor(&numbers, o.shape(), o.dtype())?.try_requires_grad_(true)
            });
            seeds.collect::<Result<Vec<_>>>()?
        }
    };
    let n = inputs.len();
    let all: Vec<Tensor> = inputs.iter().cloned().chain(seeds).collect();
    let gradient = |given: &[Tensor]| -> Result<Vec<Tensor>> {
        // Forward mode gets detached inputs, but the gradient taken here is with respect to the same ones.
        let restore = |(t, original): (&Tensor, &Tensor)| match original.requires_grad() && !t.requires_grad() {
            true => t.clone().try_requires_grad_(true),
            false => Ok(t.clone()),
        };
        let given = given.iter().zip(&all).map(restore).collect::<Result<Vec<_>>>()?;
        let (inputs, seeds) = given.split_at(n);
        let outputs: Vec<Tensor> = f(inputs)?.into_iter().filter(|o| o.requires_grad()).collect();
        let wanted: Vec<Tensor> = inputs.iter().filter(|i| i.requires_grad()).cloned().collect();
        let options = GradOptions {
            grad_outputs: seeds.iter().cloned().map(Some).collect(),
            create_graph: true,
            allow_unused: Some(true),
            ..Default::default()
        };
        Ok(grad(outputs, wanted, &options)?.into_iter().flatten().collect())
    };
    gradcheck(gradient, &all, options)
}

const SEED: u64 = 0x6772_6164;

/// The positions of the inputs to differentiate with respect to.
fn wanted(inputs: &[Tensor]) -> Result<Vec<usize>> {
    let wanted: Vec<usize> = (0..inputs.len()).filter(|&i| inputs[i].requires_grad()).collect();
    if wanted.is_empty() {
        let message =
            "gradcheck expects at least one input tensor to require gradient; call requires_grad_() on those to check"
                .to_string();
        return Err(ErrorKind::GradcheckUsage { message }.into());
    }
    for &index in &wanted {
        let t = &inputs[index];
        if !matches!(t.dtype(), DType::F64 | DType::C128) {
            warn(format!(
                "gradcheck: input {index} requires grad and is {}; finite differences are only accurate in f64",
                t.dtype()
            ));
        }
        if t.layout().has_internal_overlap() {
            return Err(ErrorKind::OverlappingInput { index }.into());
        }
    }
    Ok(wanted)
}

fn failure<T>(message: String) -> Result<T> {
    Err(ErrorKind::Gradcheck { message: format!("gradcheck: {message}") }.into())
}

/// Finite differences are of outputs that are alike.
fn same_kind(a: &Spec, b: &Spec) -> Result<()> {
    let message = if a.layout.sizes() != b.layout.sizes() {
        "Expected `func` to return outputs with the same shape when inputs are perturbed on two points"
    } else if a.dtype != b.dtype {
        "Expected `func` to return outputs with the same dtype when inputs are perturbed on two points"
    } else {
        return Ok(());
    };
    Err(ErrorKind::GradcheckAssertion { message }.into())
}

/// How many real numbers a tensor holds.
fn count(t: &Tensor) -> usize {
    t.numel() * if t.is_complex() { 2 } else { 1 }
}

/// The real values of a tensor, with the parts of complex elements side by side.
fn reals(t: &Tensor) -> Result<Vec<f64>> {
    if !t.is_complex() {
        return t.try_to_vec();
    }
    Ok(t.try_to_vec::<Complex<f64>>()?.into_iter().flat_map(|z| [z.re, z.im]).collect())
}

/// Overwrites the real values of a tensor.
fn write_reals(numbers: &[f64], t: &Tensor) -> Result<()> {
    crate::races::op!("gradcheck", t);
    if t.is_complex() {
        let pairs: Vec<Complex<f64>> = numbers.chunks_exact(2).map(|z| Complex::new(z[0], z[1])).collect();
        write_slice(&pairs, t.write()?.view_mut());
    } else {
        write_slice(numbers, t.write()?.view_mut());
    }
    Ok(())
}

/// A tensor of these values.
fn tensor(numbers: &[f64], shape: &[usize], dtype: DType) -> Result<Tensor> {
    let t = Tensor::try_empty(Spec::new(shape, dtype, Device::Cpu)?)?;
    write_reals(numbers, &t)?;
    Ok(t)
}

fn filled_like(t: &Tensor, value: f64) -> Result<Tensor> {
    Tensor::try_full_spec(t.shape(), value.into(), t.dtype())
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// A random direction of length one.
fn direction(random: &mut Generator, n: usize) -> Vec<f64> {
    let mut v: Vec<f64> = (0..n).map(|_| random.uniform_f64()).collect();
    let norm = dot(&v, &v).sqrt();
    if norm > 0.0 {
        v.iter_mut().for_each(|x| *x /= norm);
    }
    v
}

/// Holds a tensor at changed values; restores them when dropped, whatever happens.
struct Perturbed<'a> {
    tensor: &'a Tensor,
    original: Vec<f64>,
}

impl<'a> Perturbed<'a> {
    fn new(tensor: &'a Tensor) -> Result<Perturbed<'a>> {
        Ok(Perturbed { tensor, original: reals(tensor)? })
    }

    /// Sets the tensor to its original value plus `step · direction`.
    fn shift(&self, step: f64, direction: &[f64]) -> Result<()> {
        let moved: Vec<f64> = self.original.iter().zip(direction).map(|(x, d)| x + step * d).collect();
        write_reals(&moved, self.tensor)
    }
}

impl Drop for Perturbed<'_> {
    fn drop(&mut self) {
        // Refused only where another thread uses the caller's tensor meanwhile.
        if let Err(e) = write_reals(&self.original, self.tensor) {
            crate::warn(format!("gradcheck could not restore its input: {e}"));
        }
    }
}

/// Derivatives of one output by one input: a row per input element, a column per output element; whether the output is complex.
struct Jacobian(Vec<Vec<f64>>, bool);

impl std::fmt::Display for Jacobian {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[")?;
        for (k, row) in self.0.iter().enumerate() {
            let gap = if k == 0 { "" } else { "\n " };
            write!(f, "{gap}{row:.6?}")?;
        }
        f.write_str("]")
    }
}

/// An input of no further elements gives a Jacobian of no rows, which agrees with everything.
fn transposed(columns: &[Vec<f64>], rows: usize, complex: bool) -> Jacobian {
    Jacobian((0..rows).map(|r| columns.iter().map(|c| c[r]).collect()).collect(), complex)
}

/// Passes undefined gradients on to its inputs.
struct UndefinedGrad;

impl Backward for UndefinedGrad {
    fn name(&self) -> &str {
        "UndefinedGradBackward"
    }
    fn apply(&self, _: &Node, _: Gradients, _: &Needs<'_>) -> Result<Gradients> {
        Ok(smallvec![None])
    }
}

fn with_undefined_grad(t: &Tensor) -> Result<Tensor> {
    let mut alias = t.alias_with(t.layout().clone());
    record::finish(&mut alias, smallvec![record::edge(t)?], boxed(UndefinedGrad))?;
    Ok(alias)
}

/// How an analytical derivative was computed, for messages.
#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Backward,
    Forward,
}

struct Checker<'a> {
    f: &'a dyn Fn(&[Tensor]) -> Result<Vec<Tensor>>,
    inputs: &'a [Tensor],
    wanted: Vec<usize>,
    options: &'a GradcheckOptions,
}

impl Checker<'_> {
    fn evaluate(&self) -> Result<Vec<Tensor>> {
        (self.f)(self.inputs)
    }

    fn wanted_tensors(&self) -> Vec<Tensor> {
        self.wanted.iter().map(|&i| self.inputs[i].clone()).collect()
    }

    fn check(&self) -> Result<()> {
        let all = self.evaluate()?;
        // Outputs by their position in what f returns.
        let outputs: Vec<usize> = (0..all.len()).filter(|&k| all[k].requires_grad()).collect();
        if outputs.is_empty() {
            return self.check_constant(&all);
        }
        if self.options.fast_mode {
            self.check_fast(&all, &outputs)?
        } else {
            self.check_slow(&all, &outputs)?
        }
        if self.options.check_forward_ad && self.options.check_undefined_grad {
            self.check_undefined_tangents(&outputs)?;
        }
        if self.options.check_batched_forward_grad {
            self.check_batched_tangents(&all, &outputs)?;
        }
        if !self.options.check_backward_ad {
            return Ok(());
        }
        if self.options.check_batched_grad {
            self.check_batched(&all, &outputs)?;
        }
        self.check_zero_seeds(&all, &outputs)?;
        if self.options.check_undefined_grad {
            self.check_undefined_seeds(outputs.len())?;
        }
        Ok(())
    }

    // ---- derivatives

    /// Change of the listed outputs along a direction of one input, by central differences.
    fn numerical(&self, input: usize, direction: &[f64], outputs: &[usize]) -> Result<Vec<Vec<f64>>> {
        let held = Perturbed::new(&self.inputs[input])?;
        let read = |step: f64| -> Result<Vec<(Spec, Vec<f64>)>> {
            held.shift(step, direction)?;
            let all = self.evaluate()?;
            outputs.iter().map(|&k| Ok((all[k].spec().clone(), reals(&all[k])?))).collect()
        };
        let (plus, minus) = (read(self.options.eps)?, read(-self.options.eps)?);
        let scale = 2.0 * self.options.eps;
        let pairs = plus.iter().zip(&minus);
        pairs
            .map(|((kind, plus), (other, minus))| {
                same_kind(kind, other)?;
                Ok(plus.iter().zip(minus).map(|(p, m)| (p - m) / scale).collect())
            })
            .collect()
    }

    /// One numerical Jacobian per output.
    fn numerical_jacobians(&self, input: usize, outputs: &[usize]) -> Result<Vec<Jacobian>> {
        let n = count(&self.inputs[input]);
        let mut jacobians: Vec<Jacobian> = outputs.iter().map(|_| Jacobian(Vec::new(), false)).collect();
        for k in 0..n {
            let mut one = vec![0.0; n];
            one[k] = 1.0;
            for (j, row) in jacobians.iter_mut().zip(self.numerical(input, &one, outputs)?) {
                j.0.push(row);
            }
        }
        Ok(jacobians)
    }

    /// Gradients of all wanted inputs for one incoming gradient of one output, computed twice.
    fn vjp(&self, output: &Tensor, index: usize, seed: &[f64]) -> Result<Vec<Vec<f64>>> {
        let run = || -> Result<Vec<Vec<f64>>> {
            let options = GradOptions {
                grad_outputs: vec![Some(tensor(seed, output.shape(), output.dtype())?)],
                retain_graph: Some(true),
                allow_unused: Some(true),
                ..Default::default()
            };
            let grads = grad(output, self.wanted_tensors(), &options)?;
            let mut rows = Vec::new();
            for (g, &i) in grads.iter().zip(&self.wanted) {
                let input = &self.inputs[i];
                rows.push(match g {
                    None => vec![0.0; count(input)],
                    Some(g) if self.options.check_grad_dtypes && g.dtype() != input.dtype() => {
                        let (found, expected) = (g.dtype(), input.dtype());
                        return failure(format!("the gradient of input {i} has dtype {found}, expected {expected}"));
                    }
                    Some(g) => reals(g)?,
                });
            }
            Ok(rows)
        };
        let (first, second) = (run()?, run()?);
        let apart = first.iter().flatten().zip(second.iter().flatten()).map(|(a, b)| (a - b).abs());
        let most = apart.fold(0.0, f64::max);
        if most > self.options.nondet_tol {
            return failure(format!(
                "Backward is not reentrant: two runs of output {index} with the same gradient differ by {most:e}; \
                 nondet_tol allows {:e}",
                self.options.nondet_tol
            ));
        }
        Ok(first)
    }

    /// Tangents of the listed outputs for a tangent of one input; the others have zeros, or none at all.
    fn jvp(&self, input: usize, direction: &[f64], outputs: &[usize], others: bool) -> Result<Vec<Vec<f64>>> {
        dual_level(|| {
            let mut duals = self.inputs.to_vec();
            for &i in &self.wanted {
                // Nothing is recorded: what requires grad says only what to differentiate by.
                let t = self.inputs[i].detach();
                duals[i] = if i == input {
                    make_dual(&t, &tensor(direction, t.shape(), t.dtype())?)?
                } else if others {
                    make_dual(&t, &filled_like(&t, 0.0)?)?
                } else {
                    t
                };
            }
            let all = (self.f)(&duals)?;
            let tangent = |&k: &usize| match unpack_dual(&all[k])?.1 {
                Some(t) => reals(&t),
                None => Ok(vec![0.0; count(&all[k])]),
            };
            outputs.iter().map(tangent).collect()
        })?
    }

    /// One analytical Jacobian of one output by each wanted input.
    fn backward_jacobians(&self, output: &Tensor, index: usize) -> Result<Vec<Jacobian>> {
        let n = count(output);
        let mut columns: Vec<Vec<Vec<f64>>> = self.wanted.iter().map(|_| Vec::new()).collect();
        for k in 0..n {
            let mut one = vec![0.0; n];
            one[k] = 1.0;
            for (c, g) in columns.iter_mut().zip(self.vjp(output, index, &one)?) {
                c.push(g);
            }
        }
        Ok(columns
            .iter()
            .zip(&self.wanted)
            .map(|(c, &i)| transposed(c, count(&self.inputs[i]), output.is_complex()))
            .collect())
    }

    fn forward_jacobians(&self, all: &[Tensor], input: usize, outputs: &[usize]) -> Result<Vec<Jacobian>> {
        let n = count(&self.inputs[input]);
        let mut jacobians: Vec<Jacobian> = outputs.iter().map(|&k| Jacobian(Vec::new(), all[k].is_complex())).collect();
        for k in 0..n {
            let mut one = vec![0.0; n];
            one[k] = 1.0;
            for (j, row) in jacobians.iter_mut().zip(self.jvp(input, &one, outputs, true)?) {
                j.0.push(row);
            }
        }
        Ok(jacobians)
    }

    // ---- comparisons

    fn close(&self, analytical: f64, numerical: f64, atol: f64) -> bool {
        (analytical - numerical).abs() <= atol + self.options.rtol * numerical.abs() || analytical == numerical
    }

    fn compare(&self, analytical: &Jacobian, numerical: &Jacobian, at: (usize, usize), mode: Mode) -> Result<()> {
        let mut pairs = analytical.0.iter().flatten().zip(numerical.0.iter().flatten());
        if pairs.all(|(a, n)| self.close(*a, *n, self.options.atol)) {
            return Ok(());
        }
        failure(self.mismatch(analytical, numerical, at, mode))
    }

    /// What differs, and in which part of complex outputs.
    fn mismatch(&self, analytical: &Jacobian, numerical: &Jacobian, (o, i): (usize, usize), mode: Mode) -> String {
        let how = if mode == Mode::Forward { "computed with forward mode " } else { "" };
        let differs = |part: usize| {
            let rows = analytical.0.iter().zip(&numerical.0);
            let mut pairs = rows.flat_map(|(a, n)| a.iter().zip(n).skip(part).step_by(2));
            pairs.any(|(a, n)| !self.close(*a, *n, self.options.atol))
        };
        let part = match (analytical.1, analytical.1 && differs(1)) {
            (true, true) => "While considering the imaginary part of complex outputs only, ",
            (true, false) => "While considering the real part of complex outputs only, ",
            (false, _) => "",
        };
        format!(
            "{part}Jacobian {how}mismatch for output {o} with respect to input {i} (a row per input element)\n\
             numerical:\n{numerical}\nanalytical:\n{analytical}"
        )
    }

    fn check_slow(&self, all: &[Tensor], outputs: &[usize]) -> Result<()> {
        let numerical: Vec<Vec<Jacobian>> =
            self.wanted.iter().map(|&i| self.numerical_jacobians(i, outputs)).collect::<Result<_>>()?;
        if self.options.check_backward_ad {
            for (o, &k) in outputs.iter().enumerate() {
                let analytical = self.backward_jacobians(&all[k], o)?;
                for ((a, n), &i) in analytical.iter().zip(&numerical).zip(&self.wanted) {
                    self.compare(a, &n[o], (o, i), Mode::Backward)?;
                }
            }
        }
        if self.options.check_forward_ad {
            for (n, &i) in numerical.iter().zip(&self.wanted) {
                let analytical = self.forward_jacobians(all, i, outputs)?;
                for (o, (a, n)) in analytical.iter().zip(n).enumerate() {
                    self.compare(a, n, (o, i), Mode::Forward)?;
                }
            }
        }
        Ok(())
    }

    fn check_fast(&self, all: &[Tensor], outputs: &[usize]) -> Result<()> {
        let mut random = Generator::new(SEED);
        let us: Vec<Vec<f64>> = self.wanted.iter().map(|&i| direction(&mut random, count(&self.inputs[i]))).collect();
        let vs: Vec<Vec<f64>> = outputs.iter().map(|&k| direction(&mut random, count(&all[k]))).collect();
        let numerical: Vec<Vec<Vec<f64>>> =
            us.iter().zip(&self.wanted).map(|(u, &i)| self.numerical(i, u, outputs)).collect::<Result<_>>()?;
        let compare = |product: f64, o: usize, w: usize, mode: Mode| -> Result<()> {
            let expected = dot(&vs[o], &numerical[w][o]);
            // A matrix of entries that are each off by atol, seen through u and v.
            let atol = self.options.atol * us[w].iter().sum::<f64>() * vs[o].iter().sum::<f64>();
            if self.close(product, expected, atol) {
                return Ok(());
            }
            self.explain(all, outputs, (o, w), (product, expected), mode)
        };
        if self.options.check_backward_ad {
            for (o, &k) in outputs.iter().enumerate() {
                for (w, g) in self.vjp(&all[k], o, &vs[o])?.iter().enumerate() {
                    compare(dot(g, &us[w]), o, w, Mode::Backward)?;
                }
            }
        }
        if self.options.check_forward_ad {
            for (w, &i) in self.wanted.iter().enumerate() {
                for (o, t) in self.jvp(i, &us[w], outputs, true)?.iter().enumerate() {
                    compare(dot(t, &vs[o]), o, w, Mode::Forward)?;
                }
            }
        }
        Ok(())
    }

    /// Recomputes both Jacobians of a pair whose projections differ.
    fn explain(
        &self,
        all: &[Tensor],
        outputs: &[usize],
        (o, w): (usize, usize),
        (found, expected): (f64, f64),
        mode: Mode,
    ) -> Result<()> {
        let input = self.wanted[w];
        let numerical = self.numerical_jacobians(input, outputs)?.swap_remove(o);
        let analytical = match mode {
            Mode::Backward => self.backward_jacobians(&all[outputs[o]], o)?.swap_remove(w),
            Mode::Forward => self.forward_jacobians(all, input, outputs)?.swap_remove(o),
        };
        let both = analytical.0.iter().flatten().zip(numerical.0.iter().flatten());
        let most = both.map(|(a, n)| (a - n).abs()).fold(0.0, f64::max);
        failure(format!(
            "fast mode: the projected derivatives are {found:e} (analytical) and {expected:e} (numerical). Recomputed in \
             slow mode, the Jacobians differ by up to {most:e}: {}",
            self.mismatch(&analytical, &numerical, (o, input), mode)
        ))
    }

    // ---- what a right Jacobian does not show

    /// No output has a derivative: then none may change.
    fn check_constant(&self, all: &[Tensor]) -> Result<()> {
        let outputs: Vec<usize> = (0..all.len()).filter(|&k| all[k].dtype().is_differentiable()).collect();
        for &i in &self.wanted {
            let jacobians = if self.options.fast_mode {
                let u = direction(&mut Generator::new(SEED), count(&self.inputs[i]));
                self.numerical(i, &u, &outputs)?.into_iter().map(|row| Jacobian(vec![row], false)).collect()
            } else {
                self.numerical_jacobians(i, &outputs)?
            };
            for (o, j) in jacobians.iter().enumerate() {
                if j.0.iter().flatten().any(|v| *v != 0.0) {
                    return failure(format!(
                        "Numerical gradient for function expected to be zero: no output requires grad, but the Jacobian of output \
                         {o} with respect to input {i} is\n{j}"
                    ));
                }
            }
        }
        Ok(())
    }

    fn check_batched(&self, all: &[Tensor], outputs: &[usize]) -> Result<()> {
        let mut random = Generator::new(SEED);
        for (o, &k) in outputs.iter().enumerate() {
            let seeds: Vec<Vec<f64>> = (0..2).map(|_| direction(&mut random, count(&all[k]))).collect();
            let shape: Vec<usize> = std::iter::once(2).chain(all[k].shape().iter().copied()).collect();
            let options = GradOptions {
                grad_outputs: vec![Some(tensor(&seeds.concat(), &shape, all[k].dtype())?)],
                retain_graph: Some(true),
                allow_unused: Some(true),
                is_grads_batched: true,
                ..Default::default()
            };
            let batched = grad(&all[k], self.wanted_tensors(), &options)?;
            let single = [self.vjp(&all[k], o, &seeds[0])?, self.vjp(&all[k], o, &seeds[1])?];
            for (w, b) in batched.iter().enumerate() {
                let expected: Vec<f64> = single.iter().flat_map(|s| s[w].iter().copied()).collect();
                let found = b.as_ref().map_or_else(|| Ok(vec![0.0; expected.len()]), reals)?;
                if !found.iter().zip(&expected).all(|(f, e)| self.close(*f, *e, self.options.atol)) {
                    let i = self.wanted[w];
                    return failure(format!(
                        "gradcheck or gradgradcheck failed while testing batched gradient computation: a batch of gradients of output {o} gives input {i} the gradients {found:?}; one by one they \
                         are {expected:?}"
                    ));
                }
            }
        }
        Ok(())
    }

    fn check_batched_tangents(&self, all: &[Tensor], outputs: &[usize]) -> Result<()> {
        let mut random = Generator::new(SEED);
        for &i in &self.wanted {
            let t = &self.inputs[i];
            let directions: Vec<Vec<f64>> = (0..2).map(|_| direction(&mut random, count(t))).collect();
            let shape: Vec<usize> = std::iter::once(2).chain(t.shape().iter().copied()).collect();
            let batch = tensor(&directions.concat(), &shape, t.dtype())?;
            let pushed = |tangent: &Tensor| -> Result<Vec<Tensor>> {
                dual_level(|| {
                    let mut inputs: Vec<Tensor> = self.inputs.iter().map(Tensor::detach).collect();
                    inputs[i] = make_dual(&inputs[i], tangent)?;
                    let results = (self.f)(&inputs)?;
                    let one = |&k: &usize| match unpack_dual(&results[k])?.1 {
                        Some(t) => Ok(t),
                        None => filled_like(&results[k], 0.0),
                    };
                    outputs.iter().map(one).collect()
                })?
            };
            let batched = vmap(pushed).call(&batch).or_else(|e| match e.kind() {
                ErrorKind::VmapRandomness { .. } => failure(
                    "While computing batched gradients, got: vmap: We do not yet support calling random operations inside of vmap. \
                     Please perform random operations outside of vmap as a workaround"
                        .into(),
                ),
                _ => Err(e),
            })?;
            let single = [self.jvp(i, &directions[0], outputs, false)?, self.jvp(i, &directions[1], outputs, false)?];
            for (o, found) in batched.iter().enumerate() {
                let (found, expected) = (reals(found)?, [&single[0][o][..], &single[1][o][..]].concat());
                if !found.iter().zip(&expected).all(|(f, e)| self.close(*f, *e, self.options.atol)) {
                    let k = outputs[o];
                    return failure(format!(
                        "a batch of tangents of input {i} gives output {o} ({:?}) the tangents {found:?}; one by one they are \
                         {expected:?}",
                        all[k].shape()
                    ));
                }
            }
        }
        Ok(())
    }

    /// Zero incoming gradients give zeros; and gradients match their inputs.
    fn check_zero_seeds(&self, all: &[Tensor], outputs: &[usize]) -> Result<()> {
        let roots: Vec<Tensor> = outputs.iter().map(|&k| all[k].clone()).collect();
        let seeds = roots.iter().map(|o| filled_like(o, 0.0).map(Some)).collect::<Result<_>>()?;
        let options = GradOptions { grad_outputs: seeds, allow_unused: Some(true), ..Default::default() };
        for (g, &i) in grad(roots, self.wanted_tensors(), &options)?.iter().zip(&self.wanted) {
            let (Some(g), input) = (g, &self.inputs[i]) else { continue };
            if reals(g)?.iter().any(|v| *v != 0.0) {
                return failure(format!(
                    "backward not multiplied by grad_output: the gradient of input {i} is not zero for zero incoming gradients"
                ));
            }
            if g.dtype() != input.dtype() || g.shape() != input.shape() {
                return failure(format!(
                    "the gradient of input {i} is {} {:?}, the input {} {:?}",
                    g.dtype(),
                    g.shape(),
                    input.dtype(),
                    input.shape()
                ));
            }
        }
        Ok(())
    }

    /// Undefined gradients count as zeros: for all outputs at once, then for each of several.
    fn check_undefined_seeds(&self, n: usize) -> Result<()> {
        let choices = std::iter::once(None).chain((0..if n > 1 { n } else { 0 }).map(Some));
        for chosen in choices {
            let outputs: Vec<Tensor> = self.evaluate()?.into_iter().filter(Tensor::requires_grad).collect();
            let roots = outputs
                .iter()
                .enumerate()
                .map(|(k, o)| if chosen.is_none_or(|c| c == k) { with_undefined_grad(o) } else { Ok(o.clone()) })
                .collect::<Result<Vec<_>>>()?;
            let seeds = roots.iter().map(|o| filled_like(o, 0.0).map(Some)).collect::<Result<_>>()?;
            let options = GradOptions { grad_outputs: seeds, allow_unused: Some(true), ..Default::default() };
            let grads = grad(roots, self.wanted_tensors(), &options).or_else(|e| {
                warn(
                    "Backwards compatibility: New undefined gradient support checking feature is enabled by default, but it may \
                     break existing callers of this function. If this is true for you, you can call this function with \
                     check_undefined_grad=False to disable the feature",
                );
                failure(format!("Expected backward function to handle undefined output grads; it failed: {e}"))
            })?;
            for (g, &i) in grads.iter().zip(&self.wanted) {
                if let Some(g) = g
                    && reals(g)?.iter().any(|v| *v != 0.0)
                {
                    return failure(format!(
                        "Expected backward function to handle undefined output grads: they must count as zeros, but input {i} got {:?}",
                        reals(g)?
                    ));
                }
            }
        }
        Ok(())
    }

    /// Inputs without tangent count as inputs with a zero tangent.
    fn check_undefined_tangents(&self, outputs: &[usize]) -> Result<()> {
        if let [i] = self.wanted[..] {
            // There are no others; a tangent of zeros must give zeros.
            let zeros = self.jvp(i, &vec![0.0; count(&self.inputs[i])], outputs, false)?;
            if zeros.iter().flatten().any(|v| *v != 0.0) {
                return failure(format!("forward mode: a zero tangent of input {i} gives a tangent that is not zero"));
            }
            return Ok(());
        }
        let mut random = Generator::new(SEED);
        for &i in &self.wanted {
            let u = direction(&mut random, count(&self.inputs[i]));
            let (zeros, none) = (self.jvp(i, &u, outputs, true)?, self.jvp(i, &u, outputs, false)?);
            for (o, (z, n)) in zeros.iter().zip(&none).enumerate() {
                if !n.iter().zip(z).all(|(n, z)| self.close(*n, *z, self.options.atol)) {
                    return failure(format!(
                        "forward mode: the tangent of output {o} for a tangent of input {i} is {n:?} if the other \
                         inputs have none, {z:?} if they have zeros"
                    ));
                }
            }
        }
        Ok(())
    }
}
