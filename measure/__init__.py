"""The judge: draws in turns, compares, says what it is worth, and estimates other settings. torch only, no host."""
