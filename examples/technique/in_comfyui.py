"""Limited Guidance in ComfyUI: how it reaches a live model, and its node."""

from __future__ import annotations

from typing import Any

from comfy_api.latest import io

from ...nodes.common import Made, TechniqueNode, setting_input
from ...optimizers.core.activity import Activity
from ...optimizers.core.shadow import Shadows
from ...optimizers.in_comfyui.run.comfy_technique import ComfyTechnique, ModelCall
from ...optimizers.in_comfyui.run.sampling_run import SamplerCall, SamplingRun, TakesPart
from ...optimizers.in_comfyui.targets.model_target import ModelTarget
from .policy import TOOLTIP, GuidanceSettings, LimitedGuidance


class _GuidedRun(TakesPart):
    """One sampling run. Its technique counts; the guider is changed for one prediction only, and put back."""

    def __init__(self, policy: LimitedGuidance) -> None:
        self._policy, self.alone = policy, False

    def evaluates(self, run: SamplingRun, guider: Any, x: Any, timestep: Any, compute: Any) -> Any:
        scale = vars(guider).get("cfg", 1.0)  # guiders of several scales have another name for them
        self.alone = scale != 1.0 and not self._policy.guided(run.noise_level(timestep), run.levels)
        with Shadows() as shadows:
            if self.alone:  # at 1.0 ComfyUI leaves out the negative pass
                shadows.put(guider, "cfg", 1.0)
            return compute()


class ComfyLimitedGuidance(ComfyTechnique[ModelCall]):
    """Holds the policy; knows ComfyUI's guider, which the policy does not."""

    policy: LimitedGuidance

    def run_begins(self, run: SamplingRun, call: SamplerCall) -> None:
        run.kept[self.kind] = _GuidedRun(self.policy)

    def install(self, call: ModelCall, activity: Activity) -> None:
        kept = call.run.kept.get(self.kind)
        if isinstance(kept, _GuidedRun) and kept.alone:
            activity.use("alone")


class ExampleLimitedGuidance(TechniqueNode):
    """What a user sees: inputs with tooltips; no math, no patching."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return cls.schema(
            "Limited Guidance",
            "Leaves out the negative pass at low noise, where it changes little.",
            inputs=[io.Model.Input("model"), setting_input(GuidanceSettings, "stop", TOOLTIP)],
        )

    @classmethod
    def technique(cls, model: Any, stop: float) -> Made:
        return ModelTarget(model), ComfyLimitedGuidance(LimitedGuidance(GuidanceSettings(stop=stop)))
