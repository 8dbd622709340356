//! remainders: how many neighbors of a size have to be looked at before a quotient is known.

use crate::ir::{Expr, GraphModule, Head, SymInt, Val};

/// How many neighbors of a size are tried at most.
const MAX_REMAINDERS: i64 = 64;

/// The largest number that sizes in a graph are divided by, if not so many neighbors were looked at yet: `(s + 1) / 4` and
/// `(s + 2) / 4` differ for one of four sizes.
pub(crate) fn remainders(module: &GraphModule, looked_at: i64) -> Option<i64> {
    Some(largest_divisor(module).min(MAX_REMAINDERS)).filter(|divisor| *divisor > looked_at)
}

/// The largest number that sizes in a graph are divided by.
fn largest_divisor(module: &GraphModule) -> i64 {
    fn of(expr: &Expr) -> i64 {
        let Expr::Call(head, args) = expr else { return 1 };
        let own = match (head, args.last()) {
            (Head::FloorDiv, Some(Expr::Int(n))) => *n,
            _ => 1,
        };
        args.iter().map(of).max().unwrap_or(1).max(own)
    }
    fn in_val(val: &Val) -> i64 {
        match val {
            Val::Tensor(meta) => meta.sizes.iter().filter_map(SymInt::expr).map(of).max().unwrap_or(1),
            Val::SymInt(s) => s.expr().map_or(1, of),
            Val::Tuple(items) | Val::List(items) => items.iter().map(in_val).max().unwrap_or(1),
            _ => 1,
        }
    }
    let graph = &module.graph;
    let own = graph.nodes().filter_map(|n| graph[n].meta().val.as_ref()).map(in_val).max().unwrap_or(1);
    module.subgraphs().map(|(_, g)| largest_divisor(g)).max().unwrap_or(1).max(own)
}
