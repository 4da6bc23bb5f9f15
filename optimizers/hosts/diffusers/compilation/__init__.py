"""Compile in diffusers."""
