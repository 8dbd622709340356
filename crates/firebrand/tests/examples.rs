//! Every example runs to its end; each asserts what it claims.

#[path = "../examples/custom_function.rs"]
mod custom_function;
#[path = "../examples/higher_order.rs"]
mod higher_order;
#[path = "../examples/hooks.rs"]
mod hooks;
#[path = "../examples/hvp.rs"]
mod hvp;
#[path = "../examples/implicit_differentiation.rs"]
mod implicit_differentiation;
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
#[path = "../examples/train_mlp.rs"]
mod train_mlp;

#[test]
fn custom_functions() {
    custom_function::main().expect("no error");
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
