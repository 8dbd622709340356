//! Chores that need Python: comparing with the peers, and regenerating reference data. No build or test needs them.

use crate::Outcome;
use std::process::Command;

/// Scripts that write reference data. (`golden/generator.py` prints it, and only on some machines.)
const GOLDEN: [&str; 3] = ["golden/make_digits.py", "golden/make_npy.py", "golden/make_opinfo.py"];

fn python(arguments: &[&str]) -> Outcome {
    let program = std::env::var("PYTHON").unwrap_or_else(|_| "python3".to_string());
    let status = Command::new(&program).args(arguments).current_dir(crate::root()).status();
    match status.map_err(|e| format!("{program}: {e} (set PYTHON to another interpreter)"))? {
        s if s.success() => Ok(String::new()),
        s => Err(format!("{program} {}: {s}", arguments.join(" "))),
    }
}

/// Runs the comparison with the peers; see `bench/README.md` for its arguments.
pub(crate) fn bench(arguments: &[&str]) -> Outcome {
    python(&[&["bench/compare.py"], arguments].concat())
}

/// Regenerates reference data; `PYTHON` must have PyTorch, NumPy and scikit-learn.
pub(crate) fn golden() -> Outcome {
    for script in GOLDEN {
        println!("{script}");
        python(&[script])?;
    }
    Ok("done; `git diff --stat golden` shows what changed".to_string())
}
