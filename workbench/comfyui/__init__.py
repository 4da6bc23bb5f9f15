"""Comparing and sweeping ComfyUI models."""
