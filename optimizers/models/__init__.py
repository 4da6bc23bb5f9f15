"""What is known of families of models and of samplers, as data."""
