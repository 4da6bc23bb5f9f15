"""Measure one cell of a sweep: the plain model against the one with the cell's nodes, at the cell's size and batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ....core.devices import is_out_of_memory
from ....core.errors import InvalidSetting, PacelineError, error_line
from ....optimizers.hosts.comfyui.protocols import VAE, Latent, ModelPatcher
from ...recipe import Step
from ...sweep.axes import Cell, picture_of
from ...sweep.results import Result
from ..comparison import Comparison, ComparisonSettings, Side, compare, record
from ..latents import pixels_per_place, with_batch, with_places
from ..long_running import unload_models
from ..sampling import SamplingJob


@dataclass(frozen=True)
class Bench:
    """What all cells share.

    Attributes:
        model: MODEL without the nodes that are tried; likewise ``vae``, None to compare rough previews.
        job: what is sampled; a cell can ask for another size and batch.
        steps_of: returns the nodes that a cell applies.
        apply: runs them on the plain model and VAE; returns both, and a sentence for each node that cannot help here.
        seen: given each comparison that was made, for its pictures.
    """

    model: ModelPatcher
    vae: VAE | None
    job: SamplingJob
    settings: ComparisonSettings
    steps_of: Callable[[Cell], tuple[Step, ...]]
    apply: Callable[[tuple[Step, ...]], tuple[ModelPatcher, VAE | None, Sequence[str]]]
    seen: Callable[[Cell, Comparison], None] = lambda cell, found: None

    def latent(self, cell: Cell) -> Latent:
        """Return the connected LATENT in the size and batch that a cell asks for.

        `InvalidSetting` if the size is not a whole number of the latent's places.
        """
        width, height, batch = picture_of(cell)
        latent = self.job.latent_image
        if width is not None and height is not None:
            pixels = pixels_per_place(self.model)
            if width % pixels or height % pixels:
                raise InvalidSetting(
                    f"size is {cell['size']}, and one place of this model's latent is {pixels} pixels.",
                    f"Use multiples of {pixels}.",
                )
            latent = with_places(latent, width // pixels, height // pixels)
        return latent if batch is None else with_batch(latent, batch)

    def measure(self, cell: Cell, say: Callable[[str], None], show: Callable[[float], None]) -> Result:
        """Measure a cell, ``say`` and ``show`` as of ``compare``; running out of memory and refusal are results too."""
        doing = "applying the nodes"

        def follow(text: str) -> None:
            nonlocal doing
            doing = text
            say(text)

        try:
            try:
                model, vae, left_out = self.apply(self.steps_of(cell))
            except PacelineError as error:
                return Result(cell, "not possible", text=str(error))
            if left_out:
                return Result(cell, "not possible", text="; ".join(left_out))
            found = compare(
                Side("baseline", self.model, self.vae),
                Side("optimized", model, vae),
                replace(self.job, latent_image=self.latent(cell)),
                self.settings,
                follow,
                show=show,
            )
            self.seen(cell, found)
            return result_of(cell, found)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            text = f"during {doing}: {error_line(error)}"
        # Outside of the handler: the traceback holds on to the tensors.
        unload_models()
        return Result(cell, "out of memory", text=text)


def result_of(cell: Cell, found: Comparison) -> Result:
    """Return what a comparison says about its cell."""
    numbers, verdict = record(found), found.verdict
    if verdict.state == "broken":
        return Result(cell, "broken", text=verdict.text)
    before, after = (
        numbers["peak_device_bytes"][side] or numbers["peak_process_bytes"][side] for side in ("baseline", "optimized")
    )
    difference, control = found.evidence.difference, found.evidence.fewer_steps
    ratio, share = found.evidence.control_ratio, verdict.seed_share
    further = {
        # An interval that says nothing leaves out no slowness either.
        "speedup_low": 0.0 if numbers["speedup_low"] is None and len(found.baseline) > 1 else numbers["speedup_low"],
        "speedup_high": numbers["speedup_high"],
        "baseline_seconds": numbers["seconds"]["baseline"],
        "psnr": difference.psnr,
        "ssim": difference.ssim,
        "baseline_peak_memory_bytes": before,
        "fewer_steps": None if control is None else control.steps,
        "fewer_steps_difference": None if ratio is None or share is None else ratio * share,
    }
    return Result(
        cell,
        "measured",
        speedup=numbers["speedup"],
        seconds=numbers["seconds"]["optimized"],
        # The same picture is no share of anything, also where another seed changes nothing.
        difference=0.0 if found.evidence.same_bits else verdict.seed_share,
        memory_bytes=after,
        text=verdict.text,
        numbers={name: float(value) for name, value in further.items() if value is not None},
    )
