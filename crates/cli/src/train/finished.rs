//! The end of a run: writes the model and the report, and prints a summary.

use super::evaluate::Evaluation;
use super::live::metric_text;
use super::options::Options;
use super::prepared::Prepared;
use super::run_folder::{Facts, RunFolder};
use super::subject::Subject;
use super::{config, report};
use crate::refusal::{Done, Refusal, counted, say};
use firebrand::graph::SaveOptions;
use firebrand::io::Output;
use firebrand::prelude::*;
use firebrand::train::Metrics;
use std::path::PathBuf;

/// A finished run.
pub(super) struct Finished<'a> {
    pub(super) options: &'a Options,
    pub(super) facts: &'a Facts,
    pub(super) is_main: bool,
    pub(super) prepared: &'a Prepared,
    pub(super) folder: Option<&'a RunFolder>,
    pub(super) output: Option<PathBuf>,
    pub(super) history: &'a [Metrics],
    pub(super) graph: Option<String>,
    pub(super) seconds: f64,
    pub(super) early: bool,
    /// The epoch whose weights are written.
    pub(super) written_epoch: usize,
    /// Best watched metric, and its epoch.
    pub(super) best: Option<(f64, usize)>,
    pub(super) watch: &'a str,
}

impl Finished<'_> {
    /// Writes the model and the report, which appear together, and prints a summary.
    pub(super) fn write(self) -> Done {
        let Finished { options, prepared, history, .. } = self;
        let module = prepared.subject.module();
        module.eval();
        let evaluated = no_grad(|| match options.bf16 {
            true => firebrand::autograd::autocast(DType::BF16, || prepared.evaluate(None)),
            false => prepared.evaluate(None),
        })?;
        // Every rank evaluates, so that none waits longer than it is patient.
        if !self.is_main {
            return Ok(());
        }
        for p in &prepared.frozen {
            p.try_set_requires_grad(true)?;
        }
        let mut outputs = Vec::new();
        if let (Some(path), Subject::Program(program)) = (&self.output, &prepared.subject) {
            outputs.push(program.program().stage_with(path, SaveOptions::default()).map_err(Refusal::because)?);
        }
        if let Some(folder) = self.folder {
            if let Subject::Digits(model) = &prepared.subject {
                let state = model.state_dict();
                outputs.push(firebrand::io::stage_safetensors(folder.file("model.safetensors"), state.iter())?);
            }
            let page = report::Page {
                facts: self.facts,
                settings: &config::Settings::read(&folder.file(config::FILE), &crate::train_command())?,
                history,
                evaluated: evaluated.as_ref(),
                data: prepared.val.as_ref(),
                parameters: &module
                    .named_parameters()
                    .iter()
                    .map(|(n, p)| report::ParameterRow::new(n, p, &prepared.frozen))
                    .collect::<Vec<_>>(),
                graph: self.graph.as_deref(),
                seconds: self.seconds,
                written_epoch: self.written_epoch,
            };
            outputs.push(folder.stage_report(&report::page(&page)?)?);
        }
        Output::commit_all(outputs)?;
        self.say(evaluated.as_ref())
    }

    fn say(&self, evaluated: Option<&Evaluation>) -> Done {
        let last = self.history.last();
        let report = self.folder.map(|f| f.file("report.html"));
        if self.options.json {
            let shown = |p: &Option<PathBuf>| p.as_ref().map(|p| p.display().to_string());
            let value = serde_json::json!({
                "schema": "firebrand.train/1",
                "finish": if self.early { "early" } else { "done" },
                "epochs": self.history.len(),
                "written_epoch": self.written_epoch,
                "seconds": self.seconds,
                "metrics": last,
                "best": self.best.map(|(v, epoch)| serde_json::json!({"metric": self.watch, "value": v, "epoch": epoch})),
                "evaluation": evaluated.map(|e| &e.metrics),
                "output": shown(&self.output),
                "report": shown(&report),
            });
            return Ok(say!("{}", serde_json::to_string_pretty(&value).map_err(Refusal::because)?)?);
        }
        let epochs = counted(self.history.len(), "epoch");
        let early = if self.early { " (stopped early)" } else { "" };
        let loss = last.and_then(|m| m.get("train_loss")).copied().unwrap_or(f64::NAN);
        let mut line = match &self.output {
            Some(path) => format!("{}: loss {loss:.6}", path.display()),
            None => format!("loss {loss:.6}"),
        };
        if let Some(e) = evaluated {
            for (name, v) in &e.metrics {
                line += &format!(", val_{name} {}", metric_text(name, *v));
            }
        }
        say!("{line} after {epochs}{early} in {:.1} s", self.seconds)?;
        if self.options.best {
            say!("weights of epoch {}, the best by {}", self.written_epoch, self.watch)?;
        }
        if let Some(path) = report {
            say!("report {}", path.display())?;
        }
        Ok(())
    }
}
