"""Apply ToMe in diffusers."""
