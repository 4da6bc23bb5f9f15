"""Reuse Steps in diffusers."""
