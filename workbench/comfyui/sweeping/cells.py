"""Measure one cell of a sweep: the plain model against the one with the cell's nodes, at the cell's size and batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ....core.devices import is_out_of_memory
from ....core.errors import InvalidSetting, PacelineError, error_line
from ....core.phrases import joined, phrase, translatable
from ....optimizers.hosts.comfyui.protocols import VAE, Latent, ModelPatcher
from ...recipe import Step
from ...sweep import Cell, Result, picture_of
from ..comparison import Comparison, ComparisonSettings, Progress, Side, compare, node_progress, record
from ..latents import pixels_per_place, with_batch, with_places
from ..long_running import unload_models
from ..sampling import SamplingJob


@dataclass(frozen=True)
class Applied:
    """What came of a cell's nodes.

    Attributes:
        model: MODEL with them.
        vae: VAE with them, or None where none is connected.
        left_out: a sentence for each one that cannot help here.
    """

    model: ModelPatcher
    vae: VAE | None = None
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class Bench:
    """What all cells share.

    Attributes:
        model: MODEL without the nodes that are tried.
        vae: VAE likewise, or None to compare rough previews.
        job: what is sampled; a cell can ask for another size and batch.
        settings: how each cell is compared.
        steps_of: returns the nodes that a cell applies. Nodes are known to the nodes only, so they hand this in.
        apply: runs such nodes on the plain model and VAE.
        seen: given each comparison that was made, for its pictures.
    """

    model: ModelPatcher
    vae: VAE | None
    job: SamplingJob
    settings: ComparisonSettings
    steps_of: Callable[[Cell], tuple[Step, ...]]
    apply: Callable[[tuple[Step, ...]], Applied]
    seen: Callable[[Cell, Comparison], None] = lambda cell, found: None

    def check(self, cell: Cell) -> None:
        """Check that a cell's picture can be made, before anything is run.

        Raises:
            InvalidSetting: if the model's latents have no such size.
        """
        self.latent(cell)

    def latent(self, cell: Cell) -> Latent:
        """Return the LATENT that a cell samples: the connected one, in the size and batch that the cell asks for.

        Raises:
            InvalidSetting: if the size is not a whole number of the latent's places.
        """
        width, height, batch = picture_of(cell)
        latent = self.job.latent_image
        if width is not None and height is not None:
            pixels = pixels_per_place(self.model)
            if width % pixels or height % pixels:
                raise InvalidSetting(
                    phrase(
                        "size is {size}, and one place of this model's latent is {pixels} pixels.",
                        size=str(cell["size"]),
                        pixels=pixels,
                    ),
                    phrase("Use multiples of {pixels}.", pixels=pixels),
                )
            latent = with_places(latent, width // pixels, height // pixels)
        return latent if batch is None else with_batch(latent, batch)

    def measure(
        self, cell: Cell, say: Callable[[str], None] = lambda text: None, progress: Progress = node_progress
    ) -> Result:
        """Measure a cell. What cannot be done here, and running out of memory, are results too.

        Args:
            cell: what to measure.
            say: told what is going on.
            progress: as of ``compare``.
        """
        doing: list[str] = [translatable("applying the nodes")]

        def follow(text: str) -> None:
            doing[0] = text
            say(text)

        try:
            try:
                applied = self.apply(self.steps_of(cell))
            except PacelineError as error:
                return Result(cell, "not possible", text=str(error))
            if applied.left_out:
                return Result(cell, "not possible", text=joined("; ", applied.left_out))
            found = compare(
                Side(translatable("baseline"), self.model, self.vae),
                Side(translatable("optimized"), applied.model, applied.vae),
                replace(self.job, latent_image=self.latent(cell)),
                self.settings,
                follow,
                progress=progress,
            )
            self.seen(cell, found)
            return result_of(cell, found)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            text = phrase("during {doing}: {error}", doing=doing[0], error=error_line(error))
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
        "speedup_low": 0.0 if numbers["speedup_low"] is None and found.settings.runs > 1 else numbers["speedup_low"],
        "speedup_high": numbers["speedup_high"],
        "baseline_seconds": numbers["seconds"]["baseline"],
        "psnr": difference.psnr,
        "ssim": difference.ssim,
        "lpips": difference.lpips,
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
