"""Set Attention Processor in ComfyUI."""
