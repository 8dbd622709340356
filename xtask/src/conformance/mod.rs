//! `cargo xtask conformance <check>`: checks that need more than a test may require, such as another generator or a
//! second build. Each is one module and reports what it compared.

mod aarch64;
mod accuracy;
mod adapters;
mod add_op;
mod cross;
mod environment;
mod json;
mod models;
mod mpi;
mod opinfo;
mod pt2;
pub(crate) mod python;
mod sanitizers;
mod targets;
mod torchgen;
mod upstream;
mod viewer;
mod wasm;
mod web;

pub(crate) use cross::need_target;

use crate::Outcome;

const USAGE: &str = "\
usage: cargo xtask conformance <check>

checks:
  aarch64 [TEST_FILE...]  the tests of kernels, core, graph and nn pass on 64-bit ARM, under qemu-aarch64
  accuracy [--venv DIR]   f32 results and gradients are as close to the f64 results as PyTorch's, op by op and for ten models
  add-op                  the ops that schema/README.md adds work, in a scratch copy of the workspace
  generate [--venv DIR]   `firebrand generate` produces the tokens of transformers
  lora [--venv DIR]       LoRA is initialized, trained, merged and stored as in PEFT
  models [--venv DIR]     models of torchvision, timm and transformers run and train as in PyTorch
  mpi [worlds|bytes|kills|failures|replicas...]
                          replicas on Open MPI and MPICH are bitwise equal to threads, on any number of ranks and after every step;
                          failures end the job; all of it by default
  opinfo [--venv DIR] [NAME...]
                          every sample of PyTorch's op database gives its values and gradients; writes docs/conformance/opinfo.md
  pt2 [--venv DIR]        programs that firebrand writes load in PyTorch and give the same outputs
  python [--venv DIR]     the Python package gives PyTorch's results: builds it and runs its tests
  sanitizers [miri|address|thread]
                          tests under Miri, AddressSanitizer and ThreadSanitizer; needs a nightly toolchain
  targets [TARGET...]     the libraries pass `cargo check` for Windows, macOS, iOS and Android
  torchgen [--venv DIR]   the generator's dump equals that of torchgen, byte for byte
  upstream --source DIR [--tests FILE] [--json OUT] [--venv DIR] [--compiled-backward] [--recalibrate]
                          PyTorch's own tests, unmodified, from a source tree of PyTorch 2.6, on the Python package; FILE selects
                          tests, one path::Class::test per line; OUT gets a record per test; --compiled-backward runs those that
                          pass again with backward passes compiled, --recalibrate runs PyTorch again to record which tests it passes
  viewer                  pages of `firebrand viz` respond to keyboard and mouse in a headless Chromium, and run reports are laid
                          out correctly; takes screenshots
  wasm [TEST_FILE...]     every library builds for WebAssembly, the tests of kernels, core and graph pass under Node, and the digits
                          give this machine's losses
  web                     the page in web/ trains, recognizes drawings and opens programs in a headless Chromium; takes screenshots
";

/// Runs one of them.
pub(crate) fn run(arguments: &[&str]) -> Outcome {
    match arguments {
        ["aarch64", only @ ..] => aarch64::run(only),
        ["accuracy"] => accuracy::run(None),
        ["accuracy", "--venv", folder] => accuracy::run(Some(folder)),
        ["add-op"] => add_op::run(),
        ["generate"] => adapters::run("conformance_generate.py", None),
        ["generate", "--venv", folder] => adapters::run("conformance_generate.py", Some(folder)),
        ["lora"] => adapters::run("conformance_lora.py", None),
        ["lora", "--venv", folder] => adapters::run("conformance_lora.py", Some(folder)),
        ["models"] => models::run(None),
        ["models", "--venv", folder] => models::run(Some(folder)),
        ["mpi", parts @ ..] => mpi::run(parts),
        ["opinfo", "--venv", folder, only @ ..] => opinfo::run(Some(folder), only),
        ["opinfo", only @ ..] => opinfo::run(None, only),
        ["pt2"] => pt2::run(None),
        ["pt2", "--venv", folder] => pt2::run(Some(folder)),
        ["python"] => python::run(None),
        ["python", "--venv", folder] => python::run(Some(folder)),
        ["sanitizers"] => sanitizers::run(None),
        ["sanitizers", which] => sanitizers::run(Some(which)),
        ["targets", only @ ..] => targets::run(only),
        ["torchgen"] => torchgen::run(None),
        ["torchgen", "--venv", folder] => torchgen::run(Some(folder)),
        ["upstream", rest @ ..] => upstream::run(rest),
        ["viewer"] => viewer::run(),
        ["wasm", only @ ..] => wasm::run(only),
        ["web"] => web::run(),
        _ => Err(format!("unknown or missing check\n{USAGE}")),
    }
}
