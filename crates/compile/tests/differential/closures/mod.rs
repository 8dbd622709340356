//! Random closures: what graphs cannot say. A program is a list of statements on vectors, run as a function of tensors, plainly
//! and compiled, at several sizes: hooks of every kind, kept gradients, custom functions with size arithmetic, checkpoint,
//! saved-tensor scopes, cells, breaks, written arguments, transforms inside and outside.
//!
//! Compared is everything a run shows, in order: values, gradients first and second, which hooks ran with what, whether and
//! where it failed. A program that differs is cut down to the statements that matter before it is shown.

mod calls;
mod hooks;
mod known;
mod program;
mod statements;

use crate::Random;
use calls::{SECOND_PASS, call};
use firebrand_compile::backward::{CompiledBackward, Options as BackwardOptions};
use firebrand_compile::{Backend, Options, backend, compile_with};
use firebrand_core::Tensor;
use firebrand_core::random::{Generator, with_generator};
use program::{Alias, Program, Statement, program};
use statements::{Arguments, World, run, switch_back};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

/// What a run shows.
#[derive(Clone, Default)]
struct Log {
    shown: Arc<Mutex<Shown>>,
    /// Leaves that the function made.
    leaves: Arc<Mutex<Vec<Tensor>>>,
}

impl Log {
    fn see(&self, what: impl Into<String>, t: Option<&Tensor>) {
        let values = t.map(|t| if t.is_meta() { vec![f64::MAX] } else { t.detach().to_vec::<f64>() });
        self.shown.lock().unwrap().push((what.into(), values));
    }
    fn say(&self, what: impl Into<String>) {
        self.see(what, None);
    }
}

type Shown = Vec<(String, Option<Vec<f64>>)>;

/// Everything the calls of a program show; `backend` is none for a plain run.
fn observe(program: &Program, backend: Option<Arc<dyn Backend>>) -> Shown {
    let log = Log::default();
    let (inside, again) = (log.clone(), program.clone());
    let world = Arc::new(World::new(backend.as_ref()));
    let captured = world.clone();
    let body = move |x: &Arguments| run(&again, &captured, x, &inside);
    let compiled = backend.map(|b| compile_with(body.clone(), Options::with_backend(b)));
    let f = |x: &Arguments| match &compiled {
        Some(compiled) => compiled.try_call(x).map_err(|e| e.to_string()),
        None => body(x).map_err(|e| e.to_string()),
    };
    with_generator(Generator::new(11), || {
        for k in 0..program.sizes.len() {
            let outcome = catch_unwind(AssertUnwindSafe(|| call(program, &world, &f, k, &log)));
            switch_back();
            match outcome {
                Ok(Ok(())) => log.say(format!("call {k}")),
                Ok(Err(e)) => log.say(format!("{e}: call {k} failed")),
                Err(panic) if panic.downcast_ref::<String>().is_some_and(|s| s.contains(OWN_ERROR)) => {
                    log.say(format!("{OWN_ERROR}: call {k} failed"));
                }
                Err(_) => log.say(format!("panic: call {k} failed")),
            }
            log.see("captured", Some(&world.plain));
            log.see("buffer", Some(&world.buffer.get()));
            log.see("its gradient", world.leaf.grad().as_ref());
        }
    });
    std::mem::take(&mut *log.shown.lock().unwrap())
}

/// Gradients of a conditional depend on all its operands, whichever side ran: with one, zeros are like an absent gradient.
fn close(a: &Option<Vec<f64>>, b: &Option<Vec<f64>>, conditional: bool) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => crate::close(a, b, 1e-9),
        (Some(v), None) | (None, Some(v)) => conditional && v.iter().all(|x| *x == 0.0),
        (None, None) => true,
    }
}

/// What compiled backward says where it cannot follow.
const REFUSAL: &str = "outside the scope of compiled backward";

/// What is compared of what a run shows. With a conditional, gradients of gradients depend on all its operands, whichever side ran, so hooks
/// on their way may be called with zeros where a plain run has no gradient (docs/behaviour/compile-and-hooks.md, section (i)).
fn compared(program: &Program, shown: &Shown) -> Shown {
    if !program.has_conditional() {
        return shown.clone();
    }
    let mut in_second_pass = false;
    let stays = |(what, _): &&(String, Option<Vec<f64>>)| {
        let is_of_a_hook = what.starts_with(|c: char| c.is_ascii_digit()) && !what.ends_with("failed");
        in_second_pass = what == SECOND_PASS || (in_second_pass && is_of_a_hook);
        !in_second_pass
    };
    shown.iter().filter(stays).cloned().collect()
}

fn difference(program: &Program, found: &Shown, plain: &Shown) -> Option<String> {
    let conditional = program.has_conditional();
    let (found, plain) = (&compared(program, found), &compared(program, plain));
    let at = (0..plain.len().max(found.len())).find(|&k| match (plain.get(k), found.get(k)) {
        (Some(p), Some(f)) => p.0 != f.0 || !close(&f.1, &p.1, conditional),
        _ => true,
    })?;
    // A refusal by name is an answer.
    if found.get(at).is_some_and(|(what, _)| what.contains(REFUSAL)) {
        return None;
    }
    let names = |shown: &Shown| shown.iter().take(at + 4).map(|(what, _)| what.clone()).collect::<Vec<_>>().join(", ");
    let (before, after) = (names(plain), names(found));
    Some(format!(
        "entry {at}\n  plain {:?}\n    of {before}\n  found {:?}\n    of {after}",
        plain.get(at),
        found.get(at)
    ))
}

/// A way to run: its name, the back end of the function and of the backward pass.
type Way = (&'static str, Arc<dyn Backend>, Option<CompiledBackward>);

fn ways() -> Vec<Way> {
    let with = |name: &str| CompiledBackward::new(BackwardOptions::with_backend(backend(name).unwrap()));
    let all = |name: &'static str| (name, backend(name).unwrap(), None);
    vec![
        all("eager"),
        all("aot_eager"),
        all("firebrand"),
        ("eager, compiled backward", backend("eager").unwrap(), Some(with("eager"))),
        ("firebrand, compiled backward", backend("firebrand").unwrap(), Some(with("firebrand"))),
    ]
}

/// The error that a hook gives its caller.
const OWN_ERROR: &str = "no more of this";

/// Whether a plain run refuses it: a kept value was written, say. What a hook refuses is compared.
fn is_refused(plain: &Shown) -> bool {
    plain.iter().any(|(what, _)| what.ends_with("failed") && !what.contains(OWN_ERROR))
}

fn differs(program: &Program, way: &Way) -> Option<String> {
    let plain = observe(program, None);
    if is_refused(&plain) {
        return None;
    }
    let _scope = way.2.as_ref().map(CompiledBackward::enable);
    difference(program, &observe(program, Some(way.1.clone())), &plain)
}

/// The program without what does not matter.
fn minimised(program: &Program, way: &Way) -> Program {
    let mut least = program.clone();
    for k in 0..least.statements.len() {
        let mut less = least.clone();
        less.statements[k] = Statement::Nothing;
        if differs(&less, way).is_some() {
            least = less;
        }
    }
    let simpler: [fn(&mut Program); 3] =
        [|p| p.alias = Alias::Nothing, |p| p.sizes = [3; 4], |p| p.sizes = [3, 4, 5, 6]];
    for simplify in simpler {
        let mut less = least.clone();
        simplify(&mut less);
        if differs(&less, way).is_some() {
            least = less;
        }
    }
    while least.results.len() > 1 {
        let mut less = least.clone();
        less.results.pop();
        less.chosen.pop();
        match differs(&less, way) {
            Some(_) => least = less,
            None => break,
        }
    }
    least
}

/// The default dtype is the process's: one test at a time.
static ONE: Mutex<()> = Mutex::new(());

fn check(seed: u64, count: usize) {
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    let mut r = Random(seed.max(1));
    let ways = ways();
    let (mut whole, mut wrong) = (0, Vec::new());
    // Programs may fail, and which ones is compared: their panics are not shown.
    let (here, shown) = (std::thread::current().id(), std::panic::take_hook());
    std::panic::set_hook(Box::new(move |panic| {
        if std::thread::current().id() != here {
            shown(panic);
        }
    }));
    for i in 0..count {
        let program = program(&mut r);
        if i < crate::first() {
            continue;
        }
        let plain = observe(&program, None);
        // As for graphs: what a plain run refuses is no program.
        if is_refused(&plain) {
            continue;
        }
        whole += 1;
        for way in &ways {
            let found = {
                let _scope = way.2.as_ref().map(CompiledBackward::enable);
                observe(&program, Some(way.1.clone()))
            };
            if let Some(first) = difference(&program, &found, &plain) {
                let least = minimised(&program, way);
                let what = differs(&least, way).unwrap_or_else(|| format!("only once, {first}"));
                let text = format!("seed {seed}, program {i} on {}: {what}\n{least:?}", way.0);
                eprintln!("{text}");
                wrong.push(text);
                break;
            }
        }
        if wrong.len() >= crate::MOST_WRONG {
            break;
        }
    }
    drop(std::panic::take_hook());
    assert!(wrong.is_empty(), "{} programs differ; the first: {}", wrong.len(), wrong[0]);
    assert!(crate::first() > 0 || whole * 2 >= count, "most programs run: {whole} of {count}");
}

///
#[test]
fn closures_that_have_differed() {
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    for (id, program) in known::known() {
        for way in ways() {
            assert!(!is_refused(&observe(&program, None)), "{id} runs");
            let found = differs(&program, &way);
            assert!(found.is_none(), "{id} on {}: {}\n{program:?}", way.0, found.unwrap_or_default());
        }
    }
}

#[test]
fn closures_of_a_fixed_seed() {
    check(0x5EED, crate::count());
}

#[test]
fn closures_of_a_new_seed() {
    check(crate::new_seed(), crate::count());
}
