"""int8 weights and products: which layers, how they are rounded, with which kernels. Torch only."""
