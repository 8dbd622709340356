//! Export: a network and a function become programs with dynamic batch and image sizes, are saved for PyTorch, loaded again
//! and run at sizes they were not traced at.
//!
//! `cargo run --example export -- FOLDER` keeps the archives, with inputs and outputs to compare, in FOLDER.

use firebrand::autograd::autocast;
use firebrand::graph::{Dim, Export, ExportedProgram, cond};
use firebrand::io::write_npz;
use firebrand::nn::layers::{AdaptiveAvgPool2d, BatchNorm2d, Conv2d, Flatten, Linear, ReLU, TransformerEncoderLayer};
use firebrand::nn::sequential;
use firebrand::prelude::*;
use std::path::Path;

type Outcome<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Any number of images of any size from 8 by 8.
fn network() -> Outcome<ExportedProgram> {
    let net = sequential![
        Conv2d::new(1, 4, 3),
        BatchNorm2d::new(4),
        ReLU::new(),
        AdaptiveAvgPool2d::new(2),
        Flatten::new(),
        Linear::new(16, 3),
    ];
    net.eval();
    let images = [Tensor::zeros([4, 1, 12, 10], DType::F32)];
    let (batch, height, width) =
        (Dim::new("batch").min(2).max(64), Dim::new("height").min(8), Dim::new("width").min(8));
    let export = Export::new(&images).names(["images"]).module(&net);
    let export = export.dynamic(0, 0, &batch).dynamic(0, 2, &height).dynamic(0, 3, &width);
    Ok(export.run(|x| Ok(vec![net.forward(&x[0])?]))?)
}

/// Any number of sequences of any length.
fn encoder() -> Outcome<ExportedProgram> {
    let layer = TransformerEncoderLayer::new(8, 2);
    layer.eval();
    let tokens = [Tensor::zeros([4, 6, 8], DType::F32)];
    let (batch, length) = (Dim::new("batch").min(2).max(64), Dim::new("length").min(2).max(128));
    let export = Export::new(&tokens).names(["tokens"]).module(&layer).dynamic(0, 0, &batch).dynamic(0, 1, &length);
    Ok(export.run(|x| Ok(vec![layer.forward(&x[0])?]))?)
}

/// A function with a `no_grad` block and a bfloat16 autocast block; two inputs share their first size.
fn function() -> Outcome<ExportedProgram> {
    let example = [Tensor::zeros([4, 6], DType::F32), Tensor::zeros([4, 6], DType::F32)];
    let n = Dim::new("n").min(2).max(64);
    let export = Export::new(&example).names(["x", "y"]).dynamic(0, 0, &n).dynamic(1, 0, &n);
    Ok(export.run(|x| {
        let rows = no_grad(|| x[0].try_reshape([x[0].size(0) * 2, 3.into()]))?;
        let product = autocast(DType::BF16, || x[0].try_matmul(&x[1].t()))?;
        Ok(vec![rows.sin(), product, &x[0] + &x[1]])
    })?)
}

/// A data-dependent branch (`cond`), with any number of rows.
fn branch() -> Outcome<ExportedProgram> {
    let example = [Tensor::zeros([4, 6], DType::F32)];
    let export = Export::new(&example).names(["x"]).dynamic(0, 0, &Dim::new("n").min(2).max(64));
    Ok(export.run(|x| {
        let rows = |x: &[Tensor]| Ok(vec![x[0].try_reshape([x[0].size(0) * 2, 3.into()])?.sin()]);
        let halves = |x: &[Tensor]| Ok(vec![x[0].try_reshape([x[0].size(0) * 2, 3.into()])? * 0.5]);
        cond(&x[0].sum().gt_scalar(0.0), rows, halves, &[&x[0]])
    })?)
}

/// Saves a program, loads it, runs it at two sizes; stores inputs and outputs.
fn try_out(folder: &Path, name: &str, program: &ExportedProgram, shapes: [&[&[i64]]; 2]) -> Outcome<()> {
    let path = folder.join(format!("{name}.pt2"));
    program.save(&path)?;
    let module = ExportedProgram::load(&path)?.module()?;
    for (k, shapes) in shapes.into_iter().enumerate() {
        let inputs: Vec<Tensor> = shapes.iter().map(|s| Tensor::randn(*s, DType::F32)).collect();
        let outputs = module.forward(&inputs)?;
        let outputs = outputs.iter().map(|t| t.detach().to_dtype(DType::F32)).collect::<Vec<_>>();
        println!("{name}: {:?} -> {:?}", shapes, outputs.iter().map(|t| t.shape().to_vec()).collect::<Vec<_>>());
        let named = |prefix: &str, list: &[Tensor]| -> Vec<(String, Tensor)> {
            list.iter().enumerate().map(|(i, t)| (format!("{prefix}_{i}"), t.clone())).collect()
        };
        let arrays = [named("in", &inputs), named("out", &outputs)].concat();
        write_npz(folder.join(format!("{name}.{k}.npz")), arrays.iter().map(|(n, t)| (n, t)))?;
    }
    Ok(())
}

pub(crate) fn run(folder: &Path) -> Outcome<()> {
    manual_seed(0);
    let network = network()?;
    try_out(folder, "network", &network, [&[&[2, 1, 12, 10]], &[&[5, 1, 8, 21]]])?;
    try_out(folder, "encoder", &encoder()?, [&[&[4, 6, 8]], &[&[3, 11, 8]]])?;
    try_out(folder, "function", &function()?, [&[&[2, 6], &[2, 6]], &[&[9, 6], &[9, 6]]])?;
    try_out(folder, "branch", &branch()?, [&[&[3, 6]], &[&[7, 6]]])?;
    // A size out of range is an error that names the input.
    let refused = network.run(&[Tensor::zeros([65, 1, 8, 8], DType::F32)]).map(drop);
    println!("{}", refused.expect_err("65 is more than 64"));
    Ok(())
}

/// Like [`run`], in a folder that is removed again.
pub(crate) fn in_scratch() -> Outcome<()> {
    let folder = std::env::temp_dir().join(format!("firebrand-export-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let done = run(&folder);
    std::fs::remove_dir_all(&folder)?;
    done
}

fn main() -> Outcome<()> {
    std::env::args().nth(1).map_or_else(in_scratch, |folder| run(Path::new(&folder)))
}
