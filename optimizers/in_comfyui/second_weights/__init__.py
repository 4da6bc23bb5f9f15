"""Other weights for a MODEL, and what moving them costs."""
