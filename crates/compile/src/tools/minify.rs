//! The minifier: the smallest part of a graph that still fails.
//!
//! Three kinds of cuts are tried again and again, each kept if the predicate still holds: an earlier node becomes the only
//! result, a computed value becomes an input, a node is replaced by one of its operands of the same kind. The predicate sees
//! a complete graph with inputs to run it on; it may test for an error, a wrong result, or anything else.

use super::extract::{Piece, node_values, returned};
use crate::backend::Value;
use crate::error::{Error, Result};
use firebrand_graph::ir::{GraphModule, Meta, NodeId, TensorMeta};
use firebrand_graph::text::{Form, print_module};
use std::collections::HashMap;
use std::fmt::Write;

/// A graph that cannot be reduced further, with inputs it fails on.
#[derive(Debug)]
pub struct Minified {
    /// The graph.
    pub graph: GraphModule,
    /// One value per placeholder.
    pub inputs: Vec<Value>,
    /// How often the predicate was evaluated.
    pub tries: usize,
}

/// Shrinks a graph for which `fails` holds.
///
/// # Errors
/// If the eager run fails, or `fails` does not hold for the graph as it is.
pub fn minify(
    graph: &GraphModule,
    inputs: &[Value],
    fails: &mut dyn FnMut(&GraphModule, &[Value]) -> bool,
) -> Result<Minified> {
    let values = node_values(graph, inputs)?;
    let piece = Piece { outputs: returned(graph), ..Piece::default() };
    let mut m = Minifier { graph, values, fails, piece, tries: 0 };
    if !m.holds(&m.piece.clone())? {
        return Err(Error::internal("there is nothing to minify: the predicate does not hold for the whole graph"));
    }
    while m.truncate()? | m.cut()? | m.replace()? {}
    let (graph, inputs) = m.piece.build(graph, &m.values)?;
    Ok(Minified { graph, inputs, tries: m.tries })
}

struct Minifier<'a> {
    graph: &'a GraphModule,
    values: HashMap<NodeId, Value>,
    fails: &'a mut dyn FnMut(&GraphModule, &[Value]) -> bool,
    piece: Piece,
    tries: usize,
}

impl Minifier<'_> {
    fn holds(&mut self, piece: &Piece) -> Result<bool> {
        let (graph, inputs) = piece.build(self.graph, &self.values)?;
        self.tries += 1;
        Ok((self.fails)(&graph, &inputs))
    }

    /// Takes the change if the graph still fails.
    fn accept(&mut self, piece: Piece) -> Result<bool> {
        let holds = self.holds(&piece)?;
        if holds {
            self.piece = piece;
        }
        Ok(holds)
    }

    fn is_tensor(&self, n: NodeId) -> bool {
        matches!(self.values.get(&n), Some(Value::Tensor(_)))
    }

    /// The earliest node that alone is enough as a result.
    fn truncate(&mut self) -> Result<bool> {
        for n in self.piece.calls(self.graph) {
            if self.is_tensor(n)
                && self.piece.outputs != [n]
                && self.accept(Piece { outputs: vec![n], ..self.piece.clone() })?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Turns computed values into inputs, the latest first.
    fn cut(&mut self) -> Result<bool> {
        let mut any = false;
        for n in self.piece.calls(self.graph).into_iter().rev() {
            let still = self.piece.calls(self.graph).contains(&n);
            if !still || !self.is_tensor(n) || self.piece.outputs.contains(&n) {
                continue;
            }
            let mut piece = self.piece.clone();
            piece.cut.insert(n);
            any |= self.accept(piece)?;
        }
        Ok(any)
    }

    /// Replaces a node by an operand of the same kind.
    fn replace(&mut self) -> Result<bool> {
        let mut any = false;
        for n in self.piece.calls(self.graph).into_iter().rev() {
            let Some(Value::Tensor(t)) = self.values.get(&n) else { continue };
            let kind = |m: &NodeId| match self.values.get(m) {
                Some(Value::Tensor(o)) => o.shape() == t.shape() && o.dtype() == t.dtype(),
                _ => false,
            };
            let operands: Vec<NodeId> = self.graph.graph.input_nodes(n).filter(kind).collect();
            for m in operands {
                let mut piece = self.piece.clone();
                piece.instead.insert(n, m);
                if self.accept(piece)? {
                    any = true;
                    break;
                }
            }
        }
        Ok(any)
    }
}

/// A graph as self-contained `.fb` text: the program with the types of its inputs.
pub fn reproducer(graph: &GraphModule, inputs: &[Value]) -> String {
    let mut module = graph.clone();
    let mut text = String::new();
    let placeholders: Vec<NodeId> = module.graph.placeholders().collect();
    for (n, input) in placeholders.into_iter().zip(inputs) {
        if let Value::Tensor(t) = input {
            let _ = writeln!(
                text,
                "# {}: {} {:?}, strides {:?}",
                module.graph[n].name(),
                t.dtype(),
                t.shape(),
                t.strides()
            );
            *module.graph.meta_mut(n) = Meta::with_val(TensorMeta::of(t));
        }
    }
    text + &print_module(&module, Form::Long)
}
