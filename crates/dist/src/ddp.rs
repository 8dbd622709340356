//! Data parallelism: every rank trains a replica on its share of the data, and gradients are averaged while the backward pass
//! still runs.
//!
//! Parameters are grouped in buckets. A gradient that arrives is copied into its bucket; a full bucket is sent immediately, in the
//! order of the buckets, which is the same on all ranks. When the pass ends, `.grad` of each parameter is a view of its
//! bucket. At the first arrival the engine is asked which parameters the pass does not reach, so nothing waits for them.
//!
//! - *Guarantee:* after a backward pass all ranks hold the same bits in every `.grad`, and rank 0's buffers.
//! - *Guarantee:* a parameter that no rank used keeps the gradient it had; nothing is filled with zeros.
//! - *Errors that name the parameter:* gradients with history (`create_graph`), and parameters that arrive twice in a pass or that the engine
//!   did not announce, as with reentrant checkpoints.

use crate::collectives::Collectives;
use crate::comm_hook::{self, CommHook, GradBucket};
use crate::reduce::{all_reduce, all_reduce_rounded, padded};
use crate::shards::Partial;
use crate::sync::{Mutex, MutexGuard};
use crate::world::{Pending, World};
use crate::{Error, Result};
use firebrand_core::autograd::{RemovableHandle, get_gradient_edge, no_grad, queue_callback, will_engine_execute_node};
use firebrand_core::module::Module;
use firebrand_core::{DType, Scalar, Tensor, ops};
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};

/// How gradients are communicated.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DdpOptions {
    /// Size of a bucket in bytes. Larger ones have less overhead, smaller ones start earlier. `None`: 1 MiB, and 4 MiB on 16 ranks
    /// or more, where the number of messages begins to count.
    pub bucket_bytes: Option<usize>,
    /// Size in bytes of the first bucket, and the largest size of the last: smaller, so that communication starts early and ends soon
    /// after the backward pass.
    pub first_bucket_bytes: usize,
    /// Divide the sum by the number of ranks. Turn it off if losses are already scaled by each rank's share.
    pub average: bool,
    /// Overwrite buffers with rank 0's after each pass.
    pub broadcast_buffers: bool,
    /// Round wider gradients to this half-precision dtype before they are sent: half the bytes of f32, with two to three significant digits.
    /// Every shard's gradient and every sum of two is rounded, so results still depend on the number of shards alone.
    pub wire: Option<DType>,
}

impl Default for DdpOptions {
    fn default() -> Self {
        DdpOptions {
            bucket_bytes: None,
            first_bucket_bytes: 1 << 20,
            average: true,
            broadcast_buffers: true,
            wire: None,
        }
    }
}

impl DdpOptions {
    /// Size of a bucket in bytes.
    pub fn bucket_bytes(mut self, bytes: usize) -> Self {
        self.bucket_bytes = Some(bytes);
        self
    }

    /// Size of a bucket in bytes on this many ranks.
    pub fn bucket_bytes_on(&self, ranks: usize) -> usize {
        self.bucket_bytes.unwrap_or(if ranks < 16 { 1 << 20 } else { 4 << 20 })
    }

    /// Size in bytes of the first bucket, and the largest size of the last.
    pub fn first_bucket_bytes(mut self, bytes: usize) -> Self {
        self.first_bucket_bytes = bytes;
        self
    }

    /// Whether the sum is divided by the number of ranks.
    pub fn average(mut self, average: bool) -> Self {
        self.average = average;
        self
    }

    /// Whether buffers are overwritten with rank 0's after each pass.
    pub fn broadcast_buffers(mut self, on: bool) -> Self {
        self.broadcast_buffers = on;
        self
    }

    /// The half-precision dtype in which gradients are sent; `None` sends them unchanged.
    pub fn wire(mut self, dtype: impl Into<Option<DType>>) -> Self {
        self.wire = dtype.into();
        self
    }
}

/// Keeps the replicas of a module equal while it exists. Use the module as usual: `loss.backward()` averages gradients
/// over all ranks.
///
/// ```
/// use firebrand_core::module::{Forward, Module, ModuleCore, Parameter};
/// use firebrand_core::{DType, Result, Tensor};
/// use firebrand_dist::{DdpOptions, DistributedDataParallel, World};
///
/// #[derive(Module)]
/// struct Scale {
///     weight: Parameter,
///     core: ModuleCore,
/// }
///
/// impl Forward for Scale {
///     type Output = Tensor;
///     fn forward(&self, x: &Tensor) -> Result<Tensor> {
///         Ok(x * &*self.weight)
///     }
/// }
///
/// let world = World::from_env()?;
/// let model = Scale { weight: Parameter::new(Tensor::ones([2], DType::F32)), core: ModuleCore::new() };
/// let ddp = DistributedDataParallel::new(&model, &world, DdpOptions::default())?;
/// model.call(&Tensor::new(&[1.0f32, 2.0])).sum().backward();
/// assert_eq!(model.weight.grad().expect("averaged over all ranks").to_vec::<f32>(), [1.0, 2.0]);
/// # drop(ddp);
/// # Ok::<(), firebrand_dist::Error>(())
/// ```
pub struct DistributedDataParallel {
    replica: Arc<Replica>,
    _hooks: Vec<Hook>,
}

impl std::fmt::Debug for DistributedDataParallel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DistributedDataParallel({} parameters, {:?})", self.replica.parameters.len(), self.replica.world)
    }
}

/// A hook that goes with its owner.
struct Hook {
    handle: RemovableHandle,
    parameter: Tensor,
}

impl Drop for Hook {
    fn drop(&mut self) {
        self.handle.remove();
        self.parameter.set_takes_early_grad(false);
    }
}

pub(crate) struct Replica {
    world: World,
    options: DdpOptions,
    parameters: Vec<(String, Tensor)>,
    buffers: Vec<Tensor>,
    synchronizing: AtomicBool,
    /// A training loop decides about shares and buffers: gradients are added up, not averaged.
    managed: AtomicBool,
    state: Mutex<State>,
    /// Gradients of this rank's earlier shards in this step.
    partial: Mutex<Partial>,
    /// What replaces the sum of a bucket.
    hook: OnceLock<CommHook>,
}

struct State {
    buckets: Vec<Bucket>,
    /// Where a parameter lies: bucket, first element.
    places: Vec<(usize, usize)>,
    pass: Option<Pass>,
    /// Parameters whose gradients grew without communication.
    grown: Vec<bool>,
    /// The order in which gradients arrived in the first pass, until buckets follow it.
    arrivals: Option<Vec<usize>>,
}

struct Bucket {
    flat: Tensor,
    members: Vec<usize>,
}

/// A backward pass under way.
struct Pass {
    /// Parameters that have not arrived, per bucket.
    missing: Vec<usize>,
    arrived: Vec<bool>,
    used: Vec<bool>,
    travelling: Vec<Pending<()>>,
}

impl DistributedDataParallel {
    /// Makes all replicas equal to rank 0's, and averages gradients from now on. Names, shapes and dtypes of parameters and
    /// buffers must be the same on all ranks. Parameters that do not require grad are ignored.
    pub fn new(model: &dyn Module, world: &World, options: DdpOptions) -> Result<DistributedDataParallel> {
        if let Some(wire) = options.wire.filter(|d| !matches!(d, DType::BF16 | DType::F16)) {
            let message = format!("expected bfloat16 or float16 as the dtype in which gradients travel, found {wire}");
            return Err(Error::Argument(message));
        }
        let named = model.named_parameters();
        let buffers = model.named_buffers();
        let mut description = String::new();
        for (name, p) in &named {
            let grad = if p.requires_grad() { "" } else { ", frozen" };
            writeln!(description, "parameter {name}: {} {:?}{grad}", p.dtype(), p.shape()).expect("text grows");
        }
        for (name, b) in &buffers {
            writeln!(description, "buffer {name}: {} {:?}", b.dtype(), b.shape()).expect("text grows");
        }
        compare(world, &description)?;
        for t in named.iter().map(|(_, p)| p.tensor()).chain(buffers.iter().map(|(_, b)| b)) {
            world.broadcast(t, 0)?;
        }
        let parameters: Vec<(String, Tensor)> =
            named.into_iter().filter(|(_, p)| p.requires_grad()).map(|(n, p)| (n, p.tensor().clone())).collect();
        // Gradients arrive roughly from the last layer to the first.
        let order: Vec<usize> = (0..parameters.len()).rev().collect();
        let (buckets, places) = fill_buckets(&parameters, &order, &options, world.size());
        let grown = vec![false; parameters.len()];
        let state = State { buckets, places, pass: None, grown, arrivals: Some(Vec::new()) };
        let replica = Arc::new(Replica {
            world: world.clone(),
            options,
            parameters,
            buffers: buffers.into_iter().map(|(_, b)| b).collect(),
            synchronizing: AtomicBool::new(true),
            managed: AtomicBool::new(false),
            state: Mutex::new(state),
            partial: Mutex::default(),
            hook: OnceLock::new(),
        });
        let mut hooks = Vec::new();
        if world.size() > 1 {
            for (i, (_, p)) in replica.parameters.iter().enumerate() {
                // Weak, because parameters outlive this: a hook that is left must not keep the world.
                let weak = Arc::downgrade(&replica);
                // What a compiled graph computes travels while the graph runs on: the hook reads nothing but the gradient.
                p.set_takes_early_grad(true);
                let handle = p.try_register_post_accumulate_grad_hook(move |p: &Tensor| match weak.upgrade() {
                    Some(replica) => replica.arrived(i, p).map_err(firebrand_core::Error::from),
                    None => Ok(()),
                })?;
                hooks.push(Hook { handle, parameter: p.clone() });
            }
        }
        Ok(DistributedDataParallel { replica, _hooks: hooks })
    }

    #[cfg(all(test, feature = "shuttle"))]
    pub(crate) fn replica(&self) -> &Replica {
        &self.replica
    }

    /// The world it belongs to.
    pub fn world(&self) -> &World {
        &self.replica.world
    }

    /// Runs `f` without communication: gradients accumulate in `.grad` on each rank, and the first pass outside averages the sums.
    pub fn no_sync<R>(&self, f: impl FnOnce() -> R) -> R {
        struct Restore<'a>(&'a AtomicBool, bool);
        impl Drop for Restore<'_> {
            fn drop(&mut self) {
                self.0.store(self.1, SeqCst);
            }
        }
        let flag = &self.replica.synchronizing;
        let _restore = Restore(flag, flag.swap(false, SeqCst));
        f()
    }

    /// Replaces the sum of a bucket over all ranks by `hook`, which runs on the communication thread while the backward pass
    /// is still running and returns the new gradients: to compress them, for example, or to average differently. Gradients
    /// are then not divided by the number of ranks, and [`DdpOptions::wire`] does not apply. There can be only one hook; in a world of
    /// one process it is not called.
    ///
    /// ```
    /// # use firebrand_core::module::{Module, ModuleCore, Parameter};
    /// # use firebrand_core::{DType, Tensor};
    /// use firebrand_dist::{DdpOptions, DistributedDataParallel, World};
    ///
    /// # #[derive(Module)]
    /// # struct Scale {
    /// #     weight: Parameter,
    /// #     core: ModuleCore,
    /// # }
    /// # let model = Scale { weight: Parameter::new(Tensor::ones([2], DType::F32)), core: ModuleCore::new() };
    /// let world = World::from_env()?;
    /// let ddp = DistributedDataParallel::new(&model, &world, DdpOptions::default())?;
    /// ddp.register_comm_hook(|bucket, ranks| {
    ///     let sum = ranks.all_reduce(&bucket.buffer)?;
    ///     Ok(sum / ranks.size() as f64)
    /// })?;
    /// # Ok::<(), firebrand_dist::Error>(())
    /// ```
    pub fn register_comm_hook(
        &self,
        hook: impl Fn(&GradBucket, &mut Collectives<'_>) -> Result<Tensor> + Send + Sync + 'static,
    ) -> Result<()> {
        let taken = |_| Error::Argument("a communication hook is already registered: there can be only one".into());
        self.replica.hook.set(Arc::new(hook)).map_err(taken)
    }

    /// Leaves control to a training loop, which scales losses by each shard's share of the labels and syncs buffers when all
    /// shards are done: gradients are summed instead of averaged, and buffers do not change until
    /// [`DistributedDataParallel::sync_buffers`].
    pub fn set_managed(&self, managed: bool) {
        self.replica.managed.store(managed, SeqCst);
    }

    /// Overwrites buffers with rank 0's.
    pub fn sync_buffers(&self) -> Result<()> {
        self.replica.sync_buffers()
    }

    /// Ends one of several shards that this rank computes in a step; the backward passes of all but the last run under
    /// [`DistributedDataParallel::no_sync`], and gradients of a step begin empty. Shards of a step are added along the tree of
    /// [`tree`](crate::tree), so the bits of the sum depend on their number, and not on how many of them are on a rank.
    pub fn end_shard(&self, last: bool) -> Result<()> {
        let replica = &self.replica;
        if !last {
            return replica.keep_shard();
        }
        // With several ranks the last pass has already put everything into the buckets.
        if replica.world.size() == 1 && !replica.partial().is_empty() {
            for (i, (_, p)) in replica.parameters.iter().enumerate() {
                let grad = replica.rounded(p.grad())?;
                let total = replica.partial().total(i, grad)?;
                let total = total.map(|t| no_grad(|| t.try_to_dtype(p.dtype()))).transpose()?;
                p.try_set_grad(total.as_ref())?;
            }
        }
        replica.partial().clear();
        Ok(())
    }

    /// Takes part in the backward pass of the other ranks without a gradient: for a rank whose share of the batch is empty.
    pub fn backward_of_nothing(&self) -> Result<()> {
        if self.replica.world.size() == 1 {
            return Ok(());
        }
        let n = self.replica.parameters.len();
        self.replica.begin(vec![false; n])?;
        self.replica.finish()
    }
}

/// Refuses replicas that differ, naming the first difference. All ranks find the same one.
fn compare(world: &World, description: &str) -> Result<()> {
    let all = world.gather_text(description)?;
    let differs = |(_, text): &(usize, &String)| **text != all[0];
    let Some((rank, other)) = all.iter().enumerate().find(differs) else { return Ok(()) };
    let (mut ours, mut theirs) = (all[0].lines(), other.lines());
    loop {
        let (expected, found) = (ours.next(), theirs.next());
        if expected != found || expected.is_none() {
            let text = |line: Option<&str>| line.unwrap_or("nothing more").to_string();
            return Err(Error::Replica { rank, what: "model", expected: text(expected), found: text(found) });
        }
    }
}

/// Buckets in this order of parameters. A bucket has one dtype; one that is full is followed by another. The last is as small as the
/// first: when its last gradient arrives, there is no computation left to hide it behind.
fn fill_buckets(
    parameters: &[(String, Tensor)],
    order: &[usize],
    options: &DdpOptions,
    size: usize,
) -> (Vec<Bucket>, Vec<(usize, usize)>) {
    let bytes = |i: usize| parameters[i].1.numel() * parameters[i].1.dtype().size();
    // Dtype, bytes, members.
    let mut groups: Vec<(DType, usize, Vec<usize>)> = Vec::new();
    for &i in order {
        let p = &parameters[i].1;
        let limit = |k: usize| if k == 0 { options.first_bucket_bytes } else { options.bucket_bytes_on(size) };
        let open = groups.iter().rposition(|(dtype, ..)| *dtype == p.dtype());
        // One that would make it too large goes into the next, unless this one is still small: what is full can travel.
        let fits = |k: &usize| {
            let held = groups[*k].1;
            held + bytes(i) <= limit(*k) || 2 * held < limit(*k)
        };
        let k = open.filter(fits).unwrap_or_else(|| {
            groups.push((p.dtype(), 0, Vec::new()));
            groups.len() - 1
        });
        groups[k].1 += bytes(i);
        groups[k].2.push(i);
    }
    if let Some((dtype, held, members)) = groups.last_mut() {
        let (mut tail, mut from) = (0, members.len());
        while from > 1 && tail + bytes(members[from - 1]) <= options.first_bucket_bytes {
            from -= 1;
            tail += bytes(members[from]);
        }
        if *held > options.first_bucket_bytes && tail > 0 {
            let (dtype, members) = (*dtype, members.split_off(from));
            *held -= tail;
            groups.push((dtype, tail, members));
        }
    }
    let mut places = vec![(0, 0); parameters.len()];
    for (k, (_, _, members)) in groups.iter().enumerate() {
        let mut at = 0;
        for &i in members {
            places[i] = (k, at);
            at += parameters[i].1.numel();
        }
    }
    let bucket = |(dtype, held, members): (DType, usize, Vec<usize>)| {
        let len = if size == 1 { 0 } else { padded(held / dtype.size(), size) }; // alone, nothing travels
        Bucket { flat: Tensor::zeros([len as i64], dtype), members }
    };
    (groups.into_iter().map(bucket).collect(), places)
}

impl Replica {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn partial(&self) -> MutexGuard<'_, Partial> {
        self.partial.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn name(&self, i: usize) -> &str {
        &self.parameters[i].0
    }

    /// Moves the gradients of a shard to those of the earlier ones.
    fn keep_shard(&self) -> Result<()> {
        let mut grads = Vec::with_capacity(self.parameters.len());
        for (i, (_, p)) in self.parameters.iter().enumerate() {
            let grad = p.grad();
            if let Some(grad) = &grad {
                self.refuse_history(grad, i)?;
            }
            p.try_set_grad(None)?;
            grads.push(self.rounded(grad)?);
        }
        self.partial().push(grads)
    }

    /// A gradient as it travels.
    fn rounded(&self, grad: Option<Tensor>) -> Result<Option<Tensor>> {
        let Some(wire) = self.wire() else { return Ok(grad) };
        let narrow = |g: Tensor| if g.dtype().size() > wire.size() { no_grad(|| g.try_to_dtype(wire)) } else { Ok(g) };
        Ok(grad.map(narrow).transpose()?)
    }

    /// The dtype in which gradients travel, if that is not their own.
    fn wire(&self) -> Option<DType> {
        self.options.wire.filter(|_| self.hook.get().is_none())
    }

    fn refuse_history(&self, grad: &Tensor, i: usize) -> Result<()> {
        if !grad.requires_grad() {
            return Ok(());
        }
        Err(Error::Argument(format!(
            "the gradient of {} has a history (create_graph): gradients of averaged gradients are not supported",
            self.name(i)
        )))
    }

    /// Buffers of one dtype travel together.
    fn sync_buffers(&self) -> Result<()> {
        if self.world.size() == 1 {
            return Ok(());
        }
        let mut kinds: Vec<(DType, Vec<&Tensor>)> = Vec::new();
        for b in &self.buffers {
            match kinds.iter_mut().find(|(dtype, _)| *dtype == b.dtype()) {
                Some((_, list)) => list.push(b),
                None => kinds.push((b.dtype(), vec![b])),
            }
        }
        kinds.iter().try_for_each(|(_, list)| self.world.broadcast_all(list, 0))
    }

    /// The part of a bucket that belongs to a parameter, in its shape.
    fn view(&self, state: &State, i: usize) -> Result<Tensor> {
        let (bucket, first) = state.places[i];
        let p = &self.parameters[i].1;
        let part = || state.buckets[bucket].flat.try_narrow(0, first, p.numel())?.try_view(p.shape());
        Ok(no_grad(part)?)
    }

    /// Parameter `i` has its gradient.
    fn arrived(self: &Arc<Self>, i: usize, p: &Tensor) -> Result<()> {
        if !self.synchronizing.load(SeqCst) {
            self.state().grown[i] = true;
            return Ok(());
        }
        if self.state().pass.is_none() {
            self.begin(self.reached()?)?;
            let replica = self.clone();
            queue_callback(move || Ok(replica.finish()?))?;
        }
        self.hand_over(i, p)
    }

    /// Copies the gradient of parameter `i` into its bucket, and sends the bucket if that was the last.
    pub(crate) fn hand_over(&self, i: usize, p: &Tensor) -> Result<()> {
        let view = {
            let mut state = self.state();
            let view = self.view(&state, i)?;
            let Some(pass) = &mut state.pass else { return Err(Error::Closed) };
            if pass.arrived[i] {
                return Err(Error::Argument(format!(
                    "the gradient of {} came twice in one backward pass, or the engine did not announce it: reentrant \
                     checkpoints do that; use non-reentrant ones, or run backward under no_sync and average by hand",
                    self.name(i)
                )));
            }
            pass.arrived[i] = true;
            if let Some(arrivals) = &mut state.arrivals {
                arrivals.push(i);
            }
            view
        };
        let grad = p.grad();
        if grad.is_none() || !self.write(&view, grad, i)? {
            let message = format!("a hook removed the gradient of {} before it was averaged", self.name(i));
            return Err(Error::Argument(message));
        }
        self.full(i)
    }

    /// Which parameters the current pass reaches.
    fn reached(&self) -> Result<Vec<bool>> {
        let reached = |(_, p): &(String, Tensor)| will_engine_execute_node(&get_gradient_edge(p)?.node);
        Ok(self.parameters.iter().map(reached).collect::<firebrand_core::Result<_>>()?)
    }

    /// Begins a pass that reaches these parameters.
    pub(crate) fn begin(&self, used: Vec<bool>) -> Result<()> {
        let absent: Vec<usize> = (0..used.len()).filter(|&i| !used[i]).collect();
        let (views, grown) = {
            let mut state = self.state();
            let missing = state.buckets.iter().map(|b| b.members.len()).collect();
            let views: Vec<Tensor> = absent.iter().map(|&i| self.view(&state, i)).collect::<Result<_>>()?;
            let arrived = used.iter().map(|u| !u).collect();
            state.pass = Some(Pass { missing, arrived, used, travelling: Vec::new() });
            (views, std::mem::replace(&mut state.grown, vec![false; self.parameters.len()]))
        };
        for (&i, view) in absent.iter().zip(&views) {
            // An earlier pass without communication, or an earlier shard, may have used it.
            let grad = if grown[i] { self.parameters[i].1.grad() } else { None };
            let there = self.write(view, grad, i)?;
            if let Some(pass) = &mut self.state().pass {
                pass.used[i] = there;
            }
            self.full(i)?;
        }
        Ok(())
    }

    /// Copies a gradient into its bucket, with those of the rank's earlier shards; zeros, which add nothing to the sum, if there
    /// is none. Returns whether there is one.
    fn write(&self, view: &Tensor, grad: Option<Tensor>, i: usize) -> Result<bool> {
        if let Some(grad) = &grad {
            self.refuse_history(grad, i)?;
        }
        let several = !self.partial().is_empty();
        let grad = if several { self.rounded(grad)? } else { grad };
        let Some(grad) = self.partial().total(i, grad)? else {
            no_grad(|| view.try_zero_().map(drop))?;
            return Ok(false);
        };
        let averages = self.options.average && !self.managed.load(SeqCst) && self.hook.get().is_none();
        let share = 1.0 / self.world.size() as f64;
        // It is already there if it was accumulated into the view of an earlier pass.
        let there = grad.data_ptr() == view.data_ptr();
        no_grad(|| match (there, averages) {
            (true, false) => Ok(()),
            (true, true) => view.try_mul_(share).map(drop),
            (false, false) => view.try_copy_(&grad, false).map(drop),
            // In one pass over memory, which the backward pass needs for itself.
            (false, true) if grad.dtype() == view.dtype() => {
                ops::mul_out(&grad, &Tensor::try_wrapped_number(Scalar::from(share))?, view).map(drop)
            }
            (false, true) => view.try_copy_(&grad, false)?.try_mul_(share).map(drop),
        })?;
        Ok(true)
    }

    /// A parameter's part of its bucket is written; sends all buckets that are full and whose turn it is.
    fn full(&self, i: usize) -> Result<()> {
        let mut state = self.state();
        let (bucket, _) = state.places[i];
        let State { buckets, pass: Some(pass), .. } = &mut *state else { return Err(Error::Closed) };
        pass.missing[bucket] -= 1;
        while pass.travelling.len() < buckets.len() && pass.missing[pass.travelling.len()] == 0 {
            let index = pass.travelling.len();
            pass.travelling.push(self.send(index, &buckets[index], index + 1 == buckets.len()));
        }
        Ok(())
    }

    /// Has the communication thread add up a bucket.
    fn send(&self, index: usize, bucket: &Bucket, is_last: bool) -> Pending<()> {
        let (flat, rank, size) = (bucket.flat.clone(), self.world.rank(), self.world.size());
        if let Some(hook) = self.hook.get().cloned() {
            let parameters = bucket.members.iter().map(|&i| self.name(i).to_string()).collect();
            let len: usize = bucket.members.iter().map(|&i| self.parameters[i].1.numel()).sum();
            return self.world.submit(move |link| {
                let buffer = no_grad(|| flat.try_narrow(0, 0, len))?; // without the padding
                comm_hook::run(&hook, link, rank, size, &GradBucket { index, is_last, parameters, buffer })
            });
        }
        match self.wire().filter(|wire| wire.size() < flat.dtype().size()) {
            Some(wire) => self.world.submit(move |link| all_reduce_rounded(link, size, &flat, wire)),
            None => self.world.submit(move |link| all_reduce(link, size, &flat)),
        }
    }

    /// The pass has ended: waits for the sums and hands them out.
    pub(crate) fn finish(&self) -> Result<()> {
        let Some(pass) = self.state().pass.take() else { return Ok(()) };
        let late: Vec<&str> = (0..pass.arrived.len()).filter(|&i| !pass.arrived[i]).map(|i| self.name(i)).collect();
        if !late.is_empty() {
            // The other ranks wait for buckets that never come.
            let reason = format!("the backward pass ended without gradients of {}", late.join(", "));
            self.world.fail(&reason);
            return Err(Error::Argument(reason));
        }
        pass.travelling.into_iter().try_for_each(Pending::wait)?;
        let used = Tensor::new(&pass.used.iter().map(|u| f32::from(u8::from(*u))).collect::<Vec<_>>());
        let used_by = self.world.all_reduce(&used)?.to_vec::<f32>();
        {
            let state = self.state();
            for (i, (_, p)) in self.parameters.iter().enumerate().filter(|(i, _)| used_by[*i] > 0.0) {
                let view = self.view(&state, i)?;
                p.try_set_grad(Some(&view))?;
            }
        }
        if self.options.broadcast_buffers && !self.managed.load(SeqCst) {
            self.sync_buffers()?;
        }
        self.follow_arrivals()
    }

    /// After the first pass, orders buckets as gradients arrived on rank 0.
    fn follow_arrivals(&self) -> Result<()> {
        let Some(mut order) = self.state().arrivals.take() else { return Ok(()) };
        let mut seen = vec![false; self.parameters.len()];
        order.iter().for_each(|&i| seen[i] = true);
        order.extend((0..seen.len()).filter(|&i| !seen[i]));
        let order = Tensor::new(&order.iter().map(|&i| i as i64).collect::<Vec<_>>());
        self.world.broadcast(&order, 0)?;
        let order: Vec<usize> = order.to_vec::<i64>().into_iter().map(|i| i as usize).collect();
        // Gradients of this pass stay views of the old buckets, which live as long as they do.
        let (buckets, places) = fill_buckets(&self.parameters, &order, &self.options, self.world.size());
        let mut state = self.state();
        (state.buckets, state.places) = (buckets, places);
        Ok(())
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    /// The members of buckets of `first` and `bucket` bytes, for f32 parameters of these lengths.
    fn members(lengths: &[i64], first: usize, bucket: usize) -> Vec<Vec<usize>> {
        let parameter = |(i, n): (usize, &i64)| (i.to_string(), Tensor::zeros([*n], DType::F32));
        let parameters: Vec<_> = lengths.iter().enumerate().map(parameter).collect();
        let options = DdpOptions::default().first_bucket_bytes(first).bucket_bytes(bucket);
        let order: Vec<usize> = (0..lengths.len()).collect();
        let (buckets, places) = fill_buckets(&parameters, &order, &options, 2);
        for (k, b) in buckets.iter().enumerate() {
            let mut at = 0;
            for &i in &b.members {
                assert_eq!(places[i], (k, at), "parameter {i}");
                at += parameters[i].1.numel();
            }
            assert_eq!(b.flat.numel(), at.next_multiple_of(2), "bucket {k}");
        }
        buckets.into_iter().map(|b| b.members).collect()
    }

    #[test]
    fn the_first_and_the_last_bucket_are_small() {
        assert_eq!(members(&[1; 10], 8, 16), [vec![0, 1], vec![2, 3, 4, 5], vec![6, 7], vec![8, 9]]);
        // One that is small already, one that a single parameter fills, and a parameter that is too large for the last.
        assert_eq!(members(&[1; 4], 8, 16), [vec![0, 1], vec![2, 3]]);
        assert_eq!(members(&[2, 9], 8, 16), [vec![0], vec![1]]);
        assert_eq!(members(&[2, 1, 5], 8, 16), [vec![0], vec![1, 2]]);
        assert_eq!(members(&[3], 8, 16), [vec![0]]);
    }
}
