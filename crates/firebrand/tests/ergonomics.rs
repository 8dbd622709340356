//! What a program may write: numbers and dimensions in any form, assigning operators, one error for all crates.
#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

use firebrand::prelude::*;

#[test]
fn the_other_operand_is_a_tensor_or_a_number() {
    let x = Tensor::new(&[1.0, 2.0, 4.0]);
    assert_eq!(x.mul(&x).to_vec::<f64>(), [1.0, 4.0, 16.0]);
    assert_eq!(x.mul(2).to_vec::<f64>(), [2.0, 4.0, 8.0]);
    assert_eq!(x.pow(2.0).to_vec::<f64>(), [1.0, 4.0, 16.0]);
    assert_eq!(x.eq(2).to_vec::<bool>(), [false, true, false]);
    let weight = Parameter::new(x.clone());
    assert_eq!(x.add(&weight).to_vec::<f64>(), [2.0, 4.0, 8.0], "a parameter is a tensor");
    // As PyTorch records it: a number is an operand that is weak in type promotion.
    let y = Tensor::new(&[1.0f32]).requires_grad_().mul(2.5f64);
    assert_eq!((y.dtype(), y.grad_fn().unwrap().name()), (DType::F32, "MulBackward0"));
    assert_eq!(x.clamp(1.5, None).to_vec::<f64>(), [1.5, 2.0, 4.0]);
    assert_eq!(x.clamp(None, 3).to_vec::<f64>(), [1.0, 2.0, 3.0]);
}

#[test]
fn writes_in_place_take_numbers_and_operators() {
    let mut y = Tensor::new(&[1.0, 2.0]);
    let view = y.view([2, 1]);
    y.mul_(2.0).add_(1);
    assert_eq!(view.to_vec::<f64>(), [3.0, 5.0]);
    y *= 2.0;
    y += &Tensor::new(&[1.0, 1.0]);
    y -= 1;
    y /= 2;
    y %= 4;
    assert_eq!(view.to_vec::<f64>(), [3.0, 1.0], "they write the memory that views see");
    let leaf = Tensor::new(&[1.0]).requires_grad_();
    let mut z = &leaf * 3.0;
    z *= &leaf;
    z.backward();
    assert_eq!(leaf.grad().unwrap().to_vec::<f64>(), [6.0], "and are recorded");
}

#[test]
fn dimensions_are_a_number_a_list_or_all() {
    let x = Tensor::new(&[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]);
    assert_eq!(x.sum_dim(1, false).to_vec::<f64>(), [6.0, 15.0]);
    assert_eq!(x.sum_dim([0, -1], false).to_vec::<f64>(), [21.0]);
    assert_eq!(x.sum_dim(.., true).shape(), [1, 1]);
    assert_eq!(x.sum_dim(None, false).to_vec::<f64>(), [21.0]);
    assert_eq!(x.mean_dim(0usize, false).to_vec::<f64>(), [2.5, 3.5, 4.5]);
    assert_eq!(x.amax(.., false).item::<f64>(), 6.0);
    assert_eq!(x.argmax(1, false).to_vec::<i64>(), [2, 2]);
    assert_eq!(x.argmax(None, false).item::<i64>(), 5);
    assert_eq!(x.permute([1, 0]).shape(), [3, 2]);
    assert_eq!(x.flip(vec![0]).to_vec::<f64>(), [4.0, 5.0, 6.0, 1.0, 2.0, 3.0]);
    assert!(x.try_sum_dim(usize::MAX, false).unwrap_err().to_string().contains("out of range"));
}

#[test]
fn literals_nest() {
    assert_eq!(Tensor::new(&[[[1, 2]], [[3, 4]]]).shape(), [2, 1, 2]);
    assert_eq!(Tensor::new(&vec![vec![true], vec![false]]).dtype(), DType::Bool);
    assert_eq!(Tensor::new(&[0.5f32][..]).dtype(), DType::F32);
    assert_eq!(Tensor::new(&Vec::<Vec<f64>>::new()).shape(), [0]);
    let ragged = Tensor::try_new(&[vec![1.0, 2.0], vec![3.0]]).unwrap_err().to_string();
    assert_eq!(ragged, "Tensor::new: expected rows of one length, found 2 and 1");
    let (a, b) = (Tensor::new(&[1.0]), Tensor::new(&[2.0]));
    assert_eq!(Tensor::cat(&[a.clone(), b.clone()], 0).to_vec::<f64>(), [1.0, 2.0]);
    assert_eq!(Tensor::stack(&[a, b], 1).shape(), [1, 2]);
}

#[test]
fn flags_and_second_runs_have_short_forms() {
    let x = Tensor::new(&[2.0]);
    let handle = x.clone();
    handle.set_requires_grad(true);
    let y = (&x * &x).sum();
    y.backward_retain_graph();
    y.backward();
    assert_eq!(x.grad().unwrap().to_vec::<f64>(), [8.0]);
    let cube = x.pow(3).sum();
    let first = grad(&cube, &x, &GradOptions::retain_graph()).unwrap();
    assert_eq!(first[0].as_ref().unwrap().to_vec::<f64>(), [12.0]);
}

/// `?` takes the errors of all crates, and `source` gives them back.
#[test]
fn one_error_holds_the_others() {
    fn weights() -> Result<()> {
        firebrand::io::read_safetensors("no such file.safetensors")?;
        Ok(())
    }
    fn program() -> Result<()> {
        firebrand::graph::text::parse("graph {")?;
        Ok(())
    }
    fn system() -> Result<()> {
        std::fs::read("no such file")?;
        Ok(())
    }
    fn source<T: std::error::Error + 'static>(e: &Error) -> bool {
        std::error::Error::source(e).is_some_and(|s| s.is::<T>())
    }
    assert!(source::<firebrand::io::Error>(&weights().unwrap_err()));
    assert!(source::<firebrand::graph::Error>(&program().unwrap_err()));
    assert!(source::<std::io::Error>(&system().unwrap_err()));
}
