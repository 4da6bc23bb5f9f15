"""Reuse Steps: forecast what the network would say in steps that barely differ from the ones before."""
