"""Number formats: the dtype of a network's arithmetic and weights, and lower precision inside of matrix products."""
