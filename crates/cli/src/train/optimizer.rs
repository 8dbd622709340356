//! Optimizers, parameter groups and learning-rate schedules by name.

use super::options::Options;
use super::subject::{check_pattern, matches};
use crate::refusal::{Done, counted, note};
use clap::ValueEnum;
use firebrand::optim::schedule::{CosineAnnealingLR, LinearLR, OneCycleLR, Schedule, SequentialLR};
use firebrand::optim::{
    Adadelta, AdadeltaOptions, Adagrad, AdagradOptions, Adam, AdamOptions, AdamW, AdamWOptions, Adamax, AdamaxOptions,
    Optimizer, RAdam, RAdamOptions, RMSprop, RMSpropOptions, SGD, SGDOptions,
};
use firebrand::prelude::*;
use std::str::FromStr;

/// Optimizers by name.
#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum OptimizerName {
    /// Adam with decoupled weight decay
    Adamw,
    /// Adam
    Adam,
    /// Gradient descent with momentum 0.9
    Sgd,
    /// RMSprop
    Rmsprop,
    /// Adagrad
    Adagrad,
    /// Adadelta
    Adadelta,
    /// Adamax
    Adamax,
    /// Rectified Adam
    Radam,
}

/// Learning-rate schedules, applied per step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum ScheduleName {
    /// Constant
    Constant,
    /// Half-cosine decay to zero
    Cosine,
    /// Linear decay to zero
    Linear,
    /// One cycle: rise to the peak, then decay
    OneCycle,
}

/// A learning rate, for all parameters or for those that match a pattern.
#[derive(Clone, Debug)]
pub(crate) struct Rate {
    pub(super) pattern: Option<String>,
    pub(super) value: f64,
}

impl FromStr for Rate {
    type Err = String;
    fn from_str(text: &str) -> std::result::Result<Rate, String> {
        let (pattern, value) = text.rsplit_once('=').map_or((None, text), |(p, v)| (Some(p.to_string()), v));
        Ok(Rate { pattern, value: super::options::positive(value)? })
    }
}

/// Length of the warm-up.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Warmup {
    /// Steps.
    Steps(u64),
    /// A fraction of all steps.
    Share(f64),
}

impl FromStr for Warmup {
    type Err = String;
    fn from_str(text: &str) -> std::result::Result<Warmup, String> {
        let wrong = || "expected a number of steps, or a percentage such as 10%".to_string();
        match text.strip_suffix('%') {
            Some(percent) => {
                let share = percent.parse::<f64>().map_err(|_| wrong())? / 100.0;
                if (0.0..1.0).contains(&share) { Ok(Warmup::Share(share)) } else { Err(wrong()) }
            }
            None => text.parse().map(Warmup::Steps).map_err(|_| wrong()),
        }
    }
}

/// The rate without a pattern.
pub(super) const DEFAULT_LR: f64 = 3e-3;

impl Options {
    /// The learning rate of parameters that no pattern matches.
    pub(super) fn base_lr(&self) -> f64 {
        self.lr.iter().rev().find(|r| r.pattern.is_none()).map_or(DEFAULT_LR, |r| r.value)
    }

    fn rate_of(&self, name: &str) -> f64 {
        let of_name = |r: &&Rate| r.pattern.as_ref().is_some_and(|p| matches(p, name));
        self.lr.iter().rev().find(of_name).map_or(self.base_lr(), |r| r.value)
    }
}

/// Parameters with the same learning rate and the same weight-decay setting.
struct Group {
    lr: f64,
    decays: bool,
    names: Vec<String>,
    parameters: Vec<Tensor>,
}

/// The parameters to train, in groups; the group with the default rate, if there is one, comes first.
fn groups(options: &Options, module: &dyn Module) -> Done<Vec<Group>> {
    let trained: Vec<(String, Parameter)> =
        module.named_parameters().into_iter().filter(|(_, p)| p.requires_grad()).collect();
    let names: Vec<&str> = trained.iter().map(|(n, _)| n.as_str()).collect();
    for p in options.lr.iter().filter_map(|r| r.pattern.as_ref()) {
        check_pattern("--lr", p, &names)?;
    }
    for p in &options.no_decay {
        check_pattern("--no-decay", p, &names)?;
    }
    let mut groups: Vec<Group> = Vec::new();
    for (name, p) in &trained {
        let flat = options.no_decay_1d && p.shape().len() < 2;
        let decays = !flat && !options.no_decay.iter().any(|pattern| matches(pattern, name));
        let lr = options.rate_of(name);
        let at = groups.iter().position(|g| g.lr == lr && g.decays == decays).unwrap_or_else(|| {
            groups.push(Group { lr, decays, names: Vec::new(), parameters: Vec::new() });
            groups.len() - 1
        });
        groups[at].names.push(name.clone());
        groups[at].parameters.push(p.tensor().clone());
    }
    groups.sort_by_key(|g| g.lr != options.base_lr());
    Ok(groups)
}

/// An optimizer over these groups.
macro_rules! over {
    ($kind:ident, $options:ident { $($field:ident: $value:expr),* }, $groups:expr, $decay:expr) => {{
        let mut made: Option<$kind> = None;
        for g in $groups {
            let mut options = $options { lr: g.lr, $($field: $value,)* ..Default::default() };
            if let Some(decay) = $decay {
                options.weight_decay = decay;
            }
            if !g.decays {
                options.weight_decay = 0.0;
            }
            match &mut made {
                None => made = Some($kind::new(&g.parameters, options)?),
                Some(all) => all.add_group(&g.parameters, options)?,
            }
        }
        Box::new(made.expect("there is something to train")) as Box<dyn Optimizer>
    }};
}

/// The chosen optimizer, and a description of its groups: rate, decay, names.
pub(super) fn optimizer(options: &Options, module: &dyn Module) -> Done<(Box<dyn Optimizer>, Vec<String>)> {
    let groups = groups(options, module)?;
    let decay = options.weight_decay;
    let optimizer = match options.optimizer {
        OptimizerName::Adamw => over!(AdamW, AdamWOptions {}, &groups, decay),
        OptimizerName::Adam => over!(Adam, AdamOptions {}, &groups, decay),
        OptimizerName::Sgd => over!(SGD, SGDOptions { momentum: 0.9 }, &groups, decay),
        OptimizerName::Rmsprop => over!(RMSprop, RMSpropOptions {}, &groups, decay),
        OptimizerName::Adagrad => over!(Adagrad, AdagradOptions {}, &groups, decay),
        OptimizerName::Adadelta => over!(Adadelta, AdadeltaOptions {}, &groups, decay),
        OptimizerName::Adamax => over!(Adamax, AdamaxOptions {}, &groups, decay),
        OptimizerName::Radam => over!(RAdam, RAdamOptions {}, &groups, decay),
    };
    let shown = |g: &Group| {
        let decays = if g.decays { "" } else { ", no weight decay" };
        format!("learning rate {}{decays}: {}", g.lr, g.names.join(", "))
    };
    Ok((optimizer, groups.iter().map(shown).collect()))
}

/// One cycle up to the rate of each group.
struct OneCycle(OneCycleLR);

impl Schedule for OneCycle {
    fn lr(&self, step: u64, base: f64, group: usize) -> f64 {
        base * self.0.lr(step, 1.0, group)
    }
    fn momentum(&self, step: u64) -> Option<f64> {
        self.0.momentum(step)
    }
}

struct Constant;

impl Schedule for Constant {
    fn lr(&self, _: u64, base: f64, _: usize) -> f64 {
        base
    }
}

/// The schedule over this many steps.
pub(super) fn schedule(options: &Options, steps: u64) -> Box<dyn Schedule> {
    let default = if options.model.is_some() { ScheduleName::Constant } else { ScheduleName::OneCycle };
    let warm = match options.warmup {
        None => 0,
        Some(Warmup::Steps(n)) => n,
        Some(Warmup::Share(s)) => (s * steps as f64).round() as u64,
    };
    if warm >= steps {
        note!(
            "--warmup {warm}: the run has only {}, so the learning rate never reaches its full value",
            counted(steps as usize, "step")
        );
    }
    let rest = steps.saturating_sub(warm).max(1);
    let main: Box<dyn Schedule> = match options.schedule.unwrap_or(default) {
        ScheduleName::Constant => Box::new(Constant),
        ScheduleName::Cosine => Box::new(CosineAnnealingLR { t_max: rest, eta_min: 0.0 }),
        ScheduleName::Linear => Box::new(LinearLR { start_factor: 1.0, end_factor: 0.0, total_iters: rest }),
        ScheduleName::OneCycle => Box::new(OneCycle(OneCycleLR::new(1.0, rest))),
    };
    if warm == 0 {
        return main;
    }
    // Warm-up starts at the first step with 1/(N+1) of the rate; the step after the last one has the full rate.
    let rise = LinearLR { start_factor: 1.0 / (warm + 1) as f64, end_factor: 1.0, total_iters: warm };
    Box::new(SequentialLR::new(rise, warm, main))
}
