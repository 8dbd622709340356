//! WebAssembly: every library builds for a browser and for WASI, the tests of `kernels`, `core` and `graph` run under Node,
//! and the digits give the losses of this machine's portable code.
//!
//! Tests run one by one, each in a fresh instance, since a panic ends an instance. Those that cannot run there are listed
//! with reasons in `wasm_excluded.txt`, which may name at most one in twenty.

use super::cross::{self, Program, need_target};
use super::environment::must;
use crate::Outcome;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;

const BROWSER: &str = "wasm32-unknown-unknown";
const WASI: &str = "wasm32-wasip1";
/// The crates whose tests run.
const TESTED: [&str; 3] = ["firebrand-kernels", "firebrand-core", "firebrand-graph"];
const RUNNER: &str = "xtask/src/conformance/wasm_runner.mjs";
const EXCLUDED: &str = include_str!("wasm_excluded.txt");
/// Largest difference of a loss.
const CLOSE: f64 = 1e-6;
/// A stack of the size that threads have elsewhere needs more room here: frames hold what registers do.
const FLAGS: &str = "-C target-feature=+simd128 -C link-arg=-zstack-size=8388608";

/// Node, of a version that has WASI.
pub(super) fn need_node() -> Result<(), String> {
    let missing = "Node 20 or later is missing; install it from https://nodejs.org or your distribution";
    let output = Command::new("node").arg("--version").output().map_err(|_| missing.to_string())?;
    let version = String::from_utf8_lossy(&output.stdout).trim().to_string();
    let major: Option<u32> = version.trim_start_matches('v').split('.').next().and_then(|v| v.parse().ok());
    if major.is_some_and(|v| v >= 20) { Ok(()) } else { Err(format!("{missing} (found {version})")) }
}

fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command.args(arguments).current_dir(crate::root());
    command.env("CARGO_TARGET_WASM32_WASIP1_RUSTFLAGS", FLAGS);
    // Code that is not optimized at all needs more stack than an engine has.
    command.env("CARGO_PROFILE_DEV_OPT_LEVEL", "1").env("CARGO_PROFILE_DEV_DEBUG", "none");
    command
}

/// Builds and returns the modules that Cargo made.
fn build(arguments: &[&str]) -> Result<Vec<Program>, String> {
    cross::build(cargo(arguments), WASI)
}

fn node(module: &Path, scratch: &Path) -> Result<Command, String> {
    let root = crate::root().canonicalize().map_err(|e| format!("the workspace: {e}"))?;
    let mut command = Command::new("node");
    // Its fast calls of WASI functions crash (https://github.com/nodejs/node/issues/53087).
    command
        .args(["--no-warnings", "--no-turbo-fast-api-calls", "--stack-size=6500"])
        .arg(root.join(RUNNER))
        .arg(module)
        .arg(&root)
        .arg(scratch);
    Ok(command)
}

#[derive(Default)]
struct Counts {
    passed: usize,
    ignored: usize,
    failed: usize,
    excluded: usize,
    failures: Vec<String>,
}

/// Runs the tests of every module, several at a time.
fn test(modules: &[Program], only: &[&str]) -> Result<Counts, String> {
    let scratch = crate::target().join("conformance/wasm");
    std::fs::create_dir_all(&scratch).map_err(|e| format!("{}: {e}", scratch.display()))?;
    let scratch = scratch.canonicalize().map_err(|e| format!("{}: {e}", scratch.display()))?;
    let excluded = cross::excluded(EXCLUDED, "wasm_excluded.txt")?;
    let queue = Mutex::new(modules.iter().filter(|m| only.is_empty() || only.contains(&m.name.as_str())));
    let counts = Mutex::new(Counts::default());
    let next = || queue.lock().unwrap_or_else(|e| e.into_inner()).next();
    let work = || -> Result<(), String> {
        while let Some(Program { name, path: module, package }) = next() {
            let skipped = excluded.get(name.as_str()).map_or(&[][..], Vec::as_slice);
            let mut node = node(module, &scratch)?;
            let output =
                node.env("CARGO_MANIFEST_DIR", package).args(skipped).output().map_err(|e| format!("node: {e}"))?;
            let said = String::from_utf8_lossy(&output.stdout);
            let mut counts = counts.lock().unwrap_or_else(|e| e.into_inner());
            let (failures, last) = said.trim_end().rsplit_once('\n').unwrap_or(("", said.trim_end()));
            if !failures.is_empty() {
                counts.failures.push(format!("{name}:\n{failures}"));
            }
            let words: Vec<&str> = last.split_whitespace().collect();
            let ["passed", passed, "ignored", ignored, "failed", failed, "excluded", excluded] = words[..] else {
                counts.failures.push(format!("{name}: {last}{}", String::from_utf8_lossy(&output.stderr)));
                continue;
            };
            let number = |n: &str| n.parse::<usize>().unwrap_or(0);
            println!("{name:<28} {passed:>5} passed {ignored:>4} ignored {failed:>4} failed {excluded:>4} excluded");
            counts.passed += number(passed);
            counts.ignored += number(ignored);
            counts.failed += number(failed);
            counts.excluded += number(excluded);
        }
        Ok(())
    };
    std::thread::scope(|s| {
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
        let running: Vec<_> = (0..threads).map(|_| s.spawn(work)).collect();
        running.into_iter().try_for_each(|t| t.join().unwrap_or_else(|_| Err("a runner panicked".into())))
    })?;
    counts.into_inner().map_err(|e| e.to_string())
}

/// The losses of the digits in WebAssembly and on this machine without vector instructions.
fn losses() -> Result<String, String> {
    let example = ["--example", "losses", "-p", "firebrand-web"];
    let module = build(&[&["build"][..], &example].concat())?;
    let module = module.first().ok_or("cargo built no example")?;
    let read = |mut command: Command| -> Result<(Vec<f64>, String), String> {
        let output = command.stderr(Stdio::inherit()).output().map_err(|e| format!("{command:?}: {e}"))?;
        if !output.status.success() {
            return Err(format!("{command:?}: {}", output.status));
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let losses = text.lines().filter_map(|l| l.parse().ok()).collect();
        Ok((losses, text.lines().last().unwrap_or_default().to_string()))
    };
    let scratch = crate::target().join("conformance/wasm");
    let mut there = node(&module.path, &scratch)?;
    there.arg("--main");
    let mut here = cargo(&[&["run", "--quiet"][..], &example].concat());
    here.env("FIREBRAND_CPU", "portable").env_remove("CARGO_PROFILE_DEV_OPT_LEVEL");
    let ((there, accuracy), (here, expected)) = (read(there)?, read(here)?);
    let largest = there.iter().zip(&here).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    if there.len() != here.len() || here.is_empty() || largest > CLOSE || accuracy != expected {
        return Err(format!(
            "{} and {} losses differ by up to {largest:e}; {accuracy} and {expected}",
            there.len(),
            here.len()
        ));
    }
    Ok(format!("{} losses of the digits equal this machine's within {largest:.1e}, {accuracy}", here.len()))
}

/// Builds, tests and compares. With names, only those test modules run, and nothing else is done.
pub(super) fn run(only: &[&str]) -> Outcome {
    need_target(WASI)?;
    need_node()?;
    if only.is_empty() {
        need_target(BROWSER)?;
        for target in [BROWSER, WASI] {
            let mut libraries = cargo(&["build", "--quiet", "-p", "firebrand", "--all-features", "--target", target]);
            must(libraries.env_remove("CARGO_PROFILE_DEV_OPT_LEVEL"))?;
        }
    }
    let packages: Vec<&str> = TESTED.iter().flat_map(|p| ["-p", p]).collect();
    let modules = build(&[&["test", "--no-run"][..], &cross::programs(only), &packages].concat())?;
    let counts = test(&modules, only)?;
    let Counts { passed, ignored, failed, excluded, failures } = counts;
    if !failures.is_empty() {
        return Err(format!("{failed} tests failed, {passed} passed:\n{}", failures.join("\n")));
    }
    let total = passed + ignored + excluded;
    let without = ignored + excluded;
    if only.is_empty() && 20 * without > total {
        return Err(format!("{without} of {total} tests do not run, more than one in twenty; see wasm_excluded.txt"));
    }
    let compared = if only.is_empty() { losses()? } else { String::new() };
    Ok(format!("{passed} of {total} tests pass, {excluded} excluded, {ignored} ignored; {compared}"))
}
