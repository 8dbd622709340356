//! Products of groups of matrices, and the op of `transformers` that is made of them: PyTorch has them in f32 and half
//! precision only, so derivatives are checked here in f64.
#![allow(clippy::unwrap_used)]

use firebrand_core::autograd::{GradcheckOptions, gradcheck, gradgradcheck};
use firebrand_core::dispatch::{self, Op, Value};
use firebrand_core::{DType, Result, Tensor, ops};

fn sample(sizes: &[usize], seed: usize) -> Tensor {
    let n: usize = sizes.iter().product();
    let values: Vec<f64> = (0..n).map(|k| ((k * 37 + seed * 11) % 23) as f64 / 8.0 - 1.4).collect();
    Tensor::from_slice(&values, sizes.to_vec()).requires_grad_()
}

/// Groups along rows, columns and what both factors share, one of them empty and some rows in none.
#[test]
fn derivatives_of_grouped_products() -> Result<()> {
    let offs = Tensor::new(&[2i64, 2, 4]).to_dtype(DType::I32);
    let cases = [
        (sample(&[5, 3], 1), sample(&[3, 3, 2], 2)),
        (sample(&[3, 2, 3], 3), sample(&[3, 5], 4)),
        (sample(&[2, 5], 5), sample(&[5, 3], 6)),
    ];
    for (a, b) in cases {
        let shapes = (a.shape().to_vec(), b.shape().to_vec());
        let f = |x: &[Tensor]| Ok(vec![ops::grouped_mm(&x[0], &x[1], Some(&offs), None, None)?]);
        let options = GradcheckOptions { check_forward_ad: true, ..Default::default() };
        assert!(gradcheck(f, &[a.clone(), b.clone()], &options)?, "{shapes:?}");
        assert!(gradgradcheck(f, &[a, b], None, &Default::default())?, "{shapes:?}");
    }
    let fall = Tensor::new(&[3i64, 2, 4]).to_dtype(DType::I32);
    let e = ops::grouped_mm(&sample(&[5, 3], 1), &sample(&[3, 3, 2], 2), Some(&fall), None, None).unwrap_err();
    assert!(e.to_string().contains("non-decreasing ends of groups"), "{e}");
    Ok(())
}

/// The op that mixture-of-experts programs carry is there without being registered.
#[test]
fn the_op_of_mixture_of_experts() -> Result<()> {
    const NAME: &str = "transformers::grouped_mm_fallback";
    assert!(Op::from_name("transformers::grouped_mm_fallback.default").is_some());
    let (x, w, offs) = (sample(&[4, 3], 1), sample(&[2, 3, 2], 2), Tensor::new(&[1i64, 4]));
    let f = |x: &[Tensor]| {
        let args = [(&x[0]).into(), (&x[1]).into(), (&offs).into()];
        match dispatch::call_by_name(NAME, &args)?.pop() {
            Some(Value::Tensor(t)) => Ok(vec![t]),
            other => panic!("{other:?}"),
        }
    };
    let y = f(&[x.clone(), w.clone()])?.remove(0);
    let rows = ops::matmul(&ops::narrow(&x, 0, 1.into(), 3.into())?, &ops::select(&w, 0, 1.into())?)?;
    assert_eq!(y.to_vec::<f64>()[2..], rows.to_vec::<f64>());
    let options = GradcheckOptions { check_forward_ad: true, ..Default::default() };
    assert!(gradcheck(f, &[x.clone(), w.clone()], &options)?);
    assert!(gradgradcheck(f, &[x, w], None, &Default::default())?);
    Ok(())
}
