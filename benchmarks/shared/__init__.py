"""What benchmarks share: how they measure, one format of results, and the models that they run."""
