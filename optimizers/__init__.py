"""The techniques: what all stand on, math and policy of each, and how they reach a host's live models."""
