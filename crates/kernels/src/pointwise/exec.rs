//! Runs a program over strided memory, tile by tile.
//!
//! Operands that lie packed in a tile and in a register's format are read and written in place; all others go through
//! scratch: gathered, converted, computed, converted, scattered. The loops are those of `loops.rs`; this file only knows
//! where things are. An output that overlaps an input is written after all instructions of the tile have run.
//! A program that folds has whole rows as tiles. Sums over tiles are kept per part of the work and joined in order, so they
//! depend on the sizes and not on the threads.
#![allow(unsafe_code)]

use super::convert::is_native;
use super::fold::{add_rows, fold_row, sum_row};
use super::loops::{Arg, CHUNK, Loops};
use super::program::{ARGS, Action, Instr, Place};
use super::{Operand, Sink, Value, few, row};
use crate::geometry::{Geometry, Tile, Tiles};
use crate::moves::{move2d, settle, stream};
use crate::real::{Ptr, Scratch};
use crate::{Complex, DType, ViewMut, parallel, write_slice};
use smallvec::SmallVec;
use std::cell::RefCell;

/// Elements a tile: 4 KB of f32, so that a handful of registers stays in L1.
pub(super) const TILE: usize = 1024;
/// Rows and columns of a tile when some operand is transposed.
const SIDE: usize = 32;
/// Outputs of this size are written past the cache.
pub(super) const STREAM_BYTES: usize = 16 << 20;
/// Bytes of one constant, of the widest register.
pub(super) const SPLAT: usize = CHUNK * 16;

/// A program as the executor sees it.
#[derive(Clone, Copy)]
pub(super) struct Code<'a> {
    pub(super) instrs: &'a [Instr],
    /// Bytes of all registers for one tile.
    pub(super) registers: usize,
    /// Constants and the type they are used in.
    pub(super) constants: &'a [(Value, DType)],
    /// The type each input is used in.
    pub(super) inputs: &'a [DType],
    /// The type each output is computed in.
    pub(super) outputs: &'a [DType],
    /// How each output is stored.
    pub(super) sinks: &'a [Sink],
    /// Where each output is when a tile has been computed.
    pub(super) places: &'a [Place],
    /// Registers that hold one number.
    pub(super) uniforms: usize,
    /// Whether rows are folded.
    pub(super) folds: bool,
}

/// Parts in which sums over rows are kept apart, at most.
const PARTS: usize = 64;

#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct Line([u8; 64]);

thread_local! {
    static SCRATCH: RefCell<Vec<Line>> = const { RefCell::new(Vec::new()) };
}

/// Calls `f` with `bytes` of 64-byte aligned scratch that is this thread's own.
pub(super) fn with_scratch<R>(bytes: usize, f: impl FnOnce(*mut u8) -> R) -> R {
    SCRATCH.with(|s| {
        let mut lines = s.take(); // taken, so that a nested run would get its own
        crate::scratch::grow(&mut lines, bytes.div_ceil(64), Line([0; 64]));
        let result = f(lines.as_mut_ptr().cast());
        s.replace(lines);
        result
    })
}

/// Hands out places in the scratch.
struct Layout(usize);
impl Layout {
    fn take(&mut self, bytes: usize) -> usize {
        let at = self.0;
        self.0 += bytes.next_multiple_of(64);
        at
    }
}

/// Where an operand's three stages lie: raw storage, registers of its own type, registers of the type it is used in.
struct Stages {
    raw: usize,
    own: usize,
    used: usize,
    /// Bytes to a second place for `used`, if there is one: a tile is written out while the next is computed.
    second: usize,
}

impl Stages {
    fn new(layout: &mut Layout, capacity: usize, dtype: DType, used: DType, twice: bool) -> Stages {
        let capacity = capacity.max(CHUNK);
        let bytes = (capacity * used.compute().size()).next_multiple_of(64);
        Stages {
            raw: layout.take(capacity * dtype.size()),
            own: layout.take(capacity * if is_native(dtype) { 0 } else { dtype.compute().size() }),
            used: layout.take(if twice { 2 * bytes } else { bytes }),
            second: if twice { bytes } else { 0 },
        }
    }
}

/// First and last byte a view reaches.
fn extent(ptr: *const u8, dtype: DType, sizes: &[usize], strides: &[usize]) -> (usize, usize) {
    let last: usize = sizes.iter().zip(strides).map(|(&n, &s)| n.saturating_sub(1) * s).sum();
    (ptr as usize, ptr as usize + (last + 1) * dtype.size())
}

/// The sizes that all elements have: those of an output that has all of them, or of an input.
fn domain<'a>(code: &Code, inputs: &[Operand<'a>], outputs: &[ViewMut<'a>]) -> Option<&'a [usize]> {
    let whole = outputs.iter().zip(code.sinks).find(|(_, s)| **s == Sink::Elements).map(|(o, _)| o.sizes());
    whole.or_else(|| {
        inputs.iter().find_map(|i| match i {
            Operand::View(v) => Some(v.sizes()),
            Operand::Value(_) => None,
        })
    })
}

/// Runs `code` on operands that all have the sizes of its domain.
pub(super) fn run(code: Code, inputs: &[Operand], outputs: &[ViewMut]) {
    assert_eq!((inputs.len(), outputs.len()), (code.inputs.len(), code.outputs.len()), "operands of the program");
    let Some(sizes) = domain(&code, inputs, outputs) else { return };
    if sizes.contains(&0) {
        // Sums of nothing.
        let sums = outputs.iter().zip(code.sinks).filter(|(_, s)| matches!(s, Sink::Columns(_) | Sink::Total(_)));
        return sums.for_each(|(o, _)| crate::fill(*o, Value::Int(0)));
    }
    if few::run(&code, inputs, outputs, sizes) {
        return;
    }
    // Outputs first, then the inputs that are memory.
    let mut strides: SmallVec<[&[usize]; 8]> = SmallVec::new();
    let mut out_slot: SmallVec<[usize; 2]> = SmallVec::new();
    for (o, sink) in outputs.iter().zip(code.sinks) {
        out_slot.push(strides.len());
        if *sink == Sink::Elements {
            strides.push(o.strides())
        }
    }
    let mut slot: SmallVec<[usize; 8]> = SmallVec::new();
    for input in inputs {
        slot.push(strides.len());
        if let Operand::View(v) = input {
            assert_eq!(v.sizes(), sizes, "operands are expanded to one size");
            strides.push(v.strides())
        }
    }
    let columns = code.sinks.iter().any(|s| matches!(s, Sink::Columns(_)));
    let tiles = if code.folds || columns {
        Geometry::in_rows(sizes, &strides).tiles_of_rows(if code.folds { 1 } else { TILE })
    } else if let [n] = sizes {
        Tiles::of_line(*n, &strides, TILE)
    } else {
        Geometry::new(sizes, &strides, 0).tiles(TILE, SIDE)
    };
    let capacity = tiles.capacity();

    let mut layout = Layout(0);
    let scale = capacity.div_ceil(TILE);
    layout.take(code.registers * scale);
    let constants = layout.take(SPLAT * (code.constants.len() + inputs.len() + code.uniforms));
    let rows = code.instrs.iter().any(|i| matches!(i.action, Action::Row(_)));
    let spare = layout.take(if rows { ARGS * capacity * size_of::<f64>() } else { 0 });
    let mut staged_in: SmallVec<[Stages; 8]> = SmallVec::new();
    for (input, &used) in inputs.iter().zip(code.inputs) {
        let dtype = if let Operand::View(v) = input { v.dtype() } else { used.compute() };
        staged_in.push(Stages::new(&mut layout, capacity, dtype, used, false));
    }
    let mut staged_out: SmallVec<[Stages; 2]> = SmallVec::new();
    let mut in_place: SmallVec<[bool; 2]> = SmallVec::new();
    for (k, (o, &used)) in outputs.iter().zip(code.outputs).enumerate() {
        let large = o.numel() * o.dtype().size() >= STREAM_BYTES;
        staged_out.push(Stages::new(&mut layout, capacity, o.dtype(), used, large));
        if code.sinks[k] != Sink::Elements {
            in_place.push(false);
            continue;
        }
        assert_eq!(o.sizes(), sizes, "outputs have one size");
        let (lo, hi) = extent(o.as_ptr(), o.dtype(), sizes, o.strides());
        let apart = |(l, h): (usize, usize)| h <= lo || hi <= l;
        let free = inputs.iter().all(|i| match i {
            Operand::View(v) => apart(extent(v.as_ptr(), v.dtype(), sizes, v.strides())),
            Operand::Value(_) => true,
        }) && outputs
            .iter()
            .enumerate()
            .all(|(j, p)| j == k || apart(extent(p.as_ptr(), p.dtype(), p.sizes(), p.strides())));
        in_place.push(free && !large && o.dtype() == used.compute());
    }

    // About 32K simple operations a part.
    let mut grain = ((32 / code.instrs.len().max(1)).max(4) * TILE / capacity).max(1);
    let mut sums: SmallVec<[usize; 2]> = SmallVec::new();
    let mut words = 0;
    for sink in code.sinks {
        sums.push(words);
        words += match sink {
            Sink::Columns(_) => sizes.last().copied().unwrap_or(1),
            Sink::Total(_) => 1,
            Sink::Elements | Sink::Rows => 0,
        };
    }
    if words > 0 {
        grain = grain.max(tiles.count.div_ceil(PARTS))
    }
    let parts = tiles.count.div_ceil(grain);
    let mut partial = (words > 0).then(|| Scratch::<f64>::zeroed(words * parts));
    let partial_at = partial.as_mut().map(|p| Ptr::new(p));
    let job = Job {
        code,
        inputs,
        outputs,
        tiles: &tiles,
        slot: &slot,
        out_slot: &out_slot,
        staged_in: &staged_in,
        staged_out: &staged_out,
        in_place: &in_place,
        constants,
        spare,
        scale,
        sums: &sums,
        scratch: layout.0,
    };
    parallel::split(job.tiles.count, grain, |range| {
        let sums = partial_at.map_or(std::ptr::null_mut(), |p| p.at(range.start / grain * words));
        with_scratch(job.scratch, |base| job.run(base, sums, range))
    });
    if let Some(partial) = partial {
        job.finish_sums(&partial, words, parts)
    }
}

/// Everything a worker needs.
struct Job<'a> {
    code: Code<'a>,
    inputs: &'a [Operand<'a>],
    outputs: &'a [ViewMut<'a>],
    tiles: &'a Tiles,
    /// The operand number of each input in `tiles`.
    slot: &'a [usize],
    /// The operand number of each output in `tiles`, if it is one.
    out_slot: &'a [usize],
    staged_in: &'a [Stages],
    staged_out: &'a [Stages],
    /// Whether an output may be written directly where it is packed.
    in_place: &'a [bool],
    constants: usize,
    /// Room to write out operands of a row that are one number, and for sums that are not needed.
    spare: usize,
    /// How often a tile holds as much as registers were laid out for.
    scale: usize,
    /// Where the sums of an output begin in those of a part.
    sums: &'a [usize],
    scratch: usize,
}

/// Where the operands of the current tile are.
struct Places {
    base: *mut u8,
    scale: usize,
    constants: usize,
    uniforms: usize,
    inputs: SmallVec<[Arg; 8]>,
    outputs: SmallVec<[*mut u8; 2]>,
}

impl Places {
    #[inline(always)]
    fn arg(&self, place: Place) -> Arg {
        // SAFETY: offsets lie inside the scratch by construction of the layout.
        unsafe {
            match place {
                Place::Register(at) => Arg::tile(self.base.add(at as usize * self.scale)),
                Place::Input(k) => self.inputs[k as usize],
                Place::Output(k) => Arg::tile(self.outputs[k as usize]),
                Place::Constant(k) => Arg::splat(self.base.add(self.constants + SPLAT * k as usize)),
                Place::Summed => Arg::tile(self.base),
                Place::Uniform(k) => Arg::splat(self.base.add(self.uniforms + SPLAT * k as usize)),
            }
        }
    }
}

impl Job<'_> {
    /// Runs a range of tiles in this thread's scratch, with the sums of its part.
    fn run(&self, base: *mut u8, sums: *mut f64, range: std::ops::Range<usize>) {
        let loops = Loops::get();
        let mut places = Places {
            base,
            scale: self.scale,
            constants: self.constants,
            uniforms: self.constants + SPLAT * (self.code.constants.len() + self.inputs.len()),
            inputs: SmallVec::new(),
            outputs: SmallVec::new(),
        };
        let constants = self.code.constants.iter().map(|c| Some(*c));
        let values = self.inputs.iter().zip(self.code.inputs).map(|(i, &d)| match i {
            Operand::Value(v) => Some((*v, d)),
            Operand::View(_) => None,
        });
        for (k, constant) in constants.chain(values).enumerate() {
            if let Some((value, dtype)) = constant {
                // SAFETY: one slot of `SPLAT` bytes per constant and input.
                unsafe { splat(base.add(self.constants + SPLAT * k), value, dtype, CHUNK) }
            }
        }
        // What is prefetched ahead of this tile, and what is written out behind it.
        let (mut ahead, mut behind) = (Spread::default(), Spread::default());
        for (turn, t) in range.enumerate() {
            let tile = self.tiles.tile(t);
            let n = tile.len();
            places.inputs.clear();
            places.outputs.clear();
            ahead.clear();
            for k in 0..self.inputs.len() {
                // SAFETY: the scratch was laid out for this job.
                places.inputs.push(unsafe { self.fetch(loops, base, &tile, k, &mut ahead) });
            }
            ahead.share(self.code.instrs.len());
            behind.share(self.code.instrs.len());
            for (k, o) in self.outputs.iter().enumerate() {
                // SAFETY: the tile lies inside the view, the stage inside the scratch.
                places.outputs.push(unsafe {
                    if self.in_place[k] && tile.is_packed(self.tiles.strides(self.out_slot[k])) {
                        o.as_ptr().add(self.tiles.offset(&tile, self.out_slot[k]) * o.dtype().size())
                    } else {
                        base.add(self.staged_out[k].used + turn % 2 * self.staged_out[k].second)
                    }
                });
            }
            for i in self.code.instrs {
                ahead.next(|at, _, n| prefetch(at, n));
                // SAFETY: the pieces are tiles that were computed before this one and lie in the other stage.
                behind.next(|from, to, n| unsafe { stream(from, to, n) });
                // SAFETY: every place holds `n` elements of the type the program gave it, and the program never
                // writes a place that it reads in the same instruction.
                unsafe { self.instruction(loops, &places, i, n, sums) }
            }
            behind.clear();
            for k in 0..self.outputs.len() {
                // SAFETY: as for the inputs; the sums of this part are this call's alone, and long enough by their layout.
                unsafe {
                    let dtype = self.code.outputs[k];
                    match self.code.sinks[k] {
                        Sink::Elements => self.put(loops, base, &tile, k, places.outputs[k], &mut behind),
                        Sink::Rows => self.put_row(loops, base, t, k, places.arg(self.code.places[k])),
                        Sink::Columns(_) if self.code.places[k] == Place::Summed => {}
                        Sink::Columns(_) => {
                            let to = sums.add(self.sums[k]);
                            let mut from = places.arg(self.code.places[k]);
                            if from.step == 0 {
                                // One number all along the tile is written out.
                                move2d(dtype.size(), from.ptr, [0, 0], places.outputs[k], [n, 1], 1, n);
                                from = Arg::tile(places.outputs[k]);
                            }
                            add_rows(dtype, to, from.ptr, tile.rows, tile.cols)
                        }
                        Sink::Total(_) => {
                            let from = places.arg(self.code.places[k]);
                            let (m, times) = if from.step == 0 { (1, n as f64) } else { (n, 1.0) };
                            *sums.add(self.sums[k]) += times * fold_row(super::Fold::Sum, dtype, from.ptr, m)
                        }
                    }
                }
            }
        }
        behind.share(1);
        // SAFETY: as above, for the last tile.
        behind.next(|from, to, n| unsafe { stream(from, to, n) });
        if self.staged_out.iter().any(|stages| stages.second > 0) {
            settle();
        }
    }

    /// Runs one instruction on a tile of `n` elements.
    ///
    /// # Safety
    /// Every place holds as many elements of the type the program gave it, and `dst` is none of the operands.
    #[inline(always)]
    unsafe fn instruction(&self, loops: &Loops, places: &Places, i: &Instr, n: usize, sums: *mut f64) {
        let d = places.arg(i.dst).ptr.cast_mut();
        let args = [places.arg(i.args[0]), places.arg(i.args[1]), places.arg(i.args[2])];
        // SAFETY: the caller's promise.
        unsafe {
            match i.action {
                Action::Op(op) if i.uniform => {
                    loops.step(op, i.dtype, d, &args, 1);
                    repeat(d, op.result(i.dtype).compute().size(), CHUNK)
                }
                Action::Op(op) => loops.step(op, i.dtype, d, &args, n),
                Action::Pair(first, then) => (loops.pair)(first, then, d, &args, n),
                Action::Cast(to) => (loops.cast)(i.dtype, to, d, args[0], if i.uniform { CHUNK } else { n }),
                Action::Fold(how) => {
                    // One number all along the row: its fold is known from one element.
                    let one = args[0].step == 0;
                    let value = fold_row(how, i.dtype, args[0].ptr, if one { 1 } else { n });
                    let times = if one && how == super::Fold::Sum { n as f64 } else { 1.0 };
                    splat(d, Value::Float(value * times), i.dtype, CHUNK)
                }
                Action::Sum(terms) => {
                    let value = sum_row(terms, i.dtype, args[0], args[1], n);
                    splat(d, Value::Float(value), i.dtype, CHUNK)
                }
                Action::Row(op) => {
                    let spare = |k: usize| places.base.add(self.spare + k * n * i.dtype.size());
                    let row: [*const u8; ARGS] = std::array::from_fn(|k| {
                        let a = places.arg(i.args[k]);
                        if a.step != 0 || op.is_number(k) || k >= op.arity() {
                            return a.ptr;
                        }
                        move2d(i.dtype.size(), a.ptr, [0, 0], spare(k), [n, 1], 1, n);
                        spare(k)
                    });
                    // The numbers among the operands leave their room free.
                    let sums =
                        [0, 1].map(|k| i.sums[k].map_or(spare(2 + k), |o| sums.add(self.sums[o as usize]).cast()));
                    match i.dtype {
                        DType::F64 => row::run::<f64>(op, n, row, d, sums),
                        _ => row::run::<f32>(op, n, row, d, sums),
                    }
                }
            }
        }
    }

    /// Brings input `k` of a tile into registers, in place if it lies there.
    ///
    /// # Safety
    /// `base` is scratch laid out for this job.
    unsafe fn fetch(&self, loops: &Loops, base: *mut u8, tile: &Tile, k: usize, ahead: &mut Spread) -> Arg {
        let Operand::View(v) = self.inputs[k] else {
            // SAFETY: inside the constants.
            return Arg::splat(unsafe { base.add(self.constants + SPLAT * (self.code.constants.len() + k)) });
        };
        let (dtype, used, stages) = (v.dtype(), self.code.inputs[k], &self.staged_in[k]);
        let strides = self.tiles.strides(self.slot[k]);
        // SAFETY: the tile lies inside the view; each stage holds a tile of its type and overlaps nothing else.
        unsafe {
            let src = v.as_ptr().add(self.tiles.offset(tile, self.slot[k]) * dtype.size());
            let raw = base.add(stages.raw);
            let (mut at, mut n) = (Arg::tile(src), tile.len());
            let scalar = tile.is_splat(strides);
            if scalar {
                n = n.min(CHUNK);
                move2d(dtype.size(), src, [0, 0], raw, [n, 1], 1, n);
                at = Arg::tile(raw);
            } else if !tile.is_packed(strides) {
                move2d(dtype.size(), src, strides, raw, [tile.cols, 1], tile.rows, tile.cols);
                at = Arg::tile(raw);
            } else if self.tiles.moves_on(self.slot[k]) {
                ahead.add(src.wrapping_add(n * dtype.size()), std::ptr::null_mut(), n * dtype.size());
            }
            if !is_native(dtype) {
                (loops.load)(dtype, base.add(stages.own), at, n);
                at = Arg::tile(base.add(stages.own));
            }
            if dtype.compute() != used.compute() {
                (loops.cast)(dtype, used, base.add(stages.used), at, n);
                at = Arg::tile(base.add(stages.used));
            }
            if scalar { Arg::splat(at.ptr) } else { at }
        }
    }

    /// Takes output `k` of a tile from where it was computed to where it belongs.
    ///
    /// # Safety
    /// `base` is scratch laid out for this job, `from` holds the tile.
    unsafe fn put(&self, loops: &Loops, base: *mut u8, tile: &Tile, k: usize, from: *mut u8, behind: &mut Spread) {
        let (o, used, stages) = (self.outputs[k], self.code.outputs[k], &self.staged_out[k]);
        let dtype = o.dtype();
        let (strides, n) = (self.tiles.strides(self.out_slot[k]), tile.len());
        // SAFETY: as for `fetch`.
        unsafe {
            let dst = o.as_ptr().add(self.tiles.offset(tile, self.out_slot[k]) * dtype.size());
            if from == dst {
                return;
            }
            // All instructions of the tile have run: the last conversion may write the output itself, unless it is streamed.
            let last = if tile.is_packed(strides) && stages.second == 0 { dst } else { base.add(stages.raw) };
            let mut at = from;
            if dtype.compute() != used.compute() {
                let own = if is_native(dtype) { last } else { base.add(stages.own) };
                (loops.cast)(used, dtype.compute(), own, Arg::tile(at), n);
                at = own;
            }
            if !is_native(dtype) {
                (loops.store)(dtype, last, Arg::tile(at), n);
                at = last;
            }
            if at == dst {
                return;
            }
            if !tile.is_packed(strides) {
                move2d(dtype.size(), at, [tile.cols, 1], dst, strides, tile.rows, tile.cols)
            } else if at == from && stages.second > 0 {
                behind.add(at, dst, n * dtype.size())
            } else if stages.second > 0 {
                stream(at, dst, n * dtype.size())
            } else {
                std::ptr::copy_nonoverlapping(at, dst, n * dtype.size())
            }
        }
    }
}

impl Job<'_> {
    /// Stores the one value of row `t`.
    ///
    /// # Safety
    /// `base` is scratch laid out for this job, `from` holds the value.
    unsafe fn put_row(&self, loops: &Loops, base: *mut u8, t: usize, k: usize, from: Arg) {
        let (o, used, stages) = (self.outputs[k], self.code.outputs[k], &self.staged_out[k]);
        let dtype = o.dtype();
        assert!(t < o.numel() && o.is_contiguous(), "one element a row");
        // SAFETY: row `t` is inside the output; the stages hold at least a chunk.
        unsafe {
            let mut at = from;
            if dtype.compute() != used.compute() {
                let own = base.add(if is_native(dtype) { stages.raw } else { stages.own });
                (loops.cast)(used, dtype.compute(), own, at, 1);
                at = Arg::tile(own);
            }
            if !is_native(dtype) {
                (loops.store)(dtype, base.add(stages.raw), at, 1);
                at = Arg::tile(base.add(stages.raw));
            }
            std::ptr::copy_nonoverlapping(at.ptr, o.as_ptr().add(t * dtype.size()), dtype.size())
        }
    }

    /// Joins the sums of all parts, in order, and stores them.
    fn finish_sums(&self, partial: &[f64], words: usize, parts: usize) {
        for (k, sink) in self.code.sinks.iter().enumerate() {
            let (n, factor) = match *sink {
                Sink::Columns(factor) => (self.tiles.row_len(), factor),
                Sink::Total(factor) => (1, factor),
                Sink::Elements | Sink::Rows => continue,
            };
            let mut total: SmallVec<[f64; 8]> = SmallVec::from_elem(0.0, n);
            for p in 0..parts {
                let part = &partial[p * words + self.sums[k]..][..n];
                if self.code.places[k] == Place::Summed && self.code.outputs[k] == DType::F32 {
                    // SAFETY: `n` words hold `n` numbers of f32, which is how row instructions used them.
                    let part = unsafe { std::slice::from_raw_parts(part.as_ptr().cast::<f32>(), n) };
                    total.iter_mut().zip(part).for_each(|(t, &x)| *t += f64::from(x));
                } else {
                    total.iter_mut().zip(part).for_each(|(t, x)| *t += x);
                }
            }
            total.iter_mut().for_each(|t| *t *= factor);
            write_slice(&total, self.outputs[k]);
        }
    }
}

/// Writes `n` registers that hold `value`.
///
/// # Safety
/// `d` is writable for `n` registers of `dtype`'s compute type, and aligned for them.
#[inline]
pub(super) unsafe fn splat(d: *mut u8, value: Value, dtype: DType, n: usize) {
    let word = value.register(dtype);
    // SAFETY: the caller's promise.
    unsafe {
        match dtype.compute().size() {
            _ if dtype.is_complex() => {
                let v = value.to_complex();
                match dtype {
                    DType::C64 => {
                        let v = Complex::new(v.re as f32, v.im as f32);
                        std::slice::from_raw_parts_mut(d.cast::<Complex<f32>>(), n).fill(v)
                    }
                    _ => std::slice::from_raw_parts_mut(d.cast::<Complex<f64>>(), n).fill(v),
                }
            }
            8 => std::slice::from_raw_parts_mut(d.cast::<u64>(), n).fill(word),
            4 => std::slice::from_raw_parts_mut(d.cast::<u32>(), n).fill(word as u32),
            _ => std::slice::from_raw_parts_mut(d, n).fill(word as u8),
        }
    }
}

/// Copies the first register of `size` bytes to the `n - 1` behind it.
///
/// # Safety
/// `d` holds `n` registers of that size, the first of which is written.
#[inline]
unsafe fn repeat(d: *mut u8, size: usize, n: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        match size {
            16 => std::slice::from_raw_parts_mut(d.cast::<[u64; 2]>(), n).fill(*d.cast()),
            8 => std::slice::from_raw_parts_mut(d.cast::<u64>(), n).fill(*d.cast()),
            4 => std::slice::from_raw_parts_mut(d.cast::<u32>(), n).fill(*d.cast()),
            _ => std::slice::from_raw_parts_mut(d, n).fill(*d),
        }
    }
}

/// Traffic with memory that is spread over the instructions of a tile. Only the first reader of an input waits for memory, and
/// the hardware prefetcher does not look across the time the other instructions take; but all requests at once, or all
/// stores past the cache, fill their queues and stall the tile.
#[derive(Default)]
struct Spread {
    /// From, to, bytes.
    pieces: SmallVec<[(*const u8, *mut u8, usize); 8]>,
    bytes: usize,
    share: usize,
    piece: usize,
    at: usize,
}

impl Spread {
    fn clear(&mut self) {
        self.pieces.clear();
        (self.bytes, self.share, self.piece, self.at) = (0, 0, 0, 0);
    }

    fn add(&mut self, from: *const u8, to: *mut u8, bytes: usize) {
        self.pieces.push((from, to, bytes));
        self.bytes += bytes;
    }

    /// Spreads all that was added over this many instructions.
    fn share(&mut self, instructions: usize) {
        self.share = self.bytes.div_ceil(instructions.max(1)).next_multiple_of(64);
    }

    /// The share of one instruction.
    #[inline]
    fn next(&mut self, mut go: impl FnMut(*const u8, *mut u8, usize)) {
        let mut left = self.share;
        while left > 0
            && let Some(&(from, to, bytes)) = self.pieces.get(self.piece)
        {
            let n = left.min(bytes - self.at);
            go(from.wrapping_add(self.at), to.wrapping_add(self.at), n);
            left -= n;
            self.at += n;
            if self.at == bytes {
                (self.piece, self.at) = (self.piece + 1, 0);
            }
        }
    }
}

/// Asks for memory that will be read soon, into the second cache: the first has to hold the registers of this tile.
#[inline]
fn prefetch(at: *const u8, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    for i in (0..bytes).step_by(64) {
        // SAFETY: a prefetch never faults, whatever the address.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T1>(at.wrapping_add(i).cast());
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (at, bytes);
}
