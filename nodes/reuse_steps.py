"""The node Reuse Steps."""

from __future__ import annotations

from functools import partial
from typing import Any

from comfy_api.latest import io

from ..optimizers.hosts.comfyui.model import ModelTarget
from ..optimizers.hosts.comfyui.protocols import ModelPatcher
from ..optimizers.hosts.comfyui.step_reuse import ComfyStepReuse
from ..optimizers.step_reuse.settings import TOOLTIPS, StepReuseSettings
from .common import Made, TechniqueNode, setting_input


class PacelineReuseSteps(TechniqueNode):
    """Forecast the network's output in steps that barely differ from the ones before, inside of a budget."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        setting = partial(setting_input, StepReuseSettings)
        return cls.schema(
            node_id="PacelineReuseSteps",
            display_name="Reuse Steps",
            description=(
                "Skips the network in steps whose result can be forecast from earlier steps, as long as the image "
                "stays within a budget. Each computed step tests the forecasts."
            ),
            search_aliases=[
                "cache",
                "teacache",
                "easycache",
                "deepcache",
                "taylorseer",
                "spectrum",
                "skip steps",
                "speed",
            ],
            inputs=[
                io.Model.Input("model", tooltip="Any diffusion model, before or after other Paceline nodes."),
                setting("budget", TOOLTIPS["budget"]),
                setting(
                    "forecast",
                    "auto: the forecast that was closest in the computed steps. hold: the last predicted image or "
                    "noise; linear: a line through the last two.",
                    advanced=True,
                ),
                setting("use_forecast", "Skip whole steps.", id="reuse_forecast", advanced=True),
                setting(
                    "use_guidance",
                    "In computed steps, skip the negative pass and use its last difference to the positive one "
                    "again. Saves about half of such a step.",
                    id="reuse_guidance",
                    advanced=True,
                ),
            ],
            outputs=[io.Model.Output()],
        )

    @classmethod
    def technique(cls, model: ModelPatcher, reuse_forecast: bool, reuse_guidance: bool, **settings: Any) -> Made:
        chosen = StepReuseSettings(use_forecast=reuse_forecast, use_guidance=reuse_guidance, **settings)
        return ModelTarget(model), ComfyStepReuse(model, chosen)
