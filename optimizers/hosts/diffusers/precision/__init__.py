"""Precision in diffusers."""
