"""Attach techniques to ComfyUI's MODEL, and take them off again.

``stack`` holds what is attached to a model and runs it around every model call; ``unet`` reads a model's structure;
each technique has a file of its own; ``reporting`` tells the page what happened.
"""
