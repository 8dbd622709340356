//! Numbers and names of the file format: element types, layouts, memory formats, targets.
//!
//! The numbers are the file's own and differ from any runtime's.

use crate::ir::{Function, Hop, MemoryFormat, MemoryLayout, OpOverload, ScalarType, Target};

/// Where the metadata of a call of an op that is only a name keeps what the file calls its arguments; never written.
pub(super) const ARGUMENT_NAMES: &str = "firebrand.argument_names";

const SCALAR_TYPES: &[(i64, ScalarType)] = &[
    (1, ScalarType::UInt8),
    (2, ScalarType::Int8),
    (3, ScalarType::Int16),
    (4, ScalarType::Int32),
    (5, ScalarType::Int64),
    (6, ScalarType::Float16),
    (7, ScalarType::Float32),
    (8, ScalarType::Float64),
    (9, ScalarType::Complex32),
    (10, ScalarType::Complex64),
    (11, ScalarType::Complex128),
    (12, ScalarType::Bool),
    (13, ScalarType::BFloat16),
    (28, ScalarType::UInt16),
    (29, ScalarType::Float8E4M3Fn),
    (30, ScalarType::Float8E5M2),
    (31, ScalarType::Float8E4M3FnUz),
    (32, ScalarType::Float8E5M2FnUz),
    (33, ScalarType::Float8E8M0Fnu),
    (34, ScalarType::UInt32),
    (35, ScalarType::UInt64),
];

const LAYOUTS: &[(i64, MemoryLayout)] = &[
    (1, MemoryLayout::SparseCoo),
    (2, MemoryLayout::SparseCsr),
    (3, MemoryLayout::SparseCsc),
    (4, MemoryLayout::SparseBsr),
    (5, MemoryLayout::SparseBsc),
    (6, MemoryLayout::Mkldnn),
    (7, MemoryLayout::Strided),
];

const MEMORY_FORMATS: &[(i64, MemoryFormat)] = &[
    (1, MemoryFormat::Contiguous),
    (2, MemoryFormat::ChannelsLast),
    (3, MemoryFormat::ChannelsLast3d),
    (4, MemoryFormat::Preserve),
];

/// A list of numbers with their meanings.
pub(super) trait Coded: Copy + PartialEq + 'static {
    /// What it is, for messages.
    const WHAT: &'static str;
    /// The list.
    fn table() -> &'static [(i64, Self)];

    /// The meaning of a number.
    fn from_code(code: i64) -> Result<Self, String> {
        let found = Self::table().iter().find(|(c, _)| *c == code);
        found.map(|(_, v)| *v).ok_or_else(|| format!("{code} is not a known {}", Self::WHAT))
    }

    /// The number.
    fn code(self) -> i64 {
        Self::table().iter().find(|(_, v)| *v == self).expect("the table is complete").0
    }
}

impl Coded for ScalarType {
    const WHAT: &'static str = "element type";
    fn table() -> &'static [(i64, Self)] {
        SCALAR_TYPES
    }
}
impl Coded for MemoryLayout {
    const WHAT: &'static str = "layout";
    fn table() -> &'static [(i64, Self)] {
        LAYOUTS
    }
}
impl Coded for MemoryFormat {
    const WHAT: &'static str = "memory format";
    fn table() -> &'static [(i64, Self)] {
        MEMORY_FORMATS
    }
}

/// Functions whose name in archives is not the one of the text form.
const FUNCTIONS: &[(&str, Function)] = &[
    ("torch._C._set_grad_enabled", Function::SetGradEnabled),
    ("torch.amp.autocast_mode._enter_autocast", Function::EnterAutocast),
    ("torch.amp.autocast_mode._exit_autocast", Function::ExitAutocast),
];

/// What an archive's target means; one that this build does not know is kept by its name.
pub(super) fn target(text: &str) -> Target {
    if let Some(name) = text.strip_prefix("torch.ops.higher_order.") {
        return Hop::from_name(name).into();
    }
    if let Some((namespace, name)) = text.strip_prefix("torch.ops.").and_then(|op| op.split_once('.')) {
        return OpOverload::new(&format!("{namespace}::{name}")).into();
    }
    if let Some((_, f)) = FUNCTIONS.iter().find(|(name, _)| *name == text) {
        return f.clone().into();
    }
    let name = text.strip_prefix("_operator.").map(|f| format!("operator.{f}"));
    Function::from_name(name.as_deref().unwrap_or(text)).into()
}

/// What archives call a target.
pub(super) fn target_name(target: &Target) -> String {
    match target {
        Target::Op(op) => format!("torch.ops.{op}"),
        Target::Hop(hop) => format!("torch.ops.higher_order.{}", hop.name()),
        Target::Function(f) => match FUNCTIONS.iter().find(|(_, g)| g == f) {
            Some((name, _)) => name.to_string(),
            None => match f.name().strip_prefix("operator.") {
                Some(name) => format!("_operator.{name}"),
                None => f.name().to_string(),
            },
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_keep_their_names() {
        for name in [
            "torch.ops.aten.add.Tensor",
            "torch.ops.aten.relu.default",
            "torch.ops.mine.op.overload",
            "torch.ops.aten.relu.default.default",
            "torch.ops.higher_order.cond",
            "torch.ops.higher_order.unheard_of",
            "_operator.mul",
            "math.trunc",
            "torch.sym_max",
            "torch._C._set_grad_enabled",
            "torch.amp.autocast_mode._enter_autocast",
            "#mine:op",
        ] {
            assert_eq!(target_name(&target(name)), name);
        }
    }

    #[test]
    fn every_type_has_a_number() {
        assert!(ScalarType::ALL.iter().all(|t| ScalarType::from_code(t.code()) == Ok(*t)));
        assert!(MemoryLayout::ALL.iter().all(|t| MemoryLayout::from_code(t.code()) == Ok(*t)));
        assert!(MemoryFormat::ALL.iter().all(|t| MemoryFormat::from_code(t.code()) == Ok(*t)));
        assert_eq!(ScalarType::from_code(99), Err("99 is not a known element type".into()));
    }
}
