"""A tiny trained diffusion model for ComfyUI: loader, text encoder, empty latent and decoder.

Copy or link this folder into ComfyUI's `custom_nodes`. See PROVENANCE.md for where the weights come from.
"""


async def comfy_entrypoint():
    """Return the extension that lists the nodes; ComfyUI calls this once at start-up."""
    from .nodes import IconExtension

    return IconExtension()


__all__ = ["comfy_entrypoint"]
