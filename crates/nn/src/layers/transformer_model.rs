//! The whole transformer: an encoder, and a decoder that attends to what it made.

use super::attention::AttentionOptions;
use super::options::{built, options};
use super::transformer::{TransformerDecoder, TransformerEncoder, TransformerLayerOptions};
use crate::init;
use firebrand_core::module::{Forward, Module, ModuleCore};
use firebrand_core::{Result, Tensor};

options! {
    /// What a [`Transformer`] is made of.
    pub struct TransformerOptions(
        /// Every layer of both stacks.
        layer: TransformerLayerOptions,
    ) {
        /// Layers of the encoder.
        num_encoder_layers: usize = 6,
        /// Layers of the decoder.
        num_decoder_layers: usize = 6,
    }
}

impl TransformerOptions {
    /// The model; matrices start from Glorot's uniform scale.
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
    /// Of the source for itself.
    pub source: AttentionOptions,
    /// Of the target for itself; usually causal.
    pub target: AttentionOptions,
    /// Of what the encoder made, for the target.
    pub memory: AttentionOptions,
}

/// An encoder of a source sequence, and a decoder of a target sequence that attends to it.
#[derive(Module)]
pub struct Transformer {
    /// Reads the source.
    pub encoder: TransformerEncoder,
    /// Writes the target.
    pub decoder: TransformerDecoder,
    core: ModuleCore,
}

impl Transformer {
    /// With PyTorch's defaults: six layers each.
    #[track_caller]
    pub fn new(d_model: usize, nhead: usize) -> Transformer {
        built(TransformerOptions::new(TransformerLayerOptions::new(d_model, nhead)).build())
    }

    /// Of source and target, with masks.
    pub fn transform(&self, source: &Tensor, target: &Tensor, masks: &TransformerMasks) -> Result<Tensor> {
        let memory = self.encoder.encode(source, &masks.source)?;
        self.decoder.decode(target, &memory, &masks.target, &masks.memory)
    }
}

/// Of source and target.
impl Forward<(Tensor, Tensor)> for Transformer {
    type Output = Tensor;
    fn forward(&self, (source, target): &(Tensor, Tensor)) -> Result<Tensor> {
        self.transform(source, target, &TransformerMasks::default())
    }
}
