//! Types that print only their name.

firebrand_core::opaque_debug! {
    [] crate::trace::Trace => "Trace";
    [] crate::trace::TraceStack => "TraceStack";
    [] crate::Export<'_> => "Export";
    [] crate::InnerTrace => "InnerTrace";
    [] crate::ir::Nodes<'_> => "Nodes";
}
