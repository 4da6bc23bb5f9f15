"""What a change of the code's structure is checked with: the same images as before, and less to read."""
