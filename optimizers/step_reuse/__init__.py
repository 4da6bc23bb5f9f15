"""Reuse Steps: forecast the network's output in steps that barely differ from the steps before."""
