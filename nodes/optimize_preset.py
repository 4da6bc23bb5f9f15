"""The node Optimize (Preset)."""

from __future__ import annotations

from pathlib import Path

from comfy_api.latest import io

from ..optimizers.core.activity import Summary
from ..optimizers.core.choices import CHOICES
from ..optimizers.core.errors import UnsupportedModel, require_choice
from ..optimizers.core.phrases import phrase
from ..optimizers.in_comfyui.structure.model_facts import require_model
from ..optimizers.in_comfyui.structure.protocols import VAE, ModelPatcher
from ..optimizers.in_comfyui.structure.user_folder import user_folder
from ..service.apply_recipe import BUILT_IN, apply_recipe, built_in_recipe, machine_for, shown_steps
from ..service.recipe import PREFIX, Recipe, load_recipe
from . import NODES
from .common import OptimizingNode


class PacelineOptimizePreset(OptimizingNode):
    """Apply the nodes that suit this model and this machine, all at once."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return cls.schema(
            "Optimize (Preset)",
            "Applies the Paceline nodes that suit this model and this machine, and says which. Its context menu "
            "turns it into the single nodes.",
            "faster, speed, slow, speed up, accelerate, optimize, auto, preset",
            inputs=[
                io.Model.Input("model"),
                io.Combo.Input(
                    "preset",
                    options=[*BUILT_IN, *preset_files()],
                    default="balanced",
                    tooltip=" ".join(f"{name}: {choice.label}. {choice.sentence}" for name, choice in CHOICES.items())
                    + " Check fast with Compare Models. Other names are presets saved by Benchmark Sweep.",
                ),
                io.Vae.Input("vae", optional=True, tooltip="Connect the VAE to optimize it too."),
                io.Boolean.Input(
                    "reuse_steps",
                    default=False,
                    optional=True,
                    tooltip="In balanced and fast, Reuse Steps in the place of Apply ToMe: it skips steps that can be "
                    "forecast. Helps with 5 steps and more; lossless ignores it.",
                ),
            ],
            outputs=[io.Model.Output(), io.Vae.Output(), io.String.Output(display_name="report")],
        )

    @classmethod
    def apply(
        cls, model: ModelPatcher, preset: str, vae: VAE | None = None, reuse_steps: bool = False
    ) -> io.NodeOutput:
        require_model(model)
        recipe = _recipe(preset, model, reuse_steps)
        applied = apply_recipe(recipe, {"model": model, "vae": vae}, NODES, cls.node_id())
        if recipe.steps and not applied.steps:
            raise UnsupportedModel(
                f"Nothing in the preset {preset} can be applied here: {'; '.join(applied.left_out)}",
                "Choose another preset, or connect the model to the sampler directly.",
                phrase("nothing in the preset {preset} helps this model on this machine", preset=preset),
            )
        done, total = len(applied.steps), len(recipe.steps)
        headline = phrase("{name}: {count} of {total} nodes applied", name=recipe.name, count=done, total=total)
        values = [", ".join(f"{name}={value}" for name, value in step.inputs.items()) for step in applied.steps]
        names = [step.node.removeprefix(PREFIX) for step in applied.steps]
        lines = [f"applied {name}({given})" for name, given in zip(names, values, strict=True)]
        lines += [f"left out {reason}" for reason in applied.left_out]
        details = tuple(filter(None, [recipe.description, *lines]))
        cls.announce(Summary("waiting", headline, {"applied": done, "steps": total}, details))
        text = "\n".join([f"{headline}. {recipe.description}".strip(), *lines])
        payload = {"text": [text], "paceline_steps": shown_steps(applied.steps)}
        return io.NodeOutput(applied.objects["model"], applied.objects.get("vae"), text, ui=payload)


def preset_files() -> dict[str, Path]:
    """Return the user's own presets by name."""
    try:
        return {path.stem: path for path in sorted(user_folder("presets").glob("*.json"))}
    except OSError:
        return {}


def _recipe(preset: str, model: ModelPatcher, reuse_steps: bool) -> Recipe:
    if preset in BUILT_IN:
        return built_in_recipe(preset, machine_for(model, preset), reuse_steps)
    own = preset_files()
    return load_recipe(own[require_choice("preset", preset, (*BUILT_IN, *own))])
