//! Training: the loop, exact resumption, metrics and event files.
//!
//! A [`Trainer`] runs epochs over a loader: accumulation, clipping, schedule, average, validation, early stopping, checkpoints.
//! A checkpoint is one file (a large one, several), written atomically, that holds everything: model, optimizer, schedule, random
//! streams, position within the epoch. A run that was killed and resumed ends with exactly the weights of an uninterrupted one.
//!
//! ```
//! # mod firebrand { pub use firebrand_core::*; pub use firebrand_nn::{data, optim, train}; pub use firebrand_nn as nn; }
//! use firebrand::{DType, Tensor, random::manual_seed};
//! use firebrand::data::{DataLoader, LoaderOptions, TensorDataset};
//! use firebrand::nn::layers::{Forward, Linear, Module};
//! use firebrand::nn::losses::{Loss, MSELoss};
//! use firebrand::optim::{SGD, SGDOptions};
//! use firebrand::train::{TrainOptions, Trainer};
//!
//! manual_seed(0);
//! let x = Tensor::randn([64, 1], DType::F32);
//! let loader = DataLoader::new(TensorDataset::new([x.clone(), &x * 2.0])?, LoaderOptions::new(8));
//! let model = Linear::new(1, 1);
//! let optimizer = SGD::new(model.parameters(), SGDOptions { lr: 0.1, ..Default::default() })?;
//! let mut trainer = Trainer::new(&model, optimizer, TrainOptions { epochs: 20, ..Default::default() });
//! trainer.fit(&loader, |[x, y]| MSELoss::new().loss(&model.try_call(x)?, y), || Ok(Default::default()))?;
//! assert!((model.weight.item::<f32>() - 2.0).abs() < 1e-3);
//! # Ok::<(), firebrand::Error>(())
//! ```

mod checkpoint;
mod distributed;
mod metrics;
mod options;
mod parts;
mod tensorboard;
mod trainer;

pub use checkpoint::Progress;
pub use metrics::{Binary, ClassScores, Classification, ConfusionMatrix, Metrics, Regression, accuracy};
pub use options::{BatchLoss, Callback, Finish, Step, TrainOptions};
pub use tensorboard::EventWriter;
pub use trainer::Trainer;
