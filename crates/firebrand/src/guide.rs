#![doc = include_str!("guide/links.txt")]
#![doc = include_str!("guide/README.md")]

// Chapters are read as plain files too, where a link to `crate::…` is dead. So they only name items in brackets, and `links.txt`
// has the targets. It comes first: of two definitions of a link the first counts, and those in a file lead to other files.

#[doc = include_str!("guide/links.txt")]
#[doc = include_str!("guide/first_model.md")]
pub mod first_model {}

#[doc = include_str!("guide/links.txt")]
#[doc = include_str!("guide/coming_from_pytorch.md")]
pub mod coming_from_pytorch {}

#[doc = include_str!("guide/links.txt")]
#[doc = include_str!("guide/hooks.md")]
pub mod hooks {}

#[doc = include_str!("guide/links.txt")]
#[doc = include_str!("guide/memory.md")]
pub mod memory {}

#[doc = include_str!("guide/links.txt")]
#[doc = include_str!("guide/where_does_the_time_go.md")]
pub mod where_does_the_time_go {}

#[doc = include_str!("guide/links.txt")]
#[doc = include_str!("guide/threads.md")]
pub mod threads {}

#[doc = include_str!("guide/links.txt")]
#[doc = include_str!("guide/compile_and_hooks.md")]
pub mod compile_and_hooks {}

#[doc = include_str!("guide/links.txt")]
#[doc = include_str!("guide/why_did_it_recompile.md")]
pub mod why_did_it_recompile {}

#[doc = include_str!("guide/links.txt")]
#[doc = include_str!("guide/find_the_nan.md")]
pub mod find_the_nan {}

#[doc = include_str!("guide/links.txt")]
#[doc = include_str!("guide/see_the_graph.md")]
pub mod see_the_graph {}

#[doc = include_str!("guide/links.txt")]
#[doc = include_str!("guide/write_an_op.md")]
pub mod write_an_op {}

#[doc = include_str!("guide/links.txt")]
#[doc = include_str!("guide/write_a_pass.md")]
pub mod write_a_pass {}

#[doc = include_str!("guide/links.txt")]
#[doc = include_str!("guide/export.md")]
pub mod export {}

#[doc = include_str!("guide/links.txt")]
#[doc = include_str!("guide/fine_tune.md")]
pub mod fine_tune {}

#[doc = include_str!("guide/links.txt")]
#[doc = include_str!("guide/adapters.md")]
pub mod adapters {}

#[doc = include_str!("guide/links.txt")]
#[doc = include_str!("guide/many_processes.md")]
pub mod many_processes {}

#[doc = include_str!("guide/links.txt")]
#[doc = include_str!("guide/on_devices.md")]
pub mod on_devices {}
