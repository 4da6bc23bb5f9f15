"""The model files that the examples name, and where the frontend offers to load them from."""

from __future__ import annotations

_FACE = "https://huggingface.co"
FILES = {
    "v1-5-pruned-emaonly-fp16.safetensors": ("checkpoints", "Comfy-Org/stable-diffusion-v1-5-archive"),
    "sd_xl_base_1.0.safetensors": ("checkpoints", "stabilityai/stable-diffusion-xl-base-1.0"),
    "sd_xl_offset_example-lora_1.0.safetensors": ("loras", "stabilityai/stable-diffusion-xl-base-1.0"),
    "512-inpainting-ema.safetensors": ("checkpoints", "Comfy-Org/stable_diffusion_2.1_repackaged"),
    "control_v11p_sd15_canny_fp16.safetensors": ("controlnet", "comfyanonymous/ControlNet-v1-1_fp16_safetensors"),
    "flux1-dev.safetensors": ("diffusion_models", "Comfy-Org/flux1-dev"),
    "clip_l.safetensors": ("text_encoders", "comfyanonymous/flux_text_encoders"),
    "t5xxl_fp16.safetensors": ("text_encoders", "comfyanonymous/flux_text_encoders"),
    "ae.safetensors": ("vae", "Comfy-Org/Lumina_Image_2.0_Repackaged"),
}
"""Models that the examples name: their folder, and the repository that the frontend offers to load them from."""

_INSIDE = {"ae.safetensors": "split_files/vae/ae.safetensors"}


def models(*names: str) -> list[dict[str, str]]:
    """Return the entries with which the frontend offers to download missing models."""
    return [
        {
            "name": name,
            "url": f"{_FACE}/{FILES[name][1]}/resolve/main/{_INSIDE.get(name, name)}",
            "directory": FILES[name][0],
        }
        for name in names
    ]
