"""Timesteps on the CPU."""
