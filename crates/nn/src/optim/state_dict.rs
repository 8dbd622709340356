//! The state of an optimizer as data, in the layout of PyTorch's `state_dict`: state by the position of the parameter,
//! and groups with their settings and the positions they own.

use firebrand_core::{Error, Result, Tensor};
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One setting of a group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Setting {
    /// Absent.
    None,
    /// A bool.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A float.
    Float(f64),
    /// Several floats, such as `betas`.
    Floats(Vec<f64>),
    /// A string.
    Text(String),
    /// Several values that are not all numbers.
    List(Vec<Setting>),
}

/// Settings by name, in the order of the optimizer's signature.
pub type Settings = IndexMap<String, Setting>;

/// A group: its settings, and the positions of its parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupDict {
    /// `lr` and the others.
    #[serde(flatten)]
    pub settings: Settings,
    /// Positions of the group's parameters, counted over all groups.
    pub params: Vec<usize>,
}

/// The state of an optimizer, for resuming.
#[derive(Clone, Debug, Default)]
pub struct StateDict {
    /// Tensors by position of the parameter and name (`step`, `exp_avg`, …).
    pub state: BTreeMap<usize, IndexMap<String, Tensor>>,
    /// The groups.
    pub param_groups: Vec<GroupDict>,
}

impl StateDict {
    /// All tensors under flat names such as `state.0.exp_avg`, for files.
    pub fn tensors(&self) -> IndexMap<String, Tensor> {
        let flat = |(i, t): (&usize, &IndexMap<String, Tensor>)| {
            t.iter().map(|(name, v)| (format!("state.{i}.{name}"), v.clone())).collect::<Vec<_>>()
        };
        self.state.iter().flat_map(flat).collect()
    }

    /// Reassembles what [`StateDict::tensors`] returned; other names are ignored.
    pub fn from_parts(tensors: &IndexMap<String, Tensor>, param_groups: Vec<GroupDict>) -> Result<StateDict> {
        let mut state: BTreeMap<usize, IndexMap<String, Tensor>> = BTreeMap::new();
        for (name, t) in tensors {
            let Some((at, slot)) = name.strip_prefix("state.").and_then(|rest| rest.split_once('.')) else { continue };
            let at = at.parse().map_err(|_| {
                Error::argument("load_state_dict", format!("expected `state.<position>.<name>`, found `{name}`"))
            })?;
            state.entry(at).or_default().insert(slot.to_string(), t.clone());
        }
        Ok(StateDict { state, param_groups })
    }
}

/// Between a field of options and a setting.
pub(super) trait SettingValue: Sized {
    fn to_setting(&self) -> Setting;
    fn from_setting(s: &Setting) -> Option<Self>;
}

impl SettingValue for bool {
    fn to_setting(&self) -> Setting {
        Setting::Bool(*self)
    }
    fn from_setting(s: &Setting) -> Option<bool> {
        if let Setting::Bool(v) = s { Some(*v) } else { None }
    }
}

impl SettingValue for f64 {
    fn to_setting(&self) -> Setting {
        Setting::Float(*self)
    }
    fn from_setting(s: &Setting) -> Option<f64> {
        match s {
            Setting::Float(v) => Some(*v),
            Setting::Int(v) => Some(*v as f64),
            _ => None,
        }
    }
}

impl SettingValue for usize {
    fn to_setting(&self) -> Setting {
        Setting::Int(*self as i64)
    }
    fn from_setting(s: &Setting) -> Option<usize> {
        if let Setting::Int(v) = s { usize::try_from(*v).ok() } else { None }
    }
}

impl SettingValue for (f64, f64) {
    fn to_setting(&self) -> Setting {
        Setting::Floats(vec![self.0, self.1])
    }
    fn from_setting(s: &Setting) -> Option<(f64, f64)> {
        match s {
            Setting::Floats(v) if v.len() == 2 => Some((v[0], v[1])),
            _ => None,
        }
    }
}

impl SettingValue for (f64, f64, f64) {
    fn to_setting(&self) -> Setting {
        Setting::Floats(vec![self.0, self.1, self.2])
    }
    fn from_setting(s: &Setting) -> Option<(f64, f64, f64)> {
        match s {
            Setting::Floats(v) if v.len() == 3 => Some((v[0], v[1], v[2])),
            _ => None,
        }
    }
}

impl SettingValue for (Option<f64>, f64) {
    fn to_setting(&self) -> Setting {
        match self.0 {
            Some(first) => Setting::Floats(vec![first, self.1]),
            None => Setting::List(vec![Setting::None, Setting::Float(self.1)]),
        }
    }
    fn from_setting(s: &Setting) -> Option<(Option<f64>, f64)> {
        match s {
            Setting::Floats(v) if v.len() == 2 => Some((Some(v[0]), v[1])),
            Setting::List(v) => match &v[..] {
                [Setting::None, second] => Some((None, f64::from_setting(second)?)),
                _ => None,
            },
            _ => None,
        }
    }
}

/// Reads one field, if the setting is there.
pub(super) fn load<T: SettingValue>(from: &Settings, name: &'static str, into: &mut T) -> Result<()> {
    let Some(setting) = from.get(name) else { return Ok(()) };
    *into = T::from_setting(setting).ok_or_else(|| {
        Error::argument("load_state_dict", format!("the setting `{name}` has the unexpected value {setting:?}"))
    })?;
    Ok(())
}

/// The settings of a rule: conversions in both directions for a list of fields, learning rate, implementation, and which
/// value schedules may change as its momentum.
macro_rules! settings {
    ($($field:ident),* $(,)?; momentum: $($place:tt).+) => {
        $crate::optim::state_dict::settings!($($field),*);

        fn momentum(&self) -> Option<f64> {
            Some(self.$($place).+)
        }
        fn set_momentum(&mut self, momentum: f64) {
            self.$($place).+ = momentum;
        }
    };
    ($($field:ident),* $(,)?) => {
        fn lr(&self) -> f64 {
            self.lr
        }
        fn set_lr(&mut self, lr: f64) {
            self.lr = lr;
        }
        fn implementation(&self) -> $crate::optim::Implementation {
            self.implementation
        }
        fn settings(&self) -> $crate::optim::Settings {
            use $crate::optim::state_dict::SettingValue;
            [$((stringify!($field).to_string(), self.$field.to_setting())),*].into_iter().collect()
        }
        fn load_settings(&mut self, from: &$crate::optim::Settings) -> firebrand_core::Result<()> {
            $($crate::optim::state_dict::load(from, stringify!($field), &mut self.$field)?;)*
            Ok(())
        }
    };
}
pub(super) use settings;
