//! Complex numbers: the conjugate convention of gradients, views of parts, refusals. Numbers are PyTorch 2.15's.
#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

use expect_test::expect;
use firebrand_core::autograd::{
    BackwardOptions, Context, Function, GradOptions, GradcheckOptions, grad, gradcheck, gradgradcheck, no_grad,
};
use firebrand_core::dispatch::Op;
use firebrand_core::{Complex, DType, ErrorKind, Result, Scalar, Tensor, ops};
use firebrand_opinfo::{Argument, Call, FAMILIES, Numbers, Place, Row, TensorData};

fn c(re: f64, im: f64) -> Complex<f64> {
    Complex::new(re, im)
}

fn leaf(z: Complex<f64>) -> Tensor {
    Tensor::scalar(z).requires_grad_()
}

fn gradient(z: &Tensor) -> Complex<f64> {
    z.grad().unwrap().item()
}

/// A-55
#[test]
fn gradients_are_conjugate() {
    let z = leaf(c(3.0, 4.0));
    z.abs().backward();
    assert_eq!(gradient(&z), c(0.6, 0.8));
    let z = leaf(c(3.0, 4.0));
    (&z * &z).real().backward();
    assert_eq!(gradient(&z), c(6.0, -8.0));
}

/// C-5
#[test]
fn a_complex_result_needs_a_gradient() {
    let z = leaf(c(1.0, 2.0));
    let e = (&z * &z).try_backward(&BackwardOptions::default()).unwrap_err();
    assert!(matches!(e.kind(), ErrorKind::ImplicitGradNotReal { dtype: DType::C128 }), "{e}");
    assert!(e.to_string().contains("complex128"), "{e}");
    let seed = Some(Tensor::scalar(c(0.0, 1.0)));
    let options = BackwardOptions { grad_tensors: vec![seed], ..Default::default() };
    (&z * &z).try_backward(&options).unwrap();
    assert_eq!(gradient(&z), c(4.0, 2.0));
}

/// C-21
#[test]
fn seeds_are_complex_where_results_are() {
    let x = Tensor::new(&[1.0f64, 2.0]).requires_grad_();
    let run = |y: &Tensor, seed: Tensor| {
        let options = GradOptions { grad_outputs: vec![Some(seed)], ..Default::default() };
        grad(y, &x, &options).map(|g| g[0].clone().unwrap())
    };
    let doubled = run(&(&x * 2.0), Tensor::new(&[1.0f32, 1.0])).unwrap();
    assert_eq!((doubled.dtype(), doubled.to_vec::<f64>()), (DType::F64, vec![2.0, 2.0]));
    let mismatch = |e: firebrand_core::Error| matches!(e.kind(), ErrorKind::GradComplexMismatch { .. });
    assert!(mismatch(run(&(&x * 2.0), Tensor::new(&[c(1.0, 0.0), c(0.0, 1.0)])).unwrap_err()));
    let z = ops::complex(&x, &x).unwrap();
    assert!(mismatch(run(&z, Tensor::new(&[1.0f64, 1.0])).unwrap_err()));
}

/// Hands out a gradient of a fixed value.
struct Fixed(Tensor);

impl Function for Fixed {
    fn forward(&self, _: &mut Context, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        Ok(vec![ops::real(&inputs[0])?.clone_tensor()])
    }
    fn backward(&self, _: &Context, _: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(self.0.clone())])
    }
}

/// G-30
#[test]
fn custom_functions_keep_real_and_complex_apart() {
    let x = Tensor::scalar(2.0f64).requires_grad_();
    let y = Fixed(Tensor::scalar(c(1.0, 1.0))).apply(&[&x]).unwrap().remove(0);
    let e = y.try_backward(&BackwardOptions::default()).unwrap_err();
    assert!(matches!(e.kind(), ErrorKind::FnGradComplex { .. }), "{e}");
    let z = leaf(c(2.0, 3.0));
    Fixed(Tensor::scalar(5.0f64)).apply(&[&z]).unwrap()[0].backward();
    assert_eq!(gradient(&z), c(5.0, 0.0));
}

/// H-14
#[test]
fn gradcheck_knows_complex_numbers() {
    let z = leaf(c(1.0, 2.0));
    let square = |z: &[Tensor]| Ok(vec![ops::mul(&z[0], &ops::conj(&z[0])?)?]);
    let all = GradcheckOptions { check_forward_ad: true, check_batched_grad: true, ..Default::default() };
    assert!(gradcheck(square, std::slice::from_ref(&z), &all).unwrap());
    let fast = GradcheckOptions { fast_mode: true, ..Default::default() };
    assert!(gradcheck(square, std::slice::from_ref(&z), &fast).unwrap());
    assert!(gradgradcheck(square, std::slice::from_ref(&z), None, &GradcheckOptions::default()).unwrap());
    let x = Tensor::new(&[1.0f64, 2.0]).requires_grad_();
    assert!(gradcheck(|x: &[Tensor]| Ok(vec![&x[0] * 2.0]), &[x], &all).unwrap());
    // A derivative without its conjugate is found out.
    struct Holomorphic;
    impl Function for Holomorphic {
        fn forward(&self, ctx: &mut Context, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
            ctx.save_for_backward(&[Some(&inputs[0])]);
            Ok(vec![&inputs[0] * &inputs[0]])
        }
        fn backward(&self, ctx: &Context, grads: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
            let z = ctx.saved_tensors()?[0].clone().unwrap();
            Ok(vec![grads[0].as_ref().map(|g| g * z * 2.0)])
        }
    }
    let wrong = |z: &[Tensor]| Holomorphic.apply(&[&z[0]]);
    expect![[r#"
        gradcheck: While considering the imaginary part of complex outputs only, Jacobian mismatch for output 0 with respect to input 0 (a row per input element)
        numerical:
        [[2.000000, 4.000000]
         [-4.000000, 2.000000]]
        analytical:
        [[2.000000, -4.000000]
         [4.000000, 2.000000]]"#]]
    .assert_eq(&gradcheck(wrong, &[z], &GradcheckOptions::default()).unwrap_err().to_string());
}

/// A real operand of a complex result gets the real part, also of a second derivative.
#[test]
fn real_operands_get_real_gradients() {
    let (x, z) = (Tensor::scalar(2.0f64).requires_grad_(), Tensor::scalar(c(1.0, 3.0)));
    (&x * &z).abs().backward();
    let g = x.grad().unwrap();
    assert_eq!(g.dtype(), DType::F64);
    assert!((g.item::<f64>() - 10f64.sqrt()).abs() < 1e-12);
    let f = |x: &[Tensor]| Ok(vec![(&x[0] * &x[0] * &x[1]).exp().abs()]);
    let inputs = [x.detach().requires_grad_(), z.requires_grad_()];
    assert!(gradcheck(f, &inputs, &GradcheckOptions { check_forward_ad: true, ..Default::default() }).unwrap());
    assert!(gradgradcheck(f, &inputs, None, &GradcheckOptions::default()).unwrap());
}

/// Parts are views of the memory; conjugates are computed.
#[test]
fn parts_share_memory() {
    let z = Tensor::new(&[c(1.0, 2.0), c(3.0, 4.0)]);
    no_grad(|| ops::fill_(&z.imag(), Scalar::Int(7)).map(drop)).unwrap();
    assert_eq!(z.to_vec::<Complex<f64>>(), [c(1.0, 7.0), c(3.0, 7.0)]);
    assert!(z.real().shares_storage(&z) && z.view_as_real().shape() == [2, 2]);
    assert!(!z.conj().shares_storage(&z), "there is no lazy conjugate");
    let x = Tensor::new(&[1.0f64, 2.0]);
    assert!(x.conj().is_same(&x) && x.real().is_same(&x) && x.try_imag().is_err());
    // Bytes of another dtype have no derivative: a write through them is refused where it would have to be recorded.
    let w = &Tensor::new(&[1.0f64, 2.0]).requires_grad_() * 1.0;
    let bits = w.view_dtype(DType::I64);
    assert!(!bits.requires_grad() && bits.is_leaf());
    let e = ops::fill_(&bits, Scalar::Int(0)).unwrap_err();
    assert!(matches!(e.kind(), ErrorKind::OtherDtypeViewInplace { .. }), "{e}");
    no_grad(|| ops::fill_(&bits, Scalar::Int(0)).map(drop)).unwrap();
    assert_eq!(w.detach().to_vec::<f64>(), [0.0, 0.0]);
}

/// Writes through real and imaginary parts, pairs and complex numbers made of pairs: values, histories of views and base
/// that were there before, and derivatives of every order, as if the parts had been assembled without writing.
#[test]
fn writes_through_parts_are_recorded() {
    let z = Tensor::new(&[c(1.0, 2.0), c(-0.5, 0.25)]).requires_grad_();
    let x = Tensor::new(&[1.5f64, -0.75]).requires_grad_();
    type Case = (&'static str, fn(&[Tensor]) -> Result<Vec<Tensor>>, fn(&[Tensor]) -> Result<Vec<Tensor>>);
    let cases: [Case; 6] = [
        (
            "real part scaled",
            |a| {
                let w = ops::mul_scalar(&a[0], 1.0.into())?;
                ops::mul_(&w.real(), &a[1])?;
                Ok(vec![ops::mul(&w, &w)?])
            },
            |a| {
                let w = ops::complex(&ops::mul(&a[0].real(), &a[1])?, &a[0].imag())?;
                Ok(vec![ops::mul(&w, &w)?])
            },
        ),
        (
            "imaginary part replaced",
            |a| {
                let w = ops::mul_scalar(&a[0], 1.0.into())?;
                ops::copy_(&w.imag(), &a[1], false)?;
                Ok(vec![ops::mul(&w, &w)?])
            },
            |a| {
                let w = ops::complex(&a[0].real(), &a[1])?;
                Ok(vec![ops::mul(&w, &w)?])
            },
        ),
        (
            "a view from before the write",
            |a| {
                let w = ops::mul_scalar(&a[0], 1.0.into())?;
                let pairs = w.view_as_real();
                ops::mul_(&w.imag(), &a[1])?;
                Ok(vec![ops::mul(&pairs, &pairs)?])
            },
            |a| {
                let w = ops::complex(&a[0].real(), &ops::mul(&a[0].imag(), &a[1])?)?;
                let pairs = w.view_as_real();
                Ok(vec![ops::mul(&pairs, &pairs)?])
            },
        ),
        (
            "a part from before a write to the base",
            |a| {
                let w = ops::mul_scalar(&a[0], 1.0.into())?;
                let real = w.real();
                ops::mul_(&w, &a[0])?;
                Ok(vec![ops::mul(&real, &a[1])?])
            },
            |a| Ok(vec![ops::mul(&ops::mul(&a[0], &a[0])?.real(), &a[1])?]),
        ),
        (
            "complex numbers of pairs",
            |a| {
                let pairs = ops::mul_scalar(&a[1].reshape([1, 2]), 1.0.into())?;
                ops::mul_(&pairs.view_as_complex(), &a[0].narrow(0, 0, 1))?;
                Ok(vec![ops::mul(&pairs, &pairs)?])
            },
            |a| {
                let product = ops::mul(&a[1].reshape([1, 2]).view_as_complex(), &a[0].narrow(0, 0, 1))?;
                let pairs = product.view_as_real();
                Ok(vec![ops::mul(&pairs, &pairs)?])
            },
        ),
        (
            "one part of one element",
            |a| {
                let w = ops::mul_scalar(&a[0], 1.0.into())?;
                ops::fill_(&w.view_as_real().select(0, 1).select(0, 0), Scalar::Int(3))?;
                Ok(vec![ops::mul(&w, &ops::complex(&a[1], &a[1])?)?])
            },
            |a| {
                let real = ops::cat(&[a[0].real().narrow(0, 0, 1), Tensor::new(&[3.0f64])], 0)?;
                let w = ops::complex(&real, &a[0].imag())?;
                Ok(vec![ops::mul(&w, &ops::complex(&a[1], &a[1])?)?])
            },
        ),
    ];
    for (name, written, assembled) in cases {
        let inputs = [z.detach().requires_grad_(), x.detach().requires_grad_()];
        let (a, b) = (written(&inputs).unwrap().remove(0), assembled(&inputs).unwrap().remove(0));
        let parts = |t: &Tensor| if t.is_complex() { t.view_as_real().contiguous() } else { t.contiguous() };
        assert_eq!(parts(&a.detach()).to_vec::<f64>(), parts(&b.detach()).to_vec::<f64>(), "{name}");
        let options = GradcheckOptions { check_forward_ad: true, ..Default::default() };
        assert!(gradcheck(written, &inputs, &options).unwrap(), "{name}");
        assert!(gradgradcheck(written, &inputs, None, &GradcheckOptions::default()).unwrap(), "{name}");
        let gradients = |y: &Tensor| {
            let options = GradOptions { allow_unused: Some(true), ..Default::default() };
            grad(&parts(y).sum(), &inputs[..], &options).unwrap()
        };
        for (k, (a, b)) in gradients(&a).iter().zip(&gradients(&b)).enumerate() {
            let (Some(a), Some(b)) = (a, b) else { panic!("{name}: gradient {k} is there or not on both sides") };
            let apart = parts(&(a - b)).abs().sum().item::<f64>();
            assert!(apart < 1e-12, "{name}: gradient {k} differs by {apart}");
        }
    }
}

#[test]
fn numbers_promote_and_print() {
    let z = Complex::new(1.0f64, -2.0);
    assert_eq!((&Tensor::new(&[1.0f32]) * z).dtype(), DType::C64);
    assert_eq!((&Tensor::new(&[1.0f64]) * z).dtype(), DType::C128);
    assert_eq!((&Tensor::new(&[1i64]) * z).dtype(), DType::C64);
    assert_eq!(Tensor::full([2], z, DType::C128).to_vec::<Complex<f64>>(), [z, z]);
    assert_eq!(Scalar::from(z).to_string(), "(1.0-2.0j)");
    assert_eq!(Tensor::scalar(z).try_scalar_value().unwrap(), Scalar::Complex(z));
}

/// Whatever a row's floats are replaced by, an op answers or refuses; it never panics.
#[test]
fn no_op_panics_on_complex_numbers() {
    fn complex(t: &TensorData) -> TensorData {
        let data = t.data.as_ref().map(|d| match d {
            Numbers::Floats(v) => Numbers::Complex(v.iter().map(|&x| c(x, 0.5)).collect()),
            other => other.clone(),
        });
        let dtype = if t.dtype.is_floating_point() { DType::C128 } else { t.dtype };
        TensorData { dtype, data, ..t.clone() }
    }
    let mut panicked = Vec::new();
    for row in FAMILIES.iter().flat_map(|f| f.rows()).filter(|r| r.is_base() && r.sample < 2) {
        let Some(op) = Op::from_name(&row.op) else { continue };
        let change = |a: &Argument| match a {
            Argument::Tensor(t) => Argument::Tensor(complex(t)),
            Argument::Tensors(l) => Argument::Tensors(l.iter().map(|t| t.as_ref().map(complex)).collect()),
            other => other.clone(),
        };
        let args = row.args.iter().map(change).collect();
        let kwargs = row.kwargs.iter().map(|(k, a)| (k.clone(), change(a))).collect();
        let row = Row { args, kwargs, ..row.clone() };
        let call = || Call::new(op, &row, Place::AsListed, false).map(|call| drop(no_grad(|| call.run())));
        if std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).is_err() {
            panicked.push(row.op.clone());
        }
    }
    panicked.dedup();
    assert!(panicked.is_empty(), "{panicked:?}");
}
