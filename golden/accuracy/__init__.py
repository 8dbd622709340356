"""How far our f32 results are from f64 truth, beside PyTorch's: rows, larger cases and models for `conformance_accuracy.py`."""
