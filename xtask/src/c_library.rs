//! The C library as C projects expect it: headers, shared and static library, `firebrand.pc` and a CMake package below one
//! prefix; and its examples, compiled against such a prefix with the machine's compilers and run.

use crate::Outcome;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const CRATE: &str = "crates/capi";
/// The interface's version, which ends the name of the shared library.
const ABI: &str = "1";
/// What a static library needs from the system: `rustc --print native-static-libs`.
#[cfg(target_os = "linux")]
const PRIVATE: &[&str] = &["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl", "-lc"];
#[cfg(target_os = "macos")]
const PRIVATE: &[&str] = &["-liconv", "-lSystem", "-lc", "-lm"];
#[cfg(not(any(target_os = "linux", target_os = "macos")))]
const PRIVATE: &[&str] = &[];

const PROGRAM: &str = "golden/programs/mlp/model.pt2";
/// Name, language, and the compilers that are tried: what the variable names, else the usual ones.
const EXAMPLES: [(&str, &str, &[&str], &str); 2] = [
    ("fine_tune.c", "CC", &["cc", "gcc", "clang"], "-std=c99"),
    ("adapters.cpp", "CXX", &["c++", "g++", "clang++"], "-std=c++17"),
];

fn must(command: &mut Command) -> Result<(), String> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{command:?}: {status}")),
        Err(e) => Err(format!("{:?}: {e}", command.get_program())),
    }
}

fn answers(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|s| s.success())
}

fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(crate::root());
    command
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    // Not over what a running program may have mapped.
    let _ = fs::remove_file(to);
    fs::copy(from, to).map(drop).map_err(|e| format!("{} to {}: {e}", from.display(), to.display()))
}

/// The shared library's file and the name that links to it, if the system has such links.
fn shared() -> (String, Option<String>) {
    match std::env::consts::OS {
        "windows" => ("firebrand_c.dll".into(), None),
        "macos" => (format!("libfirebrand_c.{ABI}.dylib"), Some("libfirebrand_c.dylib".into())),
        _ => (format!("libfirebrand_c.so.{ABI}"), Some("libfirebrand_c.so".into())),
    }
}

#[cfg(unix)]
fn link(original: &str, at: &Path) -> Result<(), String> {
    let _ = fs::remove_file(at);
    std::os::unix::fs::symlink(original, at).map_err(|e| format!("{}: {e}", at.display()))
}

#[cfg(not(unix))]
fn link(original: &str, at: &Path) -> Result<(), String> {
    copy(&at.with_file_name(original), at)
}

/// Puts what was built in `built` below `prefix`.
fn lay_out(built: &Path, prefix: &Path) -> Result<(), String> {
    let source = crate::root().join(CRATE);
    let [include, lib, pkgconfig, cmake] =
        ["include", "lib", "lib/pkgconfig", "lib/cmake/firebrand"].map(|f| prefix.join(f));
    for folder in [&include, &lib, &pkgconfig, &cmake] {
        fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    let prefix = prefix.canonicalize().map_err(|e| format!("{}: {e}", prefix.display()))?;
    for header in ["firebrand.h", "firebrand.hpp"] {
        copy(&source.join("include").join(header), &include.join(header))?;
    }
    let windows = std::env::consts::OS == "windows";
    let (file, linked) = shared();
    copy(&built.join(linked.as_deref().unwrap_or(&file)), &lib.join(&file))?;
    if let Some(name) = &linked {
        link(&file, &lib.join(name))?;
    }
    let fixed = if windows { "firebrand_c.lib" } else { "libfirebrand_c.a" };
    copy(&built.join(fixed), &lib.join(fixed))?;
    let import = "firebrand_c.dll.lib";
    if windows {
        copy(&built.join(import), &lib.join(import))?;
    }
    let values = [
        ("@prefix@", prefix.to_string_lossy().into_owned()),
        ("@version@", env!("CARGO_PKG_VERSION").to_string()),
        ("@shared@", file),
        ("@static@", fixed.to_string()),
        ("@import@", import.to_string()),
    ];
    for (name, folder, between) in [
        ("firebrand.pc", &pkgconfig, " "),
        ("firebrand-config.cmake", &cmake, ";"),
        ("firebrand-config-version.cmake", &cmake, ";"),
    ] {
        let template = source.join("package").join(format!("{name}.in"));
        let mut text = fs::read_to_string(&template).map_err(|e| format!("{}: {e}", template.display()))?;
        for (key, value) in &values {
            text = text.replace(key, value);
        }
        text = text.replace("@private@", &PRIVATE.join(between));
        fs::write(folder.join(name), text).map_err(|e| format!("{name}: {e}"))?;
    }
    Ok(())
}

/// The command that builds the C library as it is shipped. Frames are addressed by their own register, which takes a byte less each time than
/// the stack's, and less to say how to unwind them; profiles cannot ask for that.
pub(crate) fn small(features: &[&str]) -> Command {
    let mut command = cargo();
    command.args(["build", "--quiet", "--profile", "small", "-p", "firebrand-capi"]).args(features);
    command.args(["--config", "build.rustflags=[\"-Cforce-frame-pointers=yes\"]"]);
    command
}

/// `cargo xtask install-c PREFIX`: builds the library for shipping and puts everything below the prefix.
pub(crate) fn install(prefix: &str) -> Outcome {
    must(&mut small(&[]))?;
    lay_out(&crate::target().join("small"), Path::new(prefix))?;
    Ok(format!("{prefix}: headers, libraries, lib/pkgconfig/firebrand.pc and lib/cmake/firebrand"))
}

/// How an example is compiled: as `pkg-config` says where it is installed.
fn flags(prefix: &Path) -> Result<(Vec<String>, &'static str), String> {
    if !answers("pkg-config") {
        let flag = |kind: &str, folder: &str| format!("{kind}{}", prefix.join(folder).display());
        return Ok((vec![flag("-I", "include"), flag("-L", "lib"), "-lfirebrand_c".into()], "without pkg-config"));
    }
    let mut ask = Command::new("pkg-config");
    ask.args(["--cflags", "--libs", "firebrand"]).env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
    let output = ask.output().map_err(|e| format!("pkg-config: {e}"))?;
    if !output.status.success() {
        return Err(format!("pkg-config: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok((text.split_whitespace().map(str::to_string).collect(), "by pkg-config"))
}

/// A project that finds the package with CMake and builds the C++ example against both libraries.
fn cmake_project(scratch: &Path, prefix: &Path) -> Result<&'static str, String> {
    if !answers("cmake") {
        return Ok("no CMake");
    }
    let project = scratch.join("cmake");
    let _ = fs::remove_dir_all(&project);
    fs::create_dir_all(&project).map_err(|e| format!("{}: {e}", project.display()))?;
    let source = crate::root().join(CRATE).join("examples/adapters.cpp");
    let source = source.canonicalize().map_err(|e| format!("{}: {e}", source.display()))?;
    let text = format!(
        "cmake_minimum_required(VERSION 3.16)\nproject(example CXX)\nset(CMAKE_CXX_STANDARD 17)\n\
         find_package(firebrand {} REQUIRED)\n\
         add_executable(dynamic {1:?})\ntarget_link_libraries(dynamic firebrand::firebrand)\n\
         add_executable(fixed {1:?})\ntarget_link_libraries(fixed firebrand::static)\n",
        env!("CARGO_PKG_VERSION"),
        source.display().to_string(),
    );
    fs::write(project.join("CMakeLists.txt"), text).map_err(|e| format!("CMakeLists.txt: {e}"))?;
    let mut configure = Command::new("cmake");
    configure.arg("-S").arg(&project).arg("-B").arg(project.join("build"));
    must(configure.arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.display())).stdout(Stdio::null()))?;
    must(Command::new("cmake").arg("--build").arg(project.join("build")).stdout(Stdio::null()))?;
    for program in ["dynamic", "fixed"] {
        must(Command::new(project.join("build").join(program)).args(arguments(scratch)).stdout(Stdio::null()))?;
    }
    Ok("CMake, shared and static")
}

/// A program, and a place for what the example makes of it.
fn arguments(out: &Path) -> [PathBuf; 2] {
    [crate::root().join(PROGRAM), out.to_path_buf()]
}

/// Builds the library, lays it out, compiles the examples against it with warnings as errors, runs them, also linked
/// statically. Says so if there is no compiler.
pub(crate) fn examples() -> Outcome {
    crate::check::libraries()?;
    let scratch = crate::target().join("c-example");
    fs::create_dir_all(&scratch).map_err(|e| format!("{}: {e}", scratch.display()))?;
    let scratch = scratch.canonicalize().map_err(|e| format!("{}: {e}", scratch.display()))?;
    let prefix = scratch.join("prefix");
    lay_out(&crate::target().join("debug"), &prefix)?;
    let (flags, how) = flags(&prefix)?;
    let mut notes = vec![how.to_string()];
    for (source, variable, usual, standard) in EXAMPLES {
        let named = std::env::var(variable).ok();
        let mut candidates = named.iter().map(String::as_str).chain(usual.iter().copied().filter(|_| named.is_none()));
        let Some(compiler) = candidates.find(|c| answers(c)) else {
            notes.push(format!("{source} skipped: no compiler; install one, or name it in {variable}"));
            continue;
        };
        let compile = |out: &Path| {
            let mut compile = Command::new(compiler);
            compile.args([standard, "-Wall", "-Wextra", "-Werror"]);
            compile.arg(crate::root().join(CRATE).join("examples").join(source)).arg("-o").arg(out);
            compile
        };
        let example = scratch.join(source).with_extension("");
        let out = if source.ends_with(".c") { scratch.join("tuned.pt2") } else { scratch.clone() };
        must(compile(&example).args(&flags).arg(rpath(&prefix.join("lib"))))?;
        must(Command::new(&example).args(arguments(&out)).stdout(Stdio::null()))?;
        if !PRIVATE.is_empty() {
            let fixed = example.with_extension("static");
            let mut link = compile(&fixed);
            link.arg("-I").arg(prefix.join("include")).arg(prefix.join("lib/libfirebrand_c.a")).args(PRIVATE);
            must(&mut link)?;
            must(Command::new(&fixed).args(arguments(&out)).stdout(Stdio::null()))?;
        }
        notes.push(format!("{source} with {compiler}"));
    }
    notes.push(cmake_project(&scratch, &prefix)?.to_string());
    Ok(notes.join("; "))
}

fn rpath(library: &Path) -> std::ffi::OsString {
    let mut flag = std::ffi::OsString::from("-Wl,-rpath,");
    flag.push(library);
    flag
}
