"""Sampling, comparing, watching and saving ComfyUI's models; nothing here changes one."""
