"""What is attached to an object, and what it is told of runs and calls."""
