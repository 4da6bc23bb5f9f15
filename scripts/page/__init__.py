"""The page in Stable Diffusion WebUI and Forge: imports the programs' own modules, and is imported by nothing else."""
