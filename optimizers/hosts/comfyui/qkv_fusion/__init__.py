"""Fuse QKV in ComfyUI: which layers, what has to be true of their weights, and the technique."""

from .technique import FuseQKV

__all__ = ["FuseQKV"]
