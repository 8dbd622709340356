//! Prints the model of a pair of files as canonical JSON: `dump NATIVE DERIVATIVES [--plan]`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let files: Vec<&String> = args.iter().filter(|a| !a.starts_with("--")).collect();
    let [native, derivatives] = files.as_slice() else {
        eprintln!("usage: dump NATIVE DERIVATIVES [--plan]");
        return ExitCode::from(2);
    };
    let read = |path: &str| std::fs::read_to_string(path).map_err(|e| eprintln!("{path}: {e}"));
    let (Ok(native), Ok(derivatives)) = (read(native), read(derivatives)) else { return ExitCode::from(2) };
    match firebrand_codegen::dump(&native, &derivatives, args.iter().any(|a| a == "--plan")) {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            print!("{}", firebrand_codegen::error_json(&error));
            ExitCode::from(3)
        }
    }
}
