//! Batch norm in training as statistics and loops, so that its affine map shares a kernel with what follows: a sum, a relu.
//!
//! The statistics come from the kernel that the op itself uses; what the op makes of them is done by loops over channels,
//! in double precision as there. So every result is the op's own, to the bit.

use super::ir::*;
use super::lower::{Known, Lowering, OpCall, Placed, instr};
use firebrand_core::dispatch::Value as Boxed;
use firebrand_core::layout::Dims;
use firebrand_core::{DType, Layout};
use firebrand_graph::interpret::Value;
use firebrand_graph::ir::{NodeId, OpOverload};
use firebrand_kernels::pointwise::{Op, Sink, Source, Value as Number};

/// Elements of a plane from which the map is a loop: in smaller ones the numbers of a channel change within a tile.
const SMALLEST_PLANE: usize = 1024;

fn number(v: f64) -> Source {
    Source::Value(Number::Float(v))
}

/// A loop over channels, computed in f64.
struct Channels {
    dtype: DType,
    operands: Vec<Operand>,
    code: Vec<Instr>,
    stores: Vec<Store>,
}

impl Channels {
    fn new(dtype: DType) -> Channels {
        Channels { dtype, operands: Vec::new(), code: Vec::new(), stores: Vec::new() }
    }

    fn push(&mut self, action: Action, dtype: DType, args: &[Source]) -> Source {
        self.code.push(instr(action, dtype, args));
        Source::Step(self.code.len() - 1)
    }

    fn op(&mut self, op: Op, args: &[Source]) -> Source {
        self.push(Action::Op(op), DType::F64, args)
    }

    fn read(&mut self, operand: Operand) -> Source {
        self.operands.push(operand);
        Source::Memory(self.operands.len() - 1)
    }

    /// An operand in f64.
    fn widened(&mut self, operand: Operand) -> Source {
        let v = self.read(operand);
        if self.dtype == DType::F64 { v } else { self.push(Action::Cast(DType::F64), self.dtype, &[v]) }
    }

    fn narrowed(&mut self, v: Source) -> Source {
        if self.dtype == DType::F64 { v } else { self.push(Action::Cast(self.dtype), DType::F64, &[v]) }
    }

    fn store(&mut self, source: Source, to: &Load) {
        self.stores.push(Store { source, load: to.clone(), sink: Sink::Elements });
    }

    fn finish(self, channels: usize) -> Work {
        let domain = Dims::from_slice(&[channels]);
        Work::Loop(Loop { domain, row: 1, operands: self.operands, code: self.code, stores: self.stores })
    }
}

/// An operand with one element a channel, along the second dimension of a domain.
fn along_channels(operand: Operand, domain: &[usize]) -> Operand {
    match operand {
        Operand::Load(Load { buffer, layout }) => {
            let strides: Dims = (0..domain.len()).map(|d| if d == 1 { layout.strides()[0] } else { 0 }).collect();
            let layout = Layout::strided(domain, &strides, layout.offset());
            Operand::Load(Load { buffer, layout: layout.expect("a domain is the shape of a tensor") })
        }
        known => known,
    }
}

impl Lowering<'_> {
    /// `native_batch_norm` in training, of floats of one type; none for what stays a call.
    pub(super) fn batch_norm(&mut self, n: NodeId, call: &OpCall<'_>) -> Option<Known> {
        let (x, [y, stats, _]) = (call.tensor(0)?, call.results) else { return None };
        let [Boxed::Bool(true), Boxed::Float(momentum), Boxed::Float(eps)] = call.boxed.get(5..8)? else { return None };
        let (dtype, domain) = (x.meta.dtype(), x.meta.shape());
        let channels = *domain.get(1).filter(|&&c| c > 0)?;
        let (count, plane) = (x.meta.numel() / channels, domain[2..].iter().product::<usize>());
        let float = matches!(dtype, DType::F32 | DType::F64) && call.tensors.iter().all(|t| t.meta.dtype() == dtype);
        let running = [call.tensor(3), call.tensor(4)];
        // What is written is a whole buffer that the call does not read under another name.
        let apart = |r: &Placed| {
            self.out.buffers[r.load.buffer].is_whole(&r.load.layout)
                && call.tensors.iter().filter(|t| t.load.buffer == r.load.buffer).count() == 1
        };
        if self.options.bitwise
            || !float
            || plane < SMALLEST_PLANE
            || count < 2
            || !running.iter().flatten().all(|r| apart(r))
        {
            return None;
        }
        let Operand::Load(input) = self.operand(x, domain)? else { return None };
        let per_channel = |l: &Self, t: Option<&Placed>| t.map_or(Some(None), |t| l.operand(t, &[channels]).map(Some));
        let (weight, bias) = (per_channel(self, call.tensor(1))?, per_channel(self, call.tensor(2))?);
        let old = [per_channel(self, running[0])?, per_channel(self, running[1])?];

        let name = self.module.graph[n].name().clone();
        let [result, mean, invstd, var] = [y, stats, stats, stats].map(|t| self.made(t));
        self.out.items.push(Item { name: name.clone(), work: Work::Opaque(statistics(n, &input, &var, &mean)) });

        let mut inverse = Channels::new(dtype);
        let v = inverse.widened(Operand::Load(var.load.clone()));
        let shifted = inverse.op(Op::Add, &[v, number(*eps)]);
        let root = inverse.op(Op::Sqrt, &[shifted]);
        let over = inverse.op(Op::Div, &[number(1.0), root]);
        let over = inverse.narrowed(over);
        inverse.store(over, &invstd.load);
        let scale = match weight {
            None => invstd.load.clone(),
            Some(weight) => {
                let (scale, w) = (self.made(stats).load, inverse.read(weight));
                let scaled = inverse.push(Action::Op(Op::Mul), dtype, &[over, w]);
                inverse.store(scaled, &scale);
                scale
            }
        };
        self.out.items.push(Item { name: name.clone(), work: inverse.finish(channels) });

        let unbiased = count as f64 / (count as f64 - 1.0);
        for (k, (old, new, factor)) in
            old.into_iter().zip([(&mean, 1.0), (&var, unbiased)]).map(|(o, (n, f))| (o, n, f)).enumerate()
        {
            let (Some(old), Some(target)) = (old, running[k]) else { continue };
            let mut moved = Channels::new(dtype);
            let (old, new) = (moved.widened(old), moved.widened(Operand::Load(new.load.clone())));
            let kept = moved.op(Op::Mul, &[number(1.0 - momentum), old]);
            let new = moved.op(Op::Mul, &[new, number(factor)]);
            let new = moved.op(Op::Mul, &[number(*momentum), new]);
            let sum = moved.op(Op::Add, &[kept, new]);
            let sum = moved.narrowed(sum);
            moved.store(sum, &target.load);
            self.numbers.remove(&target.load.buffer);
            self.out.items.push(Item { name: name.clone(), work: moved.finish(channels) });
        }

        let [mean_at, scale_at] = [&mean.load, &scale].map(|l| along_channels(Operand::Load(l.clone()), domain));
        let mut operands = vec![Operand::Load(input), mean_at, scale_at];
        let shift = bias.map_or(number(0.0), |b| {
            operands.push(along_channels(b, domain));
            Source::Memory(3)
        });
        let code = vec![
            instr(Action::Op(Op::Sub), dtype, &[Source::Memory(0), Source::Memory(1)]),
            instr(Action::Op(Op::MulAdd), dtype, &[Source::Step(0), Source::Memory(2), shift]),
        ];
        let stores = vec![Store { source: Source::Step(1), load: result.load.clone(), sink: Sink::Elements }];
        let map = Loop { domain: domain.into(), row: 1, operands, code, stores };
        self.out.items.push(Item { name, work: Work::Loop(map) });
        Some(Known::List([result, mean, invstd].map(Known::Tensor).into()))
    }
}

/// The call that takes biased variance and mean over all dimensions but the second.
fn statistics(node: NodeId, input: &Load, var: &Placed, mean: &Placed) -> Opaque {
    let int = |v: usize| Arg::Known(Value::Scalar((v as i64).into()));
    let dims = (0..input.layout.ndim()).filter(|&d| d != 1).map(int).collect();
    Opaque {
        node,
        op: Some(OpOverload::new("aten::var_mean.correction")),
        sides: None,
        args: vec![Arg::Tensor(input.clone()), Arg::List(dims)],
        kwargs: vec![("correction".into(), int(0))],
        taken: Taken::List(vec![Taken::Buffer(var.load.buffer), Taken::Buffer(mean.load.buffer)]),
        writes: Vec::new(),
        effect: false,
        barrier: false,
    }
}
