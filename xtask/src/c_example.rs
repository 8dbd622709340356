//! The C example of `crates/capi`: compiled with the machine's C compiler against our header and library, and run.

use crate::Outcome;
use std::path::Path;
use std::process::{Command, Stdio};

const SOURCE: &str = "crates/capi/examples/fine_tune.c";
const PROGRAM: &str = "golden/programs/mlp/model.pt2";

/// The first C compiler that answers: `CC` if it is set, else the usual names.
fn compiler() -> Option<String> {
    let usual = ["cc", "gcc", "clang"].map(str::to_string);
    let candidates = std::env::var("CC").map_or(usual.to_vec(), |cc| vec![cc]);
    candidates.into_iter().find(|cc| {
        let mut command = Command::new(cc);
        command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|s| s.success())
    })
}

fn must(command: &mut Command) -> Result<(), String> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{command:?}: {status}")),
        Err(e) => Err(format!("{:?}: {e}", command.get_program())),
    }
}

/// Builds the library, compiles the example with warnings as errors, runs it. Says so if there is no compiler.
pub(crate) fn run() -> Outcome {
    let Some(cc) = compiler() else {
        return Ok("skipped: no C compiler; install one, or name it in CC".to_string());
    };
    let root = crate::root();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    // The whole workspace, as the tests select it: alone, the library would have its dependencies built anew with other features.
    let build = ["build", "--quiet", "--workspace", "--lib", "--features", crate::check::DEV];
    must(Command::new(cargo).args(build).current_dir(&root))?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), Into::into);
    let (library, scratch) = (target.join("debug"), target.join("c-example"));
    std::fs::create_dir_all(&scratch).map_err(|e| format!("{}: {e}", scratch.display()))?;
    let example = scratch.join("fine_tune");
    let mut compile = Command::new(&cc);
    compile.args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-I"]).arg(root.join("crates/capi/include"));
    compile.arg(root.join(SOURCE)).arg("-L").arg(&library).arg("-lfirebrand_c").arg(rpath(&library));
    must(compile.arg("-o").arg(&example))?;
    must(Command::new(&example).arg(root.join(PROGRAM)).arg(scratch.join("tuned.pt2")).stdout(Stdio::null()))?;
    Ok(format!("with {cc}"))
}

fn rpath(library: &Path) -> std::ffi::OsString {
    let mut flag = std::ffi::OsString::from("-Wl,-rpath,");
    flag.push(library);
    flag
}
