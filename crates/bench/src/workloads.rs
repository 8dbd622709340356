//! The workloads of `bench/README.md`. Peers do exactly the same work in `bench/peers.py`.

use super::{Bench, Done};
use firebrand::autograd::{no_grad, saved_tensors_hooks};
use firebrand::prelude::*;
use firebrand::{SymInt, ops};
use std::hint::black_box;

/// Pairs of ops in the chain.
pub(super) const CHAIN: usize = 500;
/// How often the chain is run; its parts are timed one by one.
const CHAIN_RUNS: usize = 150;
/// Numbers of the pointwise workload.
const POINTS: usize = 1 << 24;
const BUDGET: f64 = 1.0;

pub(super) fn normal(sizes: &[usize]) -> Result<Tensor> {
    let sizes: Vec<SymInt> = sizes.iter().map(|&n| n.into()).collect();
    ops::randn(&sizes, Some(DType::F32), None)
}

/// Backward from a given gradient; gradients of the leaves are dropped.
fn backward_and_drop(y: &Tensor, gradient: &Tensor, leaves: &[&Tensor]) -> Result<()> {
    y.try_backward(&BackwardOptions { grad_tensors: vec![Some(gradient.clone())], ..Default::default() })?;
    leaves.iter().for_each(|t| t.zero_grad());
    Ok(())
}

/// The chain of small ops; `each` sees every result.
pub(super) fn chain(x: &Tensor, each: &dyn Fn(&Tensor)) -> Result<Tensor> {
    let (a, b) = (Tensor::full([4], 0.999, DType::F32), Tensor::full([4], 1e-3, DType::F32));
    let mut y = x.clone();
    for _ in 0..CHAIN {
        y = ops::mul(&y, &a)?;
        each(&y);
        y = ops::add(&y, &b, 1.into())?;
        each(&y);
    }
    Ok(y)
}

pub(super) fn ops(bench: &Bench) -> Done {
    let x = Tensor::ones([4], DType::F32).requires_grad_();
    let a = Tensor::full([4], 0.999, DType::F32);
    let gradient = Tensor::ones([4], DType::F32);
    let chain = |each: &dyn Fn(&Tensor)| chain(&x, each);
    // Fastest forward and fastest backward.
    let apart = |each: &dyn Fn(&Tensor)| -> Result<(f64, f64)> {
        let (mut forward, mut backward) = (f64::INFINITY, f64::INFINITY);
        for _ in 0..CHAIN_RUNS {
            let clock = bench.clock.start();
            let y = chain(each)?;
            forward = forward.min(clock.seconds());
            let options = BackwardOptions { grad_tensors: vec![Some(gradient.clone())], ..Default::default() };
            let clock = bench.clock.start();
            y.try_backward(&options)?;
            backward = backward.min(clock.seconds());
            x.zero_grad();
        }
        Ok((forward, backward))
    };
    let per_op = 1e9 / (2 * CHAIN) as f64;
    let (forward, backward) = apart(&|_| {})?;
    bench.emit("forward_grad", forward * per_op, "ns")?;
    bench.emit("backward", backward * per_op, "ns")?;
    let no_grad_seconds = no_grad(|| bench.clock.best(BUDGET, || chain(&|_| {}).map(drop)))?;
    bench.emit("forward_no_grad", no_grad_seconds * per_op, "ns")?;
    let (hooked_forward, hooked_backward) = apart(&|t| {
        t.register_hook(|g: &Tensor| {
            black_box(g);
        });
    })?;
    bench.emit("hook_register", (hooked_forward - forward) * per_op, "ns")?;
    bench.emit("hook_fire", (hooked_backward - backward) * per_op, "ns")?;
    bench.emit("saved_pack_unpack", (saving(bench, &x, &a, true)? - saving(bench, &x, &a, false)?) * per_op, "ns")
}

/// Seconds of the fastest forward and backward of a chain in which every op saves one tensor, through hooks or not.
fn saving(bench: &Bench, x: &Tensor, a: &Tensor, hooked: bool) -> Result<f64> {
    let gradient = Tensor::ones([4], DType::F32);
    let mut fastest = f64::INFINITY;
    for _ in 0..CHAIN_RUNS {
        let clock = bench.clock.start();
        let scope =
            if hooked { Some(saved_tensors_hooks(|t| Ok(t.clone()), |t: &Tensor| Ok(t.clone()))?) } else { None };
        let mut y = x.clone();
        for _ in 0..2 * CHAIN {
            y = ops::mul(&y, a)?;
        }
        drop(scope);
        backward_and_drop(&y, &gradient, &[x])?;
        fastest = fastest.min(clock.seconds());
    }
    Ok(fastest)
}

fn ten_ops(x: &Tensor) -> Result<Tensor> {
    let cube = ops::mul(&ops::mul(x, x)?, x)?;
    let u = ops::mul_scalar(&ops::add(&ops::mul_scalar(&cube, 0.044715.into())?, x, 1.into())?, 0.7978845608.into())?;
    let y = ops::mul(&ops::add_scalar(&ops::tanh(&u)?, 1.into(), 1.into())?, x)?;
    ops::sub_scalar(&ops::mul_scalar(&y, 0.5.into())?, 0.1.into(), 1.into())
}

pub(super) fn pointwise(bench: &Bench) -> Done {
    let x = normal(&[POINTS])?.requires_grad_();
    bench.emit_ms("forward", no_grad(|| bench.measure(BUDGET, || ten_ops(&x).map(drop)))?)?;
    let gradient = Tensor::ones([POINTS], DType::F32);
    bench.emit_ms("forward_backward", bench.measure(BUDGET, || backward_and_drop(&ten_ops(&x)?, &gradient, &[&x]))?)
}

pub(super) fn softmax_layernorm(bench: &Bench) -> Done {
    const SIZES: [usize; 2] = [4096, 1024];
    let x = normal(&SIZES)?.requires_grad_();
    let (w, b) =
        (Tensor::ones([1024], DType::F32).requires_grad_(), Tensor::zeros([1024], DType::F32).requires_grad_());
    let gradient = normal(&SIZES)?;
    let run = || {
        let y = ops::layer_norm(&ops::softmax(&x, -1, None)?, &[1024.into()], Some(&w), Some(&b), 1e-5, false)?;
        backward_and_drop(&y, &gradient, &[&x, &w, &b])
    };
    bench.emit_ms("forward_backward", bench.measure(BUDGET, run)?)
}

pub(super) fn matmul(bench: &Bench) -> Done {
    const SECONDS: f64 = 0.6;
    for n in [64usize, 256, 512, 1024, 2048] {
        let (a, b, out) = (normal(&[n, n])?, normal(&[n, n])?, Tensor::zeros([n, n], DType::F32));
        let product = bench.measure(SECONDS, || ops::mm_out(&a, &b, &out).map(drop))?;
        bench.emit_measured(&n.to_string(), 2e-9 * (n * n * n) as f64 / product.seconds, "GFLOPS", product)?;
    }
    let (a, b, out) = (normal(&[32, 128, 64])?, normal(&[32, 64, 128])?, Tensor::zeros([32, 128, 128], DType::F32));
    let product = bench.measure(SECONDS, || ops::bmm_out(&a, &b, &out).map(drop))?;
    let rate = 2e-9 * (32 * 128 * 64 * 128) as f64 / product.seconds;
    bench.emit_measured("batch32x128x64x128", rate, "GFLOPS", product)
}

/// A 2-D convolution of the net.
struct Layer {
    name: &'static str,
    inputs: usize,
    side: usize,
    outputs: usize,
    kernel: usize,
    stride: i64,
    padding: i64,
    /// How often the net has it.
    times: f64,
}

const fn layer(name: &'static str, sizes: [usize; 4], stride: i64, padding: i64, times: f64) -> Layer {
    let [inputs, side, outputs, kernel] = sizes;
    Layer { name, inputs, side, outputs, kernel, stride, padding, times }
}

const LAYERS: [Layer; 8] = [
    layer("stem", [3, 32, 16, 3], 1, 1, 1.0),
    layer("c16", [16, 32, 16, 3], 1, 1, 6.0),
    layer("c16-32s2", [16, 32, 32, 3], 2, 1, 1.0),
    layer("p16-32s2", [16, 32, 32, 1], 2, 0, 1.0),
    layer("c32", [32, 16, 32, 3], 1, 1, 5.0),
    layer("c32-64s2", [32, 16, 64, 3], 2, 1, 1.0),
    layer("p32-64s2", [32, 16, 64, 1], 2, 0, 1.0),
    layer("c64", [64, 8, 64, 3], 1, 1, 5.0),
];

pub(super) fn conv(bench: &Bench) -> Done {
    const SECONDS: f64 = 0.25;
    const BATCH: usize = 64;
    const ONE: SymInt = SymInt::ONE;
    let none = [SymInt::from(0i64); 2];
    let mut total = 0.0;
    for l in &LAYERS {
        let x = normal(&[BATCH, l.inputs, l.side, l.side])?;
        let w = ops::mul_scalar(&normal(&[l.outputs, l.inputs, l.kernel, l.kernel])?, 0.1.into())?;
        let (stride, padding): ([SymInt; 2], [SymInt; 2]) = ([l.stride.into(); 2], [l.padding.into(); 2]);
        let forward = || ops::convolution(&x, &w, None, &stride, &padding, &[ONE; 2], false, &none, ONE);
        let gradient = normal(forward()?.shape())?;
        let backward = |mask: [bool; 3]| {
            ops::convolution_backward(&gradient, &x, &w, None, &stride, &padding, &[ONE; 2], false, &none, ONE, mask)
        };
        let mut cell = |way: &str, f: &dyn Fn() -> Result<()>| -> Done {
            let call = bench.measure(SECONDS, f)?;
            total += l.times * call.seconds;
            bench.emit_ms(&format!("{}.{way}", l.name), call)
        };
        cell("forward", &|| forward().map(drop))?;
        cell("grad_input", &|| backward([true, false, false]).map(drop))?;
        cell("grad_weight", &|| backward([false, true, false]).map(drop))?;
    }
    bench.emit("total", 1e3 * total, "ms")
}
