//! The whole transformer: an encoder, and a decoder that attends to its output.

use super::attention::AttentionOptions;
use super::options::{built, options};
use super::transformer::{TransformerDecoder, TransformerEncoder, TransformerLayerOptions};
use crate::init;
use firebrand_core::module::{Forward, Module, ModuleCore};
use firebrand_core::{Result, Tensor};

options! {
    /// Options of a [`Transformer`].
    pub struct TransformerOptions(
        /// Options of each layer of both stacks.
        layer: TransformerLayerOptions,
    ) {
        /// Number of encoder layers.
        num_encoder_layers: usize = 6,
        /// Number of decoder layers.
        num_decoder_layers: usize = 6,
    }
}

impl TransformerOptions {
    /// Builds the model; matrices are initialized by Xavier (Glorot) uniform.
    pub fn build(self) -> Result<Transformer> {
        let norm = || self.layer.norm().map(Some);
        let encoder = TransformerEncoder::with(self.layer.clone(), self.num_encoder_layers, norm()?)?;
        let decoder = TransformerDecoder::with(self.layer.clone(), self.num_decoder_layers, norm()?)?;
        let model = Transformer { encoder, decoder, core: ModuleCore::new() };
        for matrix in model.parameters().iter().filter(|p| p.shape().len() > 1) {
            init::xavier_uniform_(matrix, 1.0)?;
        }
        Ok(model)
    }
}

/// Masks of a [`Transformer`].
#[derive(Clone, Debug, Default)]
pub struct TransformerMasks {
    /// For self-attention of the source.
    pub source: AttentionOptions,
    /// For self-attention of the target; usually causal.
    pub target: AttentionOptions,
    /// For attention of the target to the encoder's output.
    pub memory: AttentionOptions,
}

/// An encoder of a source sequence, and a decoder of a target sequence that attends to it.
#[derive(Module)]
pub struct Transformer {
    /// Encodes the source.
    pub encoder: TransformerEncoder,
    /// Decodes the target.
    pub decoder: TransformerDecoder,
    core: ModuleCore,
}

impl Transformer {
    /// Creates the model with PyTorch's defaults: six layers each.
    #[track_caller]
    pub fn new(d_model: usize, nhead: usize) -> Transformer {
        built(TransformerOptions::new(TransformerLayerOptions::new(d_model, nhead)).build())
    }

    /// Runs on source and target, with masks.
    pub fn transform(&self, source: &Tensor, target: &Tensor, masks: &TransformerMasks) -> Result<Tensor> {
        let memory = self.encoder.encode(source, &masks.source)?;
        self.decoder.decode(target, &memory, &masks.target, &masks.memory)
    }
}

/// Runs on source and target.
impl Forward<(Tensor, Tensor)> for Transformer {
    type Output = Tensor;
    fn forward(&self, (source, target): &(Tensor, Tensor)) -> Result<Tensor> {
        self.transform(source, target, &TransformerMasks::default())
    }
}
