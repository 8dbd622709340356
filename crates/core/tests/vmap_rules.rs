//! Batching rules that the op table cannot reach: batch norm without running statistics, in-place writes, indices of
//! every kind, the fallback and its warning.
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use firebrand_core::func::{grad, vmap};
use firebrand_core::{DType, Result, Tensor, collect_warnings, ops};

fn numbers(sizes: &[usize]) -> Tensor {
    let n: usize = sizes.iter().product();
    let list: Vec<f64> = (0..n).map(|k| ((k * 7 + 3) % 11) as f64 * 0.3 - 1.0).collect();
    Tensor::from_slice(&list, sizes)
}

/// `vmap` equals a loop, for the values and the gradient of their weighted sum.
#[track_caller]
fn check(x: &Tensor, f: impl Fn(&Tensor) -> Result<Tensor>) {
    let weighted = |x: &Tensor| -> Result<Tensor> {
        let y = f(x)?;
        let w = ops::arange(((y.numel() + 1) as i64).into(), Some(DType::F64), None)?.narrow(0, 1, y.numel());
        Ok((y.reshape([-1]) * w).sum())
    };
    let (found, slopes) = (vmap(&f).call(x).unwrap(), vmap(grad(weighted)).call(x).unwrap());
    let outside = grad(|x: &Tensor| -> Result<Tensor> { Ok(vmap(weighted).call(x)?.sum()) })(x).unwrap();
    for k in 0..x.shape()[0] as i64 {
        let one = x.select(0, k);
        close(&vals(&found.select(0, k)), &vals(&f(&one).unwrap()));
        let slope = vals(&grad(weighted)(&one).unwrap());
        close(&vals(&slopes.select(0, k)), &slope);
        close(&vals(&outside.select(0, k)), &slope);
    }
}

#[test]
fn batch_norm_of_every_sample() {
    let w = numbers(&[3]);
    check(&numbers(&[2, 4, 3, 2]), |x| {
        Ok(ops::native_batch_norm(x, Some(&w), Some(&w), None, None, true, 0.1, 1e-5)?.0)
    });
    let (mean, var) = (numbers(&[3]), ops::add_scalar(&numbers(&[3]).square(), 1.0.into(), 1i64.into()).unwrap());
    check(&numbers(&[2, 4, 3, 2]), |x| {
        Ok(ops::native_batch_norm(x, Some(&w), None, Some(&mean), Some(&var), false, 0.1, 1e-5)?.0)
    });
    // Weights that differ from sample to sample.
    check(&numbers(&[2, 3]), |w| {
        Ok(ops::native_batch_norm(&numbers(&[4, 3, 2]), Some(w), None, None, None, true, 0.1, 1e-5)?.0)
    });
    check(&numbers(&[2, 6]), |w| Ok(ops::native_layer_norm(&numbers(&[4, 6]), &[6.into()], Some(w), Some(w), 1e-5)?.0));
    check(&numbers(&[2, 4]), |w| {
        let n = |k: i64| k.into();
        Ok(ops::native_group_norm(&numbers(&[3, 4, 2]), Some(w), Some(w), n(3), n(4), n(2), 2, 1e-5)?.0)
    });
}

#[test]
fn filters_of_every_sample() {
    let sizes = |k: i64| [k.into()];
    for transposed in [false, true] {
        for groups in [1, 2] {
            let conv = |x: &Tensor, w: &Tensor| {
                ops::convolution(x, w, None, &sizes(1), &sizes(1), &sizes(1), transposed, &sizes(0), groups.into())
            };
            let (x, w) = (numbers(&[2, 3, 4, 5]), numbers(&[2, 4, 4 / groups as usize, 3]));
            check(&x, |x| conv(x, &w.select(0, 0)));
            check(&w, |w| conv(&x.select(0, 0), w));
            check(&x, |x| conv(x, &(w.select(0, 0) * x.sum())));
        }
    }
}

#[test]
fn writing_in_place() {
    check(&numbers(&[2, 3]), |x| {
        let y = x * 1.0;
        ops::mul_(&y.select(0, 1), &x.select(0, 0))?;
        ops::add_(&y, &con(&[1.0, 2.0, 3.0]), 1i64.into())?;
        ops::index_fill_(&y, 0, &Tensor::new(&[2i64]), 0.5.into())?;
        Ok(y)
    });
    check(&numbers(&[2, 3]), |x| {
        let y = ops::new_zeros(x, &[2.into(), 3.into()], None, None)?;
        ops::copy_(&y.select(0, 1), x, false)?;
        Ok(y * x)
    });
}

#[test]
fn indices_that_differ() {
    let at = Tensor::from_slice(&[0i64, 2, 1, 1, 2, 0], [2, 3]);
    let pairs = |f: &dyn Fn(&Tensor, &Tensor) -> Result<Tensor>, x: &Tensor| {
        let found = vmap(|(x, i): &(Tensor, Tensor)| f(x, i)).call(&(x.clone(), at.clone())).unwrap();
        for k in 0..2 {
            close(&vals(&found.select(0, k)), &vals(&f(&x.select(0, k), &at.select(0, k)).unwrap()));
        }
        let one = x.select(0, 0);
        let found = vmap(|i: &Tensor| f(&one, i)).call(&at).unwrap();
        for k in 0..2 {
            close(&vals(&found.select(0, k)), &vals(&f(&one, &at.select(0, k)).unwrap()));
        }
    };
    let x = numbers(&[2, 3, 3, 4]);
    let n = None;
    pairs(&|x, i| ops::index(x, &[Some(i.clone())]), &x);
    pairs(&|x, i| ops::index(x, &[n.clone(), Some(i.clone())]), &x);
    pairs(&|x, i| ops::index(x, &[Some(i.clone()), Some(i.clone())]), &x);
    pairs(&|x, i| ops::index(x, &[Some(i.clone()), n.clone(), Some(i.clone())]), &x);
    pairs(&|x, i| ops::index(x, &[n.clone(), Some(i.clone()), Some(Tensor::new(&[1i64, 0, 3]))]), &x);
    let values = numbers(&[3, 4]);
    for accumulate in [false, true] {
        pairs(&|x, i| ops::index_put(x, &[n.clone(), Some(i.clone())], &values, accumulate), &x);
        pairs(
            &|x, i| {
                ops::index_put(x, &[Some(i.clone()), n.clone(), Some(i.clone())], &con(&[1.0, 2.0, 3.0]), accumulate)
            },
            &x,
        );
    }
    pairs(&|x, i| ops::index_add(x, 1, i, x, 2.0.into()), &x);
    pairs(&|x, i| ops::index_select(x, 1, i), &x);
    pairs(&|x, i| ops::embedding(&x.select(0, 0), i, (-1).into(), false, false), &x);
    pairs(&|x, i| ops::take(x, i), &x);
}

#[test]
fn an_op_without_a_rule_says_so_once() {
    let x = numbers(&[2, 6]);
    let bins = |x: &Tensor| ops::histc(x, 4, (-1.0).into(), 3.0.into());
    let (found, warnings) = collect_warnings(|| (vmap(bins).call(&x).unwrap(), vmap(bins).call(&x).unwrap()).0);
    assert_eq!(warnings.iter().filter(|w| w.to_string().contains("histc")).count(), 1);
    for k in 0..2 {
        close(&vals(&found.select(0, k)), &vals(&bins(&x.select(0, k)).unwrap()));
    }
}
