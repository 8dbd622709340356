//! Case C-58 and the ids of C-40: alone in its process, because ids count the runs of the whole process.
#![allow(clippy::unwrap_used)]

use firebrand_core::Tensor;
use firebrand_core::autograd::{GradOptions, current_graph_task_id, grad};
use std::sync::{Arc, Mutex};

/// C-58
#[test]
fn ids_count_up_by_one() {
    let ids = Arc::new(Mutex::new(Vec::new()));
    let i = ids.clone();
    let x = Tensor::scalar(1.0f64).requires_grad_();
    x.register_hook(move |_| i.lock().unwrap().push(current_graph_task_id()));
    (&x * 2.0).backward();
    (&x * 2.0).backward();
    grad(&(&x * 2.0), &x, &GradOptions::default()).unwrap();
    let ids = ids.lock().unwrap();
    assert_eq!((ids[1], ids[2]), (ids[0] + 1, ids[0] + 2));
}
