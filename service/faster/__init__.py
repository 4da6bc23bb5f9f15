"""*Make this workflow faster*: what is expected, one ordinary run that is watched, the answer, and its proof."""
