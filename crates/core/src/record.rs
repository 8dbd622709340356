//! One record per op: everything that layers, transforms, passes and backends need to know about an op, in one place.
//!
//! The records of this build are generated from `schema/` (`ops/generated/schema.rs`), where every column has an answer
//! for every op; those of ops registered at run time are made by [`crate::library`]. A record is plain data: reading one is
//! an index into a static table. Rules of graph passes and backends are not here, only what they must cover.

use crate::DType;
use crate::dispatch::Given;
use crate::func::rules::Rule;
use crate::library;
use crate::ops::forms::{self, Way};
use crate::ops::generated::{boxed, schema::FORMS, schema::TABLE};
use crate::schema::Schema;
use std::collections::HashMap;
use std::sync::OnceLock;

pub use crate::ops::generated::schema::Op;

/// The record of one op.
pub struct OpInfo {
    /// `aten::add.Tensor`.
    pub name: &'static str,
    /// Arguments and results.
    pub schema: Schema,
    /// What it does with its arguments.
    pub kind: Kind,
    /// The functional op that computes what this one writes.
    pub functional: Option<Op>,
    /// The in-place variant of this op.
    pub in_place: Option<Op>,
    /// The `out=` variant of this op.
    pub out: Option<Op>,
    /// The op that this one is an alias of.
    pub alias: Option<Op>,
    /// Tags.
    pub tags: Tags,
    /// How it is differentiated.
    pub derivative: Derivative,
    /// Whether forward mode is defined.
    pub forward: bool,
    /// What autocast does with it.
    pub autocast: Autocast,
    /// How `vmap` handles it.
    pub(crate) vmap: Rule,
    /// The cost of recomputing it.
    pub cost: Cost,
    /// What it decomposes into.
    pub decomposition: Decomposition,
    /// The position of its training flag, which switching a program's mode flips.
    pub training: Option<u8>,
    /// Which operands may be on other devices than the rest.
    pub(crate) devices: Devices,
    /// How it is called with boxed arguments.
    pub(crate) run: Run,
}

/// What the generated records leave out, and what holds for ops registered at run time.
pub(crate) const PLAIN: OpInfo = OpInfo {
    name: "",
    schema: Schema { text: "", args: &[], returns: &[], returns_written: false },
    kind: Kind::Functional,
    functional: None,
    in_place: None,
    out: None,
    alias: None,
    tags: Tags(0),
    derivative: Derivative::NonDifferentiable,
    forward: false,
    autocast: Autocast::AsIs,
    vmap: Rule::Loop,
    cost: Cost::Heavy,
    decomposition: Decomposition::Rule,
    training: None,
    devices: Devices::Same,
    run: Run::Library,
};

/// How an op is called with boxed arguments.
pub(crate) enum Run {
    /// By the typed functions of a generated op; with defaults by position.
    Typed(boxed::Typed, &'static [(u8, Given)]),
    /// As above, by a function that has tested nothing: a composite op without a typed function.
    Boxed(boxed::Typed, &'static [(u8, Given)]),
    /// By way of another op: a form that is only data.
    Form(Way, Op),
    /// By what `library` registered.
    Library,
}

/// What an op does with its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Returns new tensors, or views.
    Functional,
    /// Writes its first argument.
    InPlace,
    /// Writes its results into given tensors (`out=`).
    Out,
    /// Writes other arguments.
    Mutable,
}

/// How an op is differentiated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Derivative {
    /// A formula, and the name of its node.
    Formula(&'static str),
    /// Composed of ops that have one.
    Composite,
    /// No gradient flows through it.
    NonDifferentiable,
}

/// What autocast does with the arguments of an op: PyTorch's lists for the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Autocast {
    /// Nothing; a composite op is decomposed, so that autocast sees its parts.
    AsIs,
    /// Casts floats to the region's dtype.
    Lower,
    /// Casts them to f32.
    Full,
    /// Casts them to the widest dtype among them.
    Widest,
    /// Nothing, and the op is not decomposed: PyTorch's has no products inside.
    Whole,
}

/// The cost of recomputing an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// Nothing: the result is a view.
    Free,
    /// Little more than the cost of reading the inputs.
    Cheap,
    /// So expensive that saving the result is better.
    Heavy,
}

/// What an op becomes when a program is decomposed into core ops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decomposition {
    /// It stays.
    Kept,
    /// The ops of its rule; the pass has one.
    Rule,
    /// The ops it is composed of.
    Parts,
    /// What its functional form becomes.
    Functional,
    /// An error: its parts depend on values.
    Refused,
}

/// Which operands of an op may be on other devices than the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Devices {
    /// None.
    Same,
    /// Those at these positions (a bit each), on the CPU while the others are on meta.
    Cpu(u16),
    /// All.
    Any,
}

/// The tags of an op.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Tags(u16);

macro_rules! tags {
    ($($bit:literal $constant:ident $name:literal $doc:literal)*) => {
        impl Tags {
            $(#[doc = $doc] pub const $constant: Tags = Tags(1 << $bit);)*
            const ALL: &'static [(Tags, &'static str)] = &[$((Tags::$constant, $name)),*];
        }
    };
}
tags! {
    0 CORE "core" "Core ATen: what PyTorch's export keeps."
    1 POINTWISE "pointwise" "Element by element."
    2 REDUCTION "reduction" "Folds dimensions."
    3 VIEW "view" "The result shares memory with the first argument."
    4 INPLACE_VIEW "inplace_view" "Changes its argument's view of its memory in place."
    5 NONDETERMINISTIC_SEEDED "nondeterministic_seeded" "Draws random numbers."
    6 DYNAMIC_OUTPUT_SHAPE "dynamic_output_shape" "The shape of the result depends on values."
    7 DATA_DEPENDENT_OUTPUT "data_dependent_output" "Reads values to the host."
    8 FACTORY "factory" "Creates a tensor from sizes and options."
    9 FOREACH "foreach" "Runs another op for every tensor of its lists."
    10 EXACT_OUT "exact_out" "Its `out=` variant takes tensors of the result's dtype only, where others cast."
}

impl Tags {
    /// The tags of both.
    pub const fn and(self, other: Tags) -> Tags {
        Tags(self.0 | other.0)
    }

    /// These tags without the others.
    pub(crate) const fn without(self, other: Tags) -> Tags {
        Tags(self.0 & !other.0)
    }

    /// Whether all of these tags are among them.
    pub const fn has(self, tags: Tags) -> bool {
        self.0 & tags.0 == tags.0
    }

    /// Their names.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Tags::ALL.iter().filter(move |(tag, _)| self.has(*tag)).map(|(_, name)| *name)
    }

    /// The tag of this name.
    pub fn named(name: &str) -> Option<Tags> {
        Tags::ALL.iter().find(|(_, n)| *n == name).map(|(tag, _)| *tag)
    }
}

impl std::fmt::Debug for Tags {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

impl Op {
    /// Its record.
    #[inline]
    pub fn info(self) -> &'static OpInfo {
        match TABLE.get(self.0 as usize) {
            Some(info) => info,
            None => forms::by_id(self).unwrap_or_else(|| library::by_id(self)),
        }
    }

    /// `aten::add.Tensor`.
    pub fn name(self) -> &'static str {
        self.info().name
    }

    /// `add`, without namespace and overload.
    pub fn base(self) -> &'static str {
        let name = self.name();
        let name = name.split_once("::").map_or(name, |(_, name)| name);
        name.split_once('.').map_or(name, |(base, _)| base)
    }

    /// Arguments and results.
    pub fn schema(self) -> &'static Schema {
        &self.info().schema
    }

    /// Whether all of these tags are among its own.
    pub fn has(self, tags: Tags) -> bool {
        self.info().tags.has(tags)
    }

    /// All built-in ops, without those registered at run time (`library`).
    pub fn all() -> impl Iterator<Item = Op> {
        (0..Op::generated() as u32).map(Op)
    }

    /// How many ops this build has: the ids of registered ones follow.
    pub(crate) fn generated() -> usize {
        TABLE.len() + FORMS.len()
    }

    /// The op with this name, such as `aten::add.Tensor`, including those registered at run time; `.default` may be
    /// written or left out.
    pub fn from_name(name: &str) -> Option<Op> {
        let name = name.strip_suffix(".default").filter(|base| !base.contains('.')).unwrap_or(name);
        Op::from_table(name).or_else(|| library::by_name(name))
    }

    /// Like [`Op::from_name`], among the ops of this build.
    pub(crate) fn from_table(name: &str) -> Option<Op> {
        static INDEX: OnceLock<HashMap<&'static str, Op>> = OnceLock::new();
        let index = INDEX.get_or_init(|| Op::all().map(|op| (op.name(), op)).collect());
        index.get(name).copied()
    }
}

impl std::fmt::Debug for Op {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl Autocast {
    /// The dtype that floats are cast to in a region of `lower`; `is_f32` says whether one of them is f32.
    pub(crate) fn dtype(self, lower: DType, is_f32: impl FnOnce() -> bool) -> Option<DType> {
        match self {
            Autocast::AsIs | Autocast::Whole => None,
            Autocast::Lower => Some(lower),
            Autocast::Full => Some(DType::F32),
            Autocast::Widest => Some(if is_f32() { DType::F32 } else { lower }),
        }
    }
}
