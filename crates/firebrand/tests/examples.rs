//! Every example runs to its end; each asserts what it claims.

#![allow(dead_code)] // the long ones are run for a few steps; their `main` takes more

#[path = "../examples/bert_classifier.rs"]
mod bert_classifier;
#[path = "../examples/char_gpt.rs"]
mod char_gpt;
#[path = "../examples/custom_function.rs"]
mod custom_function;
#[path = "../examples/custom_op.rs"]
mod custom_op;
#[path = "../examples/digits_cnn.rs"]
mod digits_cnn;
#[path = "../examples/export.rs"]
mod export;
#[path = "../examples/fine_tune.rs"]
mod fine_tune;
#[path = "../examples/higher_order.rs"]
mod higher_order;
#[path = "../examples/hooks.rs"]
mod hooks;
#[path = "../examples/hvp.rs"]
mod hvp;
#[path = "../examples/implicit_differentiation.rs"]
mod implicit_differentiation;
#[path = "../examples/llama.rs"]
mod llama;
#[path = "../examples/maml.rs"]
mod maml;
#[path = "../examples/memory.rs"]
mod memory;
#[path = "../examples/module.rs"]
mod module;
#[path = "../examples/per_sample_gradients.rs"]
mod per_sample_gradients;
#[path = "../examples/physics_informed.rs"]
mod physics_informed;
#[path = "../examples/q_learning.rs"]
mod q_learning;
#[path = "../examples/train_mlp.rs"]
mod train_mlp;
#[path = "../examples/vae.rs"]
mod vae;
#[path = "../examples/vit.rs"]
mod vit;

#[test]
fn models_of_transformers_by_their_names() {
    llama::main().expect("llama");
    vit::main().expect("vit");
    bert_classifier::main().expect("bert");
}

#[test]
fn custom_functions() {
    custom_function::main().expect("no error");
}

#[test]
fn custom_ops() {
    custom_op::main().expect("no error");
}

#[test]
fn higher_orders() {
    higher_order::main().expect("no error");
}

#[test]
fn hooks_of_every_kind() {
    hooks::main().expect("no error");
}

#[test]
fn memory_of_a_step() {
    memory::main().expect("no error");
}

#[test]
fn a_module_of_ones_own() {
    module::main().expect("no error");
}

#[test]
fn training_by_hand() {
    train_mlp::main();
}

#[test]
fn a_program_of_pytorch_is_fine_tuned() {
    fine_tune::main().expect("no error");
}

#[test]
fn hessian_vector_products() {
    hvp::main().expect("no error");
}

#[test]
fn implicit_functions() {
    implicit_differentiation::main().expect("no error");
}

#[test]
fn meta_learning() {
    maml::main().expect("no error");
}

#[test]
fn gradients_of_every_sample() {
    per_sample_gradients::main().expect("no error");
}

#[test]
fn an_equation_as_a_loss() {
    physics_informed::main().expect("no error");
}

#[test]
fn a_convolutional_network() {
    assert!(digits_cnn::run(2).expect("no error") > 0.9);
}

#[test]
fn a_transformer_that_writes() {
    let (first, last, _) = char_gpt::run(20).expect("no error");
    assert!(last < 0.9 * first, "{first} {last}");
}

#[test]
fn an_autoencoder() {
    let (before, after) = vae::run(3).expect("no error");
    assert!(after < before, "{before} {after}");
}

#[test]
fn q_learning_finds_the_way_out() {
    q_learning::main().expect("no error");
}

#[test]
fn programs_are_exported() {
    export::in_scratch().expect("no error");
}
