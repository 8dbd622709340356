//! Layers against PyTorch (`golden/nn/layers.json`): names, initial values bit for bit, twenty training steps.
//! Layers that are single ops have no rows: the op table checks those.

use expect_test::expect;
use firebrand_core::random::{Generator, manual_seed, with_generator};
use firebrand_core::{DType, Result, Tensor};
use firebrand_nn::layers::*;
use firebrand_nn::losses::AdaptiveLogSoftmaxWithLoss;
use firebrand_nn::optim::{Optimizer, SGD, SGDOptions};
use firebrand_nn::parametrizations::{
    OrthogonalMap, OrthogonalOptions, SpectralNormOptions, orthogonal, spectral_norm, weight_norm,
};
use firebrand_nn::sequential;
use serde_json::Value;

/// A layer and how it is called: its first output from a list of inputs.
struct Case {
    module: Box<dyn Module>,
    run: fn(&dyn Module, &[Tensor]) -> Result<Tensor>,
}

fn typed<M: Module>(m: &dyn Module) -> &M {
    m.downcast_ref().expect("the case was made of this type")
}

fn one<M: Forward<Tensor, Output = Tensor>>(module: M) -> Case {
    Case { module: Box::new(module), run: |m, x| typed::<M>(m.as_module()).try_call(&x[0]) }
}

fn first<M: Forward<Tensor, Output = (Tensor, O)>, O: TensorTree>(module: M) -> Case {
    Case { module: Box::new(module), run: |m, x| Ok(typed::<M>(m.as_module()).try_call(&x[0])?.0) }
}

fn two<M: Forward<(Tensor, Tensor), Output = Tensor>>(module: M) -> Case {
    let run: fn(&dyn Module, &[Tensor]) -> Result<Tensor> =
        |m, x| typed::<M>(m.as_module()).try_call(&(x[0].clone(), x[1].clone()));
    Case { module: Box::new(module), run }
}

fn three<M: Forward<(Tensor, Tensor, Tensor), Output = Tensor>>(module: M) -> Case {
    let run: fn(&dyn Module, &[Tensor]) -> Result<Tensor> =
        |m, x| typed::<M>(m.as_module()).try_call(&(x[0].clone(), x[1].clone(), x[2].clone()));
    Case { module: Box::new(module), run }
}

/// A lazy layer, which has seen zeros of this shape.
fn lazy<L: LazyLayer>(module: Lazy<L>, sizes: &[usize]) -> Result<Case> {
    module.try_call(&Tensor::zeros(sizes, DType::F32))?;
    let run: fn(&dyn Module, &[Tensor]) -> Result<Tensor> = |m, x| typed::<L>(m.as_module()).try_call(&x[0]);
    Ok(Case { module: Box::new(module), run })
}

/// Lengths of the sequences of `packed` rows.
const LENGTHS: [usize; 3] = [3, 5, 2];

/// The padded output and the last state, flat, one after the other.
fn unpacked(out: &PackedSequence, state: &[Tensor], batch_first: bool) -> Result<Tensor> {
    let (padded, lengths) = pad_packed_sequence(out, batch_first, 0.5, Some(6))?;
    assert_eq!(lengths, LENGTHS);
    let parts: Vec<Tensor> = [padded].iter().chain(state).map(|t| t.flatten(0, -1)).collect();
    firebrand_core::ops::cat(&parts, 0)
}

/// A layer with one state over packed sequences, length first.
fn packed<M: Forward<PackedSequence, Output = (PackedSequence, Tensor)>>(module: M) -> Case {
    let run: fn(&dyn Module, &[Tensor]) -> Result<Tensor> = |m, x| {
        let x = pack_padded_sequence(&x[0], &LENGTHS, false, false)?;
        let (out, state) = typed::<M>(m.as_module()).try_call(&x)?;
        unpacked(&out, &[state], false)
    };
    Case { module: Box::new(module), run }
}

/// A linear layer in f64.
fn double(inputs: usize, outputs: usize) -> Result<Linear> {
    let layer = Linear::new(inputs, outputs);
    layer.to_dtype(DType::F64)?;
    Ok(layer)
}

fn make(name: &str) -> Result<Case> {
    let transformer =
        || TransformerLayerOptions { dim_feedforward: 8, dropout: 0.0, ..TransformerLayerOptions::new(6, 2) };
    Ok(match name {
        "Linear(5, 3)" => one(Linear::new(5, 3)),
        "Linear(5, 3, bias=False)" => one(LinearOptions { bias: false, ..LinearOptions::new(5, 3) }.build()?),
        "Bilinear(3, 4, 2)" => two(Bilinear::new(3, 4, 2)),
        "Conv1d(2, 4, 3)" => one(Conv1d::new(2, 4, 3)),
        "Conv2d(2, 4, 3, stride=2, padding=1)" => {
            let base = Conv2dOptions::new(2, 4, [3, 3]);
            one(Conv2dOptions { stride: [2, 2], padding: Padding::Size([1, 1]), ..base }.build()?)
        }
        "Conv2d(4, 4, (3, 1), groups=2, bias=False, dilation=(2, 1))" => {
            let base = Conv2dOptions::new(4, 4, [3, 1]);
            one(Conv2dOptions { groups: 2, bias: false, dilation: [2, 1], ..base }.build()?)
        }
        "Conv2d(2, 3, 3, padding='same')" => {
            one(Conv2dOptions { padding: Padding::Same, ..Conv2dOptions::new(2, 3, [3, 3]) }.build()?)
        }
        "Conv2d(2, 3, 3, padding=1, padding_mode='reflect')" => {
            let (padding, padding_mode) = (Padding::Size([1, 1]), PaddingMode::Reflect);
            one(Conv2dOptions { padding, padding_mode, ..Conv2dOptions::new(2, 3, [3, 3]) }.build()?)
        }
        "Conv2d(2, 3, 3, padding=(1, 2), padding_mode='circular')" => {
            let (padding, padding_mode) = (Padding::Size([1, 2]), PaddingMode::Circular);
            one(Conv2dOptions { padding, padding_mode, ..Conv2dOptions::new(2, 3, [3, 3]) }.build()?)
        }
        "Conv3d(1, 2, 2)" => one(Conv3d::new(1, 2, 2)),
        "ConvTranspose1d(3, 2, 3, stride=2)" => {
            one(ConvTranspose1dOptions { stride: [2], ..ConvTranspose1dOptions::new(3, 2, [3]) }.build()?)
        }
        "ConvTranspose2d(4, 2, 3, stride=2, padding=1, output_padding=1, groups=2)" => {
            let base = ConvTranspose2dOptions::new(4, 2, [3, 3]);
            let (stride, padding, output_padding) = ([2, 2], [1, 1], [1, 1]);
            one(ConvTranspose2dOptions { stride, padding, output_padding, groups: 2, ..base }.build()?)
        }
        "ConvTranspose3d(1, 2, 2)" => one(ConvTranspose3d::new(1, 2, 2)),
        "BatchNorm1d(3)" => one(BatchNorm1d::new(3)),
        "BatchNorm2d(3)" => one(BatchNorm2d::new(3)),
        "BatchNorm2d(3, momentum=None)" => {
            one(BatchNorm2dOptions { momentum: None, ..BatchNorm2dOptions::new(3) }.build()?)
        }
        "BatchNorm3d(2, affine=False)" => {
            one(BatchNorm3dOptions { affine: false, ..BatchNorm3dOptions::new(2) }.build()?)
        }
        "InstanceNorm1d(3)" => one(InstanceNorm1d::new(3)),
        "InstanceNorm2d(3, affine=True, track_running_stats=True)" => {
            let base = InstanceNorm2dOptions::new(3);
            one(InstanceNorm2dOptions { affine: true, track_running_stats: true, ..base }.build()?)
        }
        "LayerNorm(5)" => one(LayerNorm::new(5)),
        "LayerNorm((2, 3), bias=False)" => {
            one(LayerNormOptions { bias: false, ..LayerNormOptions::new(vec![2, 3]) }.build()?)
        }
        "RMSNorm(5)" => one(RMSNorm::new(5)),
        "GroupNorm(2, 4)" => one(GroupNorm::new(2, 4)),
        "Embedding(7, 3)" => one(Embedding::new(7, 3)),
        "Embedding(7, 3, padding_idx=2, max_norm=1.0)" => {
            let base = EmbeddingOptions::new(7, 3);
            one(EmbeddingOptions { padding_idx: Some(2), max_norm: Some(1.0), ..base }.build()?)
        }
        "PReLU(3)" => one(PReLU::new(3)),
        "RNN(3, 4)" => first(RNN::new(3, 4)),
        "RNN(3, 4, nonlinearity='relu', num_layers=2)" => {
            first(RNN::with(RecurrentOptions { relu: true, num_layers: 2, ..RecurrentOptions::new(3, 4) })?)
        }
        "LSTM(3, 4)" => first(LSTM::new(3, 4)),
        "LSTM(3, 4, num_layers=2, bidirectional=True, batch_first=True)" => {
            let base = RecurrentOptions::new(3, 4);
            first(LSTM::with(RecurrentOptions { num_layers: 2, bidirectional: true, batch_first: true, ..base })?)
        }
        "GRU(3, 4, bias=False)" => first(GRU::with(RecurrentOptions { bias: false, ..RecurrentOptions::new(3, 4) })?),
        "GRU(3, 4)" => first(GRU::new(3, 4)),
        "RNNCell(3, 4)" => one(RNNCell::new(3, 4)),
        "LSTMCell(3, 4)" => first(LSTMCell::new(3, 4)),
        "GRUCell(3, 4)" => one(GRUCell::new(3, 4)),
        "MultiheadAttention(6, 2)" => three(MultiheadAttention::new(6, 2)),
        "MultiheadAttention(6, 3, batch_first=True)" => {
            let base = MultiheadAttentionOptions::new(6, 3);
            three(MultiheadAttentionOptions { batch_first: true, ..base }.build()?)
        }
        "TransformerEncoderLayer(6, 2, dim_feedforward=8, dropout=0.0)" => {
            one(TransformerEncoderLayer::with(transformer())?)
        }
        "TransformerEncoderLayer(6, 2, dim_feedforward=8, dropout=0.0, norm_first=True, activation='gelu', batch_first=True)" =>
        {
            let o = TransformerLayerOptions { norm_first: true, gelu: true, batch_first: true, ..transformer() };
            one(TransformerEncoderLayer::with(o)?)
        }
        "TransformerDecoderLayer(6, 2, dim_feedforward=8, dropout=0.0)" => {
            two(TransformerDecoderLayer::with(transformer())?)
        }
        "TransformerEncoder(TransformerEncoderLayer(6, 2, dim_feedforward=8, dropout=0.0), 2, norm=LayerNorm(6))" => {
            one(TransformerEncoder::with(transformer(), 2, Some(LayerNorm::new(6)))?)
        }
        "TransformerDecoder(TransformerDecoderLayer(6, 2, dim_feedforward=8, dropout=0.0), 2)" => {
            two(TransformerDecoder::with(transformer(), 2, None)?)
        }
        "Transformer(6, 2, 1, 2, dim_feedforward=8, dropout=0.0)" => {
            let base = TransformerOptions::new(transformer());
            two(TransformerOptions { num_encoder_layers: 1, num_decoder_layers: 2, ..base }.build()?)
        }
        "EmbeddingBag(7, 3)" => one(EmbeddingBag::new(7, 3)),
        "EmbeddingBag(7, 3, mode='sum', padding_idx=2, max_norm=1.0)" => {
            let base = EmbeddingBagOptions::new(7, 3);
            let (mode, padding_idx, max_norm) = (BagMode::Sum, Some(2), Some(1.0));
            one(EmbeddingBagOptions { mode, padding_idx, max_norm, ..base }.build()?)
        }
        "EmbeddingBag(7, 3, mode='max')" => {
            one(EmbeddingBagOptions { mode: BagMode::Max, ..EmbeddingBagOptions::new(7, 3) }.build()?)
        }
        "ChannelShuffle(2)" => one(ChannelShuffle::new(2)),
        "Unfold((2, 3), dilation=(2, 1), padding=1, stride=(1, 2))" => {
            let (dilation, padding, stride) = ([2, 1], [1, 1], [1, 2]);
            one(FoldOptions { dilation, padding, stride, ..FoldOptions::new([2, 3]) }.unfold())
        }
        "Fold((4, 5), (2, 2))" => one(Fold::new([4, 5], 2)),
        "ConstantPad2d((1, 2, 0, 1), 0.5)" => one(ConstantPad2d::new([1, 2, 0, 1], 0.5)),
        "LocalResponseNorm(3, alpha=0.1)" => {
            one(LocalResponseNormOptions { alpha: 0.1, ..LocalResponseNormOptions::new(3) }.build())
        }
        "LocalResponseNorm(2, alpha=0.1, beta=0.5, k=2.0)" => {
            one(LocalResponseNormOptions { alpha: 0.1, beta: 0.5, k: 2.0, ..LocalResponseNormOptions::new(2) }.build())
        }
        "LPPool1d(2, 3, stride=2)" => {
            one(LPPool1dOptions { stride: Some([2]), ..LPPool1dOptions::new(2.0, [3]) }.build())
        }
        "LPPool2d(4, (2, 1))" => one(LPPool2d::new(4.0, [2, 1])),
        "Softmax2d()" => one(Softmax2d::new()),
        "CosineSimilarity()" => two(CosineSimilarity::new()),
        "PairwiseDistance(p=1.0, keepdim=True)" => {
            let mut distance = PairwiseDistance::new();
            (distance.p, distance.keepdim) = (1.0, true);
            two(distance)
        }
        "MultiLabelSoftMarginLoss()" => two(firebrand_nn::losses::MultiLabelSoftMarginLoss::new()),
        "LPPool3d(2, 2)" => one(LPPool3d::new(2.0, 2)),
        "AdaptiveLogSoftmaxWithLoss(8, 10, [3, 7], div_value=2.0)" => {
            let module = AdaptiveLogSoftmaxWithLoss::with(8, 10, &[3, 7], 2.0, false)?;
            let run: fn(&dyn Module, &[Tensor]) -> Result<Tensor> =
                |m, x| Ok(typed::<AdaptiveLogSoftmaxWithLoss>(m).try_call(&(x[0].clone(), x[1].clone()))?.0);
            Case { module: Box::new(module), run }
        }
        "weight_norm(Linear(5, 3))" => one(weight_norm(Linear::new(5, 3), "weight", Some(0))?),
        "weight_norm(Conv1d(2, 2, 2), dim=None)" => one(weight_norm(Conv1d::new(2, 2, 2), "weight", None)?),
        "spectral_norm(Linear(5, 3), n_power_iterations=2)" => {
            let options = SpectralNormOptions { n_power_iterations: 2, ..Default::default() };
            one(spectral_norm(Linear::new(5, 3), "weight", options)?)
        }
        "spectral_norm(ConvTranspose2d(3, 2, 2), n_power_iterations=50)" => {
            let options = SpectralNormOptions { dim: 1, n_power_iterations: 50, ..Default::default() };
            one(spectral_norm(ConvTranspose2d::new(3, 2, 2), "weight", options)?)
        }
        "orthogonal(Linear(5, 3).double())" => one(orthogonal(double(5, 3)?, "weight", Default::default())?),
        "orthogonal(Linear(5, 3).double(), use_trivialization=False)" => {
            let options = OrthogonalOptions { use_trivialization: false, ..Default::default() };
            one(orthogonal(double(5, 3)?, "weight", options)?)
        }
        "orthogonal(Linear(4, 4).double())" => one(orthogonal(double(4, 4)?, "weight", Default::default())?),
        "orthogonal(Linear(3, 5).double(), orthogonal_map='matrix_exp')" => {
            let options = OrthogonalOptions { orthogonal_map: Some(OrthogonalMap::MatrixExp), ..Default::default() };
            one(orthogonal(double(3, 5)?, "weight", options)?)
        }
        "orthogonal(Linear(4, 4).double(), orthogonal_map='cayley')" => {
            let options = OrthogonalOptions { orthogonal_map: Some(OrthogonalMap::Cayley), ..Default::default() };
            one(orthogonal(double(4, 4)?, "weight", options)?)
        }
        "LazyLinear(3)" => lazy(LazyLinear::new(3), &[4, 5])?,
        "LazyConv2d(3, 3)" => lazy(LazyConv2d::new(3, 3), &[2, 2, 5, 5])?,
        "LazyConvTranspose1d(2, 3)" => lazy(LazyConvTranspose1d::new(2, 3), &[2, 3, 4])?,
        "LazyBatchNorm2d()" => lazy(LazyBatchNorm2d::new(), &[4, 3, 2, 2])?,
        "LazyInstanceNorm1d()" => lazy(LazyInstanceNorm1d::new(), &[2, 3, 5])?,
        "packed RNN(3, 4, nonlinearity='relu')" => {
            packed(RNN::with(RecurrentOptions { relu: true, ..RecurrentOptions::new(3, 4) })?)
        }
        "packed LSTM(3, 4, num_layers=2, bidirectional=True, batch_first=True)" => {
            let base = RecurrentOptions::new(3, 4);
            let options = RecurrentOptions { num_layers: 2, bidirectional: true, batch_first: true, ..base };
            let run: fn(&dyn Module, &[Tensor]) -> Result<Tensor> = |m, x| {
                let x = pack_padded_sequence(&x[0], &LENGTHS, true, false)?;
                let (out, (h, c)) = typed::<LSTM>(m).try_call(&x)?;
                unpacked(&out, &[h, c], true)
            };
            Case { module: Box::new(LSTM::with(options)?), run }
        }
        "packed GRU(3, 4, num_layers=2, bias=False)" => {
            packed(GRU::with(RecurrentOptions { num_layers: 2, bias: false, ..RecurrentOptions::new(3, 4) })?)
        }
        "Sequential(Conv2d(1, 2, 3), BatchNorm2d(2), ReLU(), MaxPool2d(2), Flatten(), Dropout(0.3), Linear(8, 3))" => {
            one(sequential![
                Conv2d::new(1, 2, 3),
                BatchNorm2d::new(2),
                ReLU::new(),
                MaxPool2d::new(2),
                Flatten::new(),
                Dropout::new(0.3),
                Linear::new(8, 3),
            ])
        }
        other => panic!("no layer {other}"),
    })
}

fn fnv(tensors: &[Parameter]) -> String {
    let bytes = tensors.iter().flat_map(|t| t.to_vec::<f32>()).flat_map(f32::to_le_bytes);
    let hash = bytes.fold(0xCBF29CE484222325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100000001B3));
    format!("{hash:016x}")
}

fn digest(t: &Tensor) -> f64 {
    let values = t.to_dtype(DType::F64).to_vec::<f64>();
    values.iter().enumerate().map(|(k, v)| v * (k as f64).cos()).sum()
}

fn draw(shape: &Value) -> Tensor {
    let sizes =
        |v: &Value| v.as_array().expect("sizes").iter().map(|n| n.as_i64().expect("a size")).collect::<Vec<_>>();
    match shape.as_str() {
        Some(text) => {
            let mut parts = text.splitn(3, ' ').skip(1);
            let below: i64 = parts.next().and_then(|n| n.parse().ok()).expect("a number of classes");
            let shape = serde_json::from_str(parts.next().expect("sizes")).expect("sizes");
            Tensor::randint(0, below, &sizes(&shape)[..], DType::I64)
        }
        None => Tensor::randn(&sizes(shape)[..], DType::F64),
    }
}

fn close(found: f64, expected: f64, what: &str) {
    assert!((found - expected).abs() <= 1e-8 * expected.abs().max(1.0), "{what}: found {found}, expected {expected}");
}

fn check(row: &Value) -> Result<()> {
    let name = row["layer"].as_str().expect("a name");
    let Case { module, run } = with_generator(Generator::new(0), || make(name))?;
    let names: Vec<String> = module.state_dict().keys().cloned().collect();
    assert_eq!(serde_json::json!(names), row["names"], "{name}: names");
    assert_eq!(fnv(&module.parameters()), row["init"].as_str().expect("a hash"), "{name}: initial values");
    module.to_dtype(DType::F64)?;
    let mut optimizer = match &module.parameters()[..] {
        [] => None,
        parameters => Some(SGD::new(parameters, SGDOptions { lr: 0.05, ..Default::default() })?),
    };
    with_generator(Generator::new(1), || {
        let inputs: Vec<Tensor> = row["inputs"].as_array().expect("inputs").iter().map(draw).collect();
        let mut target = None;
        for (step, expected) in row["losses"].as_array().expect("losses").iter().enumerate() {
            let out = run(&*module, &inputs)?;
            let target = target.get_or_insert_with(|| Tensor::randn(out.shape(), DType::F64));
            let loss = (&out - &*target).square().mean();
            close(loss.item(), expected.as_f64().expect("a number"), &format!("{name}: loss {step}"));
            if let Some(o) = &mut optimizer {
                o.zero_grad();
                loss.backward();
                o.step()?;
            }
        }
        Ok::<_, firebrand_core::Error>(())
    })?;
    for ((key, t), expected) in module.state_dict().iter().zip(row["after"].as_array().expect("a list")) {
        close(digest(t), expected.as_f64().expect("a number"), &format!("{name}: {key} after training"));
    }
    Ok(())
}

#[test]
fn layers_start_and_train_as_pytorchs() {
    let golden: Value = serde_json::from_str(include_str!("../../../golden/nn/layers.json")).expect("committed JSON");
    let mut failures = Vec::new();
    for row in golden["layers"].as_array().expect("rows") {
        let outcome = std::panic::catch_unwind(|| check(row).unwrap_or_else(|e| panic!("{}: {e}", row["layer"])));
        if let Err(panic) = outcome {
            failures.push(panic.downcast_ref::<String>().cloned().unwrap_or_default());
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

/// Evaluation mode uses running statistics and no dropout.
#[test]
fn evaluation_mode() {
    let net = sequential![BatchNorm1d::new(2), Dropout::new(0.9)];
    let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0], [2, 2]);
    net.eval();
    let y = net.call(&x).to_vec::<f32>();
    assert!(y.iter().zip(x.to_vec::<f32>()).all(|(a, b)| (a - b).abs() < 1e-4), "{y:?}");
}

#[test]
fn attention_masks_hide() -> Result<()> {
    with_generator(Generator::new(0), || {
        let base = MultiheadAttentionOptions::new(4, 2);
        let attention = MultiheadAttentionOptions { batch_first: true, ..base }.build()?;
        let x = Tensor::randn([1, 3, 4], DType::F32);
        let masks = |o: AttentionOptions| attention.attend(&x, &x, &x, &o);
        let options = AttentionOptions { is_causal: true, need_weights: true, ..Default::default() };
        let causal = masks(options)?;
        let weights = causal.weights.expect("asked for").to_vec::<f32>();
        assert_eq!([weights[1], weights[2], weights[5]], [0.0; 3]);
        // The fast path, an explicit mask and a mask of keys agree with it.
        let later = Tensor::ones([3, 3], DType::Bool).triu(1);
        let padding = Tensor::from_slice(&[false, true, true], [1, 3]);
        let fast = masks(AttentionOptions { is_causal: true, ..Default::default() })?.output;
        let explicit = masks(AttentionOptions { attn_mask: Some(later), ..Default::default() })?.output;
        let padded = masks(AttentionOptions { key_padding_mask: Some(padding), ..Default::default() })?.output;
        let near = |a: &Tensor, b: &Tensor| (a - b).abs().max().item::<f32>() < 1e-6;
        assert!(near(&fast, &causal.output) && near(&explicit, &causal.output));
        assert!(near(&padded.i((.., 0)), &causal.output.i((.., 0))));
        Ok(())
    })
}

/// Attention by blocks of queries has the values and gradients, first and second, of attention that is made of products and
/// softmax: several blocks, fewer and more keys than queries, keys and values as views of one tensor.
#[test]
fn attention_by_blocks() -> Result<()> {
    use firebrand_core::autograd::{GradOptions, grad};
    use firebrand_core::ops::scaled_dot_product_attention;
    with_generator(Generator::new(0), || {
        for (causal, keys) in [(false, 70), (true, 150), (true, 70), (true, 170)] {
            let leaf = |sizes: &[usize]| Tensor::randn(sizes, DType::F64).requires_grad_();
            let (query, both) = (leaf(&[2, 150, 3, 4]), leaf(&[2, keys, 2, 3, 4]));
            let weights = Tensor::randn([2, 3, 150, 4], DType::F64);
            let seen = Tensor::ones([150, keys], DType::Bool);
            let seen = if causal { seen.tril(0) } else { seen };
            // A mask that wants a gradient is added to the matrix of products.
            let added = Tensor::zeros([150, keys], DType::F64).masked_fill(&seen.logical_not(), f64::NEG_INFINITY);
            let added = added.requires_grad_();
            let attend = |mask: Option<&Tensor>| -> Result<Tensor> {
                let parts = both.permute([2, 0, 3, 1, 4]);
                let (q, k, v) = (query.transpose(1, 2), parts.i(0), parts.i(1));
                let out =
                    scaled_dot_product_attention(&q, &k, &v, mask, 0.0, causal && mask.is_none(), Some(0.7), false)?;
                let by_blocks =
                    out.grad_fn().expect("recorded").name() == "ScaledDotProductFlashAttentionForCpuBackward0";
                assert_eq!(by_blocks, !mask.is_some_and(Tensor::requires_grad));
                Ok(out)
            };
            let results = |mask: Option<&Tensor>| -> Result<Vec<Tensor>> {
                let (inputs, out) = ([&query, &both], attend(mask)?);
                let first = grad(&(&out * &weights).sum(), inputs, &GradOptions::default())?;
                let recorded = grad(&(attend(mask)? * &weights).sum(), inputs, &GradOptions::create_graph())?;
                let bend = recorded.iter().flatten().map(|g| g.square().sum()).reduce(|a, b| a + b).expect("two");
                let second = grad(&bend, inputs, &GradOptions::default())?;
                let all = [out].into_iter().chain([first, recorded, second].into_iter().flatten().flatten());
                Ok(all.map(|t| t.detach()).collect())
            };
            let expected = results(Some(&added))?;
            for (by, mask) in [("no mask", None), ("a mask of bools", Some(&seen))] {
                let found = results(mask)?;
                assert_eq!((found.len(), expected.len()), (7, 7));
                for (k, (f, e)) in found.iter().zip(&expected).enumerate() {
                    let off = (f - e).abs().max().item::<f64>() / e.abs().max().item::<f64>();
                    assert!(off < 1e-12, "{by}, causal {causal}, {keys} keys, result {k}: off by {off}");
                }
            }
        }
        Ok(())
    })
}

#[test]
fn pooling_is_undone() -> Result<()> {
    let x = Tensor::from_slice(&[1.0f32, 5.0, 2.0, 0.0, 3.0, 4.0, 7.0, 6.0], [1, 1, 2, 4]);
    let (largest, places) = MaxPool2d::new(2).with_indices(&x)?;
    assert_eq!((largest.to_vec::<f32>(), places.to_vec::<i64>()), (vec![5.0, 7.0], vec![1, 6]));
    let unpool = MaxUnpool2d::new(2);
    let back = unpool.try_call(&(largest.clone(), places.clone()))?;
    assert_eq!((back.shape(), back.to_vec::<f32>()), (x.shape(), vec![0.0, 5.0, 0.0, 0.0, 0.0, 0.0, 7.0, 0.0]));
    assert_eq!(unpool.to_size(&largest, &places, [3, 5])?.shape(), [1, 1, 3, 5]);
    Ok(())
}

/// Value and gradients are PyTorch's, also where the variance is below its floor.
#[test]
fn gaussian_loss() -> Result<()> {
    use firebrand_nn::losses::GaussianNLLLoss;
    let x = Tensor::new(&[1.0f64, 2.0, -1.0]).requires_grad_();
    let variance = Tensor::new(&[1.0f64, 0.25, 0.0]).requires_grad_();
    let mut criterion = GaussianNLLLoss::new();
    (criterion.full, criterion.eps) = (true, 0.1);
    let loss = criterion.try_call(&(x.clone(), Tensor::new(&[0.5f64, 2.5, 0.0]), variance.clone()))?;
    close(loss.item(), 2.17912529085235, "loss");
    loss.backward();
    let found = [x.grad().expect("set").to_vec::<f64>(), variance.grad().expect("set").to_vec::<f64>()].concat();
    let expected = [1.0 / 6.0, -2.0 / 3.0, -10.0 / 3.0, 0.125, 0.0, -15.0];
    found.iter().zip(expected).for_each(|(f, e)| close(*f, e, "gradient"));
    Ok(())
}

/// Losses and gradients are PyTorch's (`golden/nn/ctc.json`): repeated classes, empty and impossible targets.
#[test]
fn temporal_classification() -> Result<()> {
    use firebrand_nn::losses::{CTCLoss, Reduction};
    let rows: Value = serde_json::from_str(include_str!("../../../golden/nn/ctc.json")).expect("committed JSON");
    for row in rows.as_array().expect("rows") {
        let numbers = |v: &Value| v.as_array().expect("a list").iter().map(|n| n.as_i64().expect("a number")).collect();
        let lengths = |key: &str| Vec::from_iter(Vec::<i64>::into_iter(numbers(&row[key])).map(|n| n as usize));
        let targets: Vec<i64> =
            row["targets"].as_array().expect("rows").iter().flat_map(|r| -> Vec<i64> { numbers(r) }).collect();
        let targets = Tensor::from_slice(&targets, [4, targets.len() / 4]);
        let mut ctc = CTCLoss::new();
        ctc.blank = row["blank"].as_u64().unwrap_or(0) as usize;
        ctc.zero_infinity = row["zero_infinity"].as_bool().unwrap_or(false);
        ctc.reduction = match row["reduction"].as_str() {
            Some("sum") => Reduction::Sum,
            Some("none") => Reduction::None,
            _ => Reduction::Mean,
        };
        let scores = with_generator(Generator::new(0), || Tensor::randn([6, 4, 5], DType::F64)).requires_grad_();
        let loss = ctc.loss(&scores.log_softmax(2), &targets, &lengths("input"), &lengths("target"))?;
        let weights = Tensor::arange(1, loss.numel() as i64 + 1, 1, DType::F64).view_as(&loss);
        (&loss * weights).sum().backward();
        let found = [loss.flatten(0, -1).to_vec::<f64>(), scores.grad().expect("set").flatten(0, -1).to_vec::<f64>()];
        for (found, key) in found.iter().zip(["loss", "grad"]) {
            let expected = row[key].as_array().expect("a list");
            assert_eq!(found.len(), expected.len());
            found.iter().zip(expected).for_each(|(f, e)| close(*f, e.as_f64().expect("a number"), key));
        }
    }
    let impossible = CTCLoss::new().loss(
        &Tensor::zeros([1, 1, 3], DType::F64).log_softmax(2),
        &Tensor::from_slice(&[1i64, 2], [1, 2]),
        &[1],
        &[2],
    )?;
    assert_eq!(impossible.item::<f64>(), f64::INFINITY);
    expect!["CTCLoss: expected log-probabilities [time, batch, classes] and targets [batch, longest], found [] and []"]
        .assert_eq(&CTCLoss::new().loss(&impossible, &impossible, &[], &[]).unwrap_err().to_string());
    Ok(())
}

/// A packed sequence holds what its parts do, and gives them back in their order; a state goes to its own sequence.
#[test]
fn packed_sequences() -> Result<()> {
    let parts = [2usize, 4, 1].map(|n| Tensor::arange(0, n as i64, 1, DType::F64).unsqueeze(1) + n as f64 * 10.0);
    let packed = pack_sequence(&parts, false)?;
    assert_eq!(packed.data.flatten(0, -1).to_vec::<f64>(), [40.0, 20.0, 10.0, 41.0, 21.0, 42.0, 43.0]);
    assert_eq!(packed.batch_sizes, [3, 2, 1, 1]);
    for (found, expected) in unpack_sequence(&packed)?.iter().zip(&parts) {
        assert_eq!(found.to_vec::<f64>(), expected.to_vec::<f64>());
    }
    with_generator(Generator::new(0), || {
        let gru = GRU::new(1, 2);
        gru.to_dtype(DType::F64)?;
        let start = Tensor::randn([1, 3, 2], DType::F64);
        let (_, last) = gru.try_call(&(packed, start.clone()))?;
        for (k, part) in parts.iter().enumerate() {
            let alone = gru.try_call(&(part.clone(), start.i((.., k))))?.1.to_vec::<f64>();
            last.i((.., k))
                .contiguous()
                .to_vec::<f64>()
                .iter()
                .zip(alone)
                .for_each(|(f, e)| close(*f, e, "last state"));
        }
        let refused = pack_padded_sequence(&Tensor::ones([4, 2, 1], DType::F32), &[2, 4], false, true);
        assert!(refused.expect_err("not sorted").to_string().contains("enforce_sorted"));
        Ok(())
    })
}

/// A layer that is no longer parametrized computes what it did; parameters are found by name.
#[test]
fn parametrizations_end() -> Result<()> {
    with_generator(Generator::new(0), || {
        let x = Tensor::randn([2, 4], DType::F32);
        let layer = spectral_norm(Linear::new(4, 3), "weight", Default::default())?;
        layer.eval();
        let before = layer.call(&x).to_vec::<f32>();
        assert_eq!(layer.into_layer()?.call(&x).to_vec::<f32>(), before);
        let refused = weight_norm(Linear::new(4, 3), "wait", Some(0)).expect_err("no such parameter").to_string();
        assert!(refused.contains(r#"["weight", "bias"], found "wait""#), "{refused}");
        Ok(())
    })
}

#[test]
fn parameter_containers_have_names() {
    let t = |v: f32| Tensor::new(&[v]);
    let list = ParameterList::new([t(1.0), t(2.0)]);
    let dict = ParameterDict::new([("left", t(3.0)), ("right", t(4.0))]);
    let names = |m: &dyn Module| m.named_parameters().into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    assert_eq!((names(&list), names(&dict)), (vec!["0".into(), "1".into()], vec!["left".into(), "right".into()]));
    assert_eq!((list[1].to_vec::<f32>(), dict["left"].to_vec::<f32>()), (vec![2.0], vec![3.0]));
}

#[test]
fn parameters_as_a_vector() -> Result<()> {
    use firebrand_nn::utils::{parameters_to_vector, vector_to_parameters};
    let layer = Linear::new(2, 2);
    vector_to_parameters(&Tensor::new(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0]), layer.parameters())?;
    assert_eq!(layer.bias.as_ref().expect("has one").to_vec::<f32>(), [5.0, 6.0]);
    assert_eq!(parameters_to_vector(layer.parameters())?.to_vec::<f32>(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    expect!["vector_to_parameters: expected a vector of 6 elements, found shape [1]"]
        .assert_eq(&vector_to_parameters(&Tensor::new(&[1.0f32]), layer.parameters()).unwrap_err().to_string());
    Ok(())
}

#[test]
fn triplets_by_any_distance() -> Result<()> {
    use firebrand_nn::losses::{TripletMarginLoss, TripletMarginWithDistanceLoss};
    with_generator(Generator::new(0), || {
        let triple = [(); 3].map(|()| Tensor::randn([5, 4], DType::F64));
        let triple = (triple[0].clone(), triple[1].clone(), triple[2].clone());
        let found = TripletMarginWithDistanceLoss::default().try_call(&triple)?.item::<f64>();
        close(found, TripletMarginLoss::new().try_call(&triple)?.item(), "Euclidean");
        let mut taxi = TripletMarginWithDistanceLoss::new(|a, b| (a - b).abs().try_sum_dim(-1, false));
        (taxi.margin, taxi.swap) = (0.5, true);
        let mut expected = TripletMarginLoss::new();
        (expected.p, expected.margin, expected.swap, expected.eps) = (1.0, 0.5, true, 0.0);
        close(taxi.try_call(&triple)?.item(), expected.try_call(&triple)?.item(), "the sum of differences");
        Ok(())
    })
}

#[test]
fn refusals_say_what_was_expected() {
    let message = |r: Result<()>| r.expect_err("refused").to_string();
    assert!(
        message(Conv2dOptions { groups: 3, ..Conv2dOptions::new(4, 6, [1, 1]) }.build().map(drop))
            .contains("divisible by 3 groups, found 4 in and 6 out")
    );
    assert!(message(GroupNormOptions::new(3, 4).build().map(drop)).contains("divisible by 3 groups"));
    assert!(message(Dropout::try_new(1.5).map(drop)).contains("from 0 to 1, found 1.5"));
    let x = Tensor::ones([2, 3], DType::F32);
    assert!(message(BatchNorm2d::new(3).try_call(&x).map(drop)).contains("[batch, channels, height, width]"));
    assert!(message(LSTM::new(4, 2).try_call(&x).map(drop)).contains("sequences of size 4"));
}

#[test]
fn options_are_set_by_method() {
    manual_seed(0);
    let layer = Conv2d::new(3, 8, 3).padding(1).stride([2, 1]);
    manual_seed(0);
    let options = Conv2dOptions::new(3, 8, [3, 3]).padding(1).stride([2, 1]);
    assert_eq!(options.padding, Padding::Size([1, 1]));
    let same = options.build().unwrap();
    assert_eq!(layer.weight.to_vec::<f32>(), same.weight.to_vec::<f32>(), "settings draw nothing");
    let x = Tensor::ones([1, 3, 6, 6], DType::F32);
    assert_eq!(layer.call(&x).shape(), [1, 8, 3, 6]);
    assert_eq!(layer.call(&x).to_vec::<f32>(), same.call(&x).to_vec::<f32>());
    let around = Conv2d::new(3, 8, 3).padding(Padding::Same).padding_mode(PaddingMode::Circular).dilation(2);
    assert_eq!(around.call(&x).shape(), [1, 8, 6, 6]);
    assert!(LinearOptions::new(2, 2).bias(false).build().unwrap().bias.is_none());
    assert_eq!(MaxPool2dOptions::new([2, 2]).stride(1).stride, Some([1, 1]));
    let refused = std::panic::catch_unwind(|| Conv2d::new(3, 8, 3).padding(Padding::Same).stride(2)).err().unwrap();
    let message = refused.downcast_ref::<String>().unwrap();
    assert!(message.contains("expected stride 1 with same padding, found [2, 2]"), "{message}");
}
