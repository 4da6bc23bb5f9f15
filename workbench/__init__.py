"""What measures, compares and chooses optimizations; nothing here optimizes."""
