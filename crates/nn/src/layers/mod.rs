//! Layers with PyTorch's names, defaults and initial values.
//!
//! `Linear::new(4, 3)` takes the arguments PyTorch's constructor requires; everything else is in the options:
//! `LinearOptions::new(4, 3).bias(false).build()?`. Options that do not affect a convolution's parameters can be set on the
//! layer itself: `Conv2d::new(3, 8, 3).padding(1)`. With the same seed a layer starts from PyTorch's
//! exact values, and its state dictionary has PyTorch's names. Parameters are f32; `to_dtype` converts.
//!
//! ```
//! # mod firebrand { pub use firebrand_core::*; pub use firebrand_nn::{data, optim, train}; pub use firebrand_nn as nn; }
//! use firebrand::{DType, Tensor, random::manual_seed};
//! use firebrand::nn::layers::{Forward, Linear, Module, ReLU};
//! use firebrand::nn::sequential;
//!
//! manual_seed(0);
//! let net = sequential![Linear::new(2, 8), ReLU::new(), Linear::new(8, 1)];
//! assert_eq!(net.call(&Tensor::ones([5, 2], DType::F32)).shape(), [5, 1]);
//! assert_eq!(net.named_parameters()[0].0, "0.weight");
//! ```

mod activations;
mod attention;
mod batch_norm;
mod containers;
mod conv;
mod conv_transpose;
mod decoder;
mod distance;
mod dropout;
mod embedding;
mod embedding_bag;
mod fold;
mod lazy;
mod linear;
mod local_response;
mod norm;
pub(crate) mod options;
mod packed;
mod packed_rnn;
mod padding;
mod parameter_containers;
mod pool;
mod rnn;
mod rnn_cell;
mod shape;
mod sync_batch_norm;
mod transformer;
mod transformer_model;
mod upsample;

pub use activations::*;
pub use attention::{Attention, AttentionOptions, MultiheadAttention, MultiheadAttentionOptions};
pub use batch_norm::*;
pub use containers::{AnyLayer, ModuleDict, ModuleList, Sequential};
pub use conv::*;
pub use conv_transpose::*;
pub use decoder::{
    GroupedQueryAttention, GroupedQueryAttentionOptions, KvCache, RotaryEmbedding, Rotation, SwiGLU, causal_mask,
};
pub use distance::{CosineSimilarity, PairwiseDistance};
pub use dropout::{AlphaDropout, Dropout, Dropout1d, Dropout2d, Dropout3d, FeatureAlphaDropout};
pub use embedding::{Embedding, EmbeddingOptions};
pub use embedding_bag::{BagMode, EmbeddingBag, EmbeddingBagOptions};
pub use firebrand_core::module::{
    AsModule, Buffer, Forward, Module, ModuleCore, ModuleField, ModuleHooks, ModuleVisitor, Parameter, StateDict,
    TensorTree,
};
pub use fold::{Fold, FoldOptions, Unfold};
pub use lazy::*;
pub use linear::{Bilinear, BilinearOptions, Identity, Linear, LinearOptions};
pub use local_response::{LocalResponseNorm, LocalResponseNormOptions};
pub use norm::*;
pub use options::{PerDim, Setting};
pub use packed::{
    PackedSequence, pack_padded_sequence, pack_sequence, pad_packed_sequence, pad_sequence, unpack_sequence,
    unpad_sequence,
};
pub use padding::*;
pub use parameter_containers::{ParameterDict, ParameterList};
pub use pool::*;
pub use rnn::{GRU, LSTM, RNN, RecurrentOptions};
pub use rnn_cell::{GRUCell, LSTMCell, RNNCell};
pub use shape::{ChannelShuffle, Flatten, PixelShuffle, PixelUnshuffle, Unflatten};
pub use sync_batch_norm::{SyncBatchNorm, SyncBatchNormOptions};
pub use transformer::{
    TransformerDecoder, TransformerDecoderLayer, TransformerEncoder, TransformerEncoderLayer, TransformerLayerOptions,
};
pub use transformer_model::{Transformer, TransformerMasks, TransformerOptions};
pub use upsample::{Upsample, UpsampleMode};
