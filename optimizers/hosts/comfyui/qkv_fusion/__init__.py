"""Fuse QKV in ComfyUI."""
