//! How layers print, against PyTorch (`golden/nn/repr.json`).

use firebrand_nn::layers::*;
use firebrand_nn::losses::{AdaptiveLogSoftmaxWithLoss, CrossEntropyLoss, HuberLoss};
use firebrand_nn::sequential;
use serde_json::Value;

/// What PyTorch names differently: the projection of an attention, and what it would quantize.
const RENAMED: [(&str, &str); 1] = [("NonDynamicallyQuantizableLinear", "Linear")];

fn make(name: &str) -> firebrand_core::Result<Box<dyn Module>> {
    let transformer = || TransformerLayerOptions::new(6, 2).dim_feedforward(8usize);
    Ok(match name {
        "Linear(5, 3)" => Box::new(Linear::new(5, 3)),
        "Linear(5, 3, bias=False)" => Box::new(LinearOptions::new(5, 3).bias(false).build()?),
        "Bilinear(3, 4, 2)" => Box::new(Bilinear::new(3, 4, 2)),
        "Identity()" => Box::new(Identity::new()),
        "Conv1d(2, 4, 3)" => Box::new(Conv1d::new(2, 4, 3)),
        "Conv2d(2, 4, 3, stride=2, padding=1)" => Box::new(Conv2d::new(2, 4, 3).stride(2).padding(1)),
        "Conv2d(4, 4, (3, 1), groups=2, bias=False, dilation=(2, 1))" => {
            Box::new(Conv2dOptions::new(4, 4, [3, 1]).groups(2usize).bias(false).dilation([2, 1]).build()?)
        }
        "Conv2d(2, 3, 3, padding='same')" => Box::new(Conv2d::new(2, 3, 3).padding(Padding::Same)),
        "Conv2d(2, 3, 3, padding=1, padding_mode='reflect')" => {
            Box::new(Conv2d::new(2, 3, 3).padding(1).padding_mode(PaddingMode::Reflect))
        }
        "ConvTranspose1d(4, 2, 3, stride=2, dilation=2, bias=False)" => {
            Box::new(ConvTranspose1dOptions::new(4, 2, [3]).stride([2]).dilation([2]).bias(false).build()?)
        }
        "ConvTranspose2d(4, 2, 3, stride=2, padding=1, output_padding=1, groups=2)" => {
            let base = ConvTranspose2dOptions::new(4, 2, [3, 3]).stride([2, 2]).padding([1, 1]);
            Box::new(base.output_padding([1, 1]).groups(2usize).build()?)
        }
        "BatchNorm1d(3)" => Box::new(BatchNorm1d::new(3)),
        "BatchNorm2d(3, momentum=None)" => {
            Box::new(BatchNorm2dOptions { momentum: None, ..BatchNorm2dOptions::new(3) }.build()?)
        }
        "BatchNorm3d(2, affine=False)" => Box::new(BatchNorm3dOptions::new(2).affine(false).build()?),
        "InstanceNorm2d(3)" => Box::new(InstanceNorm2d::new(3)),
        "LayerNorm(5)" => Box::new(LayerNorm::new(5)),
        "LayerNorm((2, 3), bias=False)" => Box::new(LayerNormOptions::new(vec![2, 3]).bias(false).build()?),
        "LayerNorm(5, elementwise_affine=False)" => {
            Box::new(LayerNormOptions::new(vec![5]).elementwise_affine(false).build()?)
        }
        "RMSNorm(5)" => Box::new(RMSNorm::new(5)),
        "GroupNorm(2, 4)" => Box::new(GroupNorm::new(2, 4)),
        "LocalResponseNorm(3, alpha=0.1)" => Box::new(LocalResponseNormOptions::new(3).alpha(0.1).build()),
        "Embedding(7, 3)" => Box::new(Embedding::new(7, 3)),
        "Embedding(7, 3, padding_idx=2, max_norm=1.0, norm_type=1.0, scale_grad_by_freq=True)" => {
            let base = EmbeddingOptions::new(7, 3);
            let (padding_idx, max_norm, norm_type) = (Some(2), Some(1.0), 1.0);
            Box::new(EmbeddingOptions { padding_idx, max_norm, norm_type, scale_grad_by_freq: true, ..base }.build()?)
        }
        "EmbeddingBag(7, 3)" => Box::new(EmbeddingBag::new(7, 3)),
        "EmbeddingBag(7, 3, mode='sum', padding_idx=2, max_norm=1.0)" => {
            let (mode, padding_idx, max_norm) = (BagMode::Sum, Some(2), Some(1.0));
            Box::new(EmbeddingBagOptions { mode, padding_idx, max_norm, ..EmbeddingBagOptions::new(7, 3) }.build()?)
        }
        "PReLU(3)" => Box::new(PReLU::new(3)),
        "RNN(3, 4)" => Box::new(RNN::new(3, 4)),
        "RNN(3, 4, nonlinearity='relu', num_layers=2)" => {
            Box::new(RNN::with(RecurrentOptions::new(3, 4).relu(true).num_layers(2usize))?)
        }
        "LSTM(3, 4, num_layers=2, bidirectional=True, batch_first=True, dropout=0.5)" => {
            let base = RecurrentOptions::new(3, 4).num_layers(2usize).bidirectional(true);
            Box::new(LSTM::with(base.batch_first(true).dropout(0.5))?)
        }
        "GRU(3, 4, bias=False)" => Box::new(GRU::with(RecurrentOptions::new(3, 4).bias(false))?),
        "RNNCell(3, 4)" => Box::new(RNNCell::new(3, 4)),
        "LSTMCell(3, 4, bias=False)" => Box::new(LSTMCell::with(3, 4, false)?),
        "GRUCell(3, 4)" => Box::new(GRUCell::new(3, 4)),
        "MultiheadAttention(6, 2)" => Box::new(MultiheadAttention::new(6, 2)),
        "TransformerEncoderLayer(6, 2, dim_feedforward=8, dropout=0.0)" => {
            Box::new(TransformerEncoderLayer::with(transformer().dropout(0.0))?)
        }
        "TransformerDecoderLayer(6, 2, dim_feedforward=8)" => Box::new(TransformerDecoderLayer::with(transformer())?),
        "TransformerEncoder(TransformerEncoderLayer(6, 2, dim_feedforward=8, dropout=0.0), 2, norm=LayerNorm(6))" => {
            Box::new(TransformerEncoder::with(transformer().dropout(0.0), 2, Some(LayerNorm::new(6)))?)
        }
        "Transformer(6, 2, 1, 2, dim_feedforward=8, dropout=0.0)" => {
            let base = TransformerOptions::new(transformer().dropout(0.0));
            Box::new(base.num_encoder_layers(1usize).num_decoder_layers(2usize).build()?)
        }
        "ChannelShuffle(2)" => Box::new(ChannelShuffle::new(2)),
        "PixelShuffle(2)" => Box::new(PixelShuffle::new(2)),
        "PixelUnshuffle(2)" => Box::new(PixelUnshuffle::new(2)),
        "Unfold((2, 3), dilation=(2, 1), padding=1, stride=(1, 2))" => {
            Box::new(FoldOptions::new([2, 3]).dilation([2, 1]).padding([1, 1]).stride([1, 2]).unfold())
        }
        "Fold((4, 5), 2)" => Box::new(Fold::new([4, 5], 2)),
        "ConstantPad2d((1, 2, 0, 1), 0.5)" => Box::new(ConstantPad2d::new([1, 2, 0, 1], 0.5)),
        "ZeroPad2d((1, 2, 3, 4))" => Box::new(ZeroPad2d::new([1, 2, 3, 4])),
        "ReflectionPad1d((2, 2))" => Box::new(ReflectionPad1d::new([2, 2])),
        "LPPool1d(2.0, 3, stride=2)" => {
            Box::new(LPPool1dOptions { stride: Some([2]), ..LPPool1dOptions::new(2.0, [3]) }.build())
        }
        "LPPool2d(4.0, (2, 1))" => Box::new(LPPool2d::new(4.0, [2, 1])),
        "MaxPool1d(2)" => Box::new(MaxPool1d::new(2)),
        "MaxPool2d((2, 3), stride=1)" => {
            Box::new(MaxPool2dOptions { stride: Some([1, 1]), ..MaxPool2dOptions::new([2, 3]) }.build())
        }
        "AvgPool1d(2)" => Box::new(AvgPool1d::new(2)),
        "AvgPool2d((2, 3), stride=1)" => {
            Box::new(AvgPool2dOptions { stride: Some([1, 1]), ..AvgPool2dOptions::new([2, 3]) }.build())
        }
        "AvgPool3d(2)" => Box::new(AvgPool3d::new(2)),
        "MaxUnpool2d(2)" => Box::new(MaxUnpool2d::new(2)),
        "AdaptiveAvgPool2d(3)" => Box::new(AdaptiveAvgPool2d::new(3)),
        "AdaptiveMaxPool3d((3, 2, 1))" => Box::new(AdaptiveMaxPool3d::new([3, 2, 1])),
        "Softmax2d()" => Box::new(Softmax2d::new()),
        "Softmax(dim=-1)" => Box::new(Softmax::new()),
        "GLU()" => Box::new(GLU::new()),
        "Threshold(0.1, 20.0)" => {
            let mut layer = Threshold::new();
            (layer.threshold, layer.value) = (0.1, 20.0);
            Box::new(layer)
        }
        "Softplus()" => Box::new(Softplus::new()),
        "Softshrink()" => Box::new(Softshrink::new()),
        "Hardtanh()" => Box::new(Hardtanh::new()),
        "ReLU6()" => Box::new(ReLU6::new()),
        "RReLU()" => Box::new(RReLU::new()),
        "LeakyReLU()" => Box::new(LeakyReLU::new()),
        "ELU()" => Box::new(ELU::new()),
        "GELU()" => Box::new(GELU::new()),
        "GELU('tanh')" => {
            let mut layer = GELU::new();
            layer.tanh = true;
            Box::new(layer)
        }
        "ReLU()" => Box::new(ReLU::new()),
        "Dropout(0.3)" => Box::new(Dropout::new(0.3)),
        "AlphaDropout()" => Box::new(AlphaDropout::default()),
        "Flatten()" => Box::new(Flatten::new()),
        "Unflatten(1, (2, 3))" => Box::new(Unflatten::new(1, [2, 3])),
        "CosineSimilarity()" => Box::new(CosineSimilarity::new()),
        "PairwiseDistance()" => Box::new(PairwiseDistance::new()),
        "Upsample(scale_factor=2.0)" => Box::new(Upsample::by(2.0, UpsampleMode::Nearest)),
        "Upsample(size=(2, 3), mode='bilinear', align_corners=True)" => {
            Box::new(Upsample::to([2, 3], UpsampleMode::Linear { align_corners: true }))
        }
        "CrossEntropyLoss()" => Box::new(CrossEntropyLoss::new()),
        "HuberLoss()" => Box::new(HuberLoss::new()),
        "AdaptiveLogSoftmaxWithLoss(8, 10, [3, 7], div_value=2.0)" => {
            Box::new(AdaptiveLogSoftmaxWithLoss::with(8, 10, &[3, 7], 2.0, false)?)
        }
        "ModuleList([Linear(2, 3), Linear(2, 3), Linear(3, 2)])" => {
            Box::new(ModuleList::new([Linear::new(2, 3), Linear::new(2, 3), Linear::new(3, 2)]))
        }
        "ModuleList([])" => Box::new(ModuleList::<Linear>::new([])),
        "ModuleDict({'a': Linear(2, 3)})" => Box::new(ModuleDict::new([("a", Linear::new(2, 3))])),
        "Sequential(Conv2d(1, 2, 3), BatchNorm2d(2), ReLU(), MaxPool2d(2), Flatten(), Dropout(0.3), Linear(8, 3))" => {
            Box::new(sequential![
                Conv2d::new(1, 2, 3),
                BatchNorm2d::new(2),
                ReLU::new(),
                MaxPool2d::new(2),
                Flatten::new(),
                Dropout::new(0.3),
                Linear::new(8, 3),
            ])
        }
        "Sequential()" => Box::new(Sequential::new()),
        other => panic!("no layer {other}"),
    })
}

#[test]
fn layers_print_as_in_pytorch() {
    let text = include_str!("../../../golden/nn/repr.json");
    let rows: serde_json::Map<String, Value> = serde_json::from_str(text).expect("golden data");
    assert!(rows.len() > 80, "{} rows", rows.len());
    for (row, expected) in rows {
        let mut expected = expected.as_str().expect("text").to_string();
        for (theirs, ours) in RENAMED {
            expected = str::replace(&expected, theirs, ours);
        }
        let module = make(&row).unwrap_or_else(|e| panic!("{row}: {e}"));
        assert_eq!(format!("{:?}", module.as_module()), expected, "{row}");
    }
}

/// A model of one's own prints without a line of code for it; a layer prints as itself, not only as `dyn Module`.
#[test]
fn models_print_their_tree() {
    #[derive(Module)]
    struct Net {
        blocks: Vec<Linear>,
        head: Option<Linear>,
        core: ModuleCore,
    }
    let net = Net { blocks: vec![Linear::new(2, 2), Linear::new(2, 2)], head: None, core: ModuleCore::new() };
    let linear = "Linear(in_features=2, out_features=2, bias=True)";
    assert_eq!(format!("{net:?}"), format!("Net(\n  (blocks): ModuleList(\n    (0-1): 2 x {linear}\n  )\n)"));
    assert_eq!(format!("{:?}", Linear::new(2, 2)), linear);
    let norm = firebrand_nn::parametrizations::weight_norm(Linear::new(2, 2), "weight", Some(0)).expect("a weight");
    assert!(
        format!("{norm:?}").starts_with("Linear(\n  in_features=2, out_features=2, bias=True\n  (parametrizations)")
    );
}
