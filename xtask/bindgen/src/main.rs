//! `bindgen MODULE.wasm FOLDER`: the module for browsers, its JavaScript and its TypeScript declarations, into the folder.

use std::process::ExitCode;
use wasm_bindgen_cli_support::Bindgen;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [module, folder] = &arguments[..] else {
        eprintln!("usage: bindgen MODULE.wasm FOLDER");
        return ExitCode::from(2);
    };
    let mut bindgen = Bindgen::new();
    // `await init()` finds the module beside its JavaScript.
    bindgen.omit_default_module_path(false);
    let written = bindgen.input_path(module).web(true).and_then(|b| b.generate(folder));
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{module}: {e:#}");
            ExitCode::FAILURE
        }
    }
}
