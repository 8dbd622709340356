//! The Python environment that a proof compares with: the one that was given, else one in the user's cache, made and
//! completed on first use. Knows nothing of what is compared.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The release that firebrand follows.
const TORCH: &str = "2.15.0";

pub(super) fn must(command: &mut Command) -> Result<(), String> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{command:?}: {status}")),
        Err(e) => Err(format!("{:?}: {e}", command.get_program())),
    }
}

/// The folder of packages of an environment.
pub(super) fn site_packages(venv: &Path) -> Result<PathBuf, String> {
    let lib = venv.join("lib");
    let entries = std::fs::read_dir(&lib).map_err(|e| format!("{}: {e}; is it an environment?", lib.display()))?;
    let found = entries.flatten().map(|e| e.path().join("site-packages")).find(|p| p.join("torchgen").is_dir());
    found.ok_or_else(|| format!("{}: no torchgen in it; install torch=={TORCH} there", venv.display()))
}

/// An environment with PyTorch and `packages`. A given one is taken as it is; its owner decides what is in it.
pub(super) fn environment(given: Option<&str>, packages: &[&str]) -> Result<PathBuf, String> {
    given.map_or_else(|| made_environment(packages), |folder| Ok(PathBuf::from(folder)))
}

fn made_environment(packages: &[&str]) -> Result<PathBuf, String> {
    let home = std::env::var_os("HOME").ok_or("HOME is not set; give an environment with --venv")?;
    let cache = std::env::var_os("XDG_CACHE_HOME").map_or_else(|| Path::new(&home).join(".cache"), PathBuf::from);
    let venv = cache.join("firebrand").join(format!("torch-{TORCH}"));
    let pip = |packages: &[&str]| {
        // The release stays pinned, so that no package draws in another one.
        let pip = ["-m", "pip", "install", "--quiet", &format!("torch=={TORCH}")];
        must(Command::new(venv.join("bin/python")).args(pip).args(packages))
    };
    if site_packages(&venv).is_err() {
        let program = std::env::var("PYTHON").unwrap_or_else(|_| "python3".to_string());
        println!("making {} with {program} (once)", venv.display());
        must(Command::new(&program).args(["-m", "venv"]).arg(&venv))?;
        pip(&["pyyaml", "numpy"])?;
    }
    let present = site_packages(&venv)?;
    let missing: Vec<&str> = packages.iter().copied().filter(|package| !present.join(package).is_dir()).collect();
    if !missing.is_empty() {
        println!("adding {} (once)", missing.join(", "));
        pip(&missing)?;
    }
    Ok(venv)
}
