"""Quantize int8 in diffusers, with torchao."""
