//! A plan: the steps of one graph for inputs of one geometry, and the memory allocated and freed between them.
//!
//! A buffer is allocated by the step that writes it and let go after its last reader, so memory is what lives at once; the
//! caching allocator hands the same blocks out again at the next call. A kernel writes over an operand that dies with it if
//! it reads that operand place by place and nothing else holds it. The caller's tensors are written only where the graph says
//! so, or if the caller gave them away.

use super::emit::{Emitted, emit};
use super::fuse::{Kernel, fuse};
use super::ir::*;
use super::lower::{Given, lower};
use super::{FusedOptions, PlanStats};
use crate::error::Result;
use firebrand_core::{Device, Layout, Spec};
use firebrand_graph::ir::GraphModule;
use firebrand_kernels::pointwise::Sink;
use tracing::debug;

/// Bytes from which a dying operand's memory is taken over: below, cache does better without the detour.
const TAKE_OVER: usize = 1 << 20;

/// One step of a plan.
#[derive(Debug)]
pub(crate) enum Step {
    Kernel {
        emitted: Emitted,
        /// Memory that comes into being.
        made: Vec<Made>,
        names: String,
    },
    Call(Opaque),
}

/// A buffer that a kernel brings into being.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) buffer: BufferId,
    pub(crate) spec: Spec,
    /// The buffer whose memory it takes over, if the plan's run alone holds that.
    pub(crate) from: Option<BufferId>,
}

/// Everything one call does.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) given: Vec<Given>,
    /// A step, and the buffers that nothing reads after it.
    pub(crate) steps: Vec<(Step, Vec<BufferId>)>,
    pub(crate) buffers: Vec<Buffer>,
    pub(crate) outputs: Vec<Output>,
    /// For each result, whether it is made here and no other result shows it.
    pub(crate) own: Vec<bool>,
    /// Results that are final before the last step: the step after which nothing reads or writes them, and their place.
    pub(crate) early: Vec<(usize, usize)>,
    pub(crate) late: usize,
    pub(crate) late_inputs: Vec<(usize, usize)>,
    pub(crate) stats: PlanStats,
}

/// Makes the plan of a graph for inputs of this kind.
pub(super) fn plan(module: &GraphModule, given: &[Given], options: &FusedOptions) -> Result<Plan> {
    let mut lowered = lower(module, given, options)?;
    let kernels = fuse(&mut lowered);
    Ok(Planner::new(&lowered, &kernels).plan(given, options))
}

struct Planner<'a> {
    lowered: &'a Lowered,
    kernels: &'a [Kernel],
    /// For each buffer, the first kernel that writes it, if any does.
    first: Vec<usize>,
    /// For each buffer, the last kernel that has to do with it; outputs live on.
    last: Vec<usize>,
    /// Outputs that one result alone shows, made here: the last kernel that has to do with each, and its place.
    early: Vec<(usize, usize)>,
    /// Whether a kernel other than the one that writes it reads it, or the caller.
    visible: Vec<bool>,
    /// Buffers that foreign code may hold.
    pinned: Vec<bool>,
}

impl<'a> Planner<'a> {
    fn new(lowered: &'a Lowered, kernels: &'a [Kernel]) -> Planner<'a> {
        let n = lowered.buffers.len();
        let (mut last, mut visible, mut pinned) = (vec![0; n], vec![false; n], vec![false; n]);
        let (mut first, mut writer) = (vec![usize::MAX; n], vec![usize::MAX; n]);
        for (k, kernel) in kernels.iter().enumerate() {
            for &i in &kernel.items {
                let item = &lowered.items[i];
                item.each_read(&mut |l| {
                    last[l.buffer] = k;
                    visible[l.buffer] |= writer[l.buffer] != k;
                });
                item.each_write(&mut |b| {
                    first[b] = first[b].min(k);
                    last[b] = k;
                    writer[b] = k;
                });
                if let Work::Opaque(o) = &item.work
                    && o.op.is_none()
                {
                    item.each_read(&mut |l| pinned[l.buffer] = true);
                    item.each_write(&mut |b| pinned[b] = true);
                }
            }
        }
        let mut shown = vec![0; n];
        lowered.outputs.iter().for_each(|o| {
            if let Output::Tensor(l) = o {
                shown[l.buffer] += 1
            }
        });
        let alone = |(place, output): (usize, &Output)| match output {
            Output::Tensor(l) if shown[l.buffer] == 1 && matches!(lowered.buffers[l.buffer].origin, Origin::Made) => {
                Some((last[l.buffer], place))
            }
            _ => None,
        };
        let mut early: Vec<(usize, usize)> = lowered.outputs.iter().enumerate().filter_map(alone).collect();
        early.sort_unstable();
        for output in &lowered.outputs {
            if let Output::Tensor(l) = output {
                last[l.buffer] = usize::MAX;
                visible[l.buffer] = true;
            }
        }
        for (b, buffer) in lowered.buffers.iter().enumerate() {
            visible[b] |= !matches!(buffer.origin, Origin::Made);
            pinned[b] |= matches!(buffer.origin, Origin::Constant(_));
        }
        Planner { lowered, kernels, first, last, early, visible, pinned }
    }

    fn plan(self, given: &[Given], options: &FusedOptions) -> Plan {
        let mut stats = PlanStats { nodes: self.lowered.nodes, ..PlanStats::default() };
        let mut steps = Vec::with_capacity(self.kernels.len());
        let mut dead: Vec<Vec<BufferId>> = vec![Vec::new(); self.kernels.len()];
        for (b, &k) in self.last.iter().enumerate() {
            if let Some(list) = dead.get_mut(k) {
                list.push(b);
            }
        }
        for (k, kernel) in self.kernels.iter().enumerate() {
            let first = &self.lowered.items[kernel.items[0]];
            let step = match &first.work {
                Work::Opaque(o) => {
                    stats.calls += 1;
                    Step::Call(o.clone())
                }
                Work::Loop(_) => {
                    stats.kernels += 1;
                    stats.fused_nodes += kernel.items.len();
                    self.kernel(k, kernel, options, &mut stats)
                }
            };
            if let Step::Kernel { names, emitted, .. } = &step {
                debug!(target: "firebrand::fusion", kernel = k, %names, instructions = emitted.program.len(), "kernel");
            }
            steps.push((step, std::mem::take(&mut dead[k])));
        }
        debug!(target: "firebrand::fusion", nodes = stats.nodes, kernels = stats.kernels, calls = stats.calls, "plan");
        let l = self.lowered;
        let mut own = vec![false; l.outputs.len()];
        self.early.iter().for_each(|(_, place)| own[*place] = true);
        Plan {
            given: given.to_vec(),
            steps,
            buffers: l.buffers.clone(),
            outputs: l.outputs.clone(),
            own,
            early: self.early,
            late: l.late,
            late_inputs: l.late_inputs.clone(),
            stats,
        }
    }

    fn kernel(&self, k: usize, kernel: &Kernel, options: &FusedOptions, stats: &mut PlanStats) -> Step {
        let buffers = &self.lowered.buffers;
        let mut emitted = emit(self.lowered, kernel, &|b| self.visible[b], options.bitwise);
        if emitted.inputs.is_empty() && !self.writes_elements(kernel) {
            // A sum of known numbers: the executor learns only from memory how many there are.
            emitted = emit(self.lowered, kernel, &|_| true, options.bitwise);
        }
        let mut taken: Vec<BufferId> = Vec::new();
        let mut made = Vec::new();
        for out in &emitted.outputs {
            let b = &buffers[out.buffer];
            if !matches!(b.origin, Origin::Made) || self.writes_again(k, out.buffer) {
                continue;
            }
            let from = self.dying(k, kernel, &emitted, out.buffer, &taken);
            taken.extend(from);
            stats.taken_over += usize::from(from.is_some());
            let spec = Spec { layout: b.layout.clone(), dtype: b.dtype, device: Device::Cpu };
            made.push(Made { buffer: out.buffer, spec, from });
        }
        let names: Vec<&str> = kernel.items.iter().map(|&i| &*self.lowered.items[i].name).collect();
        Step::Kernel { emitted, made, names: names.join(", ") }
    }

    /// Whether some result of a kernel that others see has an element for each place of its domain.
    fn writes_elements(&self, kernel: &Kernel) -> bool {
        kernel.items.iter().any(|&i| match &self.lowered.items[i].work {
            Work::Loop(l) => l.stores.iter().any(|s| s.sink == Sink::Elements && self.visible[s.load.buffer]),
            Work::Opaque(_) => false,
        })
    }

    /// Whether an earlier kernel made the buffer, so that this one writes into it.
    fn writes_again(&self, k: usize, b: BufferId) -> bool {
        self.first[b] < k
    }

    /// A buffer of the same kind that this kernel is the last to read, place by place.
    fn dying(
        &self,
        k: usize,
        kernel: &Kernel,
        emitted: &Emitted,
        out: BufferId,
        taken: &[BufferId],
    ) -> Option<BufferId> {
        let buffers = &self.lowered.buffers;
        let target = &buffers[out];
        let bytes = target.layout.numel() * target.dtype.size();
        let stored = emitted.outputs.iter().find(|o| o.buffer == out)?;
        let whole = kernel.items.iter().any(|&i| match &self.lowered.items[i].work {
            Work::Loop(l) => l.stores.iter().any(|s| s.load.buffer == out && s.sink == Sink::Elements),
            Work::Opaque(_) => false,
        });
        if bytes < TAKE_OVER || !whole {
            return None;
        }
        let fits = |l: &Load| {
            let b = &buffers[l.buffer];
            self.last[l.buffer] == k
                && !self.pinned[l.buffer]
                && !taken.contains(&l.buffer)
                && b.dtype == target.dtype
                && same_places(&l.layout, &stored.layout)
                && b.layout.same_geometry(&target.layout)
                && emitted.inputs.iter().filter(|o| o.buffer == l.buffer).count() == 1
        };
        emitted.inputs.iter().find(|l| fits(l)).map(|l| l.buffer)
    }
}

fn same_places(a: &Layout, b: &Layout) -> bool {
    a.offset() == b.offset() && a.same_geometry(b)
}
