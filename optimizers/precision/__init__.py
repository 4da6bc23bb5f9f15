"""Number formats: what a network computes in, and what its matrix products may round to on the way."""
