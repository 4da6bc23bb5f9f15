"""Compile VAE: which VAEs can be compiled, and the technique."""

from __future__ import annotations

from dataclasses import replace

from torch.nn import Module

from ...compilation.compile_settings import CompileSettings
from ...compilation.compiler import Compiler, describe_blocks, repeated_blocks
from ...core.errors import InvalidSetting, UnsupportedModel
from ...core.phrases import phrase
from ..second_weights.clone import without_dynamic_vram
from ..second_weights.moves import SECOND_COPY
from ..structure.protocols import VAE
from ..targets.vae_target import VAETarget, describe_vae, moved_vae, require_vae
from .compile_methods import CompileMethods, transformer_in

_CHUNKS = "it works in chunks of frames that it writes into a buffer one by one"
_TILES = "it cuts its input into tiles itself"
_BREAKS = "it is full of places that torch.compile cannot trace"

# By the name of the network's class. Found by tracing every VAE class of ComfyUI 0.30, at full size.
_REFUSED = {
    "TAEHV": "it shows a progress bar between its layers, and torch.compile cannot trace that",
    "AudioOobleckVAE": _BREAKS,
    "MusicDCAE": _BREAKS,
    "AudioAutoencoder": _BREAKS,
    "AudioVAE": _BREAKS,
    "MiniMaxH3AudioVAE": _BREAKS,
    "PixelspaceConversionVAE": "it has no layers; its images are its latents",
    "ShapeVAE": "it makes a shape, not an image, and its size depends on the shape",
    "OctreeGaussianDecoder": "ComfyUI does not decode through the VAE with it",
}

# These run a part of themselves once for every few frames. The part is compiled: the whole would be unrolled, and
# compiled for as many minutes as there are frames.
_BY_PARTS = {"WanVAE": {"decode": "decoder", "encode": "encoder"}}


def compile_vae(
    vae: VAE, how: CompileSettings, compiler: Compiler, encoder: bool, decoder: bool
) -> tuple[VAE, CompileMethods]:
    """Return a VAE that can be compiled, ``vae`` itself if possible, and the technique for it.

    Raises `InvalidSetting` if neither encoding nor decoding is to be compiled, `UnsupportedModel` if it cannot be
    compiled, or cannot be loaded without dynamic VRAM.
    """
    if not encoder and not decoder:
        raise InvalidSetting("compile_encoder and compile_decoder are both off.", "Switch one of them on.")
    _require_compilable(vae)
    notes: tuple[str, ...] = ()
    if vae.patcher.is_dynamic():
        vae, notes = moved_vae(vae, without_dynamic_vram(vae.patcher, describe_vae(vae))), (SECOND_COPY,)
    methods = ("decode",) * decoder + ("encode",) * encoder
    if getattr(vae, "handles_tiling", False):
        network, tiled = vae.first_stage_model, tuple(f"{method}_tiled" for method in methods)
        part = transformer_in(network)
        what = describe_blocks(getattr(network, part))
        return vae, CompileMethods("Compile VAE", how, (*methods, *tiled), compiler, notes, blocks_of=part, what=what)
    parts = _BY_PARTS.get(type(vae.first_stage_model).__name__, {})
    if parts:  # after a graph break each layer would be compiled anew for each of the first frames: for minutes
        how = replace(how, fullgraph=True)
    return vae, CompileMethods("Compile VAE", how, methods, compiler, notes, parts)


DECODER = "decoder"
"""The part of a VAE's network that decodes, of ComfyUI's classes that repeat blocks there."""


def by_blocks(vae: VAE) -> VAE:
    """Return a copy of a VAE with Compile VAE in which the blocks of the decoder are compiled, each by itself.

    That takes seconds, and tells what the whole would gain. `UnsupportedModel` where a decoder repeats none, and for
    VAEs of videos: their blocks hand lists on to each other.
    """
    if getattr(vae, "latent_dim", 2) > 2:
        brief = phrase("its gain was measured only with VAEs of pictures")
        raise UnsupportedModel("It is a VAE of videos.", brief=brief)
    if not repeated_blocks(getattr(vae.first_stage_model, DECODER, Module())):
        problem = f"The decoder of {describe_vae(vae)} repeats no block that could be tried alone."
        raise UnsupportedModel(problem, brief=phrase("it has no repeated block that could be tried alone"))
    target = VAETarget(vae)
    made = [one.by_blocks(DECODER) if isinstance(one, CompileMethods) else one for one in target.techniques]
    return target.with_techniques(tuple(made))


def _require_compilable(vae: VAE) -> None:
    """Raise `UnsupportedModel` unless torch.compile can do something for the VAE's network."""
    require_vae(vae)
    network = vae.first_stage_model
    reason = _REFUSED.get(type(network).__name__)
    tiles = getattr(vae, "handles_tiling", False)
    if reason is None and not (tiles and transformer_in(network)):  # whose blocks are compiled, however it works
        reason = _CHUNKS if getattr(network, "comfy_has_chunked_io", False) else _TILES if tiles else None
    if reason is not None:
        raise UnsupportedModel(f"{describe_vae(vae)} cannot be compiled: {reason}.", "Remove the node for this VAE.")
