"""diffusers pipelines with random weights, for tests, benchmarks and comparisons of commits."""
