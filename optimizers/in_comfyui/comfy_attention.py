"""Run a MODEL's attention with a chosen backend, through ComfyUI's ``optimized_attention_override``."""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch import Tensor

from ..attention.attention_policy import AUTO, HOST_DOES_IT, AttentionPolicy
from ..attention.backend import Inputs
from ..attention.registry import OWN
from ..core.activity import Activity
from ..core.devices import is_compiling
from ..core.errors import UnsupportedModel
from ..core.phrases import phrase
from ..models.families import find_family
from .run.attention_chain import Attend, ChainedAttention, add_layer
from .run.comfy_technique import ComfyTechnique, ModelCall
from .run.sampling_run import KEY
from .structure.attention_owner import SLOT, layers_with_a_preference, start_option
from .structure.model_facts import describe_model, inference_dtype, is_unet
from .structure.protocols import ModelPatcher, Options
from .structure.unet_blocks import attention_blocks

NOT_REACHED = "VAE, text encoders and ControlNets choose their own attention"


class AttentionProcessor(ComfyTechnique[ModelCall]):
    """Set Attention Processor on one MODEL, which is read for its device, dtype and head sizes only.

    Raises as ``AttentionPolicy``, and `UnsupportedModel` if nothing in this family can be reached.
    """

    policy: AttentionPolicy

    def __init__(self, patcher: ModelPatcher, name: str) -> None:
        from comfy.model_management import InterruptProcessingException

        _require_hook(patcher)
        blocks = attention_blocks(patcher) if is_unet(patcher) else ()
        option, layers = start_option(), layers_with_a_preference(patcher.model.diffusion_model)
        replaced = []
        if option and name != AUTO:
            replaced.append(f"in the place of {option}, with which ComfyUI was started")
        if layers and name != AUTO:
            where = f"{layers} layer{'' if layers == 1 else 's'}"
            replaced.append(f"the checkpoint asks for an attention of its own in {where}, which this node replaces")
        policy = AttentionPolicy(
            name,
            torch.device(patcher.load_device),
            inference_dtype(patcher),
            sorted({block.head_dim for block in blocks}) or [64, 128],
            host_sdpa=_host_sdpa,
            always_raised=(InterruptProcessingException,),
            notes=(*replaced, NOT_REACHED),
        )
        super().__init__(policy)
        self._chosen = _chosen_already(patcher.model.diffusion_model) if name == AUTO else ""
        self._layer: Attend = self._attend  # one object for life: compiled graphs are guarded on it

    def install(self, call: ModelCall, activity: Activity) -> None:
        """Become the innermost layer of this call's attention, unless ComfyUI computes it the same way by itself."""
        nothing = self.nothing_to_do(call.transformer_options)
        if nothing:
            activity.skip(HOST_DOES_IT, nothing)
            return
        add_layer(call.transformer_options, ChainedAttention(self._layer, activity))

    def nothing_to_do(self, options: Options) -> str:
        return self._chosen or ("" if options.get(SLOT) is not None else host_does(self.policy.backend.name))

    def _attend(self, func: Attend, *args: Any, **kwargs: Any) -> Tensor:
        """ComfyUI's override: ``func`` is its own backend, the rest the arguments of ``optimized_attention``."""
        call: ModelCall = kwargs["transformer_options"][KEY]
        inputs, heads_first_out = _to_heads(*args, **kwargs)
        output = self.policy.attend(
            call.activities[self.kind],
            "self-attention" if inputs.q.shape[2] == inputs.k.shape[2] else "cross-attention",
            inputs,
            # Whether the network asks for a backend that quantises nothing in this call.
            full_precision=kwargs.get("low_precision_attention", True) is False,
            evaluation=None if is_compiling() else call.evaluation,
        )
        if output is None:
            return func(*args, **kwargs)
        return output if heads_first_out else output.transpose(1, 2).flatten(2)  # [B, H, N, D] -> [B, N, H*D]


def host_does(backend: str) -> str:
    """Return in a sentence that ComfyUI's own attention is a backend; "" if it is another."""
    from comfy.ldm.modules import attention

    name = OWN if backend == AUTO else backend
    kitchen = getattr(attention, "attention_comfy_kitchen_int8", None)  # since 0.33
    functions = {"sdpa": attention.attention_pytorch, "kitchen": kitchen}
    if {attention.optimized_attention, attention.optimized_attention_masked} != {functions.get(name)}:
        return ""
    return phrase("ComfyUI's own attention is {name} already, so it changes nothing", name=name)


def _chosen_already(network: torch.nn.Module) -> str:
    """Return who has chosen the attention of a MODEL before any node of ours, as a sentence; "" if nobody has."""
    option, layers = start_option(), layers_with_a_preference(network)
    if option:
        return phrase("ComfyUI was started with {option}, which auto leaves in place", option=option)
    if layers:
        return phrase(
            "the checkpoint asks for its own attention in {count} {count|layer|layers}, which auto leaves in place",
            count=layers,
        )
    return ""


def nothing_before(patcher: ModelPatcher, name: str) -> str:
    """Return why a backend will change nothing in a MODEL, known without its weights; "" where it may.

    `UnsupportedModel` if nothing in this family can be reached.
    """
    _require_hook(patcher)
    chosen = _chosen_already(patcher.model.diffusion_model) if name == AUTO else ""
    return chosen or host_does(name)


def _require_hook(patcher: ModelPatcher) -> None:
    family = find_family(patcher.model.diffusion_model)
    if family is None or family.override_hook:
        return
    raise UnsupportedModel(
        f"{describe_model(patcher)} does not pass its attention through ComfyUI's override hook, so no node "
        "can choose its attention backend.",
        "Remove the node for this model, or choose attention for all models with ComfyUI's start options "
        "(--use-pytorch-cross-attention, --use-flash-attention, --use-sage-attention).",
    )


def _host_sdpa(inputs: Inputs) -> Tensor:
    """Call torch's SDPA with ComfyUI's own order of kernels, so that the bits agree with it."""
    import comfy.ops

    q, k, v, mask, scale, enable_gqa = inputs
    options: Any = {"attn_mask": mask, "dropout_p": 0.0, "is_causal": False}
    options |= ({} if scale is None else {"scale": scale}) | ({"enable_gqa": True} if enable_gqa else {})
    output: Tensor = comfy.ops.scaled_dot_product_attention(q, k, v, **options)
    return output


def _to_heads(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    heads: int,
    mask: Tensor | None = None,
    attn_precision: torch.dtype | None = None,
    skip_reshape: bool = False,
    skip_output_reshape: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    **kwargs: Any,
) -> tuple[Inputs, bool]:
    """Bring the arguments of ``optimized_attention`` to ``[batch, heads, tokens, head_dim]``, the mask to 4 axes.

    Return too whether the output is to stay so.
    """
    if not skip_reshape:  # [B, N, H*D] -> [B, H, N, D]; with grouped queries, k and v have fewer heads of the same size
        width = q.shape[-1] // heads
        q, k, v = (
            each.reshape(*each.shape[:2], prod(each.shape[2:]) // width, width).transpose(1, 2) for each in (q, k, v)
        )
    if mask is not None:
        if mask.ndim == 2:
            mask = mask.unsqueeze(0)
        if mask.ndim == 3:
            mask = mask.unsqueeze(1)
    return Inputs(q, k, v, mask, scale, bool(enable_gqa)), skip_output_reshape
