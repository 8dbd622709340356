//! PyTorch's own test files on firebrand: `cargo xtask conformance upstream --source DIR`.
//!
//! DIR is a source tree of PyTorch 2.6; nothing of it is copied. Each class of each file runs in a process of its own, in which a
//! test-only package called `torch` (crates/python/conformance) stands for firebrand. A test that makes no progress is killed
//! and counted as `timeout`, one that ends the process as `error`; the rest of its class goes on in a new process.
//! Tests that fail here and on PyTorch 2.15 itself are `oracle-fails`: they say nothing about firebrand. What PyTorch gives is committed
//! (`oracle`), so that only other texts of the tests, or `--recalibrate`, have to ask it.
//! Every test has an expectation in crates/python/conformance/expected.txt: `pass`, or the reason why not. The run fails if a test
//! that is expected to pass does not; a test that passes unexpectedly is reported, so that the file stays true.
//! With `--compiled-backward` the tests that are expected to pass run again with every backward pass compiled, `TestAutograd` unless
//! `--tests` says otherwise; nine of ten must pass.

mod oracle;
mod runner;

use super::environment::environment;
use super::json;
use super::python;
use crate::Outcome;
use oracle::Oracle;
use runner::{Runner, Side, Test, Verdict, Verdicts, tally};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

/// The files, below the source tree.
const FILES: &[&str] = &[
    "test/test_autograd.py",
    "test/autograd/test_functional.py",
    "test/autograd/test_complex.py",
    "test/autograd/test_logging.py",
    "test/dynamo/test_hooks.py",
    "test/inductor/test_compiled_autograd.py",
    "test/export/test_passes.py",
    "test/export/test_serialize.py",
    "test/functorch/test_eager_transforms.py",
    "test/functorch/test_vmap.py",
    "test/test_optim.py",
    "test/nn/test_convolution.py",
    "test/nn/test_dropout.py",
    "test/nn/test_embedding.py",
    "test/nn/test_init.py",
    "test/nn/test_lazy_modules.py",
    "test/nn/test_load_state_dict.py",
    "test/nn/test_module_hooks.py",
    "test/nn/test_multihead_attention.py",
    "test/nn/test_packed_sequence.py",
    "test/nn/test_parametrization.py",
    "test/nn/test_pooling.py",
    "tools/test/test_codegen.py",
    "tools/test/test_codegen_model.py",
];

/// Files whose tests ask the code generator, which is in the command.
const CODEGEN: &str = "tools/test/test_codegen";

/// What is asked for.
#[derive(Default)]
struct Options<'a> {
    source: Option<&'a str>,
    tests: Option<&'a str>,
    json: Option<&'a str>,
    venv: Option<&'a str>,
    compiled_backward: bool,
    recalibrate: bool,
}

/// Runs the check.
pub(super) fn run(arguments: &[&str]) -> Outcome {
    let options = parse(arguments)?;
    let source = Path::new(options.source.ok_or("expected --source DIR, a source tree of PyTorch 2.6")?);
    let source = source.canonicalize().map_err(|e| format!("{}: {e}", source.display()))?;
    let root = crate::root();
    let mut runner = Runner {
        codegen: None,
        python: environment(options.venv, &["numpy", "pytest", "expecttest", "hypothesis", "scipy"])?
            .join("bin/python"),
        folder: root.join("crates/python/conformance"),
        package: root.join("crates/python/python"),
        source,
    };
    let expected = runner.folder.join("expected.txt");
    let expected = std::fs::read_to_string(&expected).map_err(|e| format!("{}: {e}", expected.display()))?;
    let expected: BTreeMap<&str, &str> =
        expected.lines().filter(|l| !l.starts_with('#')).filter_map(|l| l.split_once('\t')).collect();
    let mut tests = select(&runner, options.tests)?;
    if tests.iter().any(|t| t.file.starts_with(CODEGEN)) {
        runner.codegen = Some(python::build_with_command(&root)?);
    } else {
        python::build(&root)?;
    }
    let side = if options.compiled_backward {
        let wanted = |t: &Test| options.tests.is_some() || t.class == "TestAutograd";
        tests.retain(|t| wanted(t) && expected.get(&*t.id()) == Some(&"pass"));
        Side::CompiledBackward
    } else {
        Side::Firebrand
    };
    println!("{} tests on firebrand", tests.len());
    let mut verdicts = runner.all(&tests, side, |_| Ok(()))?;
    if !options.compiled_backward {
        let mut oracle = Oracle::read(&runner)?;
        let ran: Vec<Test> = tests.iter().filter(|t| verdicts[t].outcome != "skip").cloned().collect();
        oracle.complete(&runner, &ran, options.recalibrate)?;
        for (test, verdict) in &mut verdicts {
            if let Some(failed) = oracle.failure(test).filter(|_| !matches!(&*verdict.outcome, "pass" | "skip")) {
                *verdict = Verdict { outcome: "oracle-fails".into(), message: failed.to_string() };
            }
        }
    }
    if let Some(path) = options.json {
        std::fs::write(path, report(&verdicts)).map_err(|e| format!("{path}: {e}"))?;
    }
    count(&verdicts);
    if options.compiled_backward { share(&verdicts) } else { compare(&verdicts, &expected) }
}

fn parse<'a>(arguments: &[&'a str]) -> Result<Options<'a>, String> {
    let mut options = Options::default();
    let mut rest = arguments.iter();
    while let Some(&word) = rest.next() {
        let place = match word {
            "--source" => &mut options.source,
            "--tests" => &mut options.tests,
            "--json" => &mut options.json,
            "--venv" => &mut options.venv,
            "--compiled-backward" => {
                options.compiled_backward = true;
                continue;
            }
            "--recalibrate" => {
                options.recalibrate = true;
                continue;
            }
            other => {
                return Err(format!(
                    "upstream: unknown argument {other:?}; expected --source, --tests, --json, --venv, --compiled-backward or --recalibrate"
                ));
            }
        };
        *place = Some(rest.next().ok_or_else(|| format!("upstream: {word} needs a value"))?);
    }
    Ok(options)
}

/// All tests of the files above, or those that a file names; these may stand in other files too.
fn select(runner: &Runner, path: Option<&str>) -> Result<Vec<Test>, String> {
    let Some(path) = path else {
        let tests = runner.definitions(&FILES.iter().copied().collect())?;
        let none = || format!("{}: no test files in it; is it a source tree of PyTorch 2.6?", runner.source.display());
        return if tests.is_empty() { Err(none()) } else { Ok(tests) };
    };
    let text = std::fs::read_to_string(path).map_err(|e| format!("{path}: {e}"))?;
    let lines = text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#'));
    let wanted: BTreeSet<Test> = lines
        .map(|l| Test::parse(l).ok_or_else(|| format!("{path}: expected path::Class::test, found {l:?}")))
        .collect::<Result<_, _>>()?;
    let tests = runner.definitions(&wanted.iter().map(|t| &*t.file).collect())?;
    let unknown: Vec<String> = wanted.iter().filter(|t| !tests.contains(t)).map(Test::id).collect();
    if !unknown.is_empty() {
        return Err(format!("{path}: the source tree has no test\n  {}", unknown.join("\n  ")));
    }
    Ok(wanted.into_iter().collect())
}

/// The list of records that the check promises.
fn report(verdicts: &Verdicts) -> String {
    let mut text = String::from("[\n");
    for (k, (test, verdict)) in verdicts.iter().enumerate() {
        let comma = if k + 1 < verdicts.len() { "," } else { "" };
        let fields = [
            ("file", &test.file),
            ("class", &test.class),
            ("test", &test.name),
            ("outcome", &verdict.outcome),
            ("message", &verdict.message),
        ];
        let fields: Vec<String> = fields.iter().map(|(k, v)| format!("\"{k}\": {}", json::quoted(v))).collect();
        let _ = writeln!(text, "{{{}}}{comma}", fields.join(", "));
    }
    text + "]\n"
}

/// Prints the counts by file.
fn count(verdicts: &Verdicts) {
    let files: BTreeSet<&str> = verdicts.keys().map(|t| &*t.file).collect();
    for file in files {
        println!("{file}: {}", tally(verdicts.iter().filter(|(t, _)| t.file == file).map(|(_, v)| v)));
    }
}

/// Compares each test with its expectation.
fn compare(verdicts: &Verdicts, expected: &BTreeMap<&str, &str>) -> Outcome {
    let (mut broken, mut surprises) = (Vec::new(), Vec::new());
    for (test, verdict) in verdicts {
        let id = test.id();
        match (expected.get(&*id).copied(), &*verdict.outcome) {
            (_, "oracle-fails") | (Some("pass"), "pass") => {}
            (Some("pass"), outcome) => broken.push(format!("{id}: {outcome}: {}", verdict.message)),
            (_, "pass") => surprises.push(id),
            (Some(_), _) => {}
            (None, outcome) => broken.push(format!("{id}: {outcome}, and has no expectation: {}", verdict.message)),
        }
    }
    for id in &surprises {
        println!("passes, though not expected to: {id}");
    }
    if broken.is_empty() {
        return Ok(format!("{} tests are as expected, {} better", verdicts.len() - surprises.len(), surprises.len()));
    }
    Err(format!("{} tests are not as expected:\n  {}", broken.len(), broken.join("\n  ")))
}

/// Nine of ten tests pass with backward passes compiled.
fn share(verdicts: &Verdicts) -> Outcome {
    for (test, verdict) in verdicts.iter().filter(|(_, v)| v.outcome != "pass") {
        println!("{}: {}: {}", test.id(), verdict.outcome, verdict.message);
    }
    let passed = verdicts.values().filter(|v| v.outcome == "pass").count();
    let text = format!("{passed} of {} tests pass with compiled backward passes", verdicts.len());
    if passed * 10 >= verdicts.len() * 9 { Ok(text) } else { Err(text) }
}
