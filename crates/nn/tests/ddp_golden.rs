//! Data-parallel steps against PyTorch's DistributedDataParallel on two processes (`golden/nn/ddp.json`).

use firebrand_core::random::{Generator, with_generator};
use firebrand_core::{DType, Tensor};
use firebrand_dist::{DdpOptions, DistributedDataParallel, threads};
use firebrand_nn::layers::{Forward, Linear, Module, Tanh};
use firebrand_nn::losses::{CrossEntropyLoss, Loss};
use firebrand_nn::optim::{AdamW, AdamWOptions, Optimizer, SGD, SGDOptions};
use firebrand_nn::sequential;
use serde_json::Value;
use std::time::Duration;

fn floats(v: &Value) -> Vec<f64> {
    v.as_array().expect("a list").iter().map(|v| v.as_f64().expect("a number")).collect()
}

#[test]
fn two_ranks_train_as_pytorchs() {
    let golden: Value = serde_json::from_str(include_str!("../../../golden/nn/ddp.json")).expect("committed JSON");
    let rows = golden["rows"].as_array().expect("a list");
    assert_eq!(rows.len(), 4);
    for row in rows {
        let (optimizer, half) = (row["optimizer"].as_str().expect("text"), row["dtype"] == "f32");
        let (dtype, close) = if half { (DType::F32, 1e-5) } else { (DType::F64, 1e-12) };
        let trained = threads::run(2, Duration::from_secs(60), |world| {
            let (model, x, y) = with_generator(Generator::new(0), || {
                let model = sequential![Linear::new(6, 16), Tanh::new(), Linear::new(16, 3)];
                let x = Tensor::randn([20, 24, 6], DType::F32);
                let y = Tensor::randint(0, 3, [20, 24], DType::I64);
                (model, x, y)
            });
            model.to_dtype(dtype)?;
            let _ddp = DistributedDataParallel::new(&model, world, DdpOptions::default())?;
            let mut step: Box<dyn Optimizer> = match optimizer {
                "SGD" => {
                    let options = SGDOptions { lr: 0.1, momentum: 0.9, ..Default::default() };
                    Box::new(SGD::new(model.parameters(), options)?)
                }
                _ => Box::new(AdamW::new(model.parameters(), AdamWOptions { lr: 0.01, ..Default::default() })?),
            };
            let mut losses = Vec::new();
            for k in 0..20 {
                let part = |t: &Tensor| t.select(0, k).narrow(0, world.rank() * 12, 12);
                let loss = CrossEntropyLoss::new().loss(&model.try_call(&part(&x).to_dtype(dtype))?, &part(&y))?;
                step.zero_grad();
                loss.backward();
                step.step()?;
                losses.push(world.all_reduce(&loss.to_dtype(DType::F64))?.item::<f64>() / 2.0);
            }
            let list = |t: &Tensor| t.to_dtype(DType::F64).flatten(0, -1).to_vec::<f64>();
            Ok((losses, model.parameters().iter().map(|p| list(p.tensor())).collect::<Vec<_>>()))
        });
        for (rank, trained) in trained.into_iter().enumerate() {
            let (losses, parameters) = trained.expect("no rank fails");
            let expected = row["parameters"].as_array().expect("a list").iter().map(floats);
            let pairs = losses.into_iter().zip(floats(&row["losses"]));
            let pairs = pairs.chain(parameters.into_iter().flatten().zip(expected.flatten()));
            let worst = pairs.map(|(a, b)| (a - b).abs() / b.abs().max(1.0)).fold(0.0, f64::max);
            assert!(worst <= close, "{optimizer} {dtype} rank {rank}: off by {worst:e}");
        }
    }
}
