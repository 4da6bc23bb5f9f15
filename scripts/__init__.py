"""Files that Stable Diffusion WebUI and Forge load, each by its path; they look into no subfolder."""
