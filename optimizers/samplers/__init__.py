"""Samplers, as data."""
