"""Reuse Steps in ComfyUI."""
