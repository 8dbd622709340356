//! Everything that must hold before a change lands, in the order in which failures are cheapest to find.

use crate::{Outcome, c_library, codegen, modules};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// Checked for compilation when its standard library is installed.
const OTHER_TARGET: &str = "aarch64-unknown-linux-gnu";

/// What the program has for people who work on it, and what is off by default.
const DEV: &str = "firebrand-cli/dev,firebrand-cli/parquet,firebrand-nn/parquet";
/// The same without the program's part for developers.
const USERS: &str = "firebrand-cli/parquet,firebrand-nn/parquet";

fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(crate::root());
    command
}

fn pass(mut command: Command) -> Outcome {
    match command.status() {
        Ok(status) if status.success() => Ok(String::new()),
        Ok(status) => Err(format!("{status}")),
        Err(e) => Err(format!("{:?}: {e}", command.get_program())),
    }
}

/// Whether a program answers at all.
fn answers(mut command: Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|s| s.success())
}

fn tests() -> Outcome {
    if !answers(cargo(&["nextest", "--version"])) {
        return pass(cargo(&["test", "--quiet", "--workspace", "--features", DEV]));
    }
    pass(cargo(&["nextest", "run", "--workspace", "--features", DEV]))?;
    pass(cargo(&["test", "--quiet", "--workspace", "--doc"]))
}

/// Every library of the workspace, selected as the tests select it: alone, one would have its dependencies built anew with
/// other features.
pub(crate) fn libraries() -> Outcome {
    pass(cargo(&["build", "--quiet", "--workspace", "--lib", "--features", DEV]))
}

/// The façade with none of its parts, and with two or three at a time; the tests have them all.
fn features() -> Outcome {
    for part in
        ["", "avx2,compile", "decompositions,dist", "avx512,graph,linalg", "fft,io", "nn,special", "transforms,viz"]
    {
        let check = ["check", "--quiet", "-p", "firebrand", "--no-default-features", "--features", part];
        pass(cargo(&check)).map_err(|e| format!("--features {part:?}: {e}"))?;
    }
    pass(cargo(&["check", "--quiet", "-p", "firebrand-cli", "--no-default-features"]))?;
    // The C library is what is shipped without them.
    pass(cargo(&["test", "--quiet", "-p", "firebrand-capi", "--no-default-features"]))?;
    // The program without `dev`; the workspace is selected as a whole, so that only the program is built again.
    pass(cargo(&["test", "--quiet", "--workspace", "--features", USERS, "--test", "command_line"]))
}

/// The state machines that threads share, each in 10,000 random schedules.
fn schedules() -> Outcome {
    for package in ["firebrand-core", "firebrand-dist"] {
        pass(cargo(&["test", "--quiet", "-p", package, "--features", "shuttle", "--lib", "schedules"]))?;
    }
    Ok(String::new())
}

fn documentation() -> Outcome {
    let mut command = cargo(&["doc", "--quiet", "--workspace", "--no-deps"]);
    command.env("RUSTDOCFLAGS", "-D warnings");
    pass(command)
}

/// Every crate that is published can be packed: its dependencies have versions, and its files are its own. Nothing is
/// fetched for that, and nothing built.
fn packages() -> Outcome {
    let mut command = cargo(&["package", "--quiet", "--offline", "--workspace", "--no-verify", "--allow-dirty"]);
    command.args([
        "--exclude",
        "xtask",
        "--exclude",
        "firebrand-fuzz",
        "--exclude",
        "firebrand-python",
        "--exclude",
        "firebrand-web",
    ]);
    pass(command)
}

fn other_target() -> Outcome {
    let found = Command::new("rustc").args(["--print", "sysroot"]).output().map_err(|e| format!("rustc: {e}"))?;
    let sysroot = PathBuf::from(String::from_utf8_lossy(&found.stdout).trim());
    if !Path::new(&sysroot).join("lib/rustlib").join(OTHER_TARGET).exists() {
        return Ok(format!("skipped: run `rustup target add {OTHER_TARGET}` to have it"));
    }
    pass(cargo(&["check", "--quiet", "--workspace", "--target", OTHER_TARGET]))
}

/// What `deny.toml` accepts of dependencies. Advisories are fetched, so this needs a network.
pub(crate) fn deny() -> Outcome {
    if !answers(cargo(&["deny", "--version"])) {
        return Ok("skipped: cargo-deny is not installed; `cargo install cargo-deny` gets it".into());
    }
    pass(cargo(&["deny", "--log-level", "error", "check"]))
}

/// A step by name.
type Step = (&'static str, fn() -> Outcome);

/// Runs every step, or those named, says how long each took, and stops at the first failure.
pub(crate) fn run(only: &[&str]) -> Outcome {
    let steps: [Step; 14] = [
        ("format", || pass(cargo(&["fmt", "--all", "--check"]))),
        ("modules", modules::check),
        ("formulas", codegen::lint),
        ("generated code", codegen::check),
        ("clippy", || {
            pass(cargo(&[
                "clippy",
                "--quiet",
                "--workspace",
                "--all-targets",
                "--features",
                DEV,
                "--",
                "-D",
                "warnings",
            ]))
        }),
        ("tests", tests),
        ("features", features),
        ("schedules", schedules),
        ("C and C++ examples", c_library::examples),
        ("Python package", crate::python::check),
        ("documentation", documentation),
        ("packages", packages),
        (OTHER_TARGET, other_target),
        ("dependencies", deny),
    ];
    if let Some(unknown) = only.iter().find(|wanted| steps.iter().all(|(name, _)| name != *wanted)) {
        let names: Vec<&str> = steps.iter().map(|(name, _)| *name).collect();
        return Err(format!("no step {unknown:?}; there are: {}", names.join(", ")));
    }
    for (name, step) in steps.into_iter().filter(|(name, _)| only.is_empty() || only.contains(name)) {
        let began = Instant::now();
        let note = step().map_err(|e| format!("{name}: {e}"))?;
        println!("{name:<26} {:>6.1} s  {note}", began.elapsed().as_secs_f64());
    }
    Ok("all well".to_string())
}
