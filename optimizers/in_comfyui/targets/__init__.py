"""How techniques get onto a MODEL, a VAE or a CONTROL_NET, and off again."""
