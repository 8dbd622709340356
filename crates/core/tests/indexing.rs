//! Indexing as in PyTorch's square brackets, with gradients; random ops against PyTorch's stream.
#![allow(clippy::unwrap_used, clippy::excessive_precision)]

use expect_test::expect;
use firebrand_core::random::{Generator, with_generator};
use firebrand_core::{DType, Ellipsis, Index, NewAxis, Tensor, TensorOptions, ops};

fn numbers(n: i64) -> Tensor {
    Tensor::arange(0, n, 1, DType::F64)
}

fn grid() -> Tensor {
    numbers(12).view([3, 4])
}

#[test]
fn plain_items_make_views() {
    let x = grid();
    assert_eq!(x.i(1).to_vec::<f64>(), [4.0, 5.0, 6.0, 7.0]);
    assert_eq!(x.i((-1, -1)).item::<f64>(), 11.0);
    assert_eq!(x.i((.., 1..3)).shape(), [3, 2]);
    assert_eq!(x.i((Ellipsis, 0)).to_vec::<f64>(), [0.0, 4.0, 8.0]);
    assert_eq!(x.i((NewAxis, .., 0..=1)).shape(), [1, 3, 2]);
    assert_eq!(x.i((0, Index::from(0..4).step(2))).to_vec::<f64>(), [0.0, 2.0]);
    assert_eq!(x.i((.., -2..)).to_vec::<f64>(), [2.0, 3.0, 6.0, 7.0, 10.0, 11.0]);
    assert!(x.i(1).shares_storage(&x));
    expect!["index: an index of 3 dimensions and 0 ellipses for a tensor of shape [3, 4]"]
        .assert_eq(&x.try_i((0, 0, 0)).unwrap_err().to_string());
    expect!["select: index 3 is out of range for dimension 0 with size 3"]
        .assert_eq(&x.try_i(3).unwrap_err().to_string());
    expect!["index: an index of 0 dimensions and 2 ellipses for a tensor of shape [3, 4]"]
        .assert_eq(&x.try_i((Ellipsis, Ellipsis)).unwrap_err().to_string());
}

#[test]
fn tensors_pick_elements() {
    let x = grid();
    assert_eq!(x.i([0, 0, 2]).shape(), [3, 4]);
    assert_eq!(x.i((.., vec![3, 0])).to_vec::<f64>(), [3.0, 0.0, 7.0, 4.0, 11.0, 8.0]);
    let mask = Tensor::new(&[true, false, true]);
    assert_eq!(x.i((&mask, 1)).to_vec::<f64>(), [1.0, 9.0]);
    let rows = Tensor::new(&[2i64, 0]);
    assert_eq!(x.i((&rows, &rows)).to_vec::<f64>(), [10.0, 0.0]);
    // Index tensors apart from each other go in front.
    let y = numbers(24).view([2, 3, 4]);
    assert_eq!(y.i(([0, 1], .., [0, 0])).shape(), [2, 3]);
    assert_eq!(y.i((Tensor::scalar(1i64), 0)).to_vec::<f64>(), [12.0, 13.0, 14.0, 15.0]);
    assert_eq!(x.i(true).shape(), [1, 3, 4]);
    assert_eq!(x.i(false).shape(), [0, 3, 4]);
    let whole = Tensor::from_slice(&[true; 12], [3, 4]);
    assert_eq!(y.i(0).i(&whole).shape(), [12]);
    expect!["index: index 3 is out of range for dimension 0 with size 3"]
        .assert_eq(&x.try_i(vec![3]).unwrap_err().to_string());
    expect!["index: the mask has shape [2], the tensor [3, 4] from dimension 0 on"]
        .assert_eq(&x.try_i(Tensor::new(&[true, false])).unwrap_err().to_string());
}

#[test]
fn assignment_writes_and_keeps_history() {
    let x = grid();
    x.set_i((0, ..2), 9);
    x.set_i((.., 3), Tensor::new(&[-1.0, -2.0, -3.0]));
    assert_eq!(x.to_vec::<f64>(), [9.0, 9.0, 2.0, -1.0, 4.0, 5.0, 6.0, -2.0, 8.0, 9.0, 10.0, -3.0]);
    x.set_i(x.lt_scalar(0), 0.5);
    assert_eq!(x.i((.., 3)).to_vec::<f64>(), [0.5; 3]);
    expect!["copy_: a source of shape [3] cannot be broadcast to shape [4]"]
        .assert_eq(&x.try_set_i(0, Tensor::new(&[1.0, 2.0, 3.0])).unwrap_err().to_string());

    let w = Tensor::new(&[1.0, 2.0, 3.0]).requires_grad_();
    let b = Tensor::zeros([2, 3], DType::F64);
    b.set_i(1, &w);
    b.i(1).mul_(&Tensor::scalar(5.0));
    b.sum().backward();
    assert_eq!(w.grad().unwrap().to_vec::<f64>(), [5.0; 3]);
}

#[test]
fn gradient_of_repeated_positions_adds_up() {
    let x = Tensor::new(&[1.0, 2.0, 3.0]).requires_grad_();
    x.i([0, 0, 2]).sum().backward();
    assert_eq!(x.grad().unwrap().to_vec::<f64>(), [2.0, 0.0, 1.0]);
}

#[test]
fn an_index_in_the_memory_it_writes_is_refused() {
    let x = Tensor::new(&[0i64, 1, 2, 3]);
    let index = x.i(..2);
    assert!(ops::index_fill_(&x, 0, &index, 7.into()).is_ok(), "a part goes through a temporary");
    let x = Tensor::new(&[0i64, 1]);
    expect!["scatter: the index shares memory with the tensor to write; call clone_tensor() on it first"]
        .assert_eq(&ops::scatter_(&x, 0, &x, &Tensor::new(&[1i64, 0])).unwrap_err().to_string());
    assert_eq!(x.to_vec::<i64>(), [0, 1]);
    // A bad index leaves everything as it was.
    let y = Tensor::new(&[1.0, 2.0]);
    expect!["index_add: index 5 is out of range for dimension 0 with size 2"].assert_eq(
        &ops::index_add_(&y, 0, &Tensor::new(&[0i64, 5]), &Tensor::new(&[1.0, 1.0]), 1.into()).unwrap_err().to_string(),
    );
    assert_eq!(y.to_vec::<f64>(), [1.0, 2.0]);
}

fn seeded<R>(f: impl FnOnce() -> R) -> R {
    with_generator(Generator::new(0), f)
}

#[test]
fn the_stream_is_that_of_pytorch() {
    let o = TensorOptions::default;
    assert_eq!(
        seeded(|| Tensor::rand([3], o()).to_vec::<f32>()),
        [0.49625658988952637, 0.7682217955589294, 0.08847743272781372]
    );
    assert_eq!(
        seeded(|| Tensor::randn([3], o()).to_vec::<f32>()),
        [1.5409960746765137, -0.293428897857666, -2.1787893772125244]
    );
    let many = seeded(|| Tensor::randn([20], o()).to_vec::<f32>());
    assert_eq!(many[..4], [-1.1258398294448853, -1.152360200881958, -0.2505785822868347, -0.4338788092136383]);
    let (ints, order) = seeded(|| (Tensor::randint(0, 10, [5], o()), Tensor::randperm(5, o())));
    assert_eq!((ints.to_vec::<i64>(), order.to_vec::<i64>()), (vec![4, 9, 3, 0, 3], vec![4, 0, 3, 1, 2]));
    let half = Tensor::full([6], 0.5, DType::F32);
    assert_eq!(seeded(|| half.bernoulli().to_vec::<f32>()), [1.0, 0.0, 1.0, 1.0, 1.0, 0.0]);
    let weights = Tensor::new(&[1.0f32, 2.0, 3.0, 4.0]);
    let (few, more) = seeded(|| (weights.multinomial(3, false), weights.multinomial(5, true)));
    assert_eq!((few.to_vec::<i64>(), more.to_vec::<i64>()), (vec![2, 1, 3], vec![3, 3, 1, 2, 2]));
    let shifted = seeded(|| ops::normal_tensor_float(&Tensor::zeros([3], o()), 2.0).unwrap().to_vec::<f32>());
    assert_eq!(shifted, [3.0819921493530273, -0.586857795715332, -4.357578754425049]);
    let (u, i) = seeded(|| (Tensor::empty([3], o()).uniform_(-1.0, 1.0).clone(), Tensor::randint(0, 5, [3], o())));
    assert_eq!(u.to_vec::<f32>(), [-0.007486820220947266, 0.5364435911178589, -0.8230451345443726]);
    assert_eq!(i.to_vec::<i64>(), [0, 3, 4]);
    let dropped = seeded(|| ops::dropout(&Tensor::ones([8], o()), 0.5, true).unwrap().to_vec::<f32>());
    assert_eq!(dropped, [0.0, 0.0, 2.0, 0.0, 0.0, 0.0, 2.0, 2.0]);
}

#[test]
fn overwritten_tensors_get_zero_gradients() {
    let x = Tensor::new(&[1.0, 2.0]).requires_grad_();
    let y = x.clone_tensor();
    y.normal_(0.0, 1.0);
    y.sum().backward();
    assert_eq!(x.grad().unwrap().to_vec::<f64>(), [0.0, 0.0]);
}
