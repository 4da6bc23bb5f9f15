"""What ComfyUI's objects are: read here, and never changed."""
