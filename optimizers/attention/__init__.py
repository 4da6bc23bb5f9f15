"""Attention backends behind one signature: the calls that each supports, whether it runs here, and why not."""
