//! The state of the thread that a graph depends on. The number of threads is not part of it: kernels read that when they
//! run, and results do not depend on it.

use firebrand_core::DType;
use firebrand_core::autograd::{autocast_dtype, is_autocast_enabled, is_grad_enabled, is_inference_mode_enabled};
use firebrand_core::dtype::default_dtype;
use firebrand_core::func::{self, Active};
use std::fmt;

/// What ops look at besides their arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ambient {
    pub(crate) grad: bool,
    inference: bool,
    /// The dtype of products, inside an autocast region.
    pub(crate) autocast: Option<DType>,
    default_dtype: DType,
    /// The function transforms around the call.
    pub(crate) transforms: Active,
}

impl Ambient {
    /// Of this thread, now.
    pub(crate) fn now() -> Ambient {
        Ambient {
            grad: is_grad_enabled(),
            inference: is_inference_mode_enabled(),
            autocast: is_autocast_enabled().then(autocast_dtype),
            default_dtype: default_dtype(),
            transforms: func::active(),
        }
    }

    /// What differs, as text.
    pub(crate) fn difference(&self, actual: &Ambient) -> String {
        let parts: [(&str, String, String); 5] = [
            ("gradient mode", self.grad.to_string(), actual.grad.to_string()),
            ("inference mode", self.inference.to_string(), actual.inference.to_string()),
            ("autocast", shown(self.autocast), shown(actual.autocast)),
            ("default dtype", self.default_dtype.to_string(), actual.default_dtype.to_string()),
            ("function transforms", around(self.transforms), around(actual.transforms)),
        ];
        let differing = parts.iter().find(|(_, e, a)| e != a);
        match differing {
            Some((what, expected, actual)) => format!("{what}: expected {expected}, actual {actual}"),
            None => "nothing".to_string(),
        }
    }
}

fn shown(dtype: Option<DType>) -> String {
    dtype.map_or_else(|| "off".to_string(), |d| d.to_string())
}

fn around(Active { transforms, levels, dual }: Active) -> String {
    let dual = if dual { ", a dual level" } else { "" };
    format!("{transforms}, {levels} of them with levels{dual}")
}

impl fmt::Display for Ambient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ambient { grad, inference, autocast, default_dtype, transforms } = self;
        write!(f, "gradient mode {grad}, inference mode {inference}, autocast {}, ", shown(*autocast))?;
        write!(f, "default dtype {default_dtype}")?;
        if *transforms == Active::default() {
            return Ok(());
        }
        write!(f, ", function transforms {}", around(*transforms))
    }
}
