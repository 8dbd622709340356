//! The text cases: `cases/PASS/NAME.fb`.

use firebrand_core::Tensor;
use firebrand_graph::ExportedProgram;
use firebrand_graph::ir::Attribute;
use firebrand_graph::passes::{self, Context, Pass};
use firebrand_graph::text::{Form, parse, print};
use firebrand_graph::verify::verify_module;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases")
}

/// Header and body of every case of a file, in order; none if there is no such file.
fn read(file: &Path) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let cases = text.split("=== ").skip(1).map(|case| case.split_once('\n').expect("a header"));
    cases.map(|(header, body)| (header.to_string(), body.to_string())).collect()
}

/// What stands behind the title: words, or names with a value.
struct Options<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Options<'a> {
    fn of(header: &'a str) -> Options<'a> {
        let flags = header.split_once(" | ").map_or("", |(_, flags)| flags);
        Options(flags.split_whitespace().map(|f| f.split_once('=').unwrap_or((f, ""))).collect())
    }
    fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }
    fn get(&self, key: &str) -> Option<&'a str> {
        self.0.iter().find(|(k, _)| *k == key).map(|(_, value)| *value)
    }

    /// The program with the constants that the case gives: `w=0.25,0.5`, `w=0.25,0.5:2x1` with sizes, or
    /// `again=w` for the same tensor.
    fn add_constants(&self, program: &mut ExportedProgram) {
        let mut made: HashMap<&str, Tensor> = HashMap::new();
        for (name, value) in self.0.iter().filter(|(k, v)| !v.is_empty() && !["ambient", "passes"].contains(k)) {
            let (numbers, sizes) = value.split_once(':').map_or((*value, None), |(n, s)| (n, Some(s)));
            let values: Option<Vec<f32>> = numbers.split(',').map(|v| v.parse().ok()).collect();
            let sizes = sizes.map(|s| s.split('x').map(|n| n.parse().expect("a size")).collect::<Vec<usize>>());
            let tensor = values.map_or_else(
                || made[value].clone(),
                |v| sizes.map_or_else(|| Tensor::new(&v), |sizes| Tensor::from_slice(&v, sizes)),
            );
            made.insert(name, tensor.clone());
            Arc::make_mut(&mut program.module).attributes.set(name, Attribute::Tensor(tensor));
        }
    }
}

/// What the passes of a case make of it: a program, or an error.
fn run(header: &str, body: &str, pass: &str) -> String {
    let options = Options::of(header);
    let context =
        Context { ambient_grad: options.get("ambient").is_none_or(|a| a == "on"), compat: options.has("compat") };
    let mut program = parse(body).unwrap_or_else(|e| panic!("{header}: {e}"));
    options.add_constants(&mut program);
    let before = print(&program, Form::Long);
    let list: Vec<&Pass> =
        options.get("passes").unwrap_or(pass).split(',').map(|name| passes::find(name).unwrap()).collect();
    let result = passes::run(&program, &list, &context);
    assert_eq!(print(&program, Form::Long), before, "{header}: the input was changed");
    let after = match result {
        Ok((after, _)) => after,
        Err(e) => return format!("error: {e}\n"),
    };
    verify_module(&after.module).unwrap_or_else(|e| panic!("{header}: {e}"));
    if !options.has("grows") && !options.has("compat") && list.len() == 1 {
        let (again, reports) = passes::run(&after, &list, &context).unwrap_or_else(|e| panic!("{header}: again: {e}"));
        // Decomposing traces the program anew, and counts that.
        assert!(
            !reports[0].changed || pass == "run_decompositions",
            "{header}: a second run says that it changed something"
        );
        assert_eq!(print(&again, Form::Short), print(&after, Form::Short), "{header}: a second run");
    }
    print(&after, if options.has("long") { Form::Long } else { Form::Short })
}

fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    files.retain(|f| ending.is_empty() || f.extension().is_some_and(|e| e == ending));
    files.sort();
    files
}

/// Every pass has a folder with cases, and every folder is a pass.
#[test]
fn every_pass_has_cases() {
    let names =
        |paths: &[PathBuf]| paths.iter().map(|f| f.file_name().unwrap().to_str().unwrap().to_string()).collect();
    let folders: Vec<String> = names(&files(&folder(), ""));
    let mut passes: Vec<String> = passes::PASSES.iter().map(|p| p.name.to_string()).collect();
    passes.sort();
    assert_eq!(folders, passes);
    for pass in passes {
        let cases: usize = files(&folder().join(&pass), "fb").iter().map(|f| read(f).len()).sum();
        assert!(cases > 0, "{pass} has no case");
    }
}

/// P-1 to P-46, P-51 to P-54, P-60 to P-73, P-87, P-98 to P-118: each case of the files is one of them, by title.
#[test]
fn text_cases() {
    let bless = std::env::var_os("FIREBRAND_BLESS").is_some();
    for file in files(&folder(), "").iter().flat_map(|pass| files(pass, "fb")) {
        let pass = file.parent().and_then(Path::file_name).unwrap().to_str().unwrap();
        let torch: HashMap<_, _> = read(&file.with_extension("torch")).into_iter().collect();
        let ours: HashMap<_, _> = read(&file.with_extension("ours")).into_iter().collect();
        let mut blessed = String::new();
        for (header, body) in read(&file) {
            let found = run(&header, &body, pass);
            match torch.get(&header) {
                // PyTorch refuses it too; the words are ours.
                Some(expected) if expected == "error\n" => {
                    assert!(found.starts_with("error: "), "{pass}: {header}:\n{found}")
                }
                Some(expected) => {
                    assert_eq!(&found, expected, "{pass}: {header}");
                    continue;
                }
                None => {}
            }
            match bless {
                true => blessed += &format!("=== {header}\n{found}"),
                false => assert_eq!(Some(&found), ours.get(&header), "{pass}: {header}; FIREBRAND_BLESS=1 accepts it"),
            }
        }
        if bless && !blessed.is_empty() {
            std::fs::write(file.with_extension("ours"), blessed).unwrap();
        }
    }
}
