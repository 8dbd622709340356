//! `cargo xtask web`: builds `crates/web` for browsers and completes the page in `web/` with it: any static server can then
//! serve the folder.

use crate::Outcome;
use crate::conformance::need_target;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

const TARGET: &str = "wasm32-unknown-unknown";
/// The tool that writes the JavaScript beside the module: a workspace of its own, built on first use.
const BINDGEN: &str = "xtask/bindgen/Cargo.toml";
/// Megabytes of the module when it is sent compressed.
const MOST: f64 = 3.0;

fn must(command: &mut Command) -> Result<(), String> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{command:?}: {status}")),
        Err(e) => Err(format!("{:?}: {e}", command.get_program())),
    }
}

/// Megabytes of a file, and of what `gzip` makes of it, if there is a `gzip`.
pub(crate) fn sizes(file: &Path) -> Result<(f64, Option<f64>), String> {
    let plain = fs::metadata(file).map_err(|e| format!("{}: {e}", file.display()))?.len() as f64 / 1e6;
    let child = Command::new("gzip").args(["-9", "-c"]).arg(file).stdout(Stdio::piped()).spawn();
    let Ok(mut child) = child else { return Ok((plain, None)) };
    let mut bytes = Vec::new();
    let out = child.stdout.as_mut().ok_or("gzip: no output")?;
    out.read_to_end(&mut bytes).map_err(|e| format!("gzip: {e}"))?;
    let done = child.wait().is_ok_and(|s| s.success());
    Ok((plain, done.then_some(bytes.len() as f64 / 1e6)))
}

/// Builds the module, writes `web/pkg/`, and says how large it is.
pub(crate) fn build() -> Outcome {
    need_target(TARGET)?;
    let root = crate::root();
    let target = crate::target();
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["rustc", "--quiet", "--profile", "small", "--target", TARGET, "-p", "firebrand-web"]);
    // Only here: nobody else needs to link a module.
    cargo.args(["--lib", "--crate-type", "cdylib"]).current_dir(&root);
    cargo.env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS", "-C target-feature=+simd128");
    must(&mut cargo)?;
    let package = root.join("web/pkg");
    let module = target.join(TARGET).join("small/firebrand_web.wasm");
    let mut bindgen = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    bindgen.args(["run", "--quiet", "--release", "--manifest-path", BINDGEN, "--target-dir"]);
    bindgen.arg(target.join("bindgen")).arg("--").arg(&module).arg(&package).current_dir(&root);
    must(&mut bindgen)?;
    let digits = "crates/firebrand/data/digits.pt2";
    fs::copy(root.join(digits), package.join("digits.pt2")).map_err(|e| format!("{digits}: {e}"))?;
    let (plain, zipped) = sizes(&package.join("firebrand_web_bg.wasm"))?;
    match zipped {
        Some(size) if size > MOST => Err(format!("the module is {size:.2} MB compressed, more than {MOST} MB")),
        Some(size) => Ok(format!("web/: module of {plain:.1} MB, {size:.2} MB compressed; serve the folder over HTTP")),
        None => Ok(format!("web/: module of {plain:.1} MB; serve the folder over HTTP")),
    }
}
