"""Objects that nodes only hand on, or run as they are: they may be of another pack."""

from __future__ import annotations

from ..optimizers.hosts.comfyui.links import wrong_link


def require_decoder(name: str, value: object) -> None:
    """Check that ``value`` decodes latents; `InvalidSetting` if not."""
    # A CLIP decodes too: tokens.
    if not callable(getattr(value, "decode", None)) or hasattr(value, "tokenize"):
        raise wrong_link(name, value, "VAE", "Connect Load VAE to it.")


def require_control_net(name: str, value: object) -> None:
    """Check that ``value`` can control a sampler; `InvalidSetting` if not."""
    if not callable(getattr(value, "get_control", None)):
        raise wrong_link(name, value, "CONTROL_NET", "Connect Load ControlNet Model to it.")
