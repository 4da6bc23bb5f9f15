"""A sweep over settings in ComfyUI: each cell is a comparison of the cell's nodes with the plain model."""
