//! Initial values against PyTorch's, bit for bit (`golden/nn/init.json`).

use expect_test::expect;
use firebrand_core::random::{Generator, with_generator};
use firebrand_core::{DType, Result, Tensor};
use firebrand_nn::init::{self, FanMode, Nonlinearity};
use serde_json::Value;

fn fill(name: &str, t: &Tensor) -> Result<()> {
    match name {
        "uniform" => init::uniform_(t, -1.0, 2.0),
        "normal" => init::normal_(t, 1.0, 2.0),
        "eye" => init::eye_(t),
        "kaiming_uniform" => init::kaiming_uniform_(t, FanMode::In, Nonlinearity::ReLU),
        "kaiming_normal out tanh" => init::kaiming_normal_(t, FanMode::Out, Nonlinearity::Tanh),
        "xavier_uniform" => init::xavier_uniform_(t, Nonlinearity::LeakyReLU(0.2).gain()),
        "xavier_normal" => init::xavier_normal_(t, 1.0),
        "orthogonal" => init::orthogonal_(t, 1.0),
        "orthogonal wide" => init::orthogonal_(&t.view([2, 10]), 3.0),
        "dirac" => init::dirac_(&t.view([4, 1, 5]), 2),
        "trunc_normal" => init::trunc_normal_(t, 0.5, 1.0, -1.0, 1.0),
        "trunc_normal far" => init::trunc_normal_(t, 0.0, 1.0, 2.0, 3.0),
        other => panic!("no function {other}"),
    }
}

#[test]
fn values_are_pytorchs() -> Result<()> {
    let golden: Value = serde_json::from_str(include_str!("../../../golden/nn/init.json")).expect("committed JSON");
    for (name, bits) in golden.as_object().expect("rows") {
        let t = Tensor::empty([5, 4], DType::F32);
        with_generator(Generator::new(0), || fill(name, &t))?;
        let found: Vec<u32> = t.to_vec::<f32>().iter().map(|v| v.to_bits()).collect();
        let bits = bits.as_str().expect("bits").split(' ');
        let expected: Vec<u32> = bits.map(|b| u32::from_str_radix(b, 16).expect("hexadecimal")).collect();
        if name.starts_with("orthogonal") {
            // Two decompositions agree up to rounding.
            let near = |(a, b): (&u32, &u32)| (f32::from_bits(*a) - f32::from_bits(*b)).abs() < 1e-5;
            assert!(found.iter().zip(&expected).all(near), "{name}: {t:?}");
        } else {
            assert_eq!(found, expected, "{name}");
        }
    }
    Ok(())
}

/// Parameters may be written although they require grad, and nothing is recorded.
#[test]
fn parameters_are_written_outside_the_graph() -> Result<()> {
    let p = Tensor::zeros([2, 2], DType::F32).requires_grad_();
    init::ones_(&p)?;
    assert!(p.is_leaf());
    expect!["fan_in_and_fan_out: expected a weight with at least 2 dimensions, found shape [2]"].assert_eq(
        &init::kaiming_uniform_(&Tensor::zeros([2], DType::F32), FanMode::In, Nonlinearity::ReLU)
            .unwrap_err()
            .to_string(),
    );
    expect!["orthogonal_: expected at least 2 dimensions, found shape [2]"]
        .assert_eq(&init::orthogonal_(&Tensor::zeros([2], DType::F32), 1.0).unwrap_err().to_string());
    expect!["dirac_: expected 3 to 5 dimensions, the first divisible by 1, found [2, 2]"]
        .assert_eq(&init::dirac_(&p, 1).unwrap_err().to_string());
    expect!["trunc_normal_: expected low <= high and std > 0, found 2, 1 and 1"]
        .assert_eq(&init::trunc_normal_(&p, 0.0, 1.0, 2.0, 1.0).unwrap_err().to_string());
    Ok(())
}
