"""Model Precision and VAE Precision in ComfyUI."""
