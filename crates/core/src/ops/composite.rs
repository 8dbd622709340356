//! Ops that are built of other ops: differentiable through them, so they need no formula.
