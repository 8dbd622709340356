//! The loop form of a graph: buffers, loops over elements that read and write them, and calls of everything else.
//!
//! A buffer is memory of one allocation; views are layouts on it and cost nothing. A loop says what happens to one element
//! of its domain; which loops share a kernel is decided later (`fuse`), and a buffer that only its own kernel reads never
//! exists. Sizes are concrete numbers: this is the form of one plan, not of the graph.

use super::FusedGraph;
use firebrand_core::layout::Dims;
use firebrand_core::{DType, Layout, Tensor};
use firebrand_graph::interpret::Value;
use firebrand_graph::ir::{Name, NodeId, OpOverload};
use firebrand_kernels::pointwise::{Fold, Op, RowOp, Sink, Source, Terms, Value as Number};
use smallvec::SmallVec;
use std::sync::Arc;

/// A buffer, by its place in [`Lowered::buffers`].
pub(crate) type BufferId = usize;

/// Memory of one allocation.
#[derive(Clone, Debug)]
pub(crate) struct Buffer {
    /// Sizes and strides as allocated; the offset is 0.
    pub(crate) layout: Layout,
    pub(crate) dtype: DType,
    pub(crate) origin: Origin,
}

/// Where a buffer comes from.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    /// The caller gives it.
    Input(usize),
    /// The graph holds it.
    Constant(Tensor),
    /// An item makes it.
    Made,
}

/// Elements of a buffer; the layout's offset counts from the buffer's first element.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub(crate) buffer: BufferId,
    pub(crate) layout: Layout,
}

/// What a loop reads.
#[derive(Clone, Debug)]
pub(crate) enum Operand {
    /// Memory, with the sizes of the loop's domain.
    Load(Load),
    /// A number known when the plan is made, and the register type it has.
    Number(Number, DType),
}

/// What an instruction does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Action {
    Op(Op),
    /// To another register type.
    Cast(DType),
    /// To the precision of a half type.
    Round(DType),
    /// All elements of a row to one.
    Fold(Fold),
    /// The sum of terms of two rows.
    Sum(Terms),
    /// Rows to a row.
    Row(RowOp),
    /// A sum over rows that the row instruction of the operand makes.
    OverRows(usize),
}

/// One instruction. `Source::Memory(k)` is operand `k` of the loop.
#[derive(Clone, Debug)]
pub(crate) struct Instr {
    pub(crate) action: Action,
    /// The register type computed in.
    pub(crate) dtype: DType,
    pub(crate) args: SmallVec<[Source; 5]>,
}

/// A value that a loop stores.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    pub(crate) source: Source,
    pub(crate) load: Load,
    pub(crate) sink: Sink,
}

/// What happens to each element of a domain.
#[derive(Clone, Debug)]
pub(crate) struct Loop {
    pub(crate) domain: Dims,
    /// Elements of a row, for loops that fold rows or store per row or column; 1 otherwise.
    pub(crate) row: usize,
    pub(crate) operands: Vec<Operand>,
    pub(crate) code: Vec<Instr>,
    pub(crate) stores: Vec<Store>,
}

/// An argument of a call at run time.
#[derive(Clone, Debug)]
pub(crate) enum Arg {
    Tensor(Load),
    /// A value only known at run time.
    Late(usize),
    List(Vec<Arg>),
    Known(Value),
}

/// What becomes of a call's result.
#[derive(Clone, Debug)]
pub(crate) enum Taken {
    /// It is this buffer.
    Buffer(BufferId),
    /// A value that is not a tensor.
    Late(usize),
    List(Vec<Taken>),
    /// Memory that is known already, or nothing.
    Ignored,
}

/// Work that runs as the interpreter would run it.
#[derive(Clone, Debug)]
pub(crate) struct Opaque {
    pub(crate) node: NodeId,
    /// The op that is called, if the node calls one.
    pub(crate) op: Option<OpOverload>,
    /// Of a conditional, both sides: graphs with plans of their own.
    pub(crate) sides: Option<Arc<[FusedGraph; 2]>>,
    pub(crate) args: Vec<Arg>,
    pub(crate) kwargs: Vec<(Name, Arg)>,
    pub(crate) taken: Taken,
    /// Buffers it writes in place.
    pub(crate) writes: Vec<BufferId>,
    /// Whether order among such calls matters: random numbers, hooks, writes.
    pub(crate) effect: bool,
    /// Whether it may write memory that the graph does not know it sees: nothing moves from one side to the other.
    pub(crate) barrier: bool,
}

/// One piece of work.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    Loop(Loop),
    Opaque(Opaque),
}

/// Work with the node it came from.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) name: Name,
    pub(crate) work: Work,
}

/// What the caller gets.
#[derive(Clone, Debug)]
pub(crate) enum Output {
    Tensor(Load),
    Late(usize),
    Known(Value),
}

/// A graph in loop form.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lowered {
    pub(crate) buffers: Vec<Buffer>,
    pub(crate) items: Vec<Item>,
    pub(crate) outputs: Vec<Output>,
    /// Late values: the first ones are inputs, by their position.
    pub(crate) late: usize,
    pub(crate) late_inputs: Vec<(usize, usize)>,
    /// Call nodes before lowering.
    pub(crate) nodes: usize,
}

impl Loop {
    /// Loads among its operands.
    pub(crate) fn loads(&self) -> impl Iterator<Item = &Load> {
        self.operands.iter().filter_map(|o| match o {
            Operand::Load(l) => Some(l),
            Operand::Number(..) => None,
        })
    }
}

impl Arg {
    /// Shows every load in it.
    pub(crate) fn each_load<'a>(&'a self, see: &mut impl FnMut(&'a Load)) {
        match self {
            Arg::Tensor(l) => see(l),
            Arg::List(items) => items.iter().for_each(|a| a.each_load(see)),
            Arg::Late(_) | Arg::Known(_) => {}
        }
    }

    /// Shows every late value in it.
    pub(crate) fn each_late(&self, see: &mut impl FnMut(usize)) {
        match self {
            Arg::Late(k) => see(*k),
            Arg::List(items) => items.iter().for_each(|a| a.each_late(see)),
            Arg::Tensor(_) | Arg::Known(_) => {}
        }
    }
}

impl Taken {
    /// Shows every buffer in it.
    pub(crate) fn each_buffer(&self, see: &mut impl FnMut(BufferId)) {
        match self {
            Taken::Buffer(b) => see(*b),
            Taken::List(items) => items.iter().for_each(|t| t.each_buffer(see)),
            Taken::Late(_) | Taken::Ignored => {}
        }
    }

    /// Shows every late value in it.
    pub(crate) fn each_late(&self, see: &mut impl FnMut(usize)) {
        match self {
            Taken::Late(k) => see(*k),
            Taken::List(items) => items.iter().for_each(|t| t.each_late(see)),
            Taken::Buffer(_) | Taken::Ignored => {}
        }
    }
}

impl Item {
    /// Loads it reads.
    pub(crate) fn each_read<'a>(&'a self, see: &mut impl FnMut(&'a Load)) {
        match &self.work {
            Work::Loop(l) => l.loads().for_each(see),
            Work::Opaque(o) => o.args.iter().chain(o.kwargs.iter().map(|(_, a)| a)).for_each(|a| a.each_load(see)),
        }
    }

    /// Buffers it writes, made or changed.
    pub(crate) fn each_write(&self, see: &mut impl FnMut(BufferId)) {
        match &self.work {
            Work::Loop(l) => l.stores.iter().for_each(|s| see(s.load.buffer)),
            Work::Opaque(o) => {
                o.taken.each_buffer(see);
                o.writes.iter().for_each(|&b| see(b))
            }
        }
    }
}

impl Buffer {
    /// Whether these are all elements in the order of memory: reading them is reading what was written at the same place.
    pub(crate) fn is_whole(&self, layout: &Layout) -> bool {
        let flat = self.layout.is_contiguous() && layout.is_contiguous();
        layout.offset() == 0
            && layout.numel() == self.layout.numel()
            && (flat || self.layout.same_geometry(layout) && self.layout.is_non_overlapping_and_dense())
    }
}

/// The layout with the trailing dimensions that make up a row as one; none if they are not one run of memory, or repeat
/// within the row.
pub(crate) fn by_rows(layout: &Layout, row: usize) -> Option<Layout> {
    let mut n = 1;
    let mut split = layout.ndim();
    while n < row {
        split = split.checked_sub(1)?;
        n *= layout.sizes()[split];
    }
    if n != row {
        return None;
    }
    let run = Layout::strided(&layout.sizes()[split..], &layout.strides()[split..], 0).ok()?;
    let still = run.strides().iter().zip(run.sizes()).all(|(&s, &n)| s == 0 || n == 1);
    let step = if still { 0 } else { *run.view_strides(&[row])?.first()? };
    let mut sizes: Dims = layout.sizes()[..split].into();
    let mut strides: Dims = layout.strides()[..split].into();
    sizes.push(row);
    strides.push(step);
    if step > 1 { None } else { Layout::strided(&sizes, &strides, layout.offset()).ok() }
}
