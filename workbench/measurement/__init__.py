"""How much faster, how much memory, how far apart two pictures are, and what that means in words. Knows no host."""
