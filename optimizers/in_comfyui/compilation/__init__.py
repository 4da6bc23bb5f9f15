"""Compile UNet, Compile VAE and Compile ControlNet: how compiled code reaches ComfyUI's live networks."""
