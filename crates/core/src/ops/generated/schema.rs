use crate::dispatch::OpInfo;
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Op(pub(crate) u32);
pub(crate) static TABLE: [OpInfo; 0] = [];
