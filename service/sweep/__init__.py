"""Measure many settings: all cells of a grid, or a search for the best ones. Knows no host."""
