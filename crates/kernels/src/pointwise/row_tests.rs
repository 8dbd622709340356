//! Programs that fold: rows, columns and totals against plain sums, for every memory order and number of threads.

use super::*;
use crate::DType;
use crate::test_tensors::{Lie, Tensor, any_threads};

/// `y = x - mean(x)`, its largest number a row, the sum over rows and the mean of everything.
fn program(dtype: DType, n: usize) -> Program {
    let mut b = Builder::new();
    let x = b.input(dtype);
    let sum = b.fold(Fold::Sum, x);
    let part = b.constant(dtype, 1.0 / n as f64);
    let mean = b.op(Op::Mul, &[sum, part]);
    let y = b.op(Op::Sub, &[x, mean]);
    let most = b.fold(Fold::Max, y);
    b.output(y);
    b.output_to(most, Sink::Rows);
    b.output_to(x, Sink::Columns(1.0));
    b.output_to(x, Sink::Total(0.5));
    b.finish()
}

#[test]
fn rows_columns_and_totals() {
    for (rows, n) in [(1, 1), (3, 5), (70, 300), (9, 2500), (200, 64)] {
        for (dtype, compute, eps) in
            [(DType::F32, DType::F32, 1e-5), (DType::F64, DType::F64, 1e-12), (DType::BF16, DType::F32, 1e-2)]
        {
            let x = Tensor::random(7, dtype, &[rows, n], Lie::Contiguous, -40, 40);
            let v = x.values();
            let got = any_threads(|| {
                let y = Tensor::zeros(dtype, &[rows, n], Lie::Contiguous);
                let (most, columns) =
                    (Tensor::zeros(dtype, &[rows], Lie::Contiguous), Tensor::zeros(DType::F32, &[n], Lie::Contiguous));
                let total = Tensor::zeros(DType::F64, &[1], Lie::Contiguous);
                let outputs = [y.view_mut(), most.view_mut(), columns.view_mut(), total.view_mut()];
                program(compute, n).run(&[x.view().into()], &outputs);
                [y.values(), most.values(), columns.values(), total.values()]
            });
            let near =
                |a: f64, b: f64| assert!((a - b).abs() <= eps * b.abs().max(1.0) * 40.0, "{a} {b} {dtype} {rows}x{n}");
            for r in 0..rows {
                let row = &v[r * n..(r + 1) * n];
                let mean = row.iter().sum::<f64>() / n as f64;
                row.iter().zip(&got[0][r * n..]).for_each(|(x, y)| near(*y, x - mean));
                near(got[1][r], row.iter().fold(f64::MIN, |m, x| m.max(*x)) - mean);
            }
            (0..n).for_each(|c| near(got[2][c], (0..rows).map(|r| v[r * n + c]).sum()));
            near(got[3][0], 0.5 * v.iter().sum::<f64>());
        }
    }
}

/// An operand that is one number along each row folds as if it were written out; NaN shows in a largest number.
#[test]
fn repeated_operands_and_nan() {
    let x = Tensor::new(DType::F32, &[3], Lie::Contiguous, &[1.0, f64::NAN, 3.0]);
    let mut b = Builder::new();
    let v = b.input(DType::F32);
    let (sum, most) = (b.fold(Fold::Sum, v), b.fold(Fold::Max, v));
    b.output_to(sum, Sink::Rows);
    b.output_to(most, Sink::Rows);
    let program = b.finish();
    let (sum, most) =
        (Tensor::zeros(DType::F32, &[3], Lie::Contiguous), Tensor::zeros(DType::F32, &[3], Lie::Contiguous));
    let whole = x.view();
    #[allow(unsafe_code)]
    // SAFETY: a stride of 0 repeats the three elements.
    let repeated = unsafe { whole.with_geometry(0, &[3, 500], &[1, 0]) };
    program.run(&[repeated.into()], &[sum.view_mut(), most.view_mut()]);
    assert_eq!((sum.values()[0], sum.values()[2], most.values()[0]), (500.0, 1500.0, 1.0));
    assert!(sum.values()[1].is_nan() && most.values()[1].is_nan());
}

/// What is recorded computes what the kernel does.
#[test]
fn a_recorded_formula_goes_through_temporaries() {
    let (x, out) =
        (Tensor::zeros(DType::BF16, &[1], Lie::Contiguous), Tensor::zeros(DType::BF16, &[1], Lie::Contiguous));
    let ((), tape) = record(|| {
        let between = Tensor::zeros(DType::F32, &[1], Lie::Contiguous);
        unary(Op::Exp, DType::F32, x.view(), between.view_mut());
        binary(Op::Mul, DType::F32, between.view().into(), Value::Float(2.0).into(), out.view_mut());
    });
    let actions: Vec<Action> = tape.steps.iter().map(|s| s.action).collect();
    assert_eq!(actions, [Action::Op(Op::Exp), Action::Op(Op::Mul), Action::Round(DType::BF16)]);
    assert_eq!(tape.at(out.view().as_ptr() as usize), Some(Source::Step(2)));
    assert_eq!(out.values(), [0.0], "nothing is computed");
}

/// Pairs of instructions give what the single ones give, to the bit, for tiles and scalars in every place.
#[test]
fn pairs_are_two_instructions() {
    let n = 1500;
    let tensors: Vec<Tensor> =
        (0..3).map(|k| Tensor::random(k + 1, DType::F32, &[n], Lie::Contiguous, -3, 3)).collect();
    let seconds = [Op::Add, Op::Sub, Op::Mul, Op::Square, Op::Relu, Op::Exp, Op::Tanh, Op::Sigmoid];
    for first in [Op::Add, Op::Sub, Op::Mul] {
        for (second, swapped) in seconds.iter().flat_map(|&s| [(s, false), (s, true)]) {
            for scalars in 0..8usize {
                let build = |paired: bool| {
                    let mut b = Builder::new();
                    let given: Vec<Val> = (0..3).map(|_| b.input(DType::F32)).collect();
                    let v = b.op(first, &[given[0], given[1]]);
                    let y = match (second.arity(), swapped) {
                        (1, _) => b.op(second, &[v]),
                        (_, false) => b.op(second, &[v, given[2]]),
                        (_, true) => b.op(second, &[given[2], v]),
                    };
                    b.output(y);
                    if paired {
                        b.pair();
                    }
                    let program = b.finish();
                    assert_eq!(program.len(), if paired { 1 } else { 2 });
                    let operand = |k: usize| match scalars >> k & 1 {
                        1 => Value::Float(0.3 + k as f64).into(),
                        _ => tensors[k].view().into(),
                    };
                    any_threads(|| {
                        let y = Tensor::zeros(DType::F32, &[n], Lie::Contiguous);
                        program.run(&[operand(0), operand(1), operand(2)], &[y.view_mut()]);
                        y.values()
                    })
                };
                let (one, two) = (build(true), build(false));
                assert!(one.iter().zip(&two).all(|(a, b)| a == b), "{first:?} {second:?} {swapped} {scalars:03b}");
            }
        }
    }
}

/// A value with two readers is not hidden in a pair.
#[test]
fn shared_values_are_not_paired() {
    let mut b = Builder::new();
    let x = b.input(DType::F32);
    let v = b.op(Op::Mul, &[x, x]);
    let (y, z) = (b.op(Op::Add, &[v, x]), b.op(Op::Sub, &[v, x]));
    b.output(y);
    b.output(z);
    b.pair();
    assert_eq!(b.finish().len(), 3);
}

/// Sums of terms are folds of the terms, also where an operand is one number along the row.
#[test]
fn sums_of_terms() {
    let (rows, n) = (7, 300);
    for dtype in [DType::F32, DType::F64] {
        let x = Tensor::random(3, dtype, &[rows, n], Lie::Contiguous, -40, 40);
        let y = Tensor::random(4, dtype, &[rows, n], Lie::Contiguous, -40, 40);
        let mut b = Builder::new();
        let (vx, vy) = (b.input(dtype), b.input(dtype));
        let three = b.constant(dtype, 3.0);
        for (p, q) in [(vx, vy), (vx, three), (three, vy), (three, three)] {
            for terms in [Terms::Products, Terms::SquaredDifferences] {
                let s = b.sum(terms, p, q);
                b.output_to(s, Sink::Rows);
            }
        }
        let program = b.finish();
        let out: Vec<Tensor> = (0..8).map(|_| Tensor::zeros(dtype, &[rows], Lie::Contiguous)).collect();
        let targets: Vec<_> = out.iter().map(|t| t.view_mut()).collect();
        program.run(&[x.view().into(), y.view().into()], &targets);
        let (x, y) = (x.values(), y.values());
        for r in 0..rows {
            for (k, out) in out.iter().enumerate() {
                let term = |i: usize| {
                    let (p, q) = (x[r * n + i], y[r * n + i]);
                    let (p, q) = [(p, q), (p, 3.0), (3.0, q), (3.0, 3.0)][k / 2];
                    if k % 2 == 0 { p * q } else { (p - q) * (p - q) }
                };
                let want: f64 = (0..n).map(term).sum();
                let size: f64 = (0..n).map(|i| term(i).abs()).sum();
                let got = out.values()[r];
                assert!((got - want).abs() <= 1e-6 * size.max(1.0), "{got} {want} {k}");
            }
        }
    }
}

/// The tensor's elements repeated: a stride is 0.
#[allow(unsafe_code)]
fn spread<'a>(t: &'a Tensor, sizes: &'a [usize], strides: &'a [usize]) -> Operand<'a> {
    // SAFETY: the strides reach no element that the tensor does not have.
    Operand::View(unsafe { t.view().with_geometry(0, sizes, strides) })
}

/// Row instructions are the row kernels: layer norm and softmax, forward and backward, also with an operand that is one
/// number along the row, and with sums that are not needed.
#[test]
fn row_instructions_are_the_row_kernels() {
    let (rows, n) = (40, 96);
    let tensor = |seed, sizes: &[usize]| Tensor::random(seed, DType::F32, sizes, Lie::Contiguous, -3, 3);
    let zeros = |sizes: &[usize]| Tensor::zeros(DType::F32, sizes, Lie::Contiguous);
    let (x, g, w, b) = (tensor(1, &[rows, n]), tensor(2, &[rows, n]), tensor(3, &[n]), tensor(4, &[n]));
    let (y, mean, rstd) = (zeros(&[rows, n]), zeros(&[rows]), zeros(&[rows]));
    let (w1, b1) = (Some(w.view()), Some(b.view()));
    crate::norm::layer_norm(x.view(), n, w1, b1, 1e-5, y.view_mut(), mean.view_mut(), rstd.view_mut());
    let (gx, gw, gb) = (zeros(&[rows, n]), zeros(&[n]), zeros(&[n]));
    let wanted = (Some(gx.view_mut()), Some(gw.view_mut()), Some(gb.view_mut()));
    let stats = (mean.view(), rstd.view());
    crate::norm::layer_norm_backward(g.view(), x.view(), n, stats.0, stats.1, w1, wanted.0, wanted.1, wanted.2);

    let (sizes, along, down) = ([rows, n], [0, 1], [1, 0]);
    let mut p = Builder::new();
    let vals: Vec<Val> = (0..6).map(|_| p.input(DType::F32)).collect();
    let [vx, vg, vw, vb, vm, vr] = vals[..] else { unreachable!() };
    let out = p.row(RowOp::LayerNorm, &[vx, vm, vr, vw, vb]);
    let back = p.row(RowOp::LayerNormBackward, &[vg, vx, vm, vr, vw]);
    let (sw, sb) = (p.sum_over_rows(back, 0), p.sum_over_rows(back, 1));
    let flat = p.row(RowOp::Softmax, &[vm]);
    let unused = p.row(RowOp::LayerNormBackward, &[vg, vx, vm, vr, vb]);
    [out, back, flat, unused].into_iter().for_each(|v| p.output(v));
    [sw, sb].into_iter().for_each(|v| p.output_to(v, Sink::Columns(1.0)));
    let program = p.finish();
    let given = [
        x.view().into(),
        g.view().into(),
        spread(&w, &sizes, &along),
        spread(&b, &sizes, &along),
        spread(&mean, &sizes, &down),
        spread(&rstd, &sizes, &down),
    ];
    let got = any_threads(|| {
        let outs: Vec<Tensor> = (0..4).map(|_| zeros(&[rows, n])).chain([zeros(&[n]), zeros(&[n])]).collect();
        program.run(&given, &outs.iter().map(|t| t.view_mut()).collect::<Vec<_>>());
        outs.iter().map(|t| t.values()).collect::<Vec<_>>()
    });
    assert_eq!(got[0], y.values());
    assert_eq!(got[1], gx.values());
    assert!(got[2].iter().all(|v| (v - 1.0 / n as f64).abs() < 1e-7));
    for (got, want) in [(&got[4], gw.values()), (&got[5], gb.values())] {
        got.iter().zip(want).for_each(|(a, b)| assert!((a - b).abs() < 1e-4, "{a} {b}"));
    }
}

/// Results larger than the cache are written past it, tile behind tile: every element arrives.
#[test]
fn large_results_arrive_whole() {
    let n = (5 << 20) + 13;
    let x = Tensor::random(9, DType::F32, &[n], Lie::Contiguous, -40, 40);
    let mut b = Builder::new();
    let v = b.input(DType::F32);
    let y = b.op(Op::Neg, &[v]);
    let z = b.op(Op::Mul, &[y, v]);
    b.output(y);
    b.output(z);
    let program = b.finish();
    let (y, z) = (Tensor::zeros(DType::F32, &[n], Lie::Contiguous), Tensor::zeros(DType::F32, &[n], Lie::Contiguous));
    program.run(&[x.view().into()], &[y.view_mut(), z.view_mut()]);
    let all = x.values().into_iter().zip(y.values()).zip(z.values());
    assert!(all.into_iter().all(|((x, y), z)| y == -x && z == f64::from((y * x) as f32)));
}
