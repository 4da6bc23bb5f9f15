"""Quantize int8 in diffusers: which products of a denoiser, in the place of its linear layers' own."""
