//! Printing.
impl std::fmt::Debug for crate::Tensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "tensor({:?}, {})", self.shape(), self.dtype())
    }
}
