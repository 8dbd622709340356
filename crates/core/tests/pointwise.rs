//! Rules of pointwise ops that one row of the op table cannot state: promotion between three ranks, refusals with their
//! reason, what a node keeps, memory order, errors that leave their target alone.

use expect_test::expect;
use firebrand_core::autograd::SavedValue;
use firebrand_core::{DType, Scalar, Tensor, ops};

fn message<T>(r: firebrand_core::Result<T>) -> String {
    r.err().expect("a refusal").to_string()
}

const ONE: Scalar = Scalar::Int(1);

#[test]
fn bools_add_and_multiply_but_do_not_subtract() {
    let (a, b) = (Tensor::new(&[true, false, false]), Tensor::new(&[true, true, false]));
    assert_eq!(a.add(&b).to_vec::<bool>(), [true, true, false]);
    assert_eq!(a.mul(&b).to_vec::<bool>(), [true, false, false]);
    assert_eq!(ops::add(&a, &b, Scalar::Bool(false)).expect("defined").to_vec::<bool>(), [true, false, false]);
    let refused = message(ops::sub(&a, &b, ONE));
    assert!(refused.contains("logical_xor"), "{refused}");
    expect!["sub: bools cannot be subtracted; use logical_xor or logical_not, or convert them to integers"]
        .assert_eq(&ops::sub(&a, &Tensor::new(&[1i64; 3]), ONE).unwrap_err().to_string());
    expect!["neg: dtype bool is not supported; expected an integer or floating point dtype"]
        .assert_eq(&ops::neg(&a).unwrap_err().to_string());
    expect!["remainder: dtype bool is not supported; expected an integer or floating point dtype"]
        .assert_eq(&ops::remainder(&a, &b).unwrap_err().to_string());
    expect!["abs: dtype bool is not supported; expected an integer or floating point dtype"]
        .assert_eq(&ops::abs(&a).unwrap_err().to_string());
}

#[test]
fn alpha_is_of_the_kind_of_the_result() {
    let i = Tensor::new(&[1i64, 2]);
    assert!(message(ops::add(&i, &i, Scalar::Float(1.5))).contains("alpha"));
    expect!["add: alpha may be a bool only when the result is bool, here it is int64"]
        .assert_eq(&ops::add(&i, &i, Scalar::Bool(true)).unwrap_err().to_string());
    assert_eq!(ops::add(&i, &i, Scalar::Int(3)).expect("defined").to_vec::<i64>(), [4, 8]);
    let narrow = Tensor::new(&[100i8, -100]);
    assert_eq!(ops::add(&narrow, &narrow, Scalar::Int(2)).expect("defined").to_vec::<i8>(), [44, -44]);
}

#[test]
fn integers_divide_to_floats_and_refuse_zero_when_they_round() {
    let (a, zero) = (Tensor::new(&[7i64, -7]), Tensor::new(&[2i64, 0]));
    assert_eq!(a.div(&zero).dtype(), DType::F32);
    for mode in ["floor", "trunc"] {
        let refused = message(ops::div_mode(&a, &zero, Some(mode)));
        assert!(refused.contains("zero"), "{refused}");
    }
    let target = Tensor::new(&[7i64, -7]);
    expect!["remainder: integer division by zero; convert to a float dtype to get infinities"]
        .assert_eq(&ops::remainder_(&target, &zero).unwrap_err().to_string());
    assert_eq!((target.to_vec::<i64>(), target.version()), (vec![7, -7], 0), "nothing was written");
    expect![
        "div_: a result of dtype float32 cannot be stored in a tensor of dtype int64; convert one of them with to_dtype"
    ]
    .assert_eq(&ops::div_(&target, &a).unwrap_err().to_string());
    let none = Tensor::from_slice::<i64>(&[], [0]);
    assert_eq!(ops::remainder(&none, &Tensor::new(&[0i64])).expect("defined").numel(), 0);
}

#[test]
fn negative_powers_of_integers() {
    let a = Tensor::new(&[2i64, 3]);
    assert!(message(ops::pow_scalar(&a, Scalar::Int(-1))).contains("negative"));
    assert_eq!(ops::pow_scalar(&a, Scalar::Float(-1.0)).expect("defined").dtype(), DType::F32);
    assert_eq!(ops::pow_scalar(&Tensor::new(&[true]), Scalar::Int(2)).expect("defined").dtype(), DType::I64);
}

#[test]
fn results_keep_the_memory_order_of_their_operands() {
    let t = Tensor::zeros([2, 3, 4], DType::F32).permute([2, 0, 1]);
    assert_eq!(t.neg().strides(), t.strides());
    assert_eq!(t.add(&t).strides(), t.strides());
    assert_eq!(t.add(&Tensor::zeros([3], DType::F32)).strides(), t.strides(), "a row has no opinion");
    let wide = Tensor::zeros([4, 6], DType::F32);
    let gaps = ops::slice(&wide, 1, None, Some(3.into()), 1.into()).expect("defined").t();
    assert_eq!(gaps.exp().strides(), [1, 3], "dense, columns first");
}

#[test]
fn nodes_keep_what_their_formulas_use() {
    let (x, c) = (Tensor::new(&[1f32, 2.0]).requires_grad_(), Tensor::new(&[3f32, 4.0]));
    let names = |t: &Tensor| -> Vec<&str> {
        let node = t.grad_fn().expect("a node");
        let kept = |n: &&str| matches!(node.saved(n), Ok(Some(SavedValue::Tensor(_))));
        node.saved_names().expect("not freed").into_iter().filter(kept).collect()
    };
    assert_eq!(names(&x.mul(&c)), ["other"], "x is not needed for its own gradient");
    assert_eq!(names(&x.exp()), ["result"]);
    assert_eq!(names(&x.relu()), ["result"]);
    assert!(names(&x.neg()).is_empty());
}

/// Ranks were taken in f32: the largest f32 below or above a tenth times five is then a half, and a rank among thousands has
/// no digits left for its fraction. The numbers are PyTorch's.
#[test]
fn quantiles_of_f32_take_their_ranks_in_f64() {
    for (n, q, between, expected) in
        [(6, 0.1f32, "nearest", 1.0f32), (11, 0.3, "lower", 3.0), (11, 0.3, "higher", 4.0), (11, 0.7, "lower", 6.0)]
    {
        let t = Tensor::try_from_slice(&(0..n).map(|i| i as f32).collect::<Vec<f32>>(), [n]).expect("made");
        let found = ops::quantile(&t, &Tensor::new(&[q]), None, false, between).expect("defined");
        assert_eq!(found.to_vec::<f32>(), [expected], "{between} of {q} among {n}");
    }
    let t = Tensor::try_from_slice(&(0..3000).map(|i| i as f32).collect::<Vec<f32>>(), [3000]).expect("made");
    let t = t.requires_grad_();
    let found = ops::quantile(&t, &Tensor::new(&[0.3137f32]), None, false, "linear").expect("defined");
    found.sum().backward();
    let weights: Vec<f32> = t.grad().expect("a leaf").to_vec();
    let rank = f64::from(0.3137f32) * 2999.0;
    let (low, fraction) = (rank.floor() as usize, rank.fract());
    assert!((f64::from(weights[low + 1]) - fraction).abs() < 1e-7, "{} is not {fraction}", weights[low + 1]);
}

/// Zeros of either sign are equal, and PyTorch keeps the first of two equals: the value that is clamped.
#[test]
fn bounds_equal_to_the_value_keep_its_sign() {
    for dtype in [DType::F32, DType::F64, DType::BF16] {
        for n in [1usize, 40] {
            for (zero, other) in [(-0.0f64, 0.0f64), (0.0, -0.0)] {
                let (x, bound) = (Tensor::full([n], zero, dtype), Tensor::full([n], other, dtype));
                let one = Tensor::ones([n], dtype);
                let number = Scalar::Float(other);
                let results = [
                    ("clamp below", ops::clamp(&x, Some(number), Some(ONE))),
                    ("clamp above", ops::clamp(&x, Some(Scalar::Int(-1)), Some(number))),
                    ("clamp_min", ops::clamp_min(&x, number)),
                    ("clamp_max", ops::clamp_max(&x, number)),
                    ("clamp.Tensor", ops::clamp_tensor(&x, Some(&bound), Some(&one))),
                    ("hardtanh", ops::hardtanh(&x, number, ONE)),
                    ("relu6", ops::relu6(&x)),
                    ("relu", ops::relu(&x)),
                    ("fmax", ops::fmax(&x, &bound)),
                    ("fmin", ops::fmin(&x, &bound)),
                ];
                for (name, result) in results {
                    let found = result.expect("defined").to_dtype(DType::F64).to_vec::<f64>();
                    let kept = found.iter().all(|v| v.is_sign_negative() == zero.is_sign_negative());
                    assert!(kept, "{name} of {n} × {zero:?} and {other:?}, {dtype}: {found:?}");
                }
            }
        }
    }
}
