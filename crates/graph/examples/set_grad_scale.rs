//! Measures replace_set_grad_with_hop_pass on graphs with a region every other op: seconds and bytes a node.
//!
//! `cargo run --release -p firebrand-graph --example set_grad_scale`

use firebrand_graph::ExportedProgram;
use firebrand_graph::ir::*;
use firebrand_graph::passes::{Context, replace_set_grad_with_hop_pass};
use std::time::Instant;

/// A chain of `n` nodes: sin, off, sin, on, …
fn program(n: usize) -> ExportedProgram {
    let mut g = Graph::new();
    let mut value = g.placeholder("x");
    for i in 0..n {
        if i % 2 == 0 {
            value = g.call_function(Target::aten("sin.default"), [value.into()]);
        } else {
            g.call_function(Function::SetGradEnabled, [(i % 4 == 3).into()]);
        }
    }
    g.output(Argument::tuple([value.into()]));
    ExportedProgram::new(GraphModule::new(g), None)
}

/// Peak resident bytes of the process so far.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with("VmHWM")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kb| kb.parse::<u64>().ok()).unwrap_or(0) * 1024
}

fn main() -> Result<(), firebrand_graph::Error> {
    let mut last: Option<(usize, f64)> = None;
    for n in [1_000, 10_000, 100_000, 1_000_000] {
        let before = peak();
        let program = program(n);
        let begin = Instant::now();
        let (_after, _) = replace_set_grad_with_hop_pass(&program, &Context::default())?;
        let seconds = begin.elapsed().as_secs_f64();
        let bytes = (peak() - before) as f64 / n as f64;
        let growth = last.map_or(String::new(), |(m, s)| {
            format!(", growth exponent {:.2}", (seconds / s).ln() / (n as f64 / m as f64).ln())
        });
        println!("{n:>8} nodes: {seconds:.4} s, {bytes:.0} bytes a node with the program itself{growth}");
        last = Some((n, seconds));
    }
    Ok(())
}
