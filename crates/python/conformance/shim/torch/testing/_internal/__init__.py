"""Upstream's helpers; those with a file here are replaced."""
