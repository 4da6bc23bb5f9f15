"""Token merging in ComfyUI."""
