//! The training loop. It deals with models, optimizers, loaders and checkpoints; it prints nothing and is independent of the task: losses
//! and validation are the caller's closures.

use super::checkpoint::{self, Progress, State};
use super::distributed::Team;
use super::metrics::Metrics;
use super::options::{BatchLoss, Callback, Finish, Step, TrainOptions};
use crate::data::{Batches, DataLoader, Dataset, Shard, Shards};
use crate::optim::schedule::{Goal, LRScheduler, PlateauOptions, ReduceLROnPlateau, Schedule};
use crate::optim::{Averaged, Averaging, Optimizer, clip_grad_norm};
use firebrand_core::autograd::{autocast, no_grad};
use firebrand_core::module::Module;
use firebrand_core::random::{Generator, get_rng_state, set_rng_state, with_generator};
use firebrand_core::{Error, Result, Tensor, ops};
use firebrand_dist::DistributedDataParallel;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

/// The training loop.
pub struct Trainer<'a> {
    model: &'a dyn Module,
    optimizer: Box<dyn Optimizer>,
    scheduler: Option<LRScheduler>,
    plateau: Option<ReduceLROnPlateau>,
    average: Option<Averaged>,
    callbacks: Vec<Box<dyn Callback + 'a>>,
    ddp: Option<&'a DistributedDataParallel>,
    /// Of a run on several ranks, once it has begun.
    team: Option<Team<'a>>,
    options: TrainOptions,
    progress: Progress,
    /// The random state before the current epoch's sample order was drawn.
    epoch_start: Generator,
}

/// Batches of a pass and their losses, whatever the type of the samples.
trait Feed {
    /// Number of batches per pass.
    fn len(&self) -> usize;
    /// Begins a pass, at this batch.
    fn begin(&mut self, first: usize);
    /// Prepares the next batch; false at the end of the pass.
    fn load(&mut self) -> Result<bool>;
    /// The loss of the current batch.
    fn loss(&mut self) -> Result<BatchLoss>;

    /// Samples of a whole batch.
    fn batch_size(&self) -> usize;
    /// Begins a pass of which only some shards are made, at this batch.
    fn begin_shards(&mut self, first: usize, shards: usize, local: Range<usize>);
    /// Makes the shards of up to `count` batches in place of those before; how many batches there are.
    fn load_shards(&mut self, count: usize) -> Result<usize>;
    /// The loss of a shard of one of these batches, with its own random stream; `None` if it has no samples.
    fn shard_loss(&mut self, batch: usize, shard: usize) -> Result<Option<BatchLoss>>;
}

struct Pass<'l, D: Dataset, F> {
    loader: &'l DataLoader<D>,
    batches: Option<Batches<D>>,
    batch: Option<D::Sample>,
    shards: Option<Shards<D>>,
    loaded: Vec<Vec<Shard<D::Sample>>>,
    loss: F,
}

impl<D: Dataset, L: Into<BatchLoss>, F: FnMut(&D::Sample) -> Result<L>> Feed for Pass<'_, D, F> {
    fn len(&self) -> usize {
        self.loader.len()
    }
    fn begin(&mut self, first: usize) {
        self.batches = Some(self.loader.iter_from(first));
    }
    fn load(&mut self) -> Result<bool> {
        self.batch = self.batches.as_mut().and_then(Iterator::next).transpose()?;
        Ok(self.batch.is_some())
    }
    fn loss(&mut self) -> Result<BatchLoss> {
        let batch = self.batch.as_ref().expect("a batch was made");
        (self.loss)(batch).map(Into::into)
    }
    fn batch_size(&self) -> usize {
        self.loader.options().batch_size
    }
    fn begin_shards(&mut self, first: usize, shards: usize, local: Range<usize>) {
        self.shards = Some(self.loader.shards_from(first, shards, local));
    }
    fn load_shards(&mut self, count: usize) -> Result<usize> {
        self.loaded = self.shards.iter_mut().flatten().take(count).collect::<Result<_>>()?;
        Ok(self.loaded.len())
    }
    fn shard_loss(&mut self, batch: usize, shard: usize) -> Result<Option<BatchLoss>> {
        let Shard { seed, samples } = &self.loaded[batch][shard];
        let Some(samples) = samples else { return Ok(None) };
        with_generator(Generator::new(*seed), || (self.loss)(samples).map(|l| Some(l.into())))
    }
}

/// Losses of the batches since the last step.
#[derive(Default)]
struct Gathered {
    /// The count of the first batch: the unit of weight.
    unit: f64,
    /// Sum of the losses, weighted by count, and of the counts.
    sum: f64,
    count: f64,
}

impl<'a> Trainer<'a> {
    /// Creates a trainer for a model and an optimizer over its parameters.
    pub fn new(model: &'a dyn Module, optimizer: impl Optimizer + 'static, options: TrainOptions) -> Trainer<'a> {
        Trainer {
            model,
            optimizer: Box::new(optimizer),
            scheduler: None,
            plateau: None,
            average: None,
            callbacks: Vec::new(),
            ddp: None,
            team: None,
            options: TrainOptions { accumulate: options.accumulate.max(1), ..options },
            progress: Progress::default(),
            epoch_start: get_rng_state(),
        }
    }

    /// Sets the learning-rate schedule.
    pub fn schedule(mut self, schedule: impl Schedule + 'static) -> Trainer<'a> {
        self.scheduler = Some(LRScheduler::new(schedule, &mut *self.optimizer));
        self
    }

    /// Reduces the learning rate when the watched metric stops improving.
    pub fn reduce_on_plateau(mut self, options: PlateauOptions) -> Trainer<'a> {
        let goal = if self.options.watch.1 { Goal::Min } else { Goal::Max };
        self.plateau = Some(ReduceLROnPlateau::new(PlateauOptions { goal, ..options }));
        self
    }

    /// Trains on all ranks of a world: each computes its shards of every batch, and all hold the same weights. Every rank calls
    /// [`Trainer::fit`] with the same data, options and seed; a loader's batches are those of all ranks together. Rank 0 alone
    /// writes files. Validation runs on every rank, and rank 0's metrics count.
    pub fn distributed(mut self, ddp: &'a DistributedDataParallel) -> Trainer<'a> {
        self.ddp = Some(ddp);
        self
    }

    /// Adds a callback.
    pub fn watch(mut self, callback: impl Callback + 'a) -> Trainer<'a> {
        self.callbacks.push(Box::new(callback));
        self
    }

    /// Progress of the run.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// The optimizer.
    pub fn optimizer(&self) -> &dyn Optimizer {
        &*self.optimizer
    }

    /// Resumes from the checkpoint if there is one; returns whether there was.
    pub fn resume(&mut self) -> Result<bool> {
        let Some(path) = self.options.checkpoint.clone().filter(|p| p.exists()) else { return Ok(false) };
        self.start_average()?;
        self.start_team()?;
        let state = State {
            model: self.model,
            optimizer: &mut *self.optimizer,
            average: self.average.as_mut(),
            frozen: self.options.checkpoint_frozen,
            part_bytes: self.options.checkpoint_part_bytes,
        };
        let team = self.team.as_ref();
        (self.progress, self.epoch_start) = checkpoint::load(&path, state, |dict| match team {
            Some(team) => team.own_state(dict),
            None => dict,
        })?;
        if let Some(s) = &mut self.scheduler {
            s.set_epoch(self.progress.schedule, &mut *self.optimizer);
        }
        if let (Some(plateau), Some(state)) = (&mut self.plateau, self.progress.plateau) {
            plateau.load_state(state);
        }
        Ok(true)
    }

    /// Creates the average if one is requested: copies of the trained parameters.
    fn start_average(&mut self) -> Result<()> {
        if let (None, Some(decay)) = (&self.average, self.options.ema) {
            if !(0.0..1.0).contains(&decay) {
                let message = format!("expected a decay of the average from 0 to 1, found {decay}");
                return Err(Error::argument("Trainer", message));
            }
            self.average = Some(Averaged::new(self.optimizer.parameters(), Averaging::Exponential(decay))?);
        }
        Ok(())
    }

    /// Joins the other ranks, if this is a run on several.
    fn start_team(&mut self) -> Result<()> {
        if let (None, Some(ddp)) = (&self.team, self.ddp) {
            let TrainOptions { shards, zero, .. } = self.options;
            self.team = Some(Team::new(ddp, self.model, &*self.optimizer, shards, zero)?);
        }
        Ok(())
    }

    /// Whether this rank writes files.
    fn is_main(&self) -> bool {
        self.ddp.is_none_or(|ddp| ddp.world().is_main())
    }

    /// Swaps the trained parameters with their average, if there is one; calling it again swaps back. At the end of a run
    /// this leaves the average in the model.
    pub fn swap_average(&self) -> Result<()> {
        self.average.as_ref().map_or(Ok(()), Averaged::swap)
    }

    fn save(&mut self) -> Result<()> {
        let Some(path) = self.options.checkpoint.clone() else { return Ok(()) };
        let dict = match &self.team {
            Some(team) => team.whole_state(&*self.optimizer)?,
            None => self.optimizer.state_dict(),
        };
        if !self.is_main() {
            return Ok(());
        }
        let state = State {
            model: self.model,
            optimizer: &mut *self.optimizer,
            average: self.average.as_mut(),
            frozen: self.options.checkpoint_frozen,
            part_bytes: self.options.checkpoint_part_bytes,
        };
        checkpoint::save(&path, state, dict, &self.progress, &self.epoch_start)
    }

    /// Whether the run was stopped; ranks stop when all know of it.
    fn stopped(&self) -> bool {
        self.team.as_ref().map_or_else(|| self.options.stop.load(Relaxed), |team| team.stop)
    }

    /// Trains to the end, or until stopped. `loss` is the mean loss of a batch, as a tensor or as a [`BatchLoss`];
    /// `validate` runs in evaluation mode without gradients after every epoch. If the run is stopped meanwhile,
    /// `validate` may return an error: it runs again when the run is resumed.
    pub fn fit<D: Dataset, L: Into<BatchLoss>>(
        &mut self,
        loader: &DataLoader<D>,
        loss: impl FnMut(&D::Sample) -> Result<L>,
        mut validate: impl FnMut() -> Result<Metrics>,
    ) -> Result<Finish> {
        let loaded = Vec::new();
        self.run(&mut Pass { loader, batches: None, batch: None, shards: None, loaded, loss }, &mut validate)
    }

    fn run(&mut self, feed: &mut dyn Feed, validate: &mut dyn FnMut() -> Result<Metrics>) -> Result<Finish> {
        if feed.len() == 0 {
            return Err(Error::argument("Trainer", "the loader has no batches; add samples or reduce the batch size"));
        }
        self.start_average()?;
        self.start_team()?;
        for c in &mut self.callbacks {
            c.begin(&self.progress)?;
        }
        while self.progress.epoch < self.options.epochs {
            if self.out_of_patience() {
                return Ok(Finish::Early);
            }
            if self.stopped() || !self.train_epoch(feed)? {
                self.save()?;
                return Ok(Finish::Stopped);
            }
            let Some(mut metrics) = self.validated(validate)? else {
                self.save()?;
                return Ok(Finish::Stopped);
            };
            if let Some(team) = &mut self.team {
                team.agree(&mut metrics, self.options.stop.load(Relaxed))?;
            }
            self.finish_epoch(metrics);
            self.save()?;
            for c in &mut self.callbacks {
                c.epoch(self.progress.epoch, &self.progress.history)?;
            }
        }
        Ok(if self.out_of_patience() { Finish::Early } else { Finish::Done })
    }

    fn out_of_patience(&self) -> bool {
        self.options.patience.is_some_and(|p| self.progress.epochs_since_best > p)
    }

    /// The metrics of the epoch, on the average if there is one; `None` if the run was stopped meanwhile. The best state is
    /// written here, while the model holds the average: before the checkpoint that records it, so that a run killed
    /// in between writes it again.
    fn validated(&mut self, validate: &mut dyn FnMut() -> Result<Metrics>) -> Result<Option<Metrics>> {
        let mut metrics = Metrics::new();
        metrics.insert("train_loss".into(), self.progress.loss_sum / self.progress.loss_count);
        metrics.insert("lr".into(), self.optimizer.lr(0));
        self.model.eval();
        self.swap_average()?;
        let validated = self.computing(|| no_grad(validate)).and_then(|found| {
            metrics.extend(found);
            if let (true, Some(path)) = (self.is_main() && self.improves(&metrics), &self.options.best) {
                checkpoint::save_model(path, self.model, self.options.checkpoint_frozen)?;
            }
            Ok(())
        });
        self.swap_average()?;
        self.model.train();
        match validated {
            Err(_) if self.stopped() => Ok(None),
            other => other.map(|()| Some(metrics)),
        }
    }

    /// Whether the watched metric is the best so far.
    fn improves(&self, metrics: &Metrics) -> bool {
        let (name, less) = &self.options.watch;
        let Some(&value) = metrics.get(name).filter(|v| !v.is_nan()) else { return false };
        self.progress.best.is_none_or(|best| if *less { value < best } else { value > best })
    }

    /// Runs one epoch, or the rest of it; returns false if stopped.
    fn train_epoch(&mut self, feed: &mut dyn Feed) -> Result<bool> {
        self.model.train();
        let first = self.progress.batch;
        let cut = self.team.as_ref().map(|team| (team.shards, team.local()));
        let mut begin = || match &cut {
            Some((shards, local)) => feed.begin_shards(first, *shards, local.clone()),
            None => feed.begin(first),
        };
        if first == 0 {
            self.epoch_start = get_rng_state();
            begin();
        } else {
            // The order is drawn again from where the epoch began; the stream then goes on from where the run stopped.
            let now = get_rng_state();
            set_rng_state(self.epoch_start.clone());
            begin();
            set_rng_state(now);
        }
        let total = feed.len();
        while let Some(gathered) = self.gather(feed)? {
            self.step(gathered)?;
            let due = self.options.checkpoint_every.is_some_and(|n| self.progress.step.is_multiple_of(n.max(1)));
            // A checkpoint at the end of an epoch follows its validation.
            if self.progress.batch < total {
                if self.stopped() {
                    return Ok(false);
                }
                if due {
                    self.save()?;
                }
            }
        }
        Ok(true)
    }

    /// Gradients and losses of the batches of the next step; `None` at the end of the epoch.
    fn gather(&mut self, feed: &mut dyn Feed) -> Result<Option<Gathered>> {
        if self.team.is_some() {
            return self.gather_shards(feed);
        }
        let (first, mut gathered) = (self.progress.batch, Gathered::default());
        // Groups are counted from the beginning of the epoch.
        while feed.load()? {
            self.backward(feed, &mut gathered)?;
            self.progress.batch += 1;
            if self.progress.batch.is_multiple_of(self.options.accumulate) {
                break;
            }
        }
        Ok((self.progress.batch > first).then_some(gathered))
    }

    /// As [`Trainer::gather`], of this rank's shards, one after another, with the other ranks.
    fn gather_shards(&mut self, feed: &mut dyn Feed) -> Result<Option<Gathered>> {
        let mut team = self.team.take().expect("asked before");
        let gathered = self.with_team(&mut team, feed);
        self.team = Some(team);
        gathered
    }

    fn with_team(&mut self, team: &mut Team<'a>, feed: &mut dyn Feed) -> Result<Option<Gathered>> {
        let count = feed.load_shards(self.options.accumulate)?;
        if count == 0 {
            return Ok(None);
        }
        // Known to all without a word: the samples of a shard.
        let unit = feed.batch_size() as f64 / team.shards as f64;
        let local = team.local().len();
        let mut terms = Vec::with_capacity(local);
        for shard in 0..local {
            team.begin_shard(shard)?;
            let mut of_shard = Gathered { unit, ..Gathered::default() };
            for batch in 0..count {
                let last = shard + 1 == local && batch + 1 == count;
                let mut pass = || {
                    let Some(loss) = self.computing(|| feed.shard_loss(batch, shard))? else { return Ok(false) };
                    self.backward_of(loss, batch, &mut of_shard)
                };
                let ran = if last { pass()? } else { team.ddp.no_sync(pass)? };
                if last && !ran {
                    team.ddp.backward_of_nothing()?;
                }
            }
            team.ddp.end_shard(shard + 1 == local)?;
            terms.push([of_shard.sum, of_shard.count]);
        }
        team.end_shards()?;
        let [sum, labels] = team.totals(&terms, self.options.stop.load(Relaxed))?;
        self.progress.batch += count;
        Ok(Some(Gathered { unit, sum, count: labels }))
    }

    /// Runs the forward pass, under autocast if set. Backward follows the dtypes that forward used.
    fn computing<R>(&self, work: impl FnOnce() -> R) -> R {
        match self.options.autocast {
            Some(dtype) => autocast(dtype, work),
            None => work(),
        }
    }

    /// Adds the gradients of a batch, in units of the first batch of the step.
    fn backward(&mut self, feed: &mut dyn Feed, gathered: &mut Gathered) -> Result<()> {
        let loss = self.computing(|| feed.loss())?;
        self.backward_of(loss, 0, gathered).map(drop)
    }

    /// Adds the gradients of a loss, of the batch so many after the current one; returns whether there was a label that counts.
    fn backward_of(&self, loss: BatchLoss, ahead: usize, gathered: &mut Gathered) -> Result<bool> {
        let BatchLoss { mean, count } = loss;
        if count <= 0.0 {
            return Ok(false);
        }
        let value = ops::item(&mean)?.to_f64();
        if !value.is_finite() {
            let (step, epoch) = (self.progress.step + 1, self.progress.epoch + 1);
            let batch = self.progress.batch + ahead + 1;
            let message = format!(
                "the loss became {value} at step {step} (epoch {epoch}, batch {batch}); try a smaller learning rate or clip gradients"
            );
            return Err(Error::argument("Trainer", message));
        }
        if gathered.unit == 0.0 {
            gathered.unit = count;
        }
        let share = match count / gathered.unit {
            1.0 => mean,
            weight => ops::mul_scalar(&mean, weight.into())?,
        };
        share.try_backward(&Default::default())?;
        gathered.sum += value * count;
        gathered.count += count;
        Ok(true)
    }

    /// Takes a step with the gradients of the batches since the last one.
    fn step(&mut self, gathered: Gathered) -> Result<()> {
        let mut grad_norm = None;
        let lr = self.optimizer.lr(0);
        // Without a label that counts there is no gradient, and nothing to learn.
        if gathered.count > 0.0 {
            scale_gradients(&self.optimizer.parameters(), gathered.unit / gathered.count)?;
            if let Some(limit) = self.options.clip_norm {
                let norm = clip_grad_norm(self.optimizer.parameters(), limit, 2.0)?;
                if !norm.is_finite() {
                    let message = format!(
                        "the norm of the gradients became {norm} at step {}; try a smaller learning rate",
                        self.progress.step + 1
                    );
                    return Err(Error::argument("Trainer", message));
                }
                grad_norm = Some(norm);
            }
            match &self.team {
                Some(team) => team.step(&mut *self.optimizer)?,
                None => self.optimizer.step()?,
            }
            if let Some(average) = &mut self.average {
                average.update()?;
            }
        }
        let every = |n: u64| (self.progress.step + 1).is_multiple_of(n.max(1));
        if let (Some(team), true) = (&self.team, self.options.compare_replicas.is_some_and(every)) {
            team.compare(self.model, &*self.optimizer)?;
        }
        self.optimizer.zero_grad();
        self.progress.loss_sum += gathered.sum;
        self.progress.loss_count += gathered.count;
        self.progress.step += 1;
        if self.options.schedule_every_step {
            self.advance_schedule();
        }
        let step = Step {
            epoch: self.progress.epoch + 1,
            step: self.progress.step,
            batch: self.progress.batch,
            loss: gathered.sum / gathered.count,
            lr,
            grad_norm,
        };
        self.callbacks.iter_mut().try_for_each(|c| c.step(&step))
    }

    fn advance_schedule(&mut self) {
        if let Some(s) = &mut self.scheduler {
            s.step(&mut *self.optimizer);
            self.progress.schedule = s.epoch();
        }
    }

    /// Records the epoch.
    fn finish_epoch(&mut self, metrics: Metrics) {
        if !self.options.schedule_every_step {
            self.advance_schedule();
        }
        if let Some(&value) = metrics.get(&self.options.watch.0) {
            if self.improves(&metrics) {
                (self.progress.best, self.progress.best_epoch) = (Some(value), Some(self.progress.epoch + 1));
                self.progress.epochs_since_best = 0;
            } else {
                self.progress.epochs_since_best += 1;
            }
            if let Some(plateau) = &mut self.plateau {
                plateau.step(value, &mut *self.optimizer);
                self.progress.plateau = Some(plateau.state());
            }
        }
        self.progress.history.push(metrics);
        self.progress.epoch += 1;
        (self.progress.batch, self.progress.loss_sum, self.progress.loss_count) = (0, 0.0, 0.0);
        self.epoch_start = get_rng_state();
    }
}

/// Multiplies all gradients, in place.
fn scale_gradients(parameters: &[Tensor], factor: f64) -> Result<()> {
    if factor == 1.0 {
        return Ok(());
    }
    let grads: Vec<Tensor> = parameters.iter().filter_map(Tensor::grad).map(|g| g.detach()).collect();
    if grads.is_empty() {
        return Ok(());
    }
    no_grad(|| ops::foreach_mul_scalar_(&grads, factor.into()).map(drop))
}
