//! Reverse-mode automatic differentiation: the graph, its engine, hooks, saved tensors, modes and forward mode.

pub(crate) mod accumulate;
pub(crate) mod anomaly;
pub(crate) mod api;
mod arrivals;
pub(crate) mod autocast;
pub(crate) mod checkpoint;
pub(crate) mod early;
pub(crate) mod engine;
pub(crate) mod formula;
pub(crate) mod forward;
pub(crate) mod function;
pub(crate) mod grad_slot;
pub(crate) mod gradcheck;
pub(crate) mod graph;
pub(crate) mod graph_view;
pub(crate) mod hook_table;
pub(crate) mod hooks;
pub(crate) mod logging;
pub(crate) mod mode;
pub(crate) mod multi_grad;
pub(crate) mod mutation;
pub(crate) mod node;
pub(crate) mod offload;
pub(crate) mod record;
pub mod runner;
pub(crate) mod saved;
pub(crate) mod saved_scopes;
pub(crate) mod saved_visit;
#[cfg(all(test, feature = "shuttle"))]
mod schedules;
pub(crate) mod selective;
pub(crate) mod stamp;
pub(crate) mod view;
pub(crate) mod view_replay;

pub use anomaly::{detect_anomaly, is_anomaly_enabled, set_detect_anomaly, set_trace_provider};
pub use api::{BackwardOptions, GradOptions, Target, Targets, backward, grad, grad_map};
pub use autocast::{
    AutocastGuard, AutocastOptions, CastOnce, RegionCasts, autocast, autocast_dtype, call_with_autocast,
    call_with_casts, is_autocast_enabled,
};
pub use checkpoint::{
    CheckpointContexts, CheckpointOptions, ContextFn, DeterminismCheck, EarlyStopGuard, checkpoint,
    checkpoint_sequential, set_checkpoint_early_stop,
};
pub use engine::{
    current_graph_task_execution_order, current_graph_task_id, current_graph_task_keep_graph, current_node,
    queue_callback, will_engine_execute_node,
};
pub use forward::{dual_level, enter_dual_level, exit_dual_level, is_dual_level_active, make_dual, unpack_dual};
pub use function::{BatchedOutputs, Context, Function, VmapInfo, apply_function, delayed_error};
pub use gradcheck::{GradcheckOptions, gradcheck, gradgradcheck};
pub use graph::{
    iter_graph, region_activation_memory_budget, set_override_stale_capture_stream,
    set_warn_on_accumulate_grad_stream_mismatch,
};
pub use graph_view::{GraphView, Saved};
pub use hook_table::{HookGuard, Removable, RemovableHandle};
pub use hooks::{CreationHookGuard, HookResult, PostAccumulateResult, node_creation_hook};
pub use logging::{LoggingHooks, register_logging_hooks_on_whole_graph};
pub use mode::{
    EnableGrad, ForwardGradScope, GradModeChange, GradModeScope, InferenceMode, NoGrad, enable_grad,
    enforce_grad_layout_policy, inference_mode, is_fwd_grad_enabled, is_grad_enabled, is_inference_mode_enabled,
    is_multithreading_enabled, no_grad, set_fwd_grad_enabled, set_grad_enabled, set_multithreading_enabled,
};
pub use multi_grad::{MultiHandle, MultiHookGuard, register_multi_grad_hook, register_multi_grad_hook_any};
pub use mutation::{MutationCounts, MutationGuard, allow_mutation_on_saved_tensors};
pub use node::{
    Backward, BoxedBackward, Edge, Edges, GradientEdge, Gradients, InputMetadata, Metadata, Needs, Node, WeakNode,
    Wishes, get_gradient_edge,
};
pub use offload::{SpillStore, Spilled, save_compressed, save_in_store};
pub use saved::{Look, Packed, SavedAt, SavedHooks, SavedTensor, SavedValue};
pub use saved_scopes::{
    DisabledGuard, PreserveVersions, SavedHooksGuard, disable_saved_tensors_hooks, increment_version, push_saved_hooks,
    save_on_cpu, saved_tensors_hooks, saved_tensors_hooks_disabled, unsafe_preserve_version_counter,
    unsafe_set_version_counter,
};
pub use saved_visit::SavedVisitor;
pub use selective::{CheckpointPolicy, SelectiveContext, create_selective_checkpoint_contexts};
pub use view_replay::{ViewReplay, is_view_replay_enabled, set_view_replay};
