"""Tries changes of a MODEL or a VAE on what was kept of a run: how long it would take, and how far it would be off.

Whole evaluations tell errors alone. For the seconds one block of each kind runs in turn with the plain one, and counts
for all places of its kind. What compiles gets the kind that takes longest, and no whole evaluation: its code rounds.
Once it costs as much for each kind, also where a whole decoder is compiled, which has the same kernels in many places.

A technique that keeps something of whole steps for later ones (``residual`` of Apply ToMe) is evaluated at pairs of
points, about as many steps apart as its steps are on average: whole at the first, with what is kept at the second.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count, islice
from time import monotonic
from typing import Any

from torch import Tensor

from ...measure.expect import KEPT, PROBED, ROUNDING, Probed
from ...measure.replay import Decoding, Sampling
from ...measure.speedup import interleaved, measure_speedup
from ...optimizers.core.errors import CannotHelp, PacelineError
from ...optimizers.core.phrases import phrase
from ...optimizers.core.technique import COMPILATION, WholeSteps
from ...optimizers.in_comfyui.compilation.comfy_env import TooLong, compiled_until
from ...optimizers.in_comfyui.compilation.compile_vae import by_blocks
from ...optimizers.in_comfyui.run.comfy_technique import AnyTechnique
from .evaluating import Again, Around, Kind, Latents, Steps, TimedBlocks, Took

POINTS = 4
"""Whole evaluations of a candidate."""

ROUNDS = 8
"""At most so many times the blocks of all that are not clear by then run in turn."""

_MOST = 1000.0
"""Times as fast that are told at most."""

SPARE = 30.0
"""Seconds that a probe may always take, however short the run was."""

ENOUGH = 10.0
"""Seconds after which it counts that something is not compiled yet; with less it is tried again by the next run."""

Change = Callable[[Any], Any]
"""Of a MODEL or a VAE."""


@dataclass
class _Side:
    """What was computed with one MODEL or VAE.

    Attributes:
        whole: the steps that fill a cache for later ones.
        added: the techniques that the plain one lacks.
        once: seconds that it took to make it ready.
        seconds: of its whole evaluations; ``outputs`` are theirs.
        rounds: the seconds of a block by its kind, by the number of the round.
    """

    thing: Any
    whole: WholeSteps | None = None
    added: Sequence[AnyTechnique] = ()
    once: float = 0.0
    seconds: list[float] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)
    rounds: dict[int, dict[Kind, float]] = field(default_factory=dict)

    @property
    def compiles(self) -> bool:
        return any(one.kind == COMPILATION for one in self.added)

    @property
    def nothing_done(self) -> str:
        """Why its techniques changed nothing in what was evaluated; "" where one of them did."""
        told = [one.last_summary() for one in self.added]
        if not told or any(one.state != "inactive" for one in told):
            return ""
        why = f" ({told[0].details[0]})" if told[0].details else ""
        return told[0].headline + why


def probe(
    seen: Sampling | Decoding,
    candidates: Mapping[str, Change],
    say: Callable[[float], None] = lambda share: None,
    found: list[Probed] | None = None,
    deadline: float | None = None,
) -> list[Probed]:
    """Try the candidates on what was seen of a run; return what each was worth, in their order.

    No evaluation begins behind the ``deadline``, of ``time.monotonic``: by default that is as late as the run or
    ``SPARE`` was long. What compiles comes last, and is given up by then. ``found`` is filled as it goes, behind what
    it has. ``say`` is told the share that is done; what it raises, and ComfyUI's cancel, end it.
    """
    run = Latents(seen) if isinstance(seen, Decoding) else Steps(seen)
    deadline = monotonic() + max(SPARE, run.seconds) if deadline is None else deadline
    results = [] if found is None else found
    trial, known, rounds, done = _Trial(run, candidates, deadline), len(results), count(), count()
    stages = len(trial.sides) + 2 * ROUNDS
    results[known:] = map(trial.judged, candidates)
    if len(trial.sides) == 1:
        return results
    for compiles in (False, True):
        for name in [name for name, side in trial.sides.items() if side.compiles == compiles]:
            say(next(done) / stages)
            trial.begin(name)
            results[known:] = map(trial.judged, candidates)
        for number in islice(rounds, ROUNDS):
            open_ = [one.name for one in results[known:] if trial.goes_on(one)]
            if not open_ or monotonic() > deadline:
                break
            say(next(done) / stages)
            for name in interleaved(["", *open_], number):
                trial.time_blocks(name, number)
            results[known:] = map(trial.judged, candidates)
    say(1.0)
    return results


class _Trial:
    """What is known by now of each side, by its name, that of the plain one is ``""``, and why others are refused."""

    def __init__(self, run: Steps | Latents, candidates: Mapping[str, Change], deadline: float) -> None:
        self._run, self._deadline = run, deadline
        self._refused: dict[str, Probed] = {}
        self.sides = {"": _Side(run.plain)} | dict(self._made(candidates))
        self._blocks = TimedBlocks(run.network)
        distances = [side.whole.mean_distance for side in self.sides.values() if side.whole is not None]
        self._points = run.points(distances, self._affordable())

    def _made(self, candidates: Mapping[str, Change]) -> Iterator[tuple[str, _Side]]:
        before = self._run.target(self._run.plain).techniques
        for name, change in candidates.items():
            if monotonic() > self._deadline:
                break
            began = time.perf_counter()
            try:
                thing = change(self._run.plain)
                thing = by_blocks(thing) if isinstance(self._run, Latents) else thing
            except PacelineError as error:
                self._refuse(name, error.brief if isinstance(error, CannotHelp) else str(error))
                continue
            techniques = self._run.target(thing).techniques
            added = [one for one in techniques if one not in before]
            options = getattr(thing, "model_options", {}).get("transformer_options", {})
            idle = [one.nothing_to_do(options) for one in added]
            if idle and all(idle):
                self._refuse(name, idle[0])
                continue
            kept = [one.policy.whole_steps(self._run.levels) for one in techniques]
            whole = next((one for one in kept if one is not None), None)
            yield name, _Side(thing, whole, added, time.perf_counter() - began)

    def _refuse(self, name: str, why: str, once: float = 0.0) -> None:
        self._refused[name] = Probed(name, why_not=why, once=once)

    def _affordable(self) -> int:
        """Return how many points each side that has not begun can be evaluated at: half of the time is for blocks."""
        known = self.sides[""].seconds or [self._run.each]
        waiting = sum(not (one.outputs or one.compiles) for one in self.sides.values())
        left = self._deadline - monotonic()
        return max(1, min(POINTS, int(left / 2 / max(1, waiting) / max(statistics.fmean(known), 1e-6))))

    def goes_on(self, one: Probed) -> bool:
        """Return whether more rounds could tell something of a candidate, which has begun."""
        side = self.sides.get(one.name)
        return side is not None and bool(side.outputs) and not (one.clear or one.why_not)

    def begin(self, name: str) -> None:
        """Evaluate the points with a side as a whole, of the plain one block by block; or compile its block."""
        side, blocks = self.sides[name], self._blocks
        with self._trying(name):
            took: Took = {}
            if side.compiles:
                done = self._again(side, blocks.around(blocks.kinds[:1], took), 1)
                side.once += len(blocks.kinds) * max(0.0, *(first - each for first, each in took.values()), 0.0)
            else:
                points = max(self._affordable(), 1 if side.whole is None else 2)
                done = self._again(side, None if name else blocks.around(), points)
            side.outputs, side.seconds = [output for output, _ in done], [seconds for _, seconds in done]
            if len(done) > 1:
                side.once += max(0.0, side.seconds[0] - statistics.median(side.seconds))
            if side.nothing_done and done:
                self._refuse(name, side.nothing_done)

    def time_blocks(self, name: str, number: int) -> None:
        """Run one block of each kind, in a round; where steps are whole or not, as in the mean step."""
        side, rounds = self.sides[name], list[Took]()
        if name in self._refused:
            return
        took: Took = {}
        around = self._blocks.around(self._blocks.kinds[: 1 if side.compiles else None], took)
        points = min(len(self._points), 1 if side.whole is None else 2)
        with self._trying(name):
            self._again(side, around, points, lambda: rounds.append({**took}))
        if len(rounds) == points:
            share = 0.0 if side.whole is None else side.whole.share
            each = {kind: (rounds[0][kind][1], rounds[-1][kind][1]) for kind in took}
            side.rounds[number] = {kind: share * whole + (1 - share) * later for kind, (whole, later) in each.items()}

    @contextmanager
    def _trying(self, name: str) -> Iterator[None]:
        """Note why a candidate cannot be computed; what the plain one raises is raised.

        What still compiles at the deadline is given up if it had ``ENOUGH`` time.
        """
        given = self._deadline - monotonic()
        try:
            with compiled_until(self._deadline):
                yield
        except TooLong:
            why = phrase("compiling takes longer than the {seconds:.0f} s of this test", seconds=given)
            if given >= ENOUGH:
                self._refuse(name, why, given)
        except (RuntimeError, PacelineError) as error:  # a kernel's refusal, or memory; ComfyUI's cancel is none
            if not name:
                raise
            self._refuse(name, str(error))

    def _again(
        self, side: _Side, around: Around | None, points: int, ended: Callable[[], object] = lambda: None
    ) -> Again:
        return self._run.again(side.thing, around, self._points[:points], self._deadline, ended)

    def judged(self, name: str) -> Probed:
        """Return what is known of a candidate."""
        plain, side = self.sides[""], self.sides.get(name)
        if name in self._refused or side is None:
            return self._refused.get(name, Probed(name))
        rounds = [(plain.rounds[number], side.rounds[number]) for number in plain.rounds.keys() & side.rounds.keys()]
        errors = [ROUNDING] if side.compiles else self._errors(plain, side)
        if not rounds or not errors:
            return Probed(name)
        around = max(0.0, sum(plain.seconds) / self._blocks.seconds - 1)  # of the blocks' seconds
        before, likely, least = [], [], []
        for old, new in rounds:
            blocks = sum(kind.calls * seconds for kind, seconds in old.items())
            tried = sum(kind.calls * old[kind] for kind in new)
            left = sum(kind.calls * seconds for kind, seconds in new.items())
            before.append(blocks * (around + 1))
            likely.append(blocks * (around + left / tried))  # as if all kinds gained as much
            least.append(blocks * (around + 1) - tried + left)
        speedup = measure_speedup(before, likely)
        low = min(speedup.low, speedup.low * sum(likely) / sum(least))
        share = 1.0 if side.whole is None else 1 - side.whole.share
        error = share * math.sqrt(statistics.fmean(one**2 for one in errors))
        times, moves = (low, speedup.ratio, min(speedup.high, _MOST)), PROBED if side.whole is None else KEPT
        kind = side.added[0].kind if side.added else ""
        return Probed(name, times, speedup.clear, error, moves, len(errors), side.once, _spread(before), kind=kind)

    def _errors(self, plain: _Side, side: _Side) -> list[float]:
        """Return the errors of a side's predictions, without those of whole steps, which are exact."""
        sampling: Sampling = self._run.sampling
        sketch, pairs = sampling.sketch, [*zip(plain.outputs, side.outputs, strict=False)]
        judged = pairs if side.whole is None else pairs[1::2]
        return [sampling.share(sketch.of(other) - sketch.of(one)) for one, other in judged]


def _spread(seconds: Sequence[float]) -> float:
    """Return how many times as long the slower half takes as the faster one."""
    first, _, last = statistics.quantiles(seconds, n=4) if len(seconds) > 1 else (1.0, 1.0, 1.0)
    return last / max(first, 1e-9)
