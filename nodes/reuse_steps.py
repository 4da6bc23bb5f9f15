"""The node Reuse Steps."""

from __future__ import annotations

from comfy_api.latest import io

from ..optimizers.in_comfyui.comfy_step_reuse import ComfyStepReuse
from ..optimizers.in_comfyui.structure.protocols import ModelPatcher
from ..optimizers.in_comfyui.targets.model_target import ModelTarget
from ..optimizers.step_reuse.reuse_settings import TOOLTIPS, StepReuseSettings
from .common import Made, TechniqueNode, setting_input


class PacelineReuseSteps(TechniqueNode):
    """Forecast the network's output in steps that barely differ from the ones before, inside of a budget."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return cls.schema(
            "Reuse Steps",
            "Skips the network in steps whose result can be forecast from earlier steps, as long as the image "
            "stays within a budget. Each computed step tests the forecasts.",
            "cache, teacache, easycache, deepcache, taylorseer, spectrum, skip steps, speed",
            inputs=[
                io.Model.Input("model", tooltip="Any diffusion model, before or after other Paceline nodes."),
                setting_input(StepReuseSettings, "budget", TOOLTIPS["budget"]),
            ],
        )

    @classmethod
    def technique(cls, model: ModelPatcher, budget: float) -> Made:
        return ModelTarget(model), ComfyStepReuse(model, StepReuseSettings(budget=budget))
