"""Mutation testing of the pack: small faults put into its code, one at a time, which the tests must notice."""
