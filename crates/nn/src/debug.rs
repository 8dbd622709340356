//! Types that print only their name, or how much they hold.

use std::fmt::{Debug, Formatter, Result};

firebrand_core::opaque_debug! {
    [] crate::optim::Averaged => "Averaged";
    [] crate::optim::LBFGS => "LBFGS";
    [] crate::optim::InBackward => "InBackward";
    [] crate::optim::schedule::LRScheduler => "LRScheduler";
    [F] crate::optim::schedule::LambdaLR<F> => "LambdaLR";
    [F] crate::optim::schedule::MultiplicativeLR<F> => "MultiplicativeLR";
    [] crate::optim::schedule::ChainedScheduler => "ChainedScheduler";
    [] crate::optim::schedule::SequentialLR => "SequentialLR";
    [] crate::train::Trainer<'_> => "Trainer";
    [D: crate::data::Dataset] crate::data::Batches<D> => "Batches";
    [D: crate::data::Dataset] crate::data::Shards<D> => "Shards";
    [S] crate::data::Shard<S> => "Shard";
    [D] crate::data::DataLoader<D> => "DataLoader";
    [D] crate::data::Subset<D> => "Subset";
    [D, F] crate::data::Map<D, F> => "Map";
}

impl<A: crate::optim::Algorithm> Debug for crate::optim::Grouped<A> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let name = std::any::type_name::<A>();
        f.debug_struct(name.rsplit("::").next().unwrap_or(name)).finish_non_exhaustive()
    }
}
