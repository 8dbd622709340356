//! Visiting the saved values of a node one by one: to compare two nodes, or to lift what varies.
//!
//! Tensors, sizes and numbers may differ between two runs of one program; everything else decides what a formula does.
//! The order is that of the declaration, so two nodes of a kind present the same values at the same positions.

use super::saved::SavedTensor;
use crate::dispatch::MemoryFormat;
use crate::sym::SymInts;
use crate::{DType, Device, Layout, Result, Scalar, Spec, SymInt};

/// Visits what a node saves.
pub trait SavedVisitor {
    /// An optional tensor.
    fn tensor(&mut self, saved: &SavedTensor) -> Result<()>;
    /// A size, or another integer that follows from sizes.
    fn size(&mut self, value: i64);
    /// A scalar.
    fn number(&mut self, value: Scalar);
    /// Part of what the formula does.
    fn fixed(&mut self, value: u64);
}

/// A saved value that can be visited.
pub(crate) trait Visit {
    fn visit(&self, v: &mut dyn SavedVisitor) -> Result<()>;
}

macro_rules! visit {
    ($($t:ty => |$x:ident, $v:ident| $e:expr),* $(,)?) => {$(
        impl Visit for $t {
            fn visit(&self, $v: &mut dyn SavedVisitor) -> Result<()> {
                let $x = self;
                $e;
                Ok(())
            }
        }
    )*};
}

visit! {
    SavedTensor => |x, v| v.tensor(x)?,
    Scalar => |x, v| match *x {
        Scalar::Bool(b) => v.fixed(b.into()),
        other => v.number(other),
    },
    f64 => |x, v| v.number((*x).into()),
    SymInt => |x, v| v.size(x.int()),
    i64 => |x, v| v.fixed(*x as u64),
    usize => |x, v| v.fixed(*x as u64),
    bool => |x, v| v.fixed((*x).into()),
    DType => |x, v| v.fixed(*x as u64),
    Device => |x, v| v.fixed(*x as u64),
    MemoryFormat => |x, v| v.fixed(*x as u64),
    String => |x, v| x.as_bytes().chunks(8).for_each(|c| v.fixed(c.iter().fold(1, |a, b| a << 8 | u64::from(*b)))),
    Layout => |x, v| {
        v.fixed(x.sizes().len() as u64);
        x.sizes().iter().chain(x.strides()).for_each(|n| v.size(*n as i64));
        v.size(x.offset() as i64);
    },
    Spec => |x, v| {
        x.dtype.visit(v)?;
        x.device.visit(v)?;
        x.layout.visit(v)?;
    },
    SymInts => |x, v| list(x, v)?,
}

fn list<T: Visit>(items: &[T], v: &mut dyn SavedVisitor) -> Result<()> {
    v.fixed(items.len() as u64);
    items.iter().try_for_each(|x| x.visit(v))
}

impl<T: Visit> Visit for Vec<T> {
    fn visit(&self, v: &mut dyn SavedVisitor) -> Result<()> {
        list(self, v)
    }
}

impl<T: Visit, const N: usize> Visit for [T; N] {
    fn visit(&self, v: &mut dyn SavedVisitor) -> Result<()> {
        list(self, v)
    }
}

impl<T: Visit> Visit for Option<T> {
    fn visit(&self, v: &mut dyn SavedVisitor) -> Result<()> {
        v.fixed(self.is_some().into());
        self.as_ref().map_or(Ok(()), |x| x.visit(v))
    }
}
