//! Convolutions, pooling and patches of complex numbers, integers and truth values, against the same of floats, which the op table
//! compares with PyTorch; and the cross entropy that exported programs carry as one op.
#![allow(clippy::unwrap_used)]

use firebrand_core::autograd::{GradcheckOptions, gradcheck};
use firebrand_core::dispatch::{Value, call_by_name};
use firebrand_core::random::{Generator, with_generator};
use firebrand_core::{Complex, DType, Result, SymInt, Tensor, ops};

fn integers(sizes: &[usize], seed: u64) -> Tensor {
    let sizes: Vec<i64> = sizes.iter().map(|&n| n as i64).collect();
    with_generator(Generator::new(seed), || Tensor::randint(-5, 6, &sizes[..], DType::I64))
}

fn sizes(n: i64) -> [SymInt; 1] {
    [n.into()]
}

/// stride, padding, dilation, groups, output padding (of the transposed form)
const TAPS: [[i64; 5]; 4] = [[1, 0, 1, 1, 0], [2, 1, 1, 1, 1], [3, 2, 2, 2, 1], [1, 1, 2, 2, 0]];

fn convolved(x: &Tensor, w: &Tensor, b: Option<&Tensor>, taps: [i64; 5], transposed: bool) -> Result<Tensor> {
    let [s, p, d, g, o] = taps;
    let (s, p, d, o, g) = (&sizes(s), &sizes(p), &sizes(d), &sizes(o), SymInt::from(g));
    match (x.ndim(), transposed) {
        (3, false) => ops::conv1d(x, w, b, s, p, d, g),
        (4, false) => ops::conv2d(x, w, b, s, p, d, g),
        (_, false) => ops::conv3d(x, w, b, s, p, d, g),
        (3, true) => ops::conv_transpose1d(x, w, b, s, p, o, g, d),
        (4, true) => ops::conv_transpose2d(x, w, b, s, p, o, g, d),
        (_, true) => ops::conv_transpose3d(x, w, b, s, p, o, g, d),
    }
}

/// Input, weight and bias of a convolution in `n` dimensions: four channels to four, in `groups`.
fn operands(n: usize, groups: i64) -> [Tensor; 3] {
    let x = integers(&[&[2, 4], &[6, 5, 7][..n]].concat(), 1);
    let inner = 4 / groups as usize;
    // Transposed or not: four channels on one side, those of a group on the other.
    let w = integers(&[&[4, inner], &[2, 3, 2][..n]].concat(), 2);
    [x, w, integers(&[4], 3)]
}

#[test]
fn convolutions_of_integers_are_exact() {
    for n in 1..=3 {
        for taps in TAPS {
            for transposed in [false, true] {
                let all = operands(n, taps[3]);
                let [x, w, b] = &all;
                let found = convolved(x, w, Some(b), taps, transposed).unwrap();
                assert_eq!(found.dtype(), DType::I64);
                let [x, w, b] = all.map(|t| t.to_dtype(DType::F64));
                let expected = convolved(&x, &w, Some(&b), taps, transposed).unwrap();
                assert_eq!(found.shape(), expected.shape(), "{n} {taps:?} {transposed}");
                assert_eq!(found.to_vec::<f64>(), expected.to_vec::<f64>(), "{n} {taps:?} {transposed}");
            }
        }
    }
    let [x, w, b] = operands(1, 1);
    let refused = convolved(&x, &w, Some(&b.to_dtype(DType::F64)), TAPS[0], false).unwrap_err().to_string();
    assert!(refused.contains("a bias of dtype int64, found float64"), "{refused}");
}

#[test]
fn convolutions_of_complex_numbers() {
    for (n, taps) in [(1, TAPS[1]), (2, TAPS[2]), (3, TAPS[0])] {
        for transposed in [false, true] {
            let [x, w, b] = operands(n, taps[3]).map(|t| t.to_dtype(DType::F64));
            let [y, v, c] = [&x, &w, &b].map(|t| t.flip([0]).cos());
            let z = |re: &Tensor, im: &Tensor| ops::complex(re, im).unwrap();
            let found = convolved(&z(&x, &y), &z(&w, &v), Some(&z(&b, &c)), taps, transposed).unwrap();
            let real = |x: &Tensor, w: &Tensor, b| convolved(x, w, b, taps, transposed).unwrap();
            let re = real(&x, &w, Some(&b)) - real(&y, &v, None);
            let im = real(&x, &v, Some(&c)) + real(&y, &w, None);
            let expected = z(&re, &im).to_vec::<Complex<f64>>();
            for (f, e) in found.to_vec::<Complex<f64>>().iter().zip(&expected) {
                assert!((f - e).norm() < 1e-10, "{n} {taps:?}: {f} {e}");
            }
        }
    }
    let z = |t: Tensor| ops::complex(&t.to_dtype(DType::F64), &t.to_dtype(DType::F64).sin()).unwrap().requires_grad_();
    let inputs = [z(integers(&[1, 2, 4], 4)), z(integers(&[2, 2, 2], 5)), z(integers(&[2], 6))];
    let f = |t: &[Tensor]| Ok(vec![convolved(&t[0], &t[1], Some(&t[2]), TAPS[0], false)?]);
    let options = GradcheckOptions { check_forward_ad: true, check_batched_forward_grad: true, ..Default::default() };
    assert!(gradcheck(f, &inputs, &options).unwrap());
}

#[test]
fn pooling_of_integers() {
    let x = integers(&[2, 3, 5, 6], 7);
    let f = x.to_dtype(DType::F64);
    let average = |t: &Tensor| ops::avg_pool2d(t, &[2, 3], &[2, 2], &[1, 1], true, false, None).unwrap();
    assert_eq!(average(&x).to_vec::<f64>(), average(&f).trunc().to_vec::<f64>());
    let largest = |t: &Tensor| ops::max_pool2d_with_indices(t, &[2, 2], &[1, 2], &[1, 1], &[1, 1], false).unwrap();
    assert_eq!(largest(&x).0.to_vec::<f64>(), largest(&f).0.to_vec::<f64>());
    assert_eq!(largest(&x).1.to_vec::<i64>(), largest(&f).1.to_vec::<i64>());
    let large = Tensor::full([1, 1, 2, 2], 1i64 << 60, DType::I64);
    assert!(ops::avg_pool2d(&large, &[2, 2], &[], &[0], false, true, None).unwrap_err().to_string().contains("2^53"));
}

#[test]
fn patches_of_complex_numbers_and_truth_values() {
    let x = integers(&[1, 2, 4, 4], 8);
    let patches = |t: &Tensor| ops::im2col(t, &[2, 2], &[1, 1], &[1, 0], &[2, 1]).unwrap();
    let f = x.to_dtype(DType::F64);
    assert_eq!(patches(&x).to_vec::<f64>(), patches(&f).to_vec::<f64>());
    let truth = ops::gt_scalar(&x, 0.into()).unwrap();
    assert_eq!(patches(&truth).to_vec::<f64>(), patches(&truth.to_dtype(DType::F64)).to_vec::<f64>());
    let z = patches(&ops::complex(&f, &f.cos()).unwrap());
    assert_eq!(ops::real(&z).unwrap().to_vec::<f64>(), patches(&f).to_vec::<f64>());
    assert_eq!(ops::imag(&z).unwrap().to_vec::<f64>(), patches(&f.cos()).to_vec::<f64>());
}

/// As linear layer and cross entropy: values and gradients, and the gradients that a call asks for.
#[test]
fn the_cross_entropy_of_a_linear_layer_as_one_op() {
    let leaf = |sizes: &[usize], seed| integers(sizes, seed).to_dtype(DType::F64).cos().detach().requires_grad_();
    let (x, w, b) = (leaf(&[5, 3], 1), leaf(&[4, 3], 2), leaf(&[4], 3));
    let target = Tensor::new(&[0i64, 3, 1, -100, 2]);
    let common = [Value::Tensor(target.clone()), Value::Tensor(b.clone()), Value::None];
    let gradients = |loss: &Tensor| {
        [&x, &w, &b].iter().for_each(|t| t.zero_grad());
        loss.backward();
        [&x, &w, &b].map(|t| t.grad().unwrap().to_vec::<f64>())
    };
    let whole = |reduction| {
        let logits = ops::linear(&x, &w, Some(&b)).unwrap();
        ops::cross_entropy_loss(&logits, &target, None, reduction, (-100).into(), 0.0).unwrap()
    };
    let lead = [&[Value::Tensor(x.clone()), Value::Tensor(w.clone())], &common[..]].concat();
    let policy = || [Value::from(2i64), Value::from("default"), Value::from(DType::F64)];
    let mean: Vec<Value> = [
        &lead[..],
        &[Value::from("mean"), Value::from(-100i64), Value::from(0.0)],
        &policy(),
        &[Value::from(true), Value::from(true), Value::from(false), Value::from(true)],
    ]
    .concat();
    let found = call_by_name("torch_nn::_linear_cross_entropy_batch_chunked", &mean).unwrap();
    let tensor = |k: usize| if let Value::Tensor(t) = &found[k] { t.clone() } else { panic!("a tensor") };
    let close = |a: &[f64], b: &[f64]| assert!(a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-12), "{a:?} {b:?}");
    let expected = gradients(&whole(1));
    close(&tensor(0).to_vec(), &whole(1).to_vec());
    close(&tensor(1).to_vec(), &expected[0]);
    assert_eq!(tensor(2).shape(), [0, 0], "not asked for");
    close(&tensor(3).to_vec(), &expected[2]);
    let own = gradients(&tensor(0));
    own.iter().zip(&expected).for_each(|(a, b)| close(a, b));
    let none: Vec<Value> = [&lead[..], &[Value::from(-100i64)], &policy()].concat();
    let found = call_by_name("torch_nn::_linear_cross_entropy_batch_chunked_no_reduction", &none).unwrap();
    let Value::Tensor(per_sample) = &found[0] else { panic!("a tensor") };
    close(&per_sample.to_vec(), &whole(0).to_vec());
    let (own, expected) = (gradients(&per_sample.square().sum()), gradients(&whole(0).square().sum()));
    own.iter().zip(&expected).for_each(|(a, b)| close(a, b));
}

/// Gradients of probabilities and of the weights of classes were lost; without a bias, the latter stand in its place.
#[test]
fn the_cross_entropy_of_a_linear_layer_has_every_gradient() {
    let leaf = |sizes: &[usize], seed| integers(sizes, seed).to_dtype(DType::F64).cos().detach().requires_grad_();
    let (x, w, b, target, each) = (leaf(&[5, 3], 1), leaf(&[4, 3], 2), leaf(&[4], 3), leaf(&[5, 4], 4), leaf(&[4], 5));
    for bias in [Some(&b), None] {
        let given = [Some(&x), Some(&w), Some(&target), bias, Some(&each)];
        let mut args: Vec<Value> = given.map(|t| t.map_or(Value::None, |t| Value::Tensor(t.clone()))).to_vec();
        args.extend([Value::from(-100i64), Value::from(2i64), Value::from("default"), Value::from(DType::F64)]);
        let found = call_by_name("torch_nn::_linear_cross_entropy_batch_chunked_no_reduction", &args).unwrap();
        let Value::Tensor(own) = &found[0] else { panic!("a tensor") };
        let logits = ops::linear(&x, &w, bias).unwrap();
        let whole = ops::cross_entropy_loss(&logits, &target, Some(&each), 0, (-100).into(), 0.0).unwrap();
        let [own, whole] = [own, &whole].map(|loss| {
            given.iter().flatten().for_each(|t| t.zero_grad());
            loss.square().sum().backward();
            given.map(|t| t.map(|t| t.grad().unwrap().to_vec::<f64>()))
        });
        for (a, b) in own.iter().zip(&whole).flat_map(|(a, b)| a.iter().flatten().zip(b.iter().flatten())) {
            assert!((a - b).abs() < 1e-12, "{own:?} {whole:?}");
        }
    }
}
