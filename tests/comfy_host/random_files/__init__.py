"""Small random networks for files of no content.

Such a file holds its own name, which decides the class of the network (`table.py`). The loader nodes, the diffusion
model's own class and everything behind it are ComfyUI's. Text encoders, VAEs and vision encoders have fixed sizes in
ComfyUI, which are large: random numbers and averages of the right shape take their place.
"""
