"""Attach techniques to ComfyUI's objects, and take them off again."""
