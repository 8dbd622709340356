//! Drives fuzz targets with mutated corpus files: `firebrand-fuzz TARGET [--seconds N] [--seed N]`.
//!
//! A target is a plain function on bytes that panics when a property fails. The runner is deterministic
//! for a seed, mutates what is in `fuzz/corpus/TARGET`, and writes the input of a failure to a file.

mod codegen;
mod graph;
mod mutate;
mod programs;

use mutate::Mutator;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// A fuzz target: panics when a property fails, says whether the input was accepted.
type Target = fn(&[u8]) -> bool;

/// Every target by name.
const TARGETS: &[(&str, Target)] = &[
    ("schema", codegen::fuzz_schema),
    ("yaml", codegen::fuzz_yaml),
    ("formula", codegen::fuzz_formula),
    ("dump", codegen::fuzz_dump),
    ("emit", codegen::fuzz_emit),
    ("graph_text", graph::fuzz_text),
    ("archive", programs::fuzz_archive),
    ("program", programs::fuzz_program),
    ("expression", programs::fuzz_expression),
    ("safetensors", programs::fuzz_safetensors),
    ("pickle", programs::fuzz_pickle),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let option = |name: &str, default: u64| {
        let at = arguments.iter().position(|a| a == name);
        at.and_then(|at| arguments.get(at + 1)?.parse().ok()).unwrap_or(default)
    };
    let wanted = arguments.first().map_or("", String::as_str);
    let Some((name, target)) = TARGETS.iter().find(|(name, _)| *name == wanted) else {
        let names: Vec<_> = TARGETS.iter().map(|(name, _)| *name).collect();
        eprintln!("usage: firebrand-fuzz {} [--seconds N] [--seed N]", names.join("|"));
        return ExitCode::from(2);
    };
    let corpus = read_corpus(&Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name));
    let limit = Duration::from_secs(option("--seconds", 5));
    match run(*target, corpus, option("--seed", 1), limit) {
        Ok(count) => {
            println!("{name}: {count} inputs, no failure");
            ExitCode::SUCCESS
        }
        Err(input) => {
            let file = PathBuf::from(format!("fuzz-failure-{name}.bin"));
            let kept = std::fs::write(&file, &input);
            eprintln!("{name}: failed on {:?}", String::from_utf8_lossy(&input));
            eprintln!("input kept in {}: {kept:?}", file.display());
            ExitCode::FAILURE
        }
    }
}

fn read_corpus(folder: &Path) -> Vec<Vec<u8>> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<_> = entries.map(|entry| entry.path()).collect();
    files.sort();
    let mut corpus: Vec<_> = files.iter().filter_map(|file| std::fs::read(file).ok()).collect();
    corpus.push(Vec::new());
    corpus
}

/// Runs a target until time is up; the input that failed is the error.
fn run(target: Target, corpus: Vec<Vec<u8>>, seed: u64, limit: Duration) -> Result<u64, Vec<u8>> {
    let begin = Instant::now();
    let mut count = 0;
    let mut try_one = |input: &[u8]| {
        count += 1;
        catch_unwind(AssertUnwindSafe(|| target(input))).map_err(|_| input.to_vec())
    };
    for input in &corpus {
        try_one(input)?;
    }
    let mut mutator = Mutator::new(seed, corpus);
    while begin.elapsed() < limit {
        let input = mutator.next();
        // Accepted inputs are worth building on; refused ones only lead further away.
        if try_one(&input)? {
            mutator.keep(input);
        }
    }
    Ok(count)
}
