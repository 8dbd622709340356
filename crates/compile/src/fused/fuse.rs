//! Fusion: decides which loops share a kernel.
//!
//! Loops are taken in program order. A loop joins the kernel of a producer if it reads every value of that kernel at the place
//! it was written (vertical), or a kernel of the same domain that reads the same memory (horizontal), provided that nothing
//! outside lies between the two in dependency order. Writes in place are dependencies like reads: a kernel may read what it
//! overwrites only place by place. Calls are kernels of their own; those with effects keep their order.
//!
//! Guarantees: the kernels come out in an order that respects every dependency, and each holds its loops in program order.

use super::ir::*;
use firebrand_core::Layout;
use firebrand_core::layout::Dims;
use firebrand_kernels::is_contiguous;
use firebrand_kernels::pointwise::Sink;
use std::collections::HashMap;
use tracing::debug;

/// Loops of one kernel, at most.
const LOOPS: usize = 64;
/// Buffers one kernel reads, at most: more streams than a core follows at once.
const READS: usize = 24;
/// The same where streams are short: starting a kernel takes longer than reading them.
const SHORT_READS: usize = 64;
/// Elements of a short stream, at most.
const SHORT: usize = 1024;
/// Kernels joined sideways, at most.
const SIDEWAYS: usize = 16;
/// The longest row a kernel keeps in cache.
pub(super) const LONGEST_ROW: usize = 8192;

/// How many buffers a kernel of this domain may read.
fn most_reads(domain: &[usize]) -> usize {
    if domain.iter().product::<usize>() <= SHORT { SHORT_READS } else { READS }
}

/// Items that run together: one call, or loops of one domain.
#[derive(Clone, Debug)]
pub(crate) struct Kernel {
    /// Items in program order.
    pub(crate) items: Vec<usize>,
    /// The domain of its loops.
    pub(crate) domain: Dims,
    /// Elements of a row, if some loop cares; else 1.
    pub(crate) row: usize,
}

/// Groups the items of a graph. Loops are rewritten to the domain of their kernel.
pub(super) fn fuse(lowered: &mut Lowered) -> Vec<Kernel> {
    drop_unused(lowered);
    let n = lowered.items.len();
    let edges = dependencies(lowered);
    let mut f =
        Fuser { lowered, of: vec![usize::MAX; n], kernels: Vec::new(), before: Vec::new(), words: n.div_ceil(64) };
    for (i, needs) in edges.iter().enumerate() {
        f.place(i, needs, &edges);
    }
    let order = f.order(&edges);
    let mut kernels: Vec<Option<Kernel>> = f.kernels;
    order.into_iter().filter_map(|k| kernels[k].take()).collect()
}

/// That an item comes after another, and whether it may share its kernel.
#[derive(Clone, Copy)]
struct Edge {
    from: usize,
    /// What is read is what was written at the same place.
    local: bool,
}

/// Drops loops and calls without effect whose results nothing reads.
fn drop_unused(lowered: &mut Lowered) {
    let mut used = vec![false; lowered.buffers.len()];
    let mut used_late = vec![false; lowered.late];
    for output in &lowered.outputs {
        match output {
            Output::Tensor(l) => used[l.buffer] = true,
            Output::Late(k) => used_late[*k] = true,
            Output::Known(_) => {}
        }
    }
    for (b, buffer) in lowered.buffers.iter().enumerate() {
        used[b] |= !matches!(buffer.origin, Origin::Made);
    }
    let mut keep = vec![false; lowered.items.len()];
    for (i, item) in lowered.items.iter().enumerate().rev() {
        let mut wanted = matches!(&item.work, Work::Opaque(o) if o.effect);
        item.each_write(&mut |b| wanted |= used[b]);
        if let Work::Opaque(o) = &item.work {
            o.taken.each_late(&mut |k| wanted |= used_late[k]);
        }
        if wanted {
            keep[i] = true;
            item.each_read(&mut |l| used[l.buffer] = true);
            if let Work::Opaque(o) = &item.work {
                o.args
                    .iter()
                    .chain(o.kwargs.iter().map(|(_, a)| a))
                    .for_each(|a| a.each_late(&mut |k| used_late[k] = true));
            }
        }
    }
    let mut keep = keep.into_iter();
    lowered.items.retain(|_| keep.next().unwrap_or(true));
    for item in &mut lowered.items {
        if let Work::Loop(l) = &mut item.work {
            l.stores.retain(|s| used[s.load.buffer]);
        }
    }
}

/// What each item has to wait for.
fn dependencies(lowered: &Lowered) -> Vec<Vec<Edge>> {
    let mut edges: Vec<Vec<Edge>> = vec![Vec::new(); lowered.items.len()];
    let mut writer: Vec<Option<(usize, Sink)>> = vec![None; lowered.buffers.len()];
    let mut readers: Vec<Vec<(usize, bool)>> = vec![Vec::new(); lowered.buffers.len()];
    let mut late: HashMap<usize, usize> = HashMap::new();
    let mut effect: Option<usize> = None;
    let mut barrier: Option<usize> = None;
    for (i, item) in lowered.items.iter().enumerate() {
        let needs = &mut edges[i];
        needs.extend(barrier.map(|from| Edge { from, local: false }));
        if matches!(&item.work, Work::Opaque(o) if o.barrier) {
            needs.extend((barrier.map_or(0, |b| b + 1)..i).map(|from| Edge { from, local: false }));
            barrier = Some(i);
        }
        let is_loop = matches!(item.work, Work::Loop(_));
        item.each_read(&mut |l| {
            let buffer = &lowered.buffers[l.buffer];
            let whole = is_loop && buffer.is_whole(&l.layout);
            if let Some((from, sink)) = writer[l.buffer] {
                let local = match sink {
                    Sink::Elements => whole,
                    Sink::Rows => is_loop && repeats_rows(&buffer.layout, &l.layout),
                    Sink::Columns(_) | Sink::Total(_) => false,
                };
                needs.push(Edge { from, local });
            }
            readers[l.buffer].push((i, whole));
        });
        if let Work::Opaque(o) = &item.work {
            for a in o.args.iter().chain(o.kwargs.iter().map(|(_, a)| a)) {
                a.each_late(&mut |k| needs.extend(late.get(&k).map(|&from| Edge { from, local: false })));
            }
            o.taken.each_late(&mut |k| {
                late.insert(k, i);
            });
            if o.effect {
                needs.extend(effect.map(|from| Edge { from, local: false }));
                effect = Some(i);
            }
        }
        item.each_write(&mut |b| {
            // Readers of the old content come first, or read place by place in the same kernel.
            for &(from, whole) in readers[b].iter().filter(|(r, _)| *r != i) {
                needs.push(Edge { from, local: whole && is_loop });
            }
            if let Some((from, _)) = writer[b] {
                needs.push(Edge { from, local: is_loop });
            }
            readers[b].retain(|(r, _)| *r == i);
        });
        if let Work::Loop(l) = &item.work {
            l.stores.iter().for_each(|s| writer[s.load.buffer] = Some((i, s.sink)));
        } else {
            item.each_write(&mut |b| writer[b] = Some((i, Sink::Total(1.0))));
        }
    }
    edges
}

/// Whether the layout shows each element of a buffer along a row: the place where a value per row was written.
fn repeats_rows(buffer: &Layout, layout: &Layout) -> bool {
    if layout.offset() != 0 || !buffer.is_contiguous() {
        return false;
    }
    let split = layout.strides().iter().zip(layout.sizes()).rposition(|(&s, &n)| n != 1 && s != 0).map_or(0, |d| d + 1);
    let (sizes, strides) = (&layout.sizes()[..split], &layout.strides()[..split]);
    is_contiguous(sizes, strides) && sizes.iter().product::<usize>() == buffer.numel()
}

type Bits = Vec<u64>;

fn has(bits: &Bits, k: usize) -> bool {
    bits[k / 64] & 1 << (k % 64) != 0
}

struct Fuser<'a> {
    lowered: &'a mut Lowered,
    /// The kernel of each item placed so far.
    of: Vec<usize>,
    kernels: Vec<Option<Kernel>>,
    /// For each kernel, all kernels that must run before it.
    before: Vec<Bits>,
    words: usize,
}

impl Fuser<'_> {
    fn place(&mut self, i: usize, needs: &[Edge], edges: &[Vec<Edge>]) {
        let target = if let Work::Loop(_) = self.lowered.items[i].work { self.target(i, needs) } else { None };
        let k = match target {
            Some(k) => k,
            None => {
                let (domain, row) = match &self.lowered.items[i].work {
                    Work::Loop(l) => (l.domain.clone(), l.row),
                    Work::Opaque(_) => (Dims::new(), 1),
                };
                self.kernels.push(Some(Kernel { items: Vec::new(), domain, row }));
                self.before.push(vec![0; self.words]);
                self.kernels.len() - 1
            }
        };
        self.of[i] = k;
        if let Some(kernel) = &mut self.kernels[k] {
            kernel.items.push(i);
        }
        // Everything behind this kernel now also waits for what the item waits for.
        let mut more: Bits = vec![0; self.words];
        for e in needs {
            let from = self.of[e.from];
            if from != k {
                more[from / 64] |= 1 << (from % 64);
                more.iter_mut().zip(&self.before[from]).for_each(|(m, b)| *m |= b);
            }
        }
        // A new kernel is the last one: nothing waits for it yet.
        let behind = if target.is_none() { k..k + 1 } else { 0..self.before.len() };
        for j in behind {
            if j == k || has(&self.before[j], k) {
                self.before[j].iter_mut().zip(&more).for_each(|(b, m)| *b |= m);
            }
        }
        // Other producers of the loop may now share its kernel.
        let mut above: Vec<usize> =
            needs.iter().filter(|e| e.local).map(|e| self.of[e.from]).filter(|&m| m != k).collect();
        above.sort_unstable();
        above.dedup();
        for m in above {
            if let Err(why) = self.merge(k, m, edges) {
                debug!(target: "firebrand::fusion", kernel = k, producer = m, why, "kernels not merged");
            }
        }
    }

    /// Takes the loops of kernel `m` into kernel `k`, if nothing outside lies between the two.
    fn merge(&mut self, k: usize, m: usize, edges: &[Vec<Edge>]) -> Result<(), &'static str> {
        let (Some(into), Some(from)) = (&self.kernels[k], &self.kernels[m]) else { return Err("the kernel is gone") };
        if from.items.iter().chain(&into.items).any(|&j| matches!(self.lowered.items[j].work, Work::Opaque(_))) {
            return Err("the producer is a call");
        }
        if from.domain != into.domain {
            return Err("domains of different sizes");
        }
        let row = match (into.row, from.row) {
            (a, 1) | (1, a) => a,
            (a, b) if a == b => a,
            _ => return Err("rows of different lengths"),
        };
        let mut items: Vec<usize> = into.items.iter().chain(&from.items).copied().collect();
        items.sort_unstable();
        let mut reads: Vec<BufferId> = items.iter().flat_map(|&j| self.reads(j)).collect();
        reads.sort_unstable();
        reads.dedup();
        if items.len() > LOOPS || reads.len() > most_reads(&into.domain) {
            return Err("the kernel would be too large");
        }
        for &i in &items {
            for e in &edges[i] {
                let (of, other) = (self.of[e.from], if self.of[i] == k { m } else { k });
                if of == other && !e.local {
                    return Err("a value of the kernel is read elsewhere than where it was written");
                }
                if of != k && of != m && (has(&self.before[of], k) || has(&self.before[of], m)) {
                    return Err("something outside lies between");
                }
            }
        }
        if row > 1 && !self.keeps_rows(&items, row) {
            return Err("an operand is not laid out in rows");
        }
        items.iter().for_each(|&i| self.of[i] = k);
        self.kernels[m] = None;
        if let Some(kernel) = &mut self.kernels[k] {
            (kernel.items, kernel.row) = (items, row);
        }
        let mut more = self.before[k].clone();
        more.iter_mut().zip(&self.before[m]).for_each(|(a, b)| *a |= b);
        for gone in [k, m] {
            more[gone / 64] &= !(1 << (gone % 64));
        }
        self.before[k] = more.clone();
        more[k / 64] |= 1 << (k % 64);
        for j in (0..self.before.len()).filter(|&j| j != k && j != m) {
            if has(&self.before[j], k) || has(&self.before[j], m) {
                self.before[j].iter_mut().zip(&more).for_each(|(b, m)| *b |= m);
                self.before[j][m / 64] &= !(1 << (m % 64));
            }
        }
        Ok(())
    }

    /// The kernel that the loop joins.
    fn target(&mut self, i: usize, needs: &[Edge]) -> Option<usize> {
        // The latest producer first: its values are what is likely still in cache.
        let mut above: Vec<usize> = needs.iter().filter(|e| e.local).map(|e| self.of[e.from]).collect();
        above.sort_unstable_by(|a, b| b.cmp(a));
        above.dedup();
        for &k in &above {
            match self.joins(k, i, needs) {
                Ok(()) => return Some(k),
                Err(why) => {
                    debug!(target: "firebrand::fusion", node = %self.lowered.items[i].name, kernel = k, why, "not fused")
                }
            }
        }
        let reads = self.reads(i);
        let beside: Vec<usize> = (0..self.kernels.len()).rev().take(SIDEWAYS).filter(|k| !above.contains(k)).collect();
        for k in beside {
            let Some(kernel) = &self.kernels[k] else { continue };
            let shared = kernel.items.iter().any(|&j| self.reads(j).iter().any(|b| reads.contains(b)));
            if shared && self.joins(k, i, needs).is_ok() {
                return Some(k);
            }
        }
        None
    }

    fn reads(&self, i: usize) -> Vec<BufferId> {
        let mut reads = Vec::new();
        if let Work::Loop(l) = &self.lowered.items[i].work {
            reads.extend(l.loads().map(|l| l.buffer));
        }
        reads
    }

    /// Whether the loop may join the kernel; if so it has the kernel's domain afterwards.
    fn joins(&mut self, k: usize, i: usize, needs: &[Edge]) -> Result<(), &'static str> {
        let Some(kernel) = &self.kernels[k] else { return Err("the kernel is gone") };
        let Work::Loop(l) = &self.lowered.items[i].work else { return Err("a call") };
        if kernel.items.iter().any(|&j| matches!(self.lowered.items[j].work, Work::Opaque(_))) {
            return Err("the producer is a call");
        }
        if kernel.items.len() >= LOOPS {
            return Err("the kernel is full");
        }
        for e in needs {
            let from = self.of[e.from];
            if from == k && !e.local {
                return Err("a value of the kernel is read elsewhere than where it was written");
            }
            if from != k && has(&self.before[from], k) {
                return Err("something outside lies between");
            }
        }
        let mut reads: Vec<BufferId> = kernel.items.iter().flat_map(|&j| self.reads(j)).chain(self.reads(i)).collect();
        reads.sort_unstable();
        reads.dedup();
        if reads.len() > most_reads(&kernel.domain) {
            return Err("the kernel would read too many buffers");
        }
        let row = match (kernel.row, l.row) {
            (a, 1) | (1, a) => a,
            (a, b) if a == b => a,
            _ => return Err("rows of different lengths"),
        };
        let (domain, own) = (kernel.domain.clone(), l.domain.clone());
        let items = kernel.items.clone();
        if row > 1 && !self.keeps_rows(&[&items[..], &[i]].concat(), row) {
            return Err("an operand is not laid out in rows");
        }
        if domain == own {
            self.set(k, domain, row);
            return Ok(());
        }
        if domain.iter().product::<usize>() != own.iter().product::<usize>() {
            return Err("domains of different sizes");
        }
        // The same elements in the same order under other sizes: one of the two is rewritten.
        if let Some(rewritten) = self.reshaped(i, &domain) {
            self.lowered.items[i].work = Work::Loop(rewritten);
            self.set(k, domain, row);
            return Ok(());
        }
        let rewritten: Option<Vec<Loop>> = items.iter().map(|&j| self.reshaped(j, &own)).collect();
        let rewritten = rewritten.ok_or("an operand cannot be seen with the sizes of the kernel")?;
        for (&j, l) in items.iter().zip(rewritten) {
            self.lowered.items[j].work = Work::Loop(l);
        }
        self.set(k, own, row);
        Ok(())
    }

    fn set(&mut self, k: usize, domain: Dims, row: usize) {
        if let Some(kernel) = &mut self.kernels[k] {
            (kernel.domain, kernel.row) = (domain, row);
        }
    }

    /// Whether every operand lies along rows without gaps, or is one number there.
    fn keeps_rows(&self, items: &[usize], row: usize) -> bool {
        row <= LONGEST_ROW
            && items.iter().all(|&j| match &self.lowered.items[j].work {
                Work::Loop(l) => {
                    let whole = l.stores.iter().filter(|s| s.sink == Sink::Elements).map(|s| &s.load.layout);
                    l.loads().map(|l| &l.layout).chain(whole).all(|l| by_rows(l, row).is_some())
                }
                Work::Opaque(_) => false,
            })
    }

    fn reshaped(&self, i: usize, domain: &[usize]) -> Option<Loop> {
        let Work::Loop(l) = &self.lowered.items[i].work else { return None };
        if l.row > 1 && !ends_in_rows(domain, l.row) {
            return None;
        }
        let mut l = l.clone();
        let seen = |layout: &Layout| Layout::strided(domain, &layout.view_strides(domain)?, layout.offset()).ok();
        for operand in &mut l.operands {
            if let Operand::Load(load) = operand {
                load.layout = seen(&load.layout)?;
            }
        }
        for store in l.stores.iter_mut().filter(|s| s.sink == Sink::Elements) {
            store.load.layout = seen(&store.load.layout)?;
        }
        l.domain = domain.into();
        Some(l)
    }

    /// Kernels in an order that respects dependencies, otherwise by their last item.
    fn order(&self, edges: &[Vec<Edge>]) -> Vec<usize> {
        let n = self.kernels.len();
        let mut waits: Vec<std::collections::BTreeSet<usize>> = vec![Default::default(); n];
        for (i, needs) in edges.iter().enumerate() {
            for e in needs {
                if self.of[e.from] != self.of[i] {
                    waits[self.of[i]].insert(self.of[e.from]);
                }
            }
        }
        let key = |k: usize| self.kernels[k].as_ref().and_then(|k| k.items.last().copied()).unwrap_or(0);
        let mut behind: Vec<Vec<usize>> = vec![Vec::new(); n];
        let mut open: Vec<usize> = vec![0; n];
        for k in 0..n {
            open[k] = waits[k].len();
            waits[k].iter().for_each(|&w| behind[w].push(k));
        }
        let mut ready: std::collections::BTreeSet<(usize, usize)> =
            (0..n).filter(|&k| open[k] == 0).map(|k| (key(k), k)).collect();
        let mut order = Vec::with_capacity(n);
        while let Some((_, k)) = ready.pop_first() {
            order.push(k);
            for &b in &behind[k] {
                open[b] -= 1;
                if open[b] == 0 {
                    ready.insert((key(b), b));
                }
            }
        }
        debug_assert_eq!(order.len(), n, "kernels depend on each other in a circle");
        order
    }
}

/// Whether some trailing dimensions make up a row.
pub(super) fn ends_in_rows(domain: &[usize], row: usize) -> bool {
    let mut n = 1;
    for &size in domain.iter().rev() {
        if n == row {
            return true;
        }
        n *= size;
    }
    n == row
}
