"""Everything that can be done to a MODEL or its sampling after it was compiled, each as one function.

``model`` changes go ``(studio, core_node, model) -> model``; ``sampling`` changes give keyword arguments of
``Studio.sample``. Objects that a user would keep while turning something on and off (a patch function, a hook, a
ControlNet) are made anew by each call, as a node does when it runs again.
"""

from __future__ import annotations

from typing import Any

import torch

KEY = "diffusion_model.input_blocks.1.1.transformer_blocks.0.attn1.to_q.weight"


def lora_for(model, strength=1.0):
    clone = model.clone()
    shape = model.model.diffusion_model.input_blocks[1][1].transformer_blocks[0].attn1.to_q.weight.shape
    difference = torch.randn(shape, generator=torch.Generator().manual_seed(5)) / 8
    assert clone.add_patches({KEY: ("diff", (difference,))}, strength) == [KEY]
    return clone


def easycache(studio, core_node, model):
    options = {"reuse_threshold": 0.5, "start_percent": 0.0, "end_percent": 1.0, "verbose": False}
    return core_node("comfy_extras.nodes_easycache", "EasyCacheNode", model=model, **options)


def freeu(studio, core_node, model):
    return core_node("comfy_extras.nodes_freelunch", "FreeU_V2", model=model, b1=1.3, b2=1.4, s1=0.9, s2=0.2)


def perturbed_attention(studio, core_node, model):
    return core_node("comfy_extras.nodes_pag", "PerturbedAttentionGuidance", model=model, scale=3.0)


def image_prompt(studio, core_node, model):
    """IP-Adapter's way in: replaces cross-attention, with other keys for the positive than for the negative pass."""
    clone = model.clone()
    image = torch.randn(2, 4, 1280, generator=torch.Generator().manual_seed(9))  # [pass, tokens, channels]

    def replace(q, k, v, extra_options):
        from comfy.ldm.modules.attention import optimized_attention

        text = optimized_attention(q, k, v, extra_options["n_heads"])
        passes = extra_options["cond_or_uncond"]
        rows = q.shape[0] // len(passes)
        keys = torch.cat([image[index].expand(rows, -1, -1) for index in passes])[..., : q.shape[-1]]
        return text + 0.5 * optimized_attention(q, keys, keys, extra_options["n_heads"])

    clone.set_model_attn2_replace(replace, "middle", 0, 0)
    clone.set_model_attn2_replace(replace, "input", 1, 0)
    return clone


NEED_LEVELS = ("freeu", "perturbed_attention")
"""Changes that do nothing to a UNet of one level."""

KEYS = {"method": "kv_downsample", "ratio": 0.75}
MODEL_CHANGES = {
    "tome": lambda studio, _, model: studio.tome(model),
    "tome_keys": lambda studio, _, model: studio.tome(model, **KEYS),
    "tome_residual": lambda studio, _, model: studio.tome(model, **KEYS, residual="auto"),
    "tome_everywhere": lambda studio, _, model: studio.tome(model, merge_mlp=True, merge_crossattn=True),
    "attention": lambda studio, _, model: studio.attention(model, "sdpa_math"),
    "lora": lambda _, __, model: lora_for(model),
    "lora_weaker": lambda _, __, model: lora_for(model, 0.4),
    "easycache": easycache,
    "freeu": freeu,
    "perturbed_attention": perturbed_attention,
    "image_prompt": image_prompt,
}


def controlnet(studio) -> dict[str, Any]:
    """A narrow ControlNet on the positive pass only."""
    from comfy_host.checkpoints import fitting_controlnet

    control = fitting_controlnet(studio.model.model.model_config.unet_config)
    hint = torch.rand(1, 3, 192, 128, generator=torch.Generator().manual_seed(1))
    context, details = studio.positive[0]
    options = {"control": control.set_cond_hint(hint, 1.0, (0.0, 1.0)), "control_apply_to_uncond": False}
    return {"positive": [[context, {**details, **options}]]}


def lora_hook(studio) -> dict[str, Any]:
    """ComfyUI's LoRA hooks: other weights for one of the passes."""
    import comfy.hooks

    shape = studio.model.model.state_dict()[KEY].shape
    hook = comfy.hooks.WeightHook(strength_model=1.0, strength_clip=0.0)
    hook.need_weight_init = False
    hook.weights = {KEY: ("diff", (torch.randn(shape, generator=torch.Generator().manual_seed(5)) / 8,))}
    group = comfy.hooks.HookGroup()
    group.add(hook)
    context, details = studio.positive[0]
    return {"positive": [[context, {**details, "hooks": group}]]}


def longer_prompt(studio) -> dict[str, Any]:
    from comfy_host import in_process

    return {"positive": in_process.random_conditioning(studio.model, tokens=231, seed=4)}


SAMPLING_CHANGES = {
    "controlnet": controlnet,
    "lora_hook": lora_hook,
    "longer_prompt": longer_prompt,
    "other_size": lambda studio: {"size": (32, 24)},
    "batch_of_two": lambda studio: {"batch": 2},
    "no_negative": lambda studio: {"cfg": 1.0},
    "more_steps": lambda studio: {"steps": 5},
}
