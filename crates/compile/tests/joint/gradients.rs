//! Gradients of single functions: bit-equal to a plain run, and PyTorch's numbers.

use super::*;
use firebrand_core::{DType, ops};

struct Row {
    case: &'static str,
    f: F,
    inputs: &'static [&'static [f32]],
    expected: &'static [&'static [f32]],
}

/// Weights as a tensor of the graph: 1, 2, 3, ….
fn counted(y: &Tensor) -> Result<Tensor> {
    let n = y.numel() as i64;
    let weights = ops::arange_start_step(1.into(), (n + 1).into(), 1.into(), Some(y.dtype()), Some(y.device()))?;
    y.try_mul(&weights)
}

fn indices(x: &Tensor, list: &[i64]) -> Result<Tensor> {
    // Made of ops, so that the graph has no constants.
    let mut parts = Vec::new();
    for &i in list {
        parts.push(ops::full(&[1.into()], i.into(), Some(DType::I64), Some(x.device()))?);
    }
    ops::cat(&parts, 0)
}

#[rustfmt::skip]
const ROWS: &[Row] = &[
    Row { case: "U-121", f: |x| Ok(vec![&(&x[0] * &x[0]) * &x[0]]), inputs: &[&[1.0, 2.0, 3.0]], expected: &[&[3.0, 12.0, 27.0]] },
    Row { case: "U-122", f: |x| Ok(vec![ops::where_self(&x[0].try_gt_scalar(0.0)?, &(&x[0] * 2.0), &(&x[0] * 5.0))?]), inputs: &[&[-1.0, 0.0, 2.0]], expected: &[&[5.0, 5.0, 2.0]] },
    Row { case: "U-123", f: |x| Ok(vec![x[0].try_relu()?]), inputs: &[&[-1.0, 0.0, 2.0]], expected: &[&[0.0, 0.0, 1.0]] },
    Row { case: "U-124", f: |x| Ok(vec![x[0].try_abs()?]), inputs: &[&[-1.0, 0.0, 2.0]], expected: &[&[-1.0, 0.0, 1.0]] },
    Row { case: "U-125", f: |x| Ok(vec![x[0].try_max()?]), inputs: &[&[2.0, 2.0, 1.0]], expected: &[&[0.5, 0.5, 0.0]] },
    Row { case: "U-125", f: |x| Ok(vec![ops::amax(&x[0], &[], false)?]), inputs: &[&[2.0, 2.0, 1.0]], expected: &[&[0.5, 0.5, 0.0]] },
    Row { case: "U-126", f: |x| Ok(vec![counted(&ops::sort(&x[0], -1, false)?.0)?]), inputs: &[&[3.0, 1.0, 2.0]], expected: &[&[3.0, 1.0, 2.0]] },
    Row { case: "U-127", f: |x| Ok(vec![x[0].try_cumsum(0)?]), inputs: &[&[1.0, 1.0, 1.0]], expected: &[&[3.0, 2.0, 1.0]] },
    Row { case: "U-128", f: |x| Ok(vec![x[0].try_prod()?]), inputs: &[&[2.0, 3.0, 0.0]], expected: &[&[0.0, 0.0, 6.0]] },
    Row { case: "U-129", f: |x| Ok(vec![x[0].try_softmax(0)?.try_select(0, 0)?]), inputs: &[&[0.0, 0.0, 0.0]], expected: &[&[0.222_222_22, -0.111_111_11, -0.111_111_11]] },
    Row { case: "U-130", f: |x| {
        let picked = x[0].try_gather(0, &indices(&x[0], &[0, 0, 2])?)?;
        let parts = [1.0, 10.0, 100.0].map(|w| ops::full(&[1.into()], w.into(), Some(DType::F32), Some(x[0].device())));
        Ok(vec![picked.try_mul(&ops::cat(&parts.into_iter().collect::<Result<Vec<_>>>()?, 0)?)?])
    }, inputs: &[&[1.0, 2.0, 3.0]], expected: &[&[11.0, 0.0, 100.0]] },
    Row { case: "U-131", f: |x| Ok(vec![x[0].try_clamp(Some(0.0.into()), Some(1.0.into()))?]), inputs: &[&[-1.0, 0.0, 0.5, 1.0, 2.0]], expected: &[&[0.0, 0.0, 1.0, 0.0, 0.0]] },
    Row { case: "U-131", f: |x| Ok(vec![x[0].try_clamp(Some(0.0.into()), None)?]), inputs: &[&[0.0, 1.0, 2.0]], expected: &[&[0.0, 1.0, 1.0]] },
    Row { case: "U-132", f: |x| Ok(vec![x[0].try_sqrt()?]), inputs: &[&[0.0, 1.0, 4.0]], expected: &[&[f32::INFINITY, 0.5, 0.25]] },
    Row { case: "U-133", f: |x| Ok(vec![ops::linalg_vector_norm(&x[0], 2.0.into(), None, false, None)?]), inputs: &[&[0.0, 0.0]], expected: &[&[0.0, 0.0]] },
    Row { case: "U-134", f: |x| {
        let y = &x[0] * 2.0;
        y.try_add_scalar_(1.0, 1.0)?;
        y.try_mul_scalar_(3.0)?;
        Ok(vec![y])
    }, inputs: &[&[1.0]], expected: &[&[6.0]] },
    Row { case: "U-135", f: |x| Ok(vec![counted(&ops::roll(&ops::flip(&x[0], &[0])?, &[1.into()], &[0])?)?]), inputs: &[&[1.0, 1.0, 1.0]], expected: &[&[1.0, 3.0, 2.0]] },
    Row { case: "U-136", f: |x| Ok(vec![ops::outer(&x[0], &x[1])?]), inputs: &[&[1.0, 2.0], &[3.0, 4.0, 5.0]], expected: &[&[12.0, 12.0], &[3.0, 3.0, 3.0]] },
    Row { case: "U-137", f: |x| Ok(vec![ops::var(&x[0], true)?]), inputs: &[&[1.0, 2.0, 3.0]], expected: &[&[-1.0, 0.0, 1.0]] },
    Row { case: "U-138", f: |x| Ok(vec![ops::maximum(&x[0], &x[1])?]), inputs: &[&[1.0, 2.0], &[1.0, 3.0]], expected: &[&[0.5, 0.0], &[0.5, 1.0]] },
];

/// U-121 to U-138: every back end is bit-equal to the plain run, which gives PyTorch's gradients.
#[test]
fn numerics() {
    for Row { case, f, inputs, expected } in ROWS {
        let given = || inputs.iter().map(|v| leaf(v)).collect::<Vec<_>>();
        let x = given();
        let plain = f(&x).unwrap();
        let wanted: Vec<Vec<u64>> = grads(&plain, &x).iter().map(|g| bits(g.as_ref().unwrap())).collect();
        for (found, expected) in grads(&f(&x).unwrap(), &x).iter().zip(*expected) {
            for (a, b) in found.as_ref().unwrap().to_vec::<f32>().iter().zip(*expected) {
                assert!(a == b || (a - b).abs() <= 1e-7, "{case}: {a} for {b}");
            }
        }
        let graph = capture(f, &x);
        for (name, backend) in backends() {
            let x = given();
            let executable = compile(&backend, &graph, &x);
            let outs = call(&executable, &x);
            assert_eq!(bits(&outs[0]), bits(&plain[0]), "{case} on {name}: the value");
            let found: Vec<Vec<u64>> = grads(&outs, &x).iter().map(|g| bits(g.as_ref().unwrap())).collect();
            assert_eq!(found, wanted, "{case} on {name}: the gradients");
        }
    }
}
