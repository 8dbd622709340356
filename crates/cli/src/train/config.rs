//! The settings of a run as names and values, derived from the clap definition of `train`: read from `--config`, stored in the
//! run's folder (`run.toml`), compared when the run is resumed. A new option of `train` becomes a key without any code here.

use crate::refusal::{Done, Refusal};
use clap::parser::ValueSource;
use clap::{ArgAction, ArgMatches, Command};
use firebrand::io::{plain, read_text};
use indexmap::IndexMap;
use std::ffi::OsString;
use std::path::Path;

/// Values by the long name of the option; `model` is the program. Flags that are set have the value `true`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Settings(IndexMap<String, Vec<String>>);

/// The name of the settings file in a run's folder.
pub(super) const FILE: &str = "run.toml";
/// Options that concern the invocation and not the run.
const OF_THE_CALL: [&str; 13] = [
    "config",
    "resume",
    "out",
    "dry-run",
    "json",
    "threads",
    "quiet",
    "verbose",
    "copy-weights",
    "shards",
    "timeout",
    "mpi-lib",
    "zero",
];

/// One option of the command.
fn options(command: &Command) -> impl Iterator<Item = (&clap::Arg, &str)> {
    command.get_arguments().filter_map(|a| {
        let name = a.get_long().unwrap_or(a.get_id().as_str());
        (!OF_THE_CALL.contains(&name) && !matches!(name, "help" | "version")).then_some((a, name))
    })
}

fn is_flag(arg: &clap::Arg) -> bool {
    matches!(arg.get_action(), ArgAction::SetTrue)
}

impl Settings {
    /// The values of all options, defaults included; only those given on the command line if `explicit`.
    pub(crate) fn of(command: &Command, matches: &ArgMatches, explicit: bool) -> Settings {
        let mut settings = IndexMap::new();
        for (arg, name) in options(command) {
            let id = arg.get_id().as_str();
            let source = matches.value_source(id);
            if source.is_none() || (explicit && source != Some(ValueSource::CommandLine)) {
                continue;
            }
            let values: Vec<String> = if is_flag(arg) {
                if !matches.get_flag(id) {
                    continue;
                }
                vec!["true".into()]
            } else {
                matches.get_raw(id).into_iter().flatten().map(|v| v.to_string_lossy().into_owned()).collect()
            };
            settings.insert(name.to_string(), values);
        }
        Settings(settings)
    }

    /// Reads `run.toml`, or any file with the same keys; an unknown key is an error.
    pub(crate) fn read(path: &Path, command: &Command) -> Done<Settings> {
        let named =
            |e: &dyn std::fmt::Display| Refusal::because(format!("{}: {e}", plain(&path.display().to_string())));
        let text = read_text(path)?;
        let table: toml::Table = text.parse().map_err(|e: toml::de::Error| named(&e.to_string().trim_end()))?;
        let mut settings = IndexMap::new();
        for (key, value) in table {
            let name = key.replace('_', "-");
            let Some((arg, name)) = options(command).find(|(_, n)| *n == name) else {
                let known: Vec<&str> = options(command).map(|(_, n)| n).collect();
                let near = nearest(&name, &known).map_or(String::new(), |n| format!("; did you mean `{n}`?"));
                return Err(named(&format!("`{}` is not an option of train{near}", plain(&key))));
            };
            let one = |v: &toml::Value| match v {
                toml::Value::String(s) => Ok(s.clone()),
                toml::Value::Integer(i) => Ok(i.to_string()),
                toml::Value::Float(f) => Ok(f.to_string()),
                other => Err(named(&format!("`{name}`: expected text or a number, found {}", other.type_str()))),
            };
            let values = match &value {
                toml::Value::Boolean(on) if is_flag(arg) => {
                    if !on {
                        continue;
                    }
                    vec!["true".to_string()]
                }
                _ if is_flag(arg) => return Err(named(&format!("`{name}`: expected true or false"))),
                toml::Value::Array(list) => list.iter().map(one).collect::<Done<_>>()?,
                value => vec![one(value)?],
            };
            settings.insert(name.to_string(), values);
        }
        Ok(Settings(settings))
    }

    /// As the content of `run.toml`.
    pub(crate) fn to_toml(&self, command: &Command) -> String {
        let mut text =
            String::from("# Settings of this run; `firebrand train --config run.toml` starts another one like it.\n");
        for (name, values) in &self.0 {
            let arg = options(command).find(|(_, n)| n == name).map(|(a, _)| a);
            let quoted = |v: &String| toml::Value::String(v.clone()).to_string();
            // Only if it reads back as the same text.
            let number = |v: &String| {
                let float = |f: f64| v.contains('.') && f.to_string() == *v;
                v.parse::<i64>().is_ok_and(|i| i.to_string() == *v) || v.parse::<f64>().is_ok_and(float)
            };
            let value = match values.as_slice() {
                [_] if arg.is_some_and(is_flag) => "true".to_string(),
                [v] if number(v) => v.clone(),
                [v] => quoted(v),
                list => format!("[{}]", list.iter().map(quoted).collect::<Vec<_>>().join(", ")),
            };
            text += &format!("{name} = {value}\n");
        }
        text
    }

    /// Equivalent command-line arguments, without those that `given` has.
    fn arguments(&self, given: &Settings, command: &Command) -> Vec<OsString> {
        let mut list = Vec::new();
        for (name, values) in self.0.iter().filter(|(name, _)| !given.0.contains_key(*name)) {
            let Some((arg, _)) = options(command).find(|(_, n)| n == name) else { continue };
            for v in values {
                list.push(match arg.is_positional() {
                    true => v.into(),
                    false if is_flag(arg) => format!("--{name}").into(),
                    false => format!("--{name}={v}").into(),
                });
            }
        }
        list
    }

    /// Returns an error that names the settings that differ from those of the resumed run. Only `epochs` may be increased.
    fn allow_resuming(&self, given: &Settings) -> Done {
        for (name, new) in &given.0 {
            let old = self.0.get(name);
            if old.is_some_and(|old| same(old, new)) {
                continue;
            }
            let shown =
                |v: Option<&Vec<String>>| v.map_or("not set".to_string(), |v| plain(&v.join(", ")).into_owned());
            let number = |v: Option<&Vec<String>>| v.and_then(|v| v.first()?.parse::<u64>().ok());
            if name == "epochs" && number(Some(new)) >= number(old) {
                continue;
            }
            let rule = if name == "epochs" { "; epochs may only be increased" } else { "" };
            let name = if name == "model" { "the program".to_string() } else { format!("--{name}") };
            return Err(Refusal::because(format!(
                "{name} was {} in the resumed run and is {} now{rule}; use the same settings, or start a new run in another directory",
                shown(old),
                shown(Some(new)),
            )));
        }
        Ok(())
    }

    /// Differences to another run: name, here, there.
    pub(crate) fn differences(&self, other: &Settings) -> Vec<(String, String, String)> {
        let shown = |s: &Settings, name: &str| s.0.get(name).map_or(String::new(), |v| v.join(", "));
        let names: indexmap::IndexSet<&String> = self.0.keys().chain(other.0.keys()).collect();
        let all = names.into_iter().map(|n| (n.clone(), shown(self, n), shown(other, n)));
        all.filter(|(_, a, b)| a != b).collect()
    }

    /// Names and values, for display.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, String)> {
        self.0.iter().map(|(name, v)| (name.as_str(), v.join(", ")))
    }
}

/// Whether values mean the same; `1e-3` is `0.001`.
fn same(a: &[String], b: &[String]) -> bool {
    let number = |v: &String| v.parse::<f64>().ok();
    let equal = |(a, b): (&String, &String)| a == b || number(a).is_some_and(|x| number(b) == Some(x));
    a.len() == b.len() && a.iter().zip(b).all(equal)
}

/// The closest name, if one is close enough.
pub(crate) fn nearest<'a>(name: &str, among: &[&'a str]) -> Option<&'a str> {
    let distance = |a: &str, b: &str| {
        let b: Vec<char> = b.chars().collect();
        let mut row: Vec<usize> = (0..=b.len()).collect();
        for (i, c) in a.chars().enumerate() {
            let mut diagonal = std::mem::replace(&mut row[0], i + 1);
            for (j, d) in b.iter().enumerate() {
                let change = diagonal + usize::from(c != *d);
                diagonal = row[j + 1];
                row[j + 1] = change.min(diagonal + 1).min(row[j] + 1);
            }
        }
        row[b.len()]
    };
    let best = among.iter().map(|n| (distance(name, n), *n)).min()?;
    (best.0 <= 1 + name.chars().count() / 3).then_some(best.1)
}

/// The command line with the settings of `--config`, and of the run that `--resume` continues, merged in.
pub(crate) fn expand(arguments: Vec<OsString>, command: &Command) -> Done<Vec<OsString>> {
    // Invalid arguments are reported by the actual parse later.
    let Ok(matches) = command.clone().try_get_matches_from(&arguments) else { return Ok(arguments) };
    let Some(("train", matches)) = matches.subcommand() else { return Ok(arguments) };
    let train = command.find_subcommand("train").expect("there is such a command");
    let given = Settings::of(train, matches, true);
    let mut more = Vec::new();
    if let Some(path) = matches.get_one::<std::path::PathBuf>("config") {
        more = Settings::read(path, train)?.arguments(&given, train);
    }
    if matches.get_flag("resume") {
        let out = matches.get_one::<std::path::PathBuf>("out").map(std::path::PathBuf::as_path);
        let folder = super::run_folder::RunFolder::existing(out)?;
        let stored = Settings::read(&folder.path().join(FILE), train)?;
        // Settings from a file count as given.
        let with_config = match matches.get_one::<std::path::PathBuf>("config") {
            Some(path) => Settings(Settings::read(path, train)?.0.into_iter().chain(given.0.clone()).collect()),
            None => given.clone(),
        };
        stored.allow_resuming(&with_config)?;
        more.extend(stored.arguments(&with_config, train));
    }
    let Some(at) = arguments.iter().position(|a| a == "train") else { return Ok(arguments) };
    let mut all = arguments;
    let from_files = !more.is_empty();
    all.splice(at + 1..at + 1, more);
    // The command line alone is fine: the message names the file.
    if from_files && let Err(e) = command.clone().try_get_matches_from(&all) {
        let file = match matches.get_one::<std::path::PathBuf>("config") {
            Some(path) => path.clone(),
            None => matches.get_one::<std::path::PathBuf>("out").cloned().unwrap_or_default().join(FILE),
        };
        let text = e.render().to_string();
        let first = text.lines().next().unwrap_or_default();
        let file = file.display().to_string();
        return Err(Refusal::because(format!("{}: {}", plain(&file), plain(first.trim_start_matches("error: ")))));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn near_names_are_found() {
        assert_eq!(nearest("epoch", &["epochs", "lr"]), Some("epochs"));
        assert_eq!(nearest("imgae", &["image", "mask"]), Some("image"));
        assert_eq!(nearest("something", &["epochs", "lr"]), None);
    }
}
