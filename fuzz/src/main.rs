//! Drives fuzz targets with mutated corpus files: `firebrand-fuzz TARGET|all [--count N] [--time S] [--seed N]`.
//!
//! A target is a plain function on bytes that panics when a property fails; readers are run under `measured`, which also
//! fails if they take more memory than the input justifies. The runner is deterministic for a seed and a count, mutates
//! what is in `fuzz/corpus/TARGET`, writes the first inputs that fail to files and goes on, so that one run shows all that
//! fails. With `all`, the time is shared out evenly and the count by how fast targets are. Without a count or a time,
//! every target runs for five seconds.

mod arrays;
mod codegen;
mod counting;
mod graph;
mod mutate;
mod ops;
mod programs;

use mutate::Mutator;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// A fuzz target: panics when a property fails, says whether the input was accepted.
type Target = fn(&[u8]) -> bool;

/// Every target by name, with its share in a run of all: about as many inputs as it takes in a millisecond, so that none
/// holds up the others.
const TARGETS: &[(&str, u64, Target)] = &[
    ("schema", 480, codegen::fuzz_schema),
    ("yaml", 320, codegen::fuzz_yaml),
    ("formula", 80, codegen::fuzz_formula),
    ("dump", 4, codegen::fuzz_dump),
    ("emit", 1, codegen::fuzz_emit),
    ("graph_text", 80, graph::fuzz_text),
    ("graph_passes", 60, graph::fuzz_passes),
    ("archive", 320, programs::fuzz_archive),
    ("program", 20, programs::fuzz_program),
    ("expression", 280, programs::fuzz_expression),
    ("safetensors", 180, programs::fuzz_safetensors),
    ("pickle", 80, programs::fuzz_pickle),
    ("torch_save", 240, programs::fuzz_torch_save),
    ("npy", 100, arrays::fuzz_npy),
    ("npz", 800, arrays::fuzz_npz),
    ("npz_entry", 80, arrays::fuzz_npz_entry),
    ("idx", 180, arrays::fuzz_idx),
    ("jpeg", 120, arrays::fuzz_jpeg),
    ("png", 120, arrays::fuzz_png),
    ("pnm", 480, arrays::fuzz_pnm),
    ("csv", 480, arrays::fuzz_csv),
    ("checkpoint", 80, arrays::fuzz_checkpoint),
    ("generator", 120, arrays::fuzz_generator),
];

/// How long a target runs, and from which seed.
#[derive(Clone, Copy)]
struct Limits {
    count: u64,
    time: Duration,
    seed: u64,
}

const USAGE: &str = "usage: firebrand-fuzz TARGET|all [--count N] [--time S] [--seed N]";

/// A target by name, and how long it runs.
type Run = (&'static str, Target, Limits);

/// The targets that are wanted, and the limits of each.
fn arguments(given: &[String]) -> Option<Vec<Run>> {
    let (wanted, rest) = given.split_first()?;
    let targets: Vec<_> = TARGETS.iter().filter(|(name, ..)| wanted == "all" || wanted == name).collect();
    let (mut count, mut time, mut seed) = (None, None, 1);
    for pair in rest.chunks(2) {
        let [name, value] = pair else { return None };
        let value: u64 = value.parse().ok()?;
        match name.as_str() {
            "--count" => count = Some(value),
            "--time" => time = Some(value),
            "--seed" => seed = value,
            _ => return None,
        }
    }
    let n = targets.len().max(1) as u64;
    let time = match (count, time) {
        (_, Some(seconds)) => Duration::from_secs_f64(seconds as f64 / n as f64),
        (None, None) => Duration::from_secs(5),
        (Some(_), None) => Duration::MAX,
    };
    let shares: u64 = targets.iter().map(|(_, share, _)| share).sum();
    let limits = |share: u64| Limits {
        count: count.map_or(u64::MAX, |c| (u128::from(c) * u128::from(share)).div_ceil(shares.into()) as u64),
        time,
        seed,
    };
    (!targets.is_empty())
        .then(|| targets.iter().map(|(name, share, target)| (*name, *target, limits(*share))).collect())
}

fn main() -> ExitCode {
    let given: Vec<String> = std::env::args().skip(1).collect();
    if given.first().is_some_and(|wanted| wanted == "ops") {
        return ops::command(&given); // calls are made from numbers, not from files
    }
    let Some(runs) = arguments(&given) else {
        let names: Vec<_> = TARGETS.iter().map(|(name, ..)| *name).collect();
        eprintln!("{USAGE}\ntargets: {} ops", names.join(" "));
        return ExitCode::from(2);
    };
    let (begin, mut total, mut failed) = (Instant::now(), 0, Vec::new());
    for (name, target, limits) in runs {
        let began = Instant::now();
        let report = run(target, read_corpus(name), limits);
        total += report.count;
        let (rate, failures) = (report.count as f64 / began.elapsed().as_secs_f64(), failures(report.failures));
        println!("{name}: {} inputs, {} accepted, {rate:.0} inputs/s, {failures}", report.count, report.accepted);
        for (k, input) in report.kept.iter().enumerate() {
            let file = PathBuf::from(format!("fuzz-failure-{name}-{}.bin", k + 1));
            let kept = std::fs::write(&file, input);
            eprintln!("{name}: failed on {:?}", String::from_utf8_lossy(input));
            eprintln!("input kept in {}: {kept:?}", file.display());
        }
        if report.failures > 0 {
            failed.push(format!("{name}: {failures}"));
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    match failed.is_empty() {
        true => println!("{total} inputs in {seconds:.1} s, no failure"),
        false => println!("{total} inputs in {seconds:.1} s, failures in {}", failed.join(", ")),
    }
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn failures(n: u64) -> String {
    match n {
        0 => "no failure".into(),
        1 => "1 failure".into(),
        n => format!("{n} failures"),
    }
}

fn read_corpus(name: &str) -> Vec<Vec<u8>> {
    // Both read the same texts.
    let name = if name == "graph_passes" { "graph_text" } else { name };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<_> = entries.map(|entry| entry.path()).collect();
    files.sort();
    let mut corpus: Vec<_> = files.iter().filter_map(|file| std::fs::read(file).ok()).collect();
    corpus.push(Vec::new());
    corpus
}

/// What became of a target's inputs.
#[derive(Default)]
struct Report {
    count: u64,
    accepted: u64,
    failures: u64,
    /// The first inputs that failed.
    kept: Vec<Vec<u8>>,
}

/// As many failing inputs of a target are kept, and their panics shown.
const KEPT: usize = 3;
/// A target that fails so often is given up: the rest would say the same.
const TOO_MANY: u64 = 1000;

impl Report {
    /// Whether the target accepted the input.
    fn take(&mut self, target: Target, input: &[u8]) -> bool {
        self.count += 1;
        let taken = catch_unwind(AssertUnwindSafe(|| target(input)));
        if taken.is_err() {
            self.failures += 1;
            if self.kept.len() < KEPT {
                self.kept.push(input.to_vec());
            }
            if self.kept.len() == KEPT {
                std::panic::set_hook(Box::new(|_| {}));
            }
        }
        let taken = taken.unwrap_or(false);
        self.accepted += u64::from(taken);
        taken
    }
}

/// Runs a target until its count or time is used up. Goes on after a failure.
fn run(target: Target, corpus: Vec<Vec<u8>>, limits: Limits) -> Report {
    let begin = Instant::now();
    let mut report = Report::default();
    for input in &corpus {
        report.take(target, input);
    }
    let mut mutator = Mutator::new(limits.seed, corpus);
    let mut input = Vec::new();
    loop {
        mutator.next(&mut input);
        // Accepted inputs are worth building on; refused ones only lead further away.
        if report.take(target, &input) {
            mutator.keep(&input);
        }
        // Looking at the clock costs as much as a short input.
        let late = report.count.is_multiple_of(64) && begin.elapsed() >= limits.time;
        if report.count >= limits.count || report.failures >= TOO_MANY || late {
            break;
        }
    }
    let _ = std::panic::take_hook(); // the next target's panics are shown again
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A short run of every target, by count, so that it is the same everywhere. One test, since memory is counted for
    /// the whole process.
    #[test]
    fn every_target_holds() {
        counting::measured(10, || vec![0u8; 1 << 10]);
        let too_much = catch_unwind(|| counting::measured(10, || vec![1u8; 2 << 20]));
        assert!(too_much.is_err(), "the bound is not asserted");
        for (name, _, target) in TARGETS {
            let corpus = read_corpus(name);
            assert!(corpus.len() > 1, "{name} has no corpus");
            assert!(corpus.iter().any(|input| target(input)), "{name} accepts nothing of its corpus");
            let limits = Limits { count: 400, time: Duration::MAX, seed: 7 };
            let report = run(*target, corpus, limits);
            let input = report.kept.first().map(|input| String::from_utf8_lossy(input));
            assert!(report.failures == 0, "{name}: {}, the first on {input:?}", failures(report.failures));
        }
        // A failure is counted, and ends neither the target nor the run.
        let odd: Target = |input| {
            assert!(input.len() % 2 == 0, "an odd length");
            true
        };
        let limits = Limits { count: 400, time: Duration::MAX, seed: 7 };
        let report = run(odd, vec![vec![1], vec![1, 2]], limits);
        assert!(report.count == 400 && report.accepted > 0 && report.kept.len() == KEPT, "{}", report.count);
        assert_eq!(report.failures + report.accepted, 400);
        assert_eq!(report.kept[0], [1]);
    }

    #[test]
    fn arguments_are_understood() {
        let parse = |text: &str| arguments(&text.split(' ').map(String::from).collect::<Vec<_>>());
        let all = parse("all --count 200000 --seed 3").expect("right");
        assert!(all.len() == TARGETS.len() && all.iter().all(|(.., l)| l.seed == 3 && l.count > 0));
        let total: u64 = all.iter().map(|(.., l)| l.count).sum();
        assert!((200_000..200_000 + TARGETS.len() as u64).contains(&total), "{total}");
        let one = parse("npz --time 2").expect("right");
        assert_eq!((one.len(), one[0].2.count, one[0].2.time), (1, u64::MAX, Duration::from_secs(2)));
        for wrong in ["", "nothing", "npz --count", "npz --count x", "npz --colour 3"] {
            assert!(parse(wrong).is_none(), "{wrong}");
        }
    }
}
