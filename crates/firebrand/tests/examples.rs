//! Every example runs to its end; each asserts what it claims.

#[path = "../examples/custom_function.rs"]
mod custom_function;
#[path = "../examples/higher_order.rs"]
mod higher_order;
#[path = "../examples/hooks.rs"]
mod hooks;
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
fn training_by_hand() {
    train_mlp::main();
}
