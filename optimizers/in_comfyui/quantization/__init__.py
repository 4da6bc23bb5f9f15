"""Quantize int8 in ComfyUI: which layers of a MODEL, on a second BaseModel in ComfyUI's int8 format."""
