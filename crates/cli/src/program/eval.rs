//! `firebrand eval`: the metrics of a program on data, in evaluation mode.

use super::WeightOptions;
use crate::refusal::{Done, Refusal, note, say};
use crate::train::data::{DataOptions, Samples};
use crate::train::evaluate::{Evaluation, Pass};
use crate::train::live::metric_text;
use crate::train::objective::{Objective, ObjectiveOptions};
use crate::train::subject::Subject;
use firebrand::data::Dataset;
use firebrand::prelude::*;
use serde_json::json;
use std::path::PathBuf;

/// Arguments of `firebrand eval`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Exported program
    #[arg(value_name = "MODEL.pt2")]
    model: PathBuf,
    #[command(flatten)]
    data: DataOptions,
    #[command(flatten)]
    objective: ObjectiveOptions,
    /// Samples per forward pass [default: 32, or the batch size the program was exported for]
    #[arg(long, value_name = "N", help_heading = "Data", value_parser = clap::value_parser!(u32).range(1..))]
    batch_size: Option<u32>,
    /// Compute with bfloat16 autocast
    #[arg(long)]
    bf16: bool,
    #[command(flatten)]
    weights: WeightOptions,
    /// Print the metrics as JSON
    #[arg(long)]
    json: bool,
}

/// Evaluates and prints.
pub(crate) fn run(options: &Options) -> Done {
    options.objective.check()?;
    let Some(path) = &options.data.data else {
        return Err(Refusal::Usage("--data is missing: the samples to evaluate MODEL.pt2 on".into()));
    };
    let Some(loss) = &options.objective.loss else {
        return Err(Refusal::Usage("--loss is missing: cross_entropy, mse, …, output, or LOSS.pt2".into()));
    };
    let subject = Subject::program(&options.model, options.weights)?;
    let labels = Objective::needs_labels(Some(loss));
    let data = Samples::read(path, &options.data, &subject.inputs()?, labels)?.for_evaluation();
    let objective = Objective::new(&options.objective, &subject, &data)?;
    data.notes.iter().chain(&objective.notes).for_each(|text| note!("{text}"));
    let (least, most) = subject.batch_range()?;
    let batch_size = match options.batch_size.map(|n| n as usize) {
        Some(n) if !(least..=most).contains(&n) => {
            let message = format!("--batch-size {n}: the program was exported for batches of {least} to {most}");
            return Err(Refusal::because(message));
        }
        Some(n) => n,
        None => 32.clamp(least, most),
    };
    subject.module().eval();
    let pass = Pass { subject: &subject, objective: &objective, data: &data, batch_size, stop: None };
    let found = no_grad(|| match options.bf16 {
        true => firebrand::autograd::autocast(DType::BF16, || pass.run()),
        false => pass.run(),
    })?;
    if found.left_out > 0 {
        note!("{} of {} samples are skipped: the program only accepts batches of {least}", found.left_out, data.len());
    }
    if options.json { print_json(&found, &data) } else { print_table(&found, &data) }
}

fn class_name(data: &Samples, class: usize) -> String {
    data.classes.as_ref().and_then(|n| n.get(class).cloned()).unwrap_or_else(|| class.to_string())
}

fn print_json(found: &Evaluation, data: &Samples) -> Done {
    let per_class: Vec<_> = found
        .per_class
        .iter()
        .enumerate()
        .map(|(c, s)| {
            let name = class_name(data, c);
            json!({"class": c, "name": name, "precision": s.precision, "recall": s.recall, "f1": s.f1, "samples": s.support})
        })
        .collect();
    let worst: Vec<_> = found
        .worst
        .iter()
        .map(|w| json!({"sample": w.row, "name": data.name(w.row), "loss": w.loss, "label": w.label, "predicted": w.predicted}))
        .collect();
    let value = json!({
        "schema": "firebrand.eval/1", "samples": found.samples, "metrics": found.metrics, "per_class": per_class,
        "confusion": found.confusion.as_ref().map(|c| &c.counts), "worst": worst,
    });
    Ok(say!("{}", serde_json::to_string_pretty(&value).map_err(Refusal::because)?)?)
}

fn print_table(found: &Evaluation, data: &Samples) -> Done {
    say!("{} samples", found.samples)?;
    for (name, v) in &found.metrics {
        say!("{name:<16}{}", metric_text(name, *v))?;
    }
    if (1..=200).contains(&found.per_class.len()) {
        let names: Vec<String> = (0..found.per_class.len()).map(|c| class_name(data, c)).collect();
        let width = names.iter().map(|n| n.chars().count()).max().unwrap_or(0).max(5);
        say!("\n{:<width$}  precision  recall      F1  samples", "class")?;
        for (s, name) in found.per_class.iter().zip(&names) {
            let share = |v: f64| format!("{:.1}%", 100.0 * v);
            say!(
                "{name:<width$}  {:>9}  {:>6}  {:>6}  {:>7}",
                share(s.precision),
                share(s.recall),
                share(s.f1),
                s.support
            )?;
        }
    }
    Ok(())
}
