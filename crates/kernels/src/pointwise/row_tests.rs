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
