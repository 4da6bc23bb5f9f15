"""The script *Paceline: measure*: is a choice of the accordion worth it, here, with this model and these settings?

It draws through the host, and judges as *Compare Models* does in ComfyUI.
"""

from __future__ import annotations

import logging
import time
from copy import copy
from typing import Any

import gradio as gr
import numpy
import torch
from modules import images, processing, scripts, shared
from modules.infotext_utils import quote

from ...measure.drawn import Decoded, Drawn, TimedRun
from ...measure.evidence import CONTROLS, FEWER, LATE, kept_levels
from ...measure.measure import SIDES, Comparison, MeasurePlan, measure
from ...measure.speedup import MOST_ROUNDS
from ...measure.verdict import difference_lines, in_seconds
from ...optimizers.core.choices import CHOICES as BY_NAME
from ...optimizers.core.devices import synchronize
from ...optimizers.core.errors import not_allowed, one_of, require_integer
from ...optimizers.in_webui.webui_choices import CUSTOM, PRESETS
from ...optimizers.in_webui.webui_samplers import OWN_LOOPS

LOG = logging.getLogger("paceline")

MEASURABLE = (*PRESETS, CUSTOM)


class Stopped(Exception):
    """Somebody pressed Interrupt or Skip."""


class MeasureScript(scripts.Script):
    """The script of both tabs. Its arguments, by position: one of ``MEASURABLE``, and the number of seeds."""

    def title(self) -> str:
        return "Paceline: measure"

    def ui(self, is_img2img: bool) -> list[Any]:
        choice = gr.Radio(
            list(MEASURABLE),
            value=BY_NAME["balanced"].label,
            label="Choice to measure",
            info="A choice of the accordion Paceline, which need not be on. Custom takes its single techniques.",
            elem_id=self.elem_id("choice"),
        )
        seeds = gr.Slider(
            2,
            MOST_ROUNDS,
            3,
            step=1,
            label="Seeds",
            info="Each is drawn once without and once with Paceline. More seeds give a narrower interval.",
            elem_id=self.elem_id("seeds"),
        )
        keep = gr.Button("Keep these settings", elem_id=self.elem_id("keep"))
        fields = _accordion(scripts.scripts_img2img if is_img2img else scripts.scripts_txt2img)
        if fields:
            keep.click(lambda measured: (True, measured), inputs=[choice], outputs=fields[:2])
        return [choice, seeds]

    def run(self, p: Any, choice: str, seeds: float) -> Any:
        if choice not in MEASURABLE:
            raise not_allowed("Paceline's choice", choice, one_of(MEASURABLE))
        require_integer("seeds", int(seeds), 2, MOST_ROUNDS)
        processing.fix_seed(p)
        shared.state.job_count = 2 + 2 * int(seeds)
        session = Session(p, choice)
        try:
            # Each draws the first seed before, which shows what the baseline does from run to run.
            controls = (FEWER,) if p.sampler_name in OWN_LOOPS.values() else CONTROLS
            found = measure(session.draw, MeasurePlan(p.steps, int(seeds), warm_up=0, controls=controls))
        except Stopped:
            p.comment("Paceline: stopped, so nothing was measured.")
            return processing.Processed(p, session.pictures, p.seed)
        return session.result(found)


class Session:
    """The runs of one measurement, and their pictures."""

    def __init__(self, p: Any, choice: str) -> None:
        self._p, self._choice = p, choice
        self._drawn: dict[tuple[str, int], Any] = {}

    @property
    def pictures(self) -> list[Any]:
        return [picture for processed in self._drawn.values() for picture in processed.images]

    def draw(self, side: str, number: int, steps: int) -> Drawn:
        """Draw the pictures of one seed, without saving them."""
        p = self._copy(side, number, steps)
        seconds, sample = 0.0, p.sample

        def timed(*args: Any, **given: Any) -> Any:
            nonlocal seconds
            synchronize(shared.device)
            started = time.perf_counter()
            latents = sample(*args, **given)
            synchronize(shared.device)
            seconds += time.perf_counter() - started
            return latents

        p.sample = timed
        processed = processing.process_images(p)
        if shared.state.interrupted or shared.state.skipped or shared.state.stopping_generation:
            raise Stopped
        first = processed.index_of_first_image
        processed.images = processed.images[first : first + p.batch_size]
        self._drawn[side, number] = processed
        arrays = [numpy.asarray(picture.convert("RGB")) for picture in processed.images]
        pictures = torch.from_numpy(numpy.stack(arrays))  # of which only their 8 bits are known
        decoded = Decoded(pictures, torch.ones(len(pictures), dtype=torch.bool))
        return Drawn(TimedRun(seconds), show=lambda: decoded)

    def _copy(self, side: str, number: int, steps: int) -> Any:
        p = copy(self._p)
        p.n_iter, p.do_not_save_samples, p.do_not_save_grid = 1, True, True
        p.styles, p.comments, p.extra_generation_params = [*p.styles], {}, {**p.extra_generation_params}
        p.seed, p.subseed = p.seed + number * p.batch_size, p.subseed + number * p.batch_size
        if side == LATE:  # in each pass as large a part, of which img2img draws the last levels alone
            part, steps = steps / p.steps, p.steps
            p.paceline_levels = lambda levels: kept_levels(levels, max(1, round(levels * part)))
        if getattr(p, "hr_second_pass_steps", 0):
            p.hr_second_pass_steps = max(1, p.hr_second_pass_steps * steps // p.steps)
        p.steps = steps
        # Not as attributes of p: extensions that draw a part again hand on the arguments.
        first, args = _position(p.scripts), list(p.script_args)
        assert first is not None  # the program has set up all scripts before it draws
        args[first : first + 2] = [side == "optimized", self._choice]
        p.script_args = tuple(args)
        return p

    def result(self, found: Comparison) -> Any:
        """Return the host's result: the sheet, then each seed's pictures without and with Paceline, and the verdict."""
        p = self._p
        shown = [self._drawn[side, number] for number in self._seeds() for side in SIDES]
        result = self._drawn["optimized", 0]
        said = result.comments.splitlines()
        text = f"{result.infotexts[0]}, Paceline measured: {quote(found.verdict.text)}"
        infotexts = [text, *(one.infotexts[number] for one in shown for number in range(p.batch_size))]
        before, after = map(in_seconds, found.seconds.values())
        lines = [f"sampling: baseline {before}, optimized {after}; {len(self._seeds())} seeds in turn"]
        lines += [*difference_lines(found.evidence), *found.notes]
        sheet = found.sheet(lines, images.get_font)
        result.images = [sheet, *(picture for one in shown for picture in one.images)]
        result.infotexts = infotexts
        result.index_of_first_image, result.info = 1, text
        lines = [f"Paceline, {self._choice}: {found.verdict.text}", *lines, *said]
        result.comments = "".join(f"{line}\n" for line in lines)
        LOG.info("%s", "; ".join(lines))
        if shared.opts.grid_save and not p.do_not_save_grid:
            kind = shared.opts.grid_format
            images.save_image(sheet, p.outpath_grids, "paceline", extension=kind, info=text, grid=True, p=p)
        return result

    def _seeds(self) -> list[int]:
        return sorted({number for side, number in self._drawn if side in SIDES})


def _position(runner: Any) -> int | None:
    """Return where the accordion's values are among those of all scripts; None where it has no place there yet."""
    found = (script.args_from for script in runner.alwayson_scripts if script.title() == "Paceline")
    return next(found, None)


def _accordion(runner: Any) -> list[Any]:
    first = _position(runner)
    return [] if first is None else runner.inputs[first:]
