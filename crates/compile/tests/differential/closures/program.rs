//! What a random closure is: a list of statements on vectors, and what is random about its calls.

use crate::Random;

/// One statement. Numbers name values, counted modulo how many there are.
#[derive(Clone, Copy, Debug)]
pub(super) enum Statement {
    Unary(usize, usize),
    Binary(usize, usize, usize),
    /// Every element plus the sum of all.
    Spread(usize),
    Detach(usize),
    /// All but the first element, padded again.
    Tail(usize),
    /// A view: all elements, in the same order.
    View(usize),
    /// A view made where nothing is recorded.
    LooseView(usize),
    /// A view by way of others.
    ViewOfViews(usize, usize),
    /// Rows times columns.
    Matrix(usize, usize),
    /// A conditional of the graph.
    Cond(usize, usize),
    Write(usize, usize),
    /// A write of all but the first element.
    WriteSlice(usize),
    /// A write of one value into another.
    WriteValue(usize, usize),
    Dropout(usize),
    /// Scaled by the size.
    BySize(usize, usize),
    /// Scaled by the number of the call, or as that says.
    ByNumber(usize, usize),
    WhereNothingIsRecorded(usize),
    /// A leaf of the function's own.
    NewLeaf(usize),
    /// A tensor of host data.
    Made(usize),
    Hook(usize),
    PureHook(usize),
    /// A pure hook that reads a value.
    PureHookHolding(usize, usize),
    /// A hook that holds an argument and reads more of it than its numbers.
    HookWithArgument(usize, usize),
    /// A hook that holds a value of the function.
    HookWithValue(usize, usize),
    /// A hook that asks a value for its sizes and flags, and holds a size and the number of the call.
    HookWithSizes(usize, usize),
    /// A hook that changes the gradient of an argument, or puts a hook on it.
    HookOnArgument(usize, usize, usize),
    /// A hook that asks for something at the end of the pass.
    HookWithCallback(usize),
    /// A hook that writes the cell.
    HookOnCell(usize),
    /// A hook that removes an earlier one.
    HookRemoving(usize, usize),
    /// A hook that fails in the third call.
    FailingHook(usize),
    /// Removes an earlier hook.
    Remove(usize),
    /// Removes the hook of the caller.
    RemoveGiven,
    NodeHook(usize),
    NodePreHook(usize),
    MultiHook(usize, usize),
    MultiHookAny(usize, usize),
    PostAccumulate(usize),
    /// One that clears the gradient.
    PostAccumulateClearing(usize),
    Retain(usize),
    Custom(usize),
    /// A custom function, and what it gives scaled and shaped by its size.
    CustomBySize(usize),
    /// A custom function of two values with two results.
    CustomTwo(usize, usize),
    /// One that writes its operand.
    CustomWriting(usize),
    Checkpoint(usize, bool),
    /// A checkpoint whose closure holds a value.
    CheckpointHolding(usize, usize),
    /// A checkpoint with a hook in it.
    CheckpointWithHook(usize, bool),
    SavedScope(usize, usize),
    /// Saved-tensor hooks that keep something else.
    SavedScaled(usize, usize),
    Cell(usize),
    Break,
    Read(usize),
    /// The name of a node, its version, whether it is a leaf.
    Look(usize),
    /// A gradient that the function itself computes.
    GradInside(usize, usize),
    Grad(usize, usize),
    Jvp(usize),
    Vmap(usize, usize),
    Jacrev(usize, usize),
    /// A pullback, called twice.
    Vjp(usize, usize),
    /// One transform of another.
    Nested(usize, usize, usize),
    Dual(usize),
    /// A tensor that the function has captured: a leaf, or one without gradient.
    Captured(usize, usize),
    WriteCaptured(usize),
    HookOnCaptured(usize),
    /// Another compiled function, with a break in it.
    Compiled(usize),
    /// The last of the pieces that a value is taken apart into.
    Pieces(usize, usize),
    /// A checkpoint that draws other random numbers when it runs again.
    CheckpointDrawing(usize),
    /// A module that depends on its training mode.
    Layer(usize),
    /// Switches that, grad mode or the default dtype.
    Switch(usize),
    /// An op in the scope of a setting.
    InScope(usize, usize),
    /// A tensor of the default dtype.
    OfDefaultDtype(usize),
    /// Fails in the third call, by an error or a panic.
    Failing(usize),
    /// What a tensor is: a leaf, a view, where it is in memory and with whom.
    Ask(usize, usize, usize),
    /// A write that no version counts.
    WriteData(usize),
    /// An op that is refused, and another one then.
    Refused(usize, usize),
    /// Loses its history in place.
    DetachInPlace(usize),
    /// A checkpoint that writes what the function has captured.
    CheckpointWriting(usize),
    /// A checkpoint in a checkpoint, or one with a break in it.
    CheckpointNested(usize, bool),
    /// A checkpoint that keeps some results.
    CheckpointSelective(usize),
    /// A custom function that gives its operand, a view of it and a value.
    CustomAsIs(usize),
    /// Sizes that depend on numbers.
    Masked(usize),
    /// A buffer that is replaced, and read by a hook.
    Replaced(usize),
    /// Values made in inference mode.
    Inference(usize, usize),
    /// Gradients that the function accumulates itself.
    BackwardInside(usize, usize),
    /// A product in an autocast region, with two uses of a weight.
    Autocast(usize, bool),
    /// A multi-grad hook on one value twice, removed again or not.
    MultiHookTwice(usize, usize),
    /// Hooks that are there for a part of the function.
    ScopedHook(usize),
    Nothing,
}

use Statement::*;

fn statement(r: &mut Random) -> Statement {
    let (a, b) = (r.below(64), r.below(64));
    match r.below(92) {
        0..=7 => Unary(r.below(5), a),
        8..=14 => Binary(r.below(4), a, b),
        15 => Spread(a),
        16 => Detach(a),
        17 => Tail(a),
        18..=20 => Write(r.below(4), a),
        21 => Dropout(a),
        22 => BySize(r.below(5), a),
        23 => WhereNothingIsRecorded(a),
        24..=26 => Hook(a),
        27 => PureHook(a),
        28 | 29 => HookWithArgument(a, b),
        30 | 31 => NodeHook(a),
        32 | 33 => NodePreHook(a),
        34 => MultiHook(a, b),
        35 => MultiHookAny(a, b),
        36 => PostAccumulate(a),
        37 => Retain(a),
        38 | 39 => Custom(a),
        40 => Checkpoint(a, b % 2 == 0),
        41 => CheckpointHolding(a, b),
        42 => SavedScope(a, b),
        43 => Cell(a),
        44 => Break,
        45 => Read(a),
        46 => [Grad(a, b), Jvp(a), Vmap(a, b), Dual(a)][r.below(4)],
        47 => [Jacrev(a, b), Vjp(a, b), Nested(0, a, b), Nested(1, a, b), Nested(2, a, b), Break][r.below(6)],
        48 => PureHookHolding(a, b),
        49 => View(a),
        50 => LooseView(a),
        51 => Matrix(a, b),
        52 => Cond(a, b),
        53 => WriteSlice(a),
        54 => WriteValue(a, b),
        55 => ByNumber(r.below(2), a),
        56 => [NewLeaf(a), Made(a)][r.below(2)],
        57 => [HookWithValue(a, b), HookWithSizes(a, b)][r.below(2)],
        58 => HookOnArgument(r.below(3), a, b),
        59 => [HookWithCallback(a), FailingHook(a)][r.below(2)],
        60 => [HookRemoving(a, b), Remove(a)][r.below(2)],
        61 => PostAccumulateClearing(a),
        62 => CustomTwo(a, b),
        63 => CustomWriting(a),
        64 => CheckpointWithHook(a, b % 2 == 0),
        65 => SavedScaled(a, b),
        66 => [Look(a), GradInside(a, b)][r.below(2)],
        67 => ViewOfViews(r.below(3), a),
        68 => CustomBySize(a),
        69 => HookOnCell(a),
        70 => RemoveGiven,
        71 => Captured(r.below(2), a),
        72 => [WriteCaptured(a), HookOnCaptured(a)][r.below(2)],
        73 => Compiled(a),
        74 => Pieces(r.below(4), a),
        75 => CheckpointDrawing(a),
        76 => [Layer(a), Switch(r.below(4))][r.below(2)],
        77 => InScope(r.below(4), a),
        78 => [OfDefaultDtype(a), Failing(r.below(4))][r.below(2)],
        79 | 80 => Ask(r.below(8), a, b),
        81 => [WriteData(a), DetachInPlace(a)][r.below(2)],
        82 => Refused(a, b),
        83 => CheckpointWriting(a),
        84 => CheckpointNested(a, b % 2 == 0),
        85 => [CheckpointSelective(a), CustomAsIs(a)][r.below(2)],
        86 => Masked(a),
        87 => Replaced(a),
        88 => Inference(a, b),
        89 => BackwardInside(a, b),
        90 => Autocast(a, b % 2 == 0),
        91 => [MultiHookTwice(a, b), ScopedHook(a)][r.below(2)],
        _ => Break,
    }
}

/// A program, and what is random about its calls.
#[derive(Clone, Debug)]
pub(super) struct Program {
    pub(super) statements: Vec<Statement>,
    /// Whether each of the two arguments that require grad is a leaf.
    pub(super) leaves: [bool; 2],
    pub(super) alias: Alias,
    pub(super) results: Vec<usize>,
    pub(super) chosen: Vec<bool>,
    pub(super) sizes: [usize; 4],
    pub(super) outside: Outside,
}

impl Program {
    pub(super) fn has_conditional(&self) -> bool {
        self.statements.iter().any(|s| matches!(s, Cond(..)))
    }
}

/// What arguments have to do with each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Alias {
    Nothing,
    /// The second is the first.
    Same,
    /// The third is the first without history.
    Detached,
    /// The second is a view of the first, which is no leaf.
    View,
}

/// How the function is differentiated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Outside {
    Backward,
    /// Two passes over the graph.
    Twice,
    /// With respect to one leaf.
    Inputs,
    /// With respect to a result.
    OfResult,
    Second,
    /// A batch of seeds.
    Batched,
    /// Every other call where nothing is recorded.
    Quiet,
    Jvp,
    Grad,
    Vmap,
}

impl Outside {
    /// Whether an ordinary pass accumulates gradients.
    pub(super) fn accumulates(self) -> bool {
        use Outside::*;
        matches!(self, Backward | Twice | Inputs | Quiet)
    }

    /// Whether the engine runs without a transform.
    pub(super) fn is_plain(self) -> bool {
        use Outside::*;
        self.accumulates() || matches!(self, OfResult | Second | Batched)
    }
}

pub(super) fn program(r: &mut Random) -> Program {
    let statements = (0..2 + r.below(12)).map(|_| statement(r)).collect();
    let results: Vec<usize> = (0..1 + r.below(3)).map(|_| r.below(64)).collect();
    let chosen = results.iter().map(|_| r.below(4) > 0).collect();
    let sizes = [[3, 4, 5, 6], [3, 3, 4, 5], [2, 5, 1, 4], [4, 1, 3, 3], [3, 0, 4, 1]][r.below(5)];
    let outside = match r.below(16) {
        0..=5 => Outside::Backward,
        6 => Outside::Twice,
        7 => Outside::Inputs,
        8 => Outside::OfResult,
        9 | 10 => Outside::Second,
        11 => Outside::Batched,
        12 => Outside::Quiet,
        13 => Outside::Jvp,
        14 => Outside::Grad,
        _ => Outside::Vmap,
    };
    let alias = match r.below(16) {
        0 => Alias::Same,
        1 => Alias::Detached,
        2 => Alias::View,
        _ => Alias::Nothing,
    };
    Program { statements, leaves: [r.below(2) == 0, r.below(2) == 0], alias, results, chosen, sizes, outside }
}
