//! `cargo xtask conformance sanitizers`: the unsafe code and what threads share, under tools that see what tests cannot.
//!
//! Miri interprets the tests of the allocator, the counted pointer, the pool, views, indexing and sorting: every access is
//! checked against Rust's rules. AddressSanitizer and ThreadSanitizer run the engine, hooks, saved tensors and the data
//! loader as compiled code. All of them need a nightly toolchain; what a machine lacks is said, and is no failure.

use crate::Outcome;
use std::fmt::Write;
use std::process::{Command, Stdio};
use std::time::Instant;

const TARGET: &str = "x86_64-unknown-linux-gnu";
/// Modules of `kernels` whose tests Miri runs: all that make or hand out memory, and kernels that are plain code.
const INTERPRETED: [&str; 11] = [
    "memory::",
    "shared::",
    "owned::",
    "small::",
    "parallel::",
    "view::",
    "walk::",
    "geometry::",
    "slices::",
    "index::",
    "sort::",
];
/// Tests that sanitizers run: threads, callbacks and lifetimes.
const COMPILED: [(&str, &[&str]); 2] =
    [("firebrand-core", &["engine", "hooks", "saved_tensors", "memory"]), ("firebrand-nn", &["data"])];

/// Runs all, or the one that is named.
pub(super) fn run(which: Option<&str>) -> Outcome {
    let all: [(&str, Tool); 3] =
        [("miri", miri), ("address", || sanitizer("address")), ("thread", || sanitizer("thread"))];
    if let Some(name) = which.filter(|name| all.iter().all(|(known, _)| known != name)) {
        return Err(format!("expected miri, address or thread, found {name}"));
    }
    let mut report = String::new();
    let mut failed = false;
    for (name, tool) in all.into_iter().filter(|(name, _)| which.is_none_or(|w| w == *name)) {
        let start = Instant::now();
        let done = match tool() {
            Ok(None) => "nothing found".to_string(),
            Ok(Some(lacks)) => format!("not run: {lacks}"),
            Err(e) => {
                failed = true;
                format!("FAILED: {e}")
            }
        };
        writeln!(report, "{name:8} {:6.0} s  {done}", start.elapsed().as_secs_f64()).expect("text grows");
    }
    if failed { Err(format!("see above\n{report}")) } else { Ok(report.trim_end().to_string()) }
}

fn nightly(arguments: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    // The toolchain that runs this chore must not decide for the one it starts.
    command.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO").env_remove("RUSTC").current_dir(crate::root());
    command.arg("+nightly").args(arguments);
    command
}

fn answers(mut command: Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|s| s.success())
}

fn pass(mut command: Command) -> Result<Option<String>, String> {
    match command.status() {
        Ok(status) if status.success() => Ok(None),
        Ok(status) => Err(status.to_string()),
        Err(e) => Err(e.to_string()),
    }
}

/// Runs one tool: what the machine lacks for it, or none if it ran and found nothing.
type Tool = fn() -> Result<Option<String>, String>;

/// What of the nightly toolchain is missing, if anything is.
fn lacking(component: Option<&str>) -> Option<String> {
    if !answers(nightly(&["--version"])) {
        return Some("no nightly toolchain; rustup toolchain install nightly".to_string());
    }
    let installed = match component {
        None => true,
        Some("miri") => answers(nightly(&["miri", "--version"])),
        Some(_) => {
            let mut rustc = Command::new("rustc");
            rustc.env_remove("RUSTUP_TOOLCHAIN").args(["+nightly", "--print", "sysroot"]);
            rustc.output().is_ok_and(|o| {
                let sysroot = String::from_utf8_lossy(&o.stdout).trim().to_string();
                std::path::Path::new(&sysroot).join("lib/rustlib/src/rust/library/std").exists()
            })
        }
    };
    (!installed).then(|| {
        let name = component.unwrap_or_default();
        format!("nightly lacks {name}; rustup component add {name} --toolchain nightly")
    })
}

fn miri() -> Result<Option<String>, String> {
    if let Some(lacks) = lacking(Some("miri")).or_else(|| lacking(Some("rust-src"))) {
        return Ok(Some(lacks));
    }
    let mut command = nightly(&["miri", "test", "--quiet", "-p", "firebrand-kernels", "--lib", "--"]);
    command.args(INTERPRETED);
    // Threads of the pool and what the allocator keeps outlive the tests on purpose.
    command.env("MIRIFLAGS", "-Zmiri-strict-provenance -Zmiri-ignore-leaks -Zmiri-disable-isolation");
    pass(command)
}

fn sanitizer(name: &str) -> Result<Option<String>, String> {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        return Ok(Some(format!("the tests are built for {TARGET} only")));
    }
    // ThreadSanitizer must see the standard library too, or its locks look like races.
    if let Some(lacks) = lacking((name == "thread").then_some("rust-src")) {
        return Ok(Some(lacks));
    }
    for (package, tests) in COMPILED {
        let mut command = nightly(&["test", "--quiet", "--target", TARGET, "-p", package]);
        if name == "thread" {
            command.arg("-Zbuild-std");
        }
        for test in tests {
            command.args(["--test", test]);
        }
        command.env("RUSTFLAGS", format!("-Zsanitizer={name}"));
        command.env("CARGO_TARGET_DIR", crate::root().join("target/sanitizers").join(name));
        // What is kept for reuse is no leak; `tests/leaks.rs` counts what is live.
        command.env("ASAN_OPTIONS", "detect_leaks=0").env("TSAN_OPTIONS", "halt_on_error=1");
        pass(command).map_err(|e| format!("{package}: {e}"))?;
    }
    Ok(None)
}
