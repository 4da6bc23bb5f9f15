"""Measures of speed, memory and distances between pictures, and the words for them. Knows no host."""
