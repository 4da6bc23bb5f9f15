"""How techniques are attached to the programs that run models; the only code that imports comfy or diffusers."""
