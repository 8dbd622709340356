//! Products with weights of few bits: values, gradients, and what they refuse.

#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

use firebrand_core::autograd::{GradcheckOptions, gradcheck, gradgradcheck};
use firebrand_core::{DType, Tensor, ops};

/// Integers, packed if there are two to a byte, with scales of groups of four columns; and the weights they stand for.
fn weights(bits: i64, rows: usize) -> (Tensor, Tensor, Tensor) {
    let columns = 8;
    let integer = |r: usize, c: usize| ((r * 5 + c * 3) % 15) as i64 - 7;
    let scale = |r: usize, c: usize| 0.1 * (1 + r % 3 + c / 4) as f64;
    let all: Vec<(usize, usize)> = (0..rows).flat_map(|r| (0..columns).map(move |c| (r, c))).collect();
    let numbers: Vec<f64> = all.iter().map(|&(r, c)| integer(r, c) as f64 * scale(r, c)).collect();
    let scales: Vec<f64> = all.iter().filter(|(_, c)| c % 4 == 0).map(|&(r, c)| scale(r, c)).collect();
    let integers = if bits == 8 {
        let bytes: Vec<i8> = all.iter().map(|&(r, c)| integer(r, c) as i8).collect();
        Tensor::from_slice(&bytes, [rows, columns])
    } else {
        let pair = |&(r, c): &(usize, usize)| (integer(r, c) + 8) as u8 | ((integer(r, c + 1) + 8) as u8) << 4;
        let bytes: Vec<u8> = all.iter().filter(|(_, c)| c % 2 == 0).map(pair).collect();
        Tensor::from_slice(&bytes, [rows, columns / 2])
    };
    (integers, Tensor::from_slice(&scales, [rows, 2]), Tensor::from_slice(&numbers, [rows, columns]))
}

#[test]
fn they_compute_what_linear_computes_and_keep_the_integers() {
    // More rows than become numbers at once, too.
    for (bits, rows) in [(8, 3), (4, 3), (8, 40_000), (4, 0)] {
        let (integers, scale, numbers) = weights(bits, rows);
        assert_eq!(ops::_dequantize_groups(&integers, &scale, bits).unwrap().to_vec::<f64>(), numbers.to_vec::<f64>());
        let bias = Tensor::randn([rows], DType::F64);
        for shape in [vec![8], vec![2, 8], vec![2, 3, 8], vec![0, 8]] {
            let x = Tensor::randn(shape.clone(), DType::F64);
            for bias in [None, Some(&bias)] {
                let found = ops::_linear_quantized(&x, &integers, &scale, bias, bits).unwrap();
                let expected = ops::linear(&x, &numbers, bias).unwrap();
                assert_eq!(found.shape(), expected.shape(), "{bits} bits, {rows} rows, {shape:?}");
                let off = if found.numel() == 0 { 0.0 } else { (&found - &expected).abs().max().item::<f64>() };
                assert!(off < 1e-12, "{bits} bits, {rows} rows, {shape:?}: {off}");
            }
        }
    }
}

#[test]
fn gradients_of_any_order() {
    for bits in [8, 4] {
        let (integers, scale, _) = weights(bits, 3);
        let inputs =
            [Tensor::randn([2, 8], DType::F64).requires_grad_(), Tensor::randn([3], DType::F64).requires_grad_()];
        let f = |i: &[Tensor]| Ok(vec![ops::_linear_quantized(&i[0], &integers, &scale, Some(&i[1]), bits)?]);
        assert!(gradcheck(f, &inputs, &GradcheckOptions::default()).unwrap(), "{bits} bits");
        assert!(gradgradcheck(f, &inputs, None, &GradcheckOptions::default()).unwrap(), "{bits} bits");
        // No gradient of the scales is lost silently.
        let trained = scale.clone_tensor().requires_grad_();
        let y = ops::_linear_quantized(&inputs[0], &integers, &trained, None, bits).unwrap();
        let message = y.sum().try_backward(&Default::default()).unwrap_err().to_string();
        assert!(message.contains("scale"), "{message}");
    }
}

#[test]
fn operands_that_do_not_fit_are_refused() {
    let (integers, scale, _) = weights(8, 3);
    let x = Tensor::randn([2, 8], DType::F64);
    let refused = |x: &Tensor, w: &Tensor, s: &Tensor, bits: i64, words: &str| {
        let message = ops::_linear_quantized(x, w, s, None, bits).unwrap_err().to_string();
        assert!(message.contains(words), "{message}");
    };
    refused(&x, &integers, &scale, 3, "4 or 8 bits");
    refused(&x, &integers, &scale, 4, "uint8");
    refused(&x, &integers, &Tensor::zeros([3, 3], DType::F64), 8, "of equal length");
    refused(&x, &integers, &Tensor::zeros([3, 0], DType::F64), 8, "of equal length");
    refused(&Tensor::randn([2, 7], DType::F64), &integers, &scale, 8, "8 features");
    refused(&x.to_dtype(DType::F32), &integers, &scale, 8, "of the scales'");
}
