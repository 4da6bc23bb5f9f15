"""Recipes: which nodes to apply with which settings, as data that can be saved, shared and expanded."""

from .builtin import BUILT_IN, Machine, built_in_recipe
from .recipe import FORMAT, Recipe, Step, load_recipe, save_recipe

__all__ = ["BUILT_IN", "FORMAT", "Machine", "Recipe", "Step", "built_in_recipe", "load_recipe", "save_recipe"]
