"""Benchmarks of diffusers pipelines from the command line: ``python -m paceline bench``."""
