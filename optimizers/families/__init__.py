"""Families of models: which one a network or an attention layer belongs to, and what is known of it."""

from .known import families, find_family, find_layer, names, not_reduced

__all__ = ["families", "find_family", "find_layer", "names", "not_reduced"]
