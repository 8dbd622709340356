//! Integers at their extremes, sizes that no memory has, operands without elements: errors, never a panic or an abort.
//! What is accepted is computed as PyTorch 2.15 computes it.
#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

use firebrand_core::autograd::{GradOptions, grad};
use firebrand_core::{Complex, DType, Device, ErrorKind, Result, Scalar, Spec, SymInt, Tensor, ops};

/// Elements that a meta tensor can have and memory, in practice, cannot: 2^40, or 2^24 where addresses have 32 bits.
const LARGE: i64 = 1 << (usize::BITS / 2 + 8);
/// A size of one dimension of a tensor without elements.
const LONG: usize = if usize::BITS == 64 { i32::MAX as usize } else { 1 << 14 };
const EXTREMES: [i64; 8] =
    [i64::MIN, i64::MIN + 1, -(1 << 62) - 1, -(1 << 62), 1 << 40, 1 << 61, i64::MAX - 1, i64::MAX];

fn ones(sizes: &[i64]) -> Tensor {
    Tensor::try_full(sizes, 1.0, DType::F32).unwrap()
}

/// Below -2^62 an integer once passed for a symbolic size and panicked.
#[test]
fn every_integer_is_an_integer_or_an_error() {
    let (x, square) = (ones(&[4]), ones(&[2, 2]));
    for n in EXTREMES {
        let s = SymInt::from(n);
        assert!(ops::sum_dim(&x, Some(&[n]), false, None).is_err(), "sum over {n}");
        assert!(ops::unsqueeze(&x, n).is_err() && ops::cumsum(&x, n, None).is_err() && ops::flip(&x, &[n]).is_err());
        assert!(ops::select(&x, 0, s).is_err() && ops::select(&x, n, 0.into()).is_err(), "select {n}");
        assert!(ops::view(&x, &[s]).is_err() && ops::reshape(&x, &[s, (-1i64).into()]).is_err(), "view as {n}");
        assert!(ops::narrow(&x, 0, s, 1.into()).is_err() && ops::narrow(&x, 0, 0.into(), s).is_err());
        assert_eq!(ops::roll(&x, &[s], &[0]).unwrap().shape(), [4]);
        let from = ops::slice(&x, 0, Some(s), None, 1.into()).unwrap();
        assert_eq!(from.shape(), if n < 0 { [4] } else { [0] }, "from {n}");
        let stepped = ops::slice(&x, 0, None, None, s);
        assert!(if n > 0 { stepped.unwrap().shape() == [1] } else { stepped.is_err() }, "in steps of {n}");
        let windows = ops::unfold(&x, 0, 2, n);
        assert!(if n > 0 { windows.unwrap().shape() == [1, 2] } else { windows.is_err() }, "windows every {n}");
        assert_eq!(ops::diagonal(&square, n, 0, 1).unwrap().shape(), [0], "diagonal {n}");
        let lower = ops::tril(&square, s).unwrap().to_vec::<f32>();
        assert_eq!(lower, [f32::from(u8::from(n > 0)); 4], "tril {n}");
        assert!(ops::polygamma(n.max(0), &x).is_ok() && ops::matrix_power(&square, n.max(0)).is_ok());
    }
}

/// PyTorch's `tril_indices` and `triu_indices`, cell by cell.
#[test]
fn cells_of_triangles() {
    let rows_and_columns = |t: Tensor| {
        let (n, all) = (t.shape()[1], t.to_vec::<i64>());
        all[..n].iter().copied().zip(all[n..].iter().copied()).collect::<Vec<_>>()
    };
    for row in 0..5i64 {
        for col in 0..6i64 {
            for offset in [i64::MIN, -5, -2, -1, 0, 1, 2, 6, i64::MAX] {
                let cells = |keep: &dyn Fn(i128) -> bool| -> Vec<(i64, i64)> {
                    let all = (0..row).flat_map(|r| (0..col).map(move |c| (r, c)));
                    all.filter(|(r, c)| keep(i128::from(c - r))).collect()
                };
                let below = ops::tril_indices(row, col, offset, None, None).unwrap();
                assert_eq!(rows_and_columns(below), cells(&|d| d <= i128::from(offset)), "tril {row} {col} {offset}");
                let above = ops::triu_indices(row, col, offset, None, None).unwrap();
                assert_eq!(rows_and_columns(above), cells(&|d| d >= i128::from(offset)), "triu {row} {col} {offset}");
            }
        }
    }
    let printed = ops::triu_indices(4, 5, 2, None, None).unwrap().to_vec::<i64>();
    assert_eq!(printed, [0, 0, 0, 1, 1, 2, 2, 3, 4, 3, 4, 4], "printed by PyTorch");
    let count = |t: Result<Tensor>| t.unwrap().shape().to_vec();
    assert_eq!(count(ops::tril_indices(1 << 62, 0, 0, None, None)), [2, 0], "rows without columns cost nothing");
    assert_eq!(count(ops::triu_indices(1 << 62, 3, 1, None, None)), [2, 3]);
}

#[test]
fn lists_are_those_of_pytorch() {
    let freq = |t: Result<Tensor>| t.unwrap().to_vec::<f32>();
    assert_eq!(freq(ops::fft_fftfreq(5, 0.5, None, None)), [0.0, 0.4, 0.8, -0.8, -0.4]);
    assert_eq!(freq(ops::fft_fftfreq(4, 0.5, None, None)), [0.0, 0.5, -1.0, -0.5]);
    assert_eq!(freq(ops::fft_rfftfreq(5, 0.5, None, None)), [0.0, 0.4, 0.8]);
    assert_eq!(freq(ops::fft_rfftfreq(4, 1.0, None, None)), [0.0, 0.25, 0.5]);
    let combinations = |list: &[i64], r, again| {
        let t = ops::combinations(&Tensor::new(list), r, again).unwrap();
        (t.shape().to_vec(), t.to_vec::<i64>())
    };
    assert_eq!(combinations(&[1, 2, 3], 2, false), (vec![3, 2], vec![1, 2, 1, 3, 2, 3]));
    assert_eq!(combinations(&[1, 2, 3], 2, true), (vec![6, 2], vec![1, 1, 1, 2, 1, 3, 2, 2, 2, 3, 3, 3]));
    assert_eq!(combinations(&[1, 2, 3, 4], 3, false), (vec![4, 3], vec![1, 2, 3, 1, 2, 4, 1, 3, 4, 2, 3, 4]));
    assert_eq!(combinations(&[1, 2], 3, true), (vec![4, 3], vec![1, 1, 1, 1, 1, 2, 1, 2, 2, 2, 2, 2]));
    assert_eq!(combinations(&[1, 2], 3, false), (vec![0, 3], vec![]));
    assert_eq!(combinations(&[1, 2], LARGE, false).0, [0, LARGE as usize]);
}

/// Each of these collected its values before it asked for memory, and aborted.
#[test]
fn sizes_that_no_memory_has_are_errors() {
    const HUGE: i64 = 1 << 50;
    let (x, one) = (ones(&[4]), ones(&[1]));
    let image = ones(&[1, 1, 2, 2]);
    let wide = ops::expand(&one, &[HUGE.into()], false).unwrap();
    let number = |n: i64| Tensor::new(&[n]);
    let calls: Vec<(&str, Result<()>)> = vec![
        ("triu_indices", ops::triu_indices(2, HUGE, 0, None, None).map(drop)),
        ("tril_indices", ops::tril_indices(HUGE, HUGE, 0, None, None).map(drop)),
        ("fft_fftfreq", ops::fft_fftfreq(1 << 62, 1.0, None, None).map(drop)),
        ("fft_rfftfreq", ops::fft_rfftfreq(HUGE, 1.0, None, None).map(drop)),
        ("logspace", ops::logspace(Scalar::Int(0), Scalar::Int(1), HUGE, 10.0, None, None).map(drop)),
        ("hann_window", ops::hann_window(HUGE, None, None).map(drop)),
        ("arange", ops::arange(Scalar::Int(HUGE), None, None).map(drop)),
        ("mvlgamma", ops::mvlgamma(&x, 1 << 61).map(drop)),
        (
            "upsample_aa",
            ops::_upsample_bilinear2d_aa(&image, &[2.into(), i64::MAX.into()], false, None, None).map(drop),
        ),
        (
            "affine_grid",
            ops::affine_grid_generator(&ones(&[1, 2, 3]), &[1.into(), 1.into(), HUGE.into(), HUGE.into()], false)
                .map(drop),
        ),
        ("tensor_split", ops::tensor_split(&x, i64::MAX.into(), 0).map(drop)),
        ("chunk", ops::chunk(&ones(&[0]), i64::MAX, 0).map(drop)),
        ("unbind", ops::unbind(&wide, 0).map(drop)),
        ("split", ops::split(&wide, 1.into(), 0).map(drop)),
        ("bincount", ops::bincount(&number(HUGE), None, 0.into()).map(drop)),
        ("bincount, minlength", ops::bincount(&number(1), None, i64::MAX.into()).map(drop)),
        ("histc", ops::histc(&x, HUGE, Scalar::Int(0), Scalar::Int(1)).map(drop)),
        ("repeat_interleave", ops::repeat_interleave_tensor(&one, &number(1 << 62), None, None).map(drop)),
        ("repeat_interleave, a sum that overflows", {
            ops::repeat_interleave_tensor(&x, &Tensor::new(&[i64::MAX; 4]), None, None).map(drop)
        }),
        ("combinations", ops::combinations(&ones(&[100]), 50, false).map(drop)),
        ("expand and read", wide.try_to_vec::<f32>().map(drop)),
        ("expand and clone", ops::clone(&wide, None).map(drop)),
    ];
    for (name, result) in calls {
        let e = result.expect_err(name);
        assert!(
            matches!(
                e.kind(),
                ErrorKind::OutOfMemory { .. } | ErrorKind::SizeOverflow { .. } | ErrorKind::Argument { .. }
            ),
            "{name}: {e}"
        );
    }
}

fn convolution(x: &Tensor, w: &Tensor, [stride, padding, dilation]: [i64; 3], transposed: bool) -> Result<Tensor> {
    let [s, p, d] = [stride, padding, dilation].map(|v| [SymInt::from(v)]);
    ops::convolution(x, w, None, &s, &p, &d, transposed, &[0.into()], 1.into())
}

#[test]
fn geometry_of_convolutions_does_not_wrap() {
    for dims in 1..=3 {
        let sizes = |n: i64, lead: [i64; 2]| -> Vec<i64> { lead.into_iter().chain(vec![n; dims]).collect() };
        let x = ops::arange(Scalar::Int(3 * 8i64.pow(dims as u32)), Some(DType::F32), None).unwrap();
        let x = x.reshape(sizes(8, [1, 3])).requires_grad_();
        let w = ones(&sizes(3, [3, 3])).requires_grad_();
        for n in EXTREMES {
            assert!(convolution(&x, &w, [1, n, 1], false).is_err(), "{dims}-D, padding {n}");
            assert!(convolution(&x, &w, [1, 0, n], false).is_err(), "{dims}-D, dilation {n}");
            assert!(convolution(&x, &w, [1, n, 1], true).is_err(), "{dims}-D, transposed, padding {n}");
            assert!(convolution(&x, &w, [n, 0, 1], true).is_err(), "{dims}-D, transposed, stride {n}");
            assert_eq!(convolution(&x, &w, [n, 0, 1], false).is_ok(), n > 0, "{dims}-D, stride {n}");
        }
        // With a stride beyond the input there is one position, so any such stride has the same gradients.
        let gradients = |stride: i64| -> Vec<Vec<f32>> {
            let y = convolution(&x, &w, [stride, 1, 1], false).unwrap();
            let seed = ops::full_like(&y, Scalar::Int(2), None, None, None).unwrap();
            let options = GradOptions { grad_outputs: vec![Some(seed)], ..Default::default() };
            let grads = grad(&y, [&x, &w], &options).unwrap();
            grads.into_iter().map(|g| g.unwrap().contiguous().to_vec::<f32>()).chain([y.to_vec()]).collect()
        };
        let expected = gradients(10);
        assert!(expected[0].iter().any(|&v| v != 0.0));
        for stride in [11, 1 << 40, i64::MAX] {
            assert!(gradients(stride) == expected, "{dims}-D, stride {stride}");
        }
    }
}

#[test]
fn geometry_of_windows_does_not_wrap() {
    let image = ones(&[1, 1, 8, 8]);
    let none = ones(&[0, 1, 8, 8]);
    for n in EXTREMES {
        assert!(ops::im2col(&image, &[2, 2], &[1, 1], &[n, n], &[1, 1]).is_err(), "unfold, padding {n}");
        assert!(ops::im2col(&image, &[2, 2], &[n, n], &[0, 0], &[1, 1]).is_err(), "unfold, dilation {n}");
        assert_eq!(ops::im2col(&image, &[2, 2], &[1, 1], &[0, 0], &[n, n]).is_ok(), n > 0, "unfold, stride {n}");
        assert!(ops::max_pool2d(&image, &[n, n], &[1, 1], &[0, 0], &[1, 1], false).is_err(), "pool of {n}");
        assert!(ops::max_pool2d(&image, &[2, 2], &[1, 1], &[0, 0], &[n, n], false).is_err(), "pool, dilation {n}");
        for ceil in [false, true] {
            let pooled = ops::avg_pool2d(&image, &[2, 2], &[n, n], &[0, 0], ceil, true, None);
            assert_eq!(pooled.is_ok(), n > 0, "pool, stride {n}");
        }
        assert!(ops::upsample_nearest2d(&image, &[n.into(), n.into()], None, None).is_err(), "resize to {n}");
        assert!(ops::constant_pad_nd(&image, &[n.into(), n.into()], Scalar::Int(0)).is_err(), "pad {n}");
    }
    // Nothing is computed for a batch of no images, however large they would be.
    let large = [SymInt::from(1i64 << (usize::BITS / 2 - 4)); 2];
    assert_eq!(ops::upsample_nearest2d(&none, &large, None, None).unwrap().numel(), 0);
    assert_eq!(ops::_adaptive_avg_pool2d(&none, &large).unwrap().numel(), 0);
    assert_eq!(ops::constant_pad_nd(&none, &[0.into(), (LARGE / 64).into()], Scalar::Int(0)).unwrap().numel(), 0);
    // The same for a result that is empty in one dimension and beyond all memory in another.
    let volume = Tensor::ones([2, 1, 2, 2, 2], DType::F32);
    for long in 0..3 {
        let sizes = [0, 1, 2].map(|d| if d == long { LONG as i64 } else { ((long + 3 - d) % 3 - 1) as i64 });
        assert_eq!(sizes.iter().product::<i64>(), 0, "{sizes:?}");
        let pooled = ops::_adaptive_avg_pool3d(&volume, &sizes.map(SymInt::from)).unwrap();
        assert_eq!((pooled.numel(), pooled.shape()[2 + long]), (0, LONG), "average to {sizes:?}");
        let back = ops::_adaptive_avg_pool3d_backward(&pooled, &volume).unwrap();
        assert_eq!(back.to_vec::<f32>(), [0.0; 16], "average back from {sizes:?}");
        let (pooled, at) = ops::adaptive_max_pool3d(&volume, &sizes).unwrap();
        assert_eq!((pooled.numel(), at.numel()), (0, 0), "maximum to {sizes:?}");
    }
}

#[test]
fn operands_without_elements_and_odd_dtypes() {
    let empty = |sizes: &[usize], dtype| Tensor::try_empty(Spec::new(sizes, dtype, Device::Cpu).unwrap()).unwrap();
    let none = empty(&[2, 0, 3], DType::C64);
    let one = Complex::new(1.0f32, 0.0);
    assert_eq!(ops::prod(&none, None).unwrap().to_vec::<Complex<f32>>(), [one]);
    assert_eq!(ops::prod_dim(&none, 1, false, None).unwrap().to_vec::<Complex<f32>>(), [one; 6]);
    assert_eq!(ops::prod_dim(&none, 0, false, None).unwrap().shape(), [0, 3]);
    assert_eq!(ops::cumprod(&none, 0, None).unwrap().shape(), [2, 0, 3]);
    // What a bag says of its indices has one dtype and shape on every device.
    for (indices, offsets, expected) in [
        (DType::I32, DType::I64, DType::I64),
        (DType::I64, DType::I32, DType::I64),
        (DType::I32, DType::I32, DType::I32),
    ] {
        for device in [Device::Cpu, Device::Meta] {
            let zeros = |sizes: &[usize], dtype| Tensor::zeros(sizes, (dtype, device));
            let (w, i, o) = (zeros(&[4, 3], DType::F32), zeros(&[4], indices), zeros(&[3], offsets));
            for last in [false, true] {
                let (_, bag, sizes, maxima) =
                    ops::_embedding_bag_forward_only(&w, &i, &o, false, 0, false, None, last, -1).unwrap();
                let found = [&bag, &sizes, &maxima].map(|t| t.dtype());
                assert_eq!((found, sizes.shape()), ([expected; 3], &[3 - usize::from(last)][..]), "{device:?} {last}");
            }
        }
    }
    // Meta tensors have no values to list: masks and positions cost nothing, however many there would be.
    let meta = |sizes: &[usize]| Tensor::ones(sizes, (DType::F32, Device::Meta));
    let (long, short) = (meta(&[1, 2, LARGE as usize / 8, 2]), meta(&[1, 2, 3, 2]));
    let attended = ops::scaled_dot_product_attention(&long, &short, &short, None, 0.5, true, None, false).unwrap();
    assert_eq!(attended.shape(), [1, 2, LARGE as usize / 8, 2]);
    assert_eq!(
        ops::pad(&meta(&[1, 1, LARGE as usize]), &[5.into(), 0.into()], "circular", None).unwrap().numel(),
        LARGE as usize + 5
    );
    assert_eq!(ops::mvlgamma(&meta(&[2]), LARGE).unwrap().shape(), [2]);
    // The gradient of an inverse transform of nothing, to more elements than memory has.
    let spectrum = empty(&[0, 3], DType::C64).try_to_device(Device::Meta).unwrap().requires_grad_();
    let signal = ops::fft_irfft(&spectrum, Some((LONG as i64).into()), -1, None).unwrap();
    signal.backward_with(&Tensor::ones(signal.shape(), (signal.dtype(), Device::Meta)));
    assert_eq!(spectrum.grad().unwrap().shape(), [0, 3]);
    // An empty out= that is an operand too keeps its shape until it was read.
    let (matrix, vector) = (empty(&[0, 3], DType::F32), Tensor::ones([3], DType::F32));
    assert_eq!(ops::mv_out(&matrix, &vector, &matrix).unwrap().shape(), [0]);
    for t in [empty(&[4], DType::C64), empty(&[4], DType::C128)] {
        assert!(ops::random_(&t).is_err() && ops::random_to_(&t, 5).is_err() && ops::geometric_(&t, 0.5).is_err());
        assert!(ops::bernoulli_(&t, 0.5).is_err());
    }
    // PyTorch: the imaginary parts go before anything is added or multiplied.
    let z =
        ops::complex(&Tensor::from_slice(&[0f32, 1.0, 2.0, 3.0, 4.0, 5.0], [2, 3]), &Tensor::ones([2, 3], DType::F32));
    let (z, f32s, i64s) = (z.unwrap(), Some(DType::F32), Some(DType::I64));
    assert_eq!(ops::sum_dim(&z, Some(&[0]), false, f32s).unwrap().to_vec::<f32>(), [3.0, 5.0, 7.0]);
    assert_eq!(ops::sum_dim(&z, Some(&[0]), false, i64s).unwrap().to_vec::<i64>(), [3, 5, 7]);
    assert_eq!(ops::sum(&z, f32s).unwrap().item::<f32>(), 15.0);
    assert_eq!(ops::mean(&z, f32s).unwrap().item::<f32>(), 2.5);
    assert_eq!(ops::prod_dim(&z, 0, false, f32s).unwrap().to_vec::<f32>(), [0.0, 4.0, 10.0]);
    assert_eq!(ops::prod(&z, i64s).unwrap().item::<i64>(), 0);
    assert_eq!(ops::cumsum(&z, 0, f32s).unwrap().to_vec::<f32>(), [0.0, 1.0, 2.0, 3.0, 5.0, 7.0]);
    assert_eq!(ops::cumprod(&z, 0, i64s).unwrap().to_vec::<i64>(), [0, 1, 2, 0, 4, 10]);
    for sizes in [&[0][..], &[2, 0]] {
        let message = ops::multinomial(&empty(sizes, DType::F32), 1.into(), true).unwrap_err().to_string();
        assert!(message.contains("no categories"), "{message}");
    }
    assert_eq!(ops::multinomial(&empty(&[0, 3], DType::F32), 1.into(), true).unwrap().shape(), [0, 1]);
    let point = empty(&[], DType::C64);
    assert!(ops::fft_c2r(&point, &[0], 0, 1.into()).is_err() && ops::fft_c2c(&point, &[0.into()], 0, true).is_err());
    assert!(ops::fft_c2r(&empty(&[4], DType::C64), &[], 0, 1.into()).is_err(), "no dimension to transform");
    let (scores, target) = (ones(&[2, 2]), Tensor::new(&[0i64, 1]));
    for total in [empty(&[0], DType::F32), ones(&[2])] {
        let back = ops::nll_loss_backward(&ones(&[]), &scores, &target, None, 1, (-100i64).into(), &total);
        assert!(back.unwrap_err().to_string().contains("total_weight of one element"));
    }
}

/// Offsets of a complex tensor and of its parts count other elements: byte 16 is element 2 of one and element 4 of the other.
#[test]
fn overlap_is_told_in_bytes() {
    let z = Tensor::new(&[1.0f32, 2.0, 3.0, 4.0].map(|v| Complex::new(v, -v)));
    let parts = ops::view_as_real(&z).unwrap();
    let last_parts = ops::slice(&parts, 0, Some(2.into()), None, 1.into()).unwrap();
    let first = ops::slice(&z, 0, Some(1.into()), Some(3.into()), 1.into()).unwrap();
    // The third number is read after it was written if the two are taken for disjoint.
    let real = ops::real(&first).unwrap();
    let shifted = ops::slice(&ops::real(&z).unwrap(), 0, Some(2.into()), Some(4.into()), 1.into()).unwrap();
    firebrand_core::autograd::no_grad(|| ops::copy_(&shifted, &real, false).unwrap());
    assert_eq!(ops::real(&z).unwrap().contiguous().to_vec::<f32>(), [1.0, 2.0, 2.0, 3.0]);
    assert_eq!(last_parts.contiguous().to_vec::<f32>(), [2.0, -3.0, 3.0, -4.0]);
}

/// Work in proportion to an argument, not to the data: orders, poles and diagonals that were walked step by step.
#[test]
fn no_argument_buys_endless_work() {
    // Polygamma far below zero, with the gradients that mvlgamma takes there. The values are exact to 1e-15.
    let x = Tensor::new(&[-11.25f64, -100.75, -32768.25, -1000000.5]);
    let expected: [(i64, [f64; 4]); 2] = [
        (1, [19.654153659190554, 19.72933233925096, 19.73917828529907, 9.869603401090359]),
        (2, [124.01787668541029, -124.02520426492638, 124.025106720268, -9.99998000002750e-13]),
    ];
    for (n, expected) in expected {
        for (found, e) in ops::polygamma(n, &x).unwrap().to_vec::<f64>().into_iter().zip(expected) {
            assert!((found - e).abs() <= 1e-12 * e.abs(), "polygamma({n}): {found} instead of {e}");
        }
    }
    let huge = Tensor::new(&[-1e300f64, -1e15 - 0.5]);
    // Polynomials inside their interval, where no step ends early.
    let many = Tensor::full([512], 0.5, DType::F64);
    for n in [2.0, 1e308, f64::INFINITY] {
        let found = ops::special_legendre_polynomial_p(&many, &Tensor::scalar(n)).unwrap().to_vec::<f64>();
        assert!(if n == 2.0 { found[0] == -0.125 } else { found[0].is_nan() }, "order {n}: {}", found[0]);
    }
    assert!(ops::polygamma(1, &huge).unwrap().to_vec::<f64>()[0].is_infinite());
    let meta = |sizes: &[i64]| {
        let sizes: Vec<SymInt> = sizes.iter().map(|&n| n.into()).collect();
        ops::zeros(&sizes, Some(DType::F64), Some(Device::Meta)).unwrap()
    };
    ops::fill_diagonal_(&meta(&[LARGE, 2]), Scalar::Int(1), true).unwrap();
    let long = meta(&[2, LARGE]);
    assert_eq!(ops::diff(&long, LARGE, -1, None, None).unwrap().shape(), [2, 0]);
    let message = ops::diff(&long, LARGE - 1, -1, None, None).unwrap_err().to_string();
    assert!(message.contains(&format!("order {}", LARGE - 1)), "{message}");
    // The gradient of a trace is as wide as the matrix, and on its device.
    let matrix = meta(&[3, LARGE]).requires_grad_();
    let back = grad(&ops::trace(&matrix).unwrap(), &matrix, &GradOptions::default()).unwrap();
    assert_eq!(back[0].as_ref().unwrap().shape(), [3, LARGE as usize]);
}

/// The parts of complex numbers are drawn one by one, and none for a meta tensor, which has no memory to draw into.
#[test]
fn complex_samples_on_meta_draw_nothing() {
    use firebrand_core::dispatch::{Value, call_by_name};
    let like = Tensor::zeros([2, 3], (DType::C64, Device::Meta));
    let (none, dtype, device) = (Value::None, Value::from(DType::C64), Value::from(Device::Meta));
    let size = Value::Ints([2, 3].map(SymInt::from).into_iter().collect());
    let of_size = [size.clone(), dtype.clone(), none.clone(), device.clone()];
    let of_mean = [0.0.into(), 1.0.into(), size, none, dtype, Value::None, device];
    for (op, args) in [
        ("rand", &of_size[..]),
        ("randn", &of_size),
        ("rand_like", &[(&like).into()]),
        ("randn_like", &[(&like).into()]),
        ("normal.float_float", &of_mean),
    ] {
        let out = call_by_name(&format!("aten::{op}"), args).unwrap();
        let Value::Tensor(out) = &out[0] else { panic!("{op}: a tensor") };
        assert!(out.is_meta() && out.dtype() == DType::C64 && out.shape() == [2, 3], "{op}");
    }
    // With memory, as many dimensions as there can be are drawn too.
    let sizes = [SymInt::from(1i64); 64];
    let out = ops::randn(&sizes, Some(DType::C128), None).unwrap();
    assert!(out.ndim() == 64 && out.dtype() == DType::C128);
}

/// `gather_backward` with `sparse_grad` takes an index and a gradient that belong together.
#[test]
fn sparse_gradients_of_gather_check_their_index() {
    let back = |grad: &Tensor, sizes: &[i64], index: &[usize]| {
        use firebrand_core::dispatch::call_by_name;
        let index = Tensor::zeros(index, DType::I64);
        call_by_name(
            "aten::gather_backward",
            &[grad.into(), (&ones(sizes)).into(), 0i64.into(), (&index).into(), true.into()],
        )
    };
    for (grad, sizes, index) in [
        (&[2, 2][..], &[2, 3][..], &[2][..]),
        (&[2, 2], &[1, 3, 2], &[]),
        (&[2, 2], &[2, 3], &[2, 3]),
        (&[2, 4], &[2, 3], &[2, 4]),
    ] {
        let error = back(&ones(grad), sizes, index).unwrap_err().to_string();
        assert!(
            error.contains("expected a gradient and an index of one shape"),
            "{grad:?} {sizes:?} {index:?}: {error}"
        );
    }
    for (sizes, index) in [(&[2, 3][..], &[5, 3][..]), (&[3], &[]), (&[3], &[4])] {
        let grad: Vec<i64> = index.iter().map(|&n| n as i64).collect();
        assert!(back(&ones(&grad), sizes, index).is_ok(), "{sizes:?} {index:?}");
    }
}

/// Amounts of padding whose sum is a size, though each is as large as integers get.
#[test]
fn padding_by_any_amount() {
    let x = Tensor::new(&[1.0f32, 2.0]);
    let pad = |before: i64, after: i64| ops::constant_pad_nd(&x, &[before.into(), after.into()], Scalar::Int(0));
    for (before, after) in [(-3, 3), (3, -4), (-i64::MAX, i64::MAX), (i64::MAX - 1, -i64::MAX)] {
        let message = pad(before, after).unwrap_err().to_string();
        assert!(message.contains("crop more than a dimension of 2"), "{before}, {after}: {message}");
    }
    assert_eq!(pad(-2, 2).unwrap().to_vec::<f32>(), [0.0, 0.0]);
    let row = x.reshape([1, 2]);
    for (before, after, value) in [(-3, 4, 2.0), (4, -3, 1.0), (-i64::MAX, i64::MAX, 2.0)] {
        let found = ops::replication_pad1d(&row, &[before.into(), after.into()]).unwrap();
        assert!(found.to_vec::<f32>().iter().all(|&v| v == value), "{before}, {after}: {found:?}");
    }
}

/// Dtypes an op is asked to compute in.
#[test]
fn dtypes_of_results_are_checked() {
    let g = ones(&[2, 3]);
    for back in [ops::_softmax_backward_data, ops::_log_softmax_backward_data] {
        let message = back(&g, &g, 1, DType::I32).unwrap_err().to_string();
        assert!(message.contains("int32"), "{message}");
    }
    let z = Tensor::new(&[Complex::new(1.0f32, 2.0), Complex::new(3.0, 4.0)]);
    assert_eq!(ops::mean(&z, Some(DType::F64)).unwrap().to_vec::<f64>(), [2.0]);
    assert_eq!(ops::mean_dim(&z, Some(&[0]), false, Some(DType::F32)).unwrap().to_vec::<f32>(), [2.0]);
    let none = Tensor::try_empty(Spec::new(&[1, 0, 3, 3], DType::F64, Device::Cpu).unwrap()).unwrap();
    let columns = ops::im2col(&none, &[2, 2], &[1, 1], &[0, 0], &[1, 1]).unwrap();
    assert_eq!(columns.shape(), [1, 0, 4]);
}

/// Ops whose lists are as long as their arguments say, and ops that look into a shape: ranks and counts are checked first.
#[test]
fn counts_and_ranks_are_checked_before_lists_are_made() {
    use firebrand_core::dispatch::{Value, call_by_name};
    let list = |v: &[i64]| Tensor::try_from_slice(v, [v.len()]).unwrap();
    let (packed, point) = (ones(&[7, 2]), ones(&[]));
    let image = ones(&[1, 2, 4, 4]);
    let sizes = |v: &[i64]| Value::Ints(v.iter().map(|&n| n.into()).collect());
    let pad_packed = |batch: &[i64], length: i64| {
        call_by_name(
            "aten::_pad_packed_sequence",
            &[(&packed).into(), (&list(batch)).into(), false.into(), Scalar::Float(0.0).into(), length.into()],
        )
    };
    assert_eq!(pad_packed(&[3, 2, 1, 1], 5).unwrap().len(), 2);
    for (batch, length, message) in [
        (&[3, 2, 1, 1][..], 1 << 61, "has too many elements"),
        (&[3, 2, 1, 1], i64::MAX, "more than a tensor can hold"),
        (&[1 << 40, 2, 1, 1], 4, "do not add up to the rows of packed data"),
        (&[i64::MAX, i64::MAX], 4, "do not add up to the rows of packed data"),
        (&[1, 2, 4], 4, "in descending order"),
    ] {
        let error = pad_packed(batch, length).unwrap_err().to_string();
        let narrow = usize::BITS == 32 && error.contains("too many elements");
        assert!(error.contains(message) || narrow, "{batch:?} to {length}: {error}");
    }
    let attention = [&ones(&[1, 1, 2, 4]), &ones(&[4]), &image, &image, &image, &ones(&[1, 1, 2])].map(Value::from);
    let attention = [&attention[..], &[0.0.into(), false.into()]].concat();
    let convolution = [
        vec![(&image).into(), (&ones(&[3, 2, 2, 2])).into(), (&ones(&[3])).into(), (&ones(&[3])).into()],
        vec![(&ones(&[3, 2, 2, 2])).into(), (&image).into()],
        vec![sizes(&[1, 1]), sizes(&[0, 0]), sizes(&[1, 1]), false.into(), sizes(&[0, 0]), 1i64.into()],
        vec![Value::Bools(vec![true; 3])],
    ]
    .concat();
    let backward = [(&packed).into(), sizes(&[4, 3, 2]), (&list(&[1 << 40, 2, 1, 1])).into(), false.into()];
    let halves = [(&ones(&[1, 3])).into(), (&point).into(), (&ones(&[2, 3])).into(), 0i64.into()];
    let heads = [(&ones(&[1, 1, 6])).into(), (&ones(&[6])).into(), i64::MAX.into()];
    let sequences = [Value::Tensors(vec![point.clone(), ones(&[1])]), true.into()];
    let points = Tensor::try_empty(Spec::new(&[7, 1 << (usize::BITS / 2)], DType::F32, Device::Meta).unwrap()).unwrap();
    let points = [(&points).into(), 3i64.into()];
    let nothing = Tensor::zeros(0, DType::F64);
    let positions = [(&image).into(), 0i64.into(), (&nothing).into()];
    let refused: [(&str, &[Value], &str); 8] = [
        ("index_select", &positions, "expected i64 or i32 for an index"),
        ("histogramdd.int_bins", &points, "dimensions"),
        ("_scaled_dot_product_flash_attention_for_cpu_backward", &attention, "expected query [.., l, e]"),
        ("_convolution_double_backward", &convolution, "a batch and a channel dimension"),
        ("_pack_padded_sequence_backward", &backward, "do not add up"),
        ("glu_jvp", &halves, "a 0-dim tensor has no dimension to halve"),
        ("_transform_bias_rescale_qkv", &heads, "is not three times a multiple of"),
        ("pad_sequence", &sequences, "expected sequences of []"),
    ];
    for (op, args, message) in refused {
        let error = call_by_name(&format!("aten::{op}"), args).unwrap_err().to_string();
        assert!(error.contains(message), "{op}: {error}");
    }
    let bound = Tensor::try_empty(Spec::new(&[], DType::F64, Device::Meta).unwrap()).unwrap();
    let many = 1 << (usize::BITS / 2 - 1);
    let range = [(&bound).into(), (&bound).into(), (many as i64).into()];
    let out = call_by_name("aten::linspace.Tensor_Tensor", &range).unwrap();
    let Value::Tensor(out) = &out[0] else { panic!("a tensor") };
    assert!(out.is_meta() && out.shape() == [many], "bounds on meta need no values");
}
