"""The node Reuse Steps."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from comfy_api.latest import io

from ..core.errors import PacelineError
from ..optimizers.hosts.comfyui.model import ModelTarget
from ..optimizers.hosts.comfyui.step_reuse import StepReuse
from ..optimizers.step_reuse.plan import Plan
from ..optimizers.step_reuse.settings import BUDGETS, FORECAST_CHOICES, StepReuseSettings
from ..workbench.comfyui.calibration import plan_text
from .common import Made, TechniqueNode

if TYPE_CHECKING:
    from ..optimizers.hosts.comfyui.protocols import ModelPatcher


class PacelineReuseSteps(TechniqueNode):
    """Forecast the network's output in steps that barely differ from the ones before, inside of a budget."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        named = ", ".join(f"{value:g} {name}" for name, value in BUDGETS.items())
        return cls.schema(
            node_id="PacelineReuseSteps",
            display_name="Reuse Steps",
            description=(
                "Leaves out the network in steps whose result can be forecast from the steps before, and stops where "
                "the picture would move farther than the budget allows. Each computed step tests the forecasts."
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
                io.Model.Input("model", tooltip="Any diffusion model, with any other node of this pack on it."),
                io.Float.Input(
                    "budget",
                    default=BUDGETS["balanced"],
                    min=0.0,
                    max=1.0,
                    step=0.01,
                    tooltip=f"How far the picture may move from the one without this node, as a share of what another "
                    f"seed changes: {named}. Larger is faster. 0 leaves nothing out. It is an estimate: the report "
                    "says how much of it was used.",
                ),
                io.Combo.Input(
                    "forecast",
                    options=list(FORECAST_CHOICES),
                    default="auto",
                    advanced=True,
                    tooltip="How a step is forecast. auto: whichever was nearest in the steps that were computed. "
                    "hold: the last predicted picture. hold_noise: the last predicted noise. linear, quadratic: a "
                    "polynomial through the last steps. taylor: TaylorSeer's. chebyshev: Spectrum's.",
                ),
                io.Boolean.Input(
                    "reuse_forecast", default=True, advanced=True, tooltip="Leave out whole steps: all of their time."
                ),
                io.Boolean.Input(
                    "reuse_guidance",
                    default=True,
                    advanced=True,
                    tooltip="Where a step must be computed, leave out the negative pass and use its last difference to "
                    "the positive one again: about half of the step's time.",
                ),
                io.String.Input(
                    "plan",
                    default="",
                    optional=True,
                    advanced=True,
                    tooltip="A plan: which steps to leave out, found for one kind of run. Its name, if Benchmark Sweep "
                    "or the command plan has saved it here, or its JSON. It is followed in full where the budget is "
                    "twice its own. Empty: decided while it runs.",
                ),
            ],
            outputs=[io.Model.Output()],
        )

    @classmethod
    def technique(
        cls, model: ModelPatcher, reuse_forecast: bool, reuse_guidance: bool, plan: str = "", **settings: Any
    ) -> Made:
        found = Plan.from_json(plan_text(plan)) if plan.strip() else None
        chosen = StepReuseSettings(use_forecast=reuse_forecast, use_guidance=reuse_guidance, plan=found, **settings)
        return ModelTarget(model), StepReuse(model, chosen)

    @classmethod
    def fingerprint_inputs(cls, plan: object = "", **_: object) -> str:
        """Return the text of the plan, so that ComfyUI runs the node again when the file of that name has changed."""
        with suppress(PacelineError, OSError):
            return plan_text(plan) if isinstance(plan, str) else ""
        return ""
