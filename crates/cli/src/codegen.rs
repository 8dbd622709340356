//! `firebrand codegen`: the derivative code generator, for PyTorch's declaration files and for ours.

use crate::refusal::{Done, Refusal, put, say};
use clap::{Args, Subcommand, ValueEnum};
use firebrand::dispatch::{Derivative, Op};
use firebrand::io::read_text;
use firebrand_codegen::{CodegenError, Dialect, Sources, coverage, error_json, lint};
use std::path::{Path, PathBuf};

/// What to do with declarations.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Print the differentiability model of PyTorch's declaration files
    Dump(Dump),
    /// Print PyTorch's operator declarations as they are understood, as JSON
    Declarations(Declarations),
    /// Generate the Rust files of firebrand's ops (requires the feature `dev`)
    Emit(Ours),
    /// Check that the generated files are up to date (requires the feature `dev`)
    Check(Ours),
    /// Find derivative formulas that are misleading or suspicious
    Lint(Lint),
    /// Compare PyTorch's operators with firebrand's
    Coverage(Scope),
}

/// PyTorch's two files.
#[derive(Args)]
pub(crate) struct Files {
    /// Operator declarations, such as native_functions.yaml
    #[arg(long, value_name = "FILE")]
    native: PathBuf,
    /// Derivative entries, such as derivatives.yaml
    #[arg(long, value_name = "FILE")]
    derivatives: PathBuf,
}

/// PyTorch's files, and the list of operators that are out of scope.
#[derive(Args)]
pub(crate) struct Scope {
    #[command(flatten)]
    files: Files,
    /// Operators that are out of scope, with reasons [default: firebrand's own list]
    #[arg(long, value_name = "FILE")]
    out_of_scope: Option<PathBuf>,
}

/// Arguments of `dump`.
#[derive(Args)]
pub(crate) struct Dump {
    #[command(flatten)]
    files: Files,
    /// File with the list of known tags
    #[arg(long, value_name = "FILE")]
    tags: Option<PathBuf>,
    /// Include the plans of nodes and wrappers
    #[arg(long)]
    plan: bool,
    /// Print the whole model as canonical JSON instead of counts; errors are JSON too
    #[arg(long)]
    json: bool,
}

/// Arguments of `declarations`.
#[derive(Args)]
pub(crate) struct Declarations {
    /// Operator declarations, such as native_functions.yaml
    #[arg(long, value_name = "FILE")]
    native: PathBuf,
    /// File with the list of known tags
    #[arg(long, value_name = "FILE")]
    tags: Option<PathBuf>,
}

/// Where our own declarations and the files generated from them are.
#[derive(Args)]
pub(crate) struct Ours {
    /// Op declarations
    #[arg(long, value_name = "FILE", default_value = "schema/ops.yaml")]
    ops: PathBuf,
    /// Derivative formulas
    #[arg(long, value_name = "FILE", default_value = "schema/derivatives.yaml")]
    derivatives: PathBuf,
    /// Directory of generated files
    #[arg(long, value_name = "DIR", default_value = "crates/core/src/ops/generated")]
    out: PathBuf,
}

/// Arguments of `lint`.
#[derive(Args)]
pub(crate) struct Lint {
    /// Operator declarations
    #[arg(long, value_name = "FILE", default_value = "schema/ops.yaml")]
    native: PathBuf,
    /// Derivative entries
    #[arg(long, value_name = "FILE", default_value = "schema/derivatives.yaml")]
    derivatives: PathBuf,
    /// Language of the formulas
    #[arg(long, value_enum, default_value_t = Language::Rust)]
    dialect: Language,
}

/// The language of formulas.
#[derive(Clone, Copy, ValueEnum)]
enum Language {
    /// firebrand's
    Rust,
    /// PyTorch's
    Cpp,
}

fn read(path: &Path) -> Done<String> {
    // A default, which is relative to the source tree.
    if path.starts_with("schema") && !path.exists() {
        return Err(Refusal::because(format!(
            "{}: no such file; run this in firebrand's source directory, or name the file",
            path.display()
        )));
    }
    Ok(read_text(path)?)
}

/// The library names files by role; people know them by path.
fn named(e: CodegenError, native: &Path, derivatives: &Path) -> Refusal {
    Refusal::because(e.with_files(&native.display().to_string(), &derivatives.display().to_string()))
}

fn dump(options: &Dump) -> Done {
    let Files { native, derivatives } = &options.files;
    let (native_text, derivatives_text) = (read(native)?, read(derivatives)?);
    let tags = options.tags.as_deref().map(read).transpose()?;
    let sources =
        Sources { native: &native_text, derivatives: &derivatives_text, tags: tags.as_deref(), dialect: Dialect::Cpp };
    if options.json {
        return match sources.dump(options.plan) {
            Ok(text) => Ok(put(&text)?),
            Err(e) => {
                put(&error_json(&e))?;
                Err(named(e, native, derivatives))
            }
        };
    }
    let model = sources.model().map_err(|e| named(e, native, derivatives))?;
    say!("functions: {}", model.functions.len())?;
    say!("with derivatives: {}", model.functions.iter().filter(|f| f.info.is_some()).count())?;
    say!("schemas with infos: {}", model.infos.len())?;
    if options.plan {
        let plans = model.plans().map_err(|e| named(e, native, derivatives))?;
        say!("nodes: {}", plans.nodes.len())?;
        say!("wrappers: {}", plans.wrappers.len())?;
    }
    Ok(())
}

fn declarations(options: &Declarations) -> Done {
    let native = read(&options.native)?;
    let tags = options.tags.as_deref().map(read).transpose()?;
    let sources = Sources { native: &native, derivatives: "", tags: tags.as_deref(), dialect: Dialect::Cpp };
    match sources.declarations() {
        Ok(text) => Ok(put(&text)?),
        Err(e) => {
            put(&error_json(&e))?;
            Err(named(e, &options.native, Path::new(firebrand_codegen::DERIVATIVES_FILE)))
        }
    }
}

fn run_lint(options: &Lint) -> Done {
    let (native, derivatives) = (read(&options.native)?, read(&options.derivatives)?);
    let dialect = match options.dialect {
        Language::Rust => Dialect::Rust,
        Language::Cpp => Dialect::Cpp,
    };
    let report =
        lint::lint(&native, &derivatives, dialect).map_err(|e| named(e, &options.native, &options.derivatives))?;
    for finding in &report.findings {
        say!("{}: {finding}", options.derivatives.display())?;
    }
    say!("{} entries, {} formulas, {} findings", report.entries, report.formulas, report.findings.len())?;
    if report.findings.is_empty() { Ok(()) } else { Err(Refusal::because("see the findings above")) }
}

fn compare(scope: &Scope) -> Done {
    let files = &scope.files;
    let (native, derivatives) = (read(&files.native)?, read(&files.derivatives)?);
    let given = scope.out_of_scope.as_deref().map(read).transpose()?;
    let out_of_scope = given.as_deref().unwrap_or(include_str!("../../../schema/out_of_scope.yaml"));
    let ours: Vec<(&str, bool)> = Op::all()
        .map(|op| {
            let name = op.name().strip_prefix("aten::").unwrap_or(op.name());
            (name, op.info().derivative != Derivative::NonDifferentiable)
        })
        .collect();
    let found = coverage::coverage(&native, &derivatives, &ours, out_of_scope)
        .map_err(|e| named(e, &files.native, &files.derivatives))?;
    Ok(say!("{}", found.to_string().trim_end())?)
}

/// Runs one of the subcommands.
pub(crate) fn run(command: &Command) -> Done {
    match command {
        Command::Dump(options) => dump(options),
        Command::Declarations(options) => declarations(options),
        Command::Emit(ours) => ours::emit(ours),
        Command::Check(ours) => ours::check(ours),
        Command::Lint(options) => run_lint(options),
        Command::Coverage(scope) => compare(scope),
    }
}

/// Commands that generate Rust files.
#[cfg(feature = "dev")]
mod ours {
    use super::{Ours, read};
    use crate::refusal::{Done, Refusal, say};
    use firebrand::io::{Output, read_text};
    use firebrand_codegen::emit::{GeneratedFile, Source, generate};
    use std::io::Write;
    use std::path::Path;

    fn generated(ours: &Ours) -> Done<Vec<GeneratedFile>> {
        let (ops, derivatives) = (read(&ours.ops)?, read(&ours.derivatives)?);
        let name = |p: &Path| p.display().to_string();
        generate(
            Source { name: &name(&ours.ops), text: &ops },
            Source { name: &name(&ours.derivatives), text: &derivatives },
        )
        .map_err(Refusal::because)
    }

    pub(super) fn emit(ours: &Ours) -> Done {
        let files = generated(ours)?;
        std::fs::create_dir_all(&ours.out).map_err(|e| Refusal::because(format!("{}: {e}", ours.out.display())))?;
        // All of them or none: a folder that is half new would not compile.
        let write =
            |f: &GeneratedFile| Output::write(ours.out.join(f.name), |out| Ok(out.write_all(f.text.as_bytes())?));
        Output::commit_all(files.iter().map(write).collect::<Result<Vec<_>, _>>()?)?;
        Ok(say!("{} files in {}", files.len(), ours.out.display())?)
    }

    pub(super) fn check(ours: &Ours) -> Done {
        for file in generated(ours)? {
            let path = ours.out.join(file.name);
            if !read_text(&path).is_ok_and(|text| text == file.text) {
                return Err(Refusal::because(format!("{} is stale; run `firebrand codegen emit`", path.display())));
            }
        }
        Ok(say!("{} is up to date", ours.out.display())?)
    }
}

/// Without the feature, they return an error.
#[cfg(not(feature = "dev"))]
mod ours {
    use super::Ours;
    use crate::refusal::{Done, Refusal};

    fn missing(command: &str, ours: &Ours) -> Done {
        let out = ours.out.display();
        Err(Refusal::because(format!(
            "`codegen {command}` is not included in this build, so {out} was not checked; build with `--features dev`, or run `cargo xtask codegen`"
        )))
    }

    pub(super) fn emit(ours: &Ours) -> Done {
        missing("emit", ours)
    }

    pub(super) fn check(ours: &Ours) -> Done {
        missing("check", ours)
    }
}
