"""Set Attention Processor in diffusers."""
