"""Draw the same pictures in several ways: how much work each took, and how far its pictures are from the plain ones."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
import torch
from comfy_host.client import ComfyClient, Prompt
from comfy_host.pack import load_pack
from PIL import Image
from workflows import Workflows, setting, with_inputs

load_pack()
from paceline.measure.evidence import share_of  # noqa: E402
from paceline.measure.picture import average, distances  # noqa: E402
from paceline.measure.verdict import fraction, of_a_seed_change  # noqa: E402

FEWER_STEPS = "fewer steps"

_SAME = 0.25
"""Evaluations that two settings may differ by and still count as the same work."""

Bound = Callable[[float], Prompt]
"""Returns a workflow for a threshold: the larger, the less work."""


@dataclass(frozen=True)
class Drawing:
    """One way to draw, and what came of it.

    Attributes:
        method: e.g. ``EasyCache``; ``setting`` says which.
        evaluations: of the network, each with its negative pass, for one picture; the mean over the prompts.
        shares: of each picture, its distance to the plain one as a share of what another seed changes.
    """

    method: str
    setting: str
    evaluations: float
    pictures: list[Image.Image]
    shares: list[float]

    @property
    def title(self) -> str:
        """What it is called beside others."""
        return f"{self.setting} steps" if self.method == FEWER_STEPS else f"{self.method} {self.setting}".rstrip()

    @property
    def mean(self) -> float:
        return fmean(self.shares)

    @property
    def worst(self) -> float:
        return max(self.shares)

    @property
    def summary(self) -> str:
        """All of it in one line."""
        far = f"{of_a_seed_change(self.mean)}, {in_words(self.worst)} in the worst picture"
        return f"{self.title:<18} {self.evaluations:4.1f} evaluations, difference {far if self.worst else 'none'}"


class Easel:
    """Draws a picture for each of the texts.

    Attributes:
        plain: what the unmodified workflow draws.
        other_seed: what it draws from another seed, which distances are measured against.
        seconds: about what a plain picture takes.
    """

    def __init__(self, client: ComfyClient, workflows: Workflows, plain: Prompt, texts: Sequence[str]) -> None:
        self._client, self._workflows, self._texts = client, workflows, texts
        self._steps = int(setting(plain, "steps"))
        pictures, self._rows = self._drawn(plain)
        started = time.monotonic()
        others, rows = self._drawn(with_inputs(plain, "sampler", seed=setting(plain, "seed") + 1))
        self.seconds = (time.monotonic() - started) / len(texts)
        self._reference = _bytes(pictures)
        self._seed_change = average(distances(_bytes(others), self._reference))
        self.plain = self._judged("plain", "", pictures, self._rows)
        self.other_seed = self._judged("another seed", "", others, rows)

    def draw(self, method: str, how: str, workflow: Prompt) -> Drawing:
        """Draw all texts with a workflow."""
        drawn = self._judged(method, how, *self._drawn(workflow))
        print(f"  {drawn.summary}", flush=True)
        return drawn

    def _drawn(self, workflow: Prompt) -> tuple[list[Image.Image], float]:
        """Return the pictures, and how many rows the network was given for one of them."""
        counting, pictures, rows = self._workflows.through(workflow, "DemoCountRows"), [], []
        for text in self._texts:
            result = self._client.run(with_inputs(counting, "positive", text=text), timeout=3600)
            pictures.append(result.image().convert("RGB"))
            rows.append(sum(event["rows"] for event in result.of_type("demo.rows")))
        return pictures, fmean(rows)

    def _judged(self, method: str, how: str, pictures: list[Image.Image], rows: float) -> Drawing:
        found = distances(_bytes(pictures), self._reference)
        shares = [share_of(one, self._seed_change) or 0.0 for one in found]
        return Drawing(method, how, self._steps * rows / self._rows, pictures, shares)

    def curve(self, method: str, bound: Bound, thresholds: Sequence[float]) -> list[Drawing]:
        """Draw with each threshold."""
        return [self.draw(method, f"{threshold:.3g}", bound(threshold)) for threshold in thresholds]

    def nearest(self, method: str, bound: Bound, found: list[Drawing], evaluations: float, tries: int) -> Drawing:
        """Return what did as much work, or the next more; thresholds that are tried on the way join ``found``."""
        for _ in range(tries):
            more = [one for one in found if one.evaluations >= evaluations]
            less = [one for one in found if one.evaluations < evaluations]
            if more and less:
                ends = (min(side, key=lambda one: abs(one.evaluations - evaluations)) for side in (more, less))
                threshold = math.prod(float(one.setting) for one in ends) ** 0.5
            else:
                known = [float(one.setting) for one in found]
                threshold = max(known) * 2 if more else min(known) / 2
            found += self.curve(method, bound, [threshold])
        enough = [one for one in found if one.evaluations >= evaluations - _SAME]
        return min(enough or found, key=lambda one: abs(one.evaluations - evaluations))


def in_words(share: float) -> str:
    """Return a share of a seed change as verdicts say it."""
    return fraction(share) if share else "none"


def _bytes(pictures: list[Image.Image]) -> torch.Tensor:
    return torch.from_numpy(np.stack([np.asarray(picture) for picture in pictures]))
