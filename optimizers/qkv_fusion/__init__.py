"""Fused projections: query, key and value of an attention layer in one matrix multiplication instead of three."""
