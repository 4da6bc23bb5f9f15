"""Fuse QKV in diffusers."""
