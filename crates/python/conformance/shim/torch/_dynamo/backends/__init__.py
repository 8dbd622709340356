"""Backends by PyTorch's names."""
