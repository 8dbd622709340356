//! The text cases.

use firebrand_graph::passes::{self, Context};
use firebrand_graph::text::{Form, parse, print};
use firebrand_graph::verify::verify_module;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases")
}

/// Header and body of every case of a file, in order; none if there is no such file.
fn read(file: &Path) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let cases = text.split("=== ").skip(1).map(|case| case.split_once('\n').expect("a header"));
    cases.map(|(header, body)| (header.to_string(), body.to_string())).collect()
}

struct Options<'a>(HashMap<&'a str, &'a str>);

impl<'a> Options<'a> {
    fn of(header: &'a str) -> Options<'a> {
        let flags = header.split_once(" | ").map_or("", |(_, flags)| flags);
        Options(flags.split_whitespace().map(|f| f.split_once('=').unwrap_or((f, ""))).collect())
    }
    fn has(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }
}

/// What the passes of a case make of it: a program, or an error.
fn run(header: &str, body: &str, default_pass: &str) -> String {
    let options = Options::of(header);
    let context =
        Context { ambient_grad: options.0.get("ambient").is_none_or(|a| *a == "on"), compat: options.has("compat") };
    let program = parse(body).unwrap_or_else(|e| panic!("{header}: {e}"));
    let before = print(&program, Form::Long);
    let names = options.0.get("passes").copied().unwrap_or(default_pass);
    let list: Vec<_> = names.split(',').map(|name| passes::find(name).unwrap()).collect();
    let result = passes::run(&program, &list, &context);
    assert_eq!(print(&program, Form::Long), before, "{header}: the input was changed");
    match result {
        Ok((after, _)) => {
            verify_module(&after.module).unwrap_or_else(|e| panic!("{header}: {e}"));
            print(&after, Form::Short)
        }
        Err(e) => format!("error: {e}\n"),
    }
}

/// P-1 to P-46, P-51 to P-54, P-60 to P-73: each case of the files is one of them, by title.
#[test]
fn text_cases() {
    let bless = std::env::var_os("FIREBRAND_BLESS").is_some();
    let mut files: Vec<_> = std::fs::read_dir(folder()).unwrap().map(|e| e.unwrap().path()).collect();
    files.retain(|f| f.extension().is_some_and(|e| e == "fb"));
    files.sort();
    assert!(files.len() >= 2);
    for file in files {
        let pass = file.file_stem().unwrap().to_str().unwrap();
        let torch: HashMap<_, _> = read(&file.with_extension("torch")).into_iter().collect();
        let ours: HashMap<_, _> = read(&file.with_extension("ours")).into_iter().collect();
        let mut blessed = String::new();
        for (header, body) in read(&file) {
            let found = run(&header, &body, pass);
            match torch.get(&header) {
                // PyTorch refuses it too; the words are ours.
                Some(expected) if expected == "error\n" => assert!(found.starts_with("error: "), "{header}:\n{found}"),
                Some(expected) => {
                    assert_eq!(&found, expected, "{header}");
                    continue;
                }
                None => {}
            }
            match bless {
                true => blessed += &format!("=== {header}\n{found}"),
                false => assert_eq!(Some(&found), ours.get(&header), "{header}; FIREBRAND_BLESS=1 accepts it"),
            }
        }
        if bless && !blessed.is_empty() {
            std::fs::write(file.with_extension("ours"), blessed).unwrap();
        }
    }
}
