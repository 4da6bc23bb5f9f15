"""Comparing and sweeping ComfyUI models; the commands that run ComfyUI without its server."""
