"""The judge: draws in turns, compares, says what it is worth, and foretells other settings. torch only, no host."""
