//! Six programs on two, three and four ranks, with three optimizers, op by op and compiled, in f32 and with bf16: after each of a hundred
//! steps every rank compares its whole state with the others', bit for bit (`--check-replicas 1`).

use super::{Launcher, launcher, output};
use crate::root;

/// A program of `golden/train`, the data that it is trained on, and its loss: by name, an exported one, or an output of the program.
const PROGRAMS: [(&str, &str, [&str; 2]); 6] = [
    ("perceptron", "perceptron", ["--loss", "cross_entropy"]),
    ("gpt", "gpt", ["--loss", "cross_entropy"]),
    ("residual", "residual", ["--loss", "cross_entropy"]),
    ("classes", "classes", ["--loss", "cross_entropy"]),
    ("classes", "huber", ["--loss", "golden/train/huber.pt2"]),
    ("own_loss", "own_loss", ["--loss", "output"]),
];
const OPTIMIZERS: [&str; 3] = ["sgd", "adam", "adamw"];
/// At least two steps an epoch; the last batch of 50 samples has fewer than there are ranks. Shares are large enough that none of `own_loss` has
/// ignored labels only: its program takes the mean itself, which is then NaN, as in PyTorch.
const SIZES: [&str; 4] = ["--batch-size", "24", "--epochs", "50"];

pub(super) fn run(found: &Launcher) -> Result<String, String> {
    let (name, program, more) = found;
    let (binary, golden) = (crate::target().join("release/firebrand"), root().join("golden/train"));
    let mut runs = 0;
    for ranks in ["2", "3", "4"] {
        for (model, data, loss) in PROGRAMS {
            for optimizer in OPTIMIZERS {
                for mode in [&[][..], &["--bf16"], &["--compile"], &["--compile", "--bf16"]] {
                    let mut command = launcher(program, more);
                    command
                        .current_dir(root())
                        .args(["-n", ranks])
                        .arg(&binary)
                        .arg("train")
                        .arg(golden.join(format!("{model}.pt2")));
                    command.arg("--data").arg(golden.join(format!("{data}.npz"))).args(loss).args(SIZES);
                    command.args(["--optimizer", optimizer, "--lr", "0.01", "--check-replicas", "1", "--quiet"]);
                    command.args(mode).arg("-o").arg(std::env::temp_dir().join("firebrand-replicas.pt2"));
                    output(&mut command).map_err(|e| format!("{name}, {ranks} ranks, {model}, {optimizer}: {e}"))?;
                    runs += 1;
                }
            }
        }
    }
    Ok(format!("{name}: replicas agree after every step of {runs} runs of at least 100 steps on 2, 3 and 4 ranks"))
}
