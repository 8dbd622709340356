//! Profiles as files that trace viewers open: the trace event format of Chrome, which Perfetto reads too.

use crate::{Result, write_text};
use firebrand_core::profiler::{EventKind, Profile};
use serde_json::{Value, json};
use std::path::Path;

/// The profile in the trace event format: one complete event per op, microseconds from the beginning.
pub fn chrome_trace(profile: &Profile) -> Value {
    let events: Vec<Value> = profile
        .events
        .iter()
        .map(|e| {
            let category = match e.kind {
                EventKind::Op => "op",
                EventKind::Compiled => "compiled",
                _ => "function",
            };
            json!({
                "name": e.name,
                "cat": category,
                "ph": "X",
                "pid": 1,
                "tid": e.thread,
                "ts": e.start.as_secs_f64() * 1e6,
                "dur": e.duration.as_secs_f64() * 1e6,
                "args": {
                    "pass": if e.backward { "backward" } else { "forward" },
                    "within": e.within.as_deref(),
                    "sizes": e.sizes,
                    "flops": e.work.flops,
                    "bytes": e.work.bytes,
                },
            })
        })
        .collect();
    json!({ "displayTimeUnit": "ms", "traceEvents": events })
}

/// Writes the profile as a trace that `chrome://tracing` and Perfetto open.
pub fn export_chrome_trace(profile: &Profile, path: impl AsRef<Path>) -> Result<()> {
    write_text(path, &chrome_trace(profile).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use firebrand_core::profiler::{profile, record_function};
    use firebrand_core::{DType, Tensor};

    #[test]
    fn every_event_is_in_the_trace() {
        let x = Tensor::ones([4, 4], DType::F32).requires_grad_();
        let ((), profile) = profile(|| {
            let _label = record_function("step \"1\"");
            x.matmul(&x).sum().backward()
        });
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("trace.json");
        export_chrome_trace(&profile, &file).unwrap();
        let read: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
        let events = read["traceEvents"].as_array().unwrap();
        assert_eq!(events.len(), profile.events.len());
        let forward = events.iter().find(|e| e["name"] == "aten::mm").unwrap();
        assert_eq!((&forward["ph"], &forward["args"]["within"]), (&json!("X"), &json!("step \"1\"")));
        assert_eq!((&forward["args"]["sizes"], &forward["args"]["flops"]), (&json!([[4, 4], [4, 4]]), &json!(128)));
        assert!(events.iter().any(|e| e["args"]["pass"] == "backward" && e["name"] == "aten::mm"), "{events:?}");
        let label = events.iter().find(|e| e["cat"] == "function").unwrap();
        assert!(label["dur"].as_f64() >= forward["dur"].as_f64());
    }
}
