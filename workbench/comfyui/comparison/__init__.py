"""Compare two MODELs, or two VAEs, in ComfyUI: time, memory and pictures, with the noise floor beside them."""
