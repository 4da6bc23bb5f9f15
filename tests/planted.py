"""Models that are wrong somewhere, slower or faster by a known amount, or equal, and the verdict on each.

Times are simulated with noise: drawn, in bursts, with a drift, and as it was recorded on a busy machine. The same seed
is the same fault and the same noise.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from paceline.measure.evidence import Evidence
from paceline.measure.picture import average, distances, seed_change
from paceline.measure.speedup import interleaved, measure_speedup
from paceline.measure.verdict import Verdict, judge

RECORDED = json.loads((Path(__file__).parent / "data" / "noise" / "wall.json").read_text())["long"]

Machine = Callable[[random.Random], Iterator[float]]
"""Yields, for one run after the other, how many times as long as on an empty machine it takes."""


def drawn(spread: float) -> Machine:
    def machine(dice):
        while True:
            yield dice.lognormvariate(0, spread)

    return machine


def in_bursts(dice: random.Random) -> Iterator[float]:
    busy = False
    while True:
        if dice.random() < 0.3:
            busy = not busy
        yield (1.6 if busy else 1.0) * dice.lognormvariate(0, 0.01)


def warming_up(dice: random.Random) -> Iterator[float]:
    level, change = 1.0, 1 + abs(dice.gauss(0, 0.02))
    while True:
        yield level * dice.lognormvariate(0, 0.005)
        level *= change


def recorded(dice: random.Random) -> Iterator[float]:
    """Each run is ten steps long, and the steps are those of the recording, one after the other."""
    place = dice.randrange(len(RECORDED))
    while True:
        yield sum(RECORDED[(place + step) % len(RECORDED)] for step in range(10)) / 10
        place += 10


MACHINES = {
    "quiet": drawn(0.005),
    "usual": drawn(0.01),
    "noisy": drawn(0.03),
    "wild": drawn(0.1),
    "bursts": in_bursts,
    "warming up": warming_up,
    "recorded": recorded,
}


def verdict(gain: float, rounds: int, machine: Machine, seed: int, least: int = 0) -> str:
    """Return the state of the verdict, or ``not_faster``, on a model that is ``gain`` times as fast and draws the same.

    From ``least`` rounds on, if given, it is looked at after each, and the first clear one counts.
    """
    noise = machine(random.Random(seed))
    seconds: dict[str, list[float]] = {"baseline": [], "optimized": []}
    for number in range(rounds):
        for side in interleaved(tuple(seconds), number):
            seconds[side].append(next(noise) / (gain if side == "optimized" else 1.0))
        if least and number + 1 >= least and measure_speedup(**seconds).settled:
            break
    speedup = measure_speedup(**seconds)
    return "not_faster" if speedup.not_faster else judge(Evidence(speedup, [SAME], True, ANOTHER)).state


def pictures(seed: int, batch: int = 1) -> torch.Tensor:
    """Smooth pictures, as a model draws them: uint8 ``[batch, 96, 96, 3]``."""
    coarse = torch.rand(batch, 3, 8, 8, generator=torch.Generator().manual_seed(seed))
    smooth = torch.nn.functional.interpolate(coarse, size=(96, 96), mode="bicubic", align_corners=False)
    return (smooth.clamp(0, 1).permute(0, 2, 3, 1) * 255).to(torch.uint8)


SAME = average(distances(pictures(1), pictures(1)))
ANOTHER = average(distances(pictures(2), pictures(1)))


FALSE = {1.0: ("faster", "slower"), 1.03: ("slower", "no_effect"), 1 / 1.03: ("faster", "no_effect")}
"""Verdicts that claim what is not so, by how many times as fast a model is. "Not certain" is never wrong, and none of
them is faster by more than 3 %, which ``not_faster`` says."""


def verdicts(gain: float, rounds: int, machine: str, runs: int, least: int = 0) -> Counter[str]:
    """Return how often each verdict is given on a model that is ``gain`` times as fast, on one of the ``MACHINES``."""
    return Counter(verdict(gain, rounds, MACHINES[machine], seed, least) for seed in range(runs))


# ---- pictures

RIGHT = measure_speedup([1.5, 1.5, 1.5], [1.0, 1.0, 1.0])


def judged(optimized: torch.Tensor, baseline: torch.Tensor, other: torch.Tensor, **more: Any) -> Verdict:
    """Judge pictures of as many seeds and batches as there are; ``other`` are from one more seed."""
    evidence = Evidence(
        speedup=RIGHT,
        distances=distances(optimized, baseline),
        same_bits=torch.equal(optimized, baseline),
        seed=seed_change([[other, baseline[: len(other)]]], distances),
    )
    return judge(replace(evidence, **more))


def slightly_off(drawn: torch.Tensor, seed: int) -> torch.Tensor:
    noise = torch.randint(-1, 2, drawn.shape, generator=torch.Generator().manual_seed(seed))
    return (drawn.int() + noise).clamp(0, 255).to(torch.uint8)


def drawn_of(seed: int, batch: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the pictures of a baseline, and those of another seed."""
    return pictures(seed, batch), pictures(seed + 5000, batch)


def one_picture_is_found(seed: int, batch: int = 2) -> bool:
    """Say whether a model that draws another picture in one place of a batch is found out, and the picture named."""
    baseline, other = drawn_of(seed, batch)
    bad = seed % batch
    drawn = slightly_off(baseline, seed)
    drawn[bad] = pictures(seed + 9000)[0]
    found = judged(drawn, baseline, other)
    return found.state == "suspicious" and f"picture {bad + 1} " in found.text


def one_seed_is_found(seed: int, seeds: int = 5) -> bool:
    """Say whether a model that ruins one seed of some is found out, and the picture named: it is farther than others.

    What it does to the other seeds varies between them as with real models: the worst is four times the usual.
    """
    dice = random.Random(seed)
    baseline, other, ruined = pictures(seed, seeds), pictures(seed + 5000), pictures(seed + 9000)
    bad = dice.randrange(seeds)
    shares = torch.tensor([0.03 * dice.lognormvariate(0, 0.7) for _ in range(seeds)])
    shares[bad] = dice.uniform(0.6, 1.0)
    drawn = baseline.float().lerp(ruined.float(), shares[:, None, None, None]).to(torch.uint8)
    found = judged(drawn, baseline, other)
    return f"picture {bad + 1}" in found.text and found.quality in ("another picture", "no picture")


def one_pixel_is_a_difference(seed: int) -> bool:
    """Say whether a single wrong pixel is not called identical."""
    baseline, other = drawn_of(seed)
    drawn = baseline.clone()
    drawn[0, seed % 96, seed % 90] ^= 128
    return judged(drawn, baseline, other).quality != "identical"


def rounding_is_no_fault(seed: int) -> bool:
    """Say whether a model that rounds otherwise is faster, and its difference hardly visible at most."""
    baseline, other = drawn_of(seed, 2)
    found = judged(slightly_off(baseline, seed), baseline, other)
    return found.state == "faster" and found.quality in ("not visible", "hardly visible")


def one_frame_is_found(seed: int, frames: int = 5) -> bool:
    """Say whether a model that draws another picture in one frame of a video is found out, and the frame named."""
    first, last = (pictures(seed + shift).float() for shift in (0, 2000))
    baseline, other = (
        torch.cat([start.lerp(end, 0.2 * frame / frames) for frame in range(frames)]).to(torch.uint8)
        for start, end in ((first, last), (pictures(seed + 5000).float(), last))
    )
    bad = seed % frames
    drawn = slightly_off(baseline, seed)
    drawn[bad] = pictures(seed + 9000)[0]
    found = judged(drawn, baseline, other, frames=frames)
    return found.state == "suspicious" and f"frame {bad + 1} " in found.text


FAULTS: dict[str, Callable[[int], bool]] = {
    "another picture of one seed of five": one_seed_is_found,
    "another picture in one place of a batch of two": one_picture_is_found,
    "a wrong pixel": one_pixel_is_a_difference,
    "rounding, which is no fault": rounding_is_no_fault,
    "another picture in one frame of five": one_frame_is_found,
}
"""What is planted, and a function of a seed that says whether the verdict is right."""


# ---- all of it, for docs/TRUST.md

ROUNDS = (3, 5, 10)
UNTIL_CLEAR = (9, 3)
"""At most so many rounds; from the second number on the times are looked at after each."""


def judge_planted(runs: int) -> dict[str, Any]:
    """Judge each fault ``runs`` times, times on each machine with each number of rounds; return what was found."""
    started = time.monotonic()
    plans = tuple((rounds, 0) for rounds in ROUNDS)
    rounds = (
        f"Shares of {runs:,} verdicts for each of {', '.join(map(str, ROUNDS))} rounds together, on a model that is"
    )
    clear = "The same from 3 rounds on, up to 9 until the time is clear"
    above = "\n\n".join((rounds, _table(runs, plans), clear, _table(runs, (UNTIL_CLEAR,))))
    rows = [(f"{name}: wrong verdicts of {runs:,}", sum(not right(seed) for seed in range(runs)))
            for name, right in FAULTS.items()]  # fmt: skip
    return {"rows": rows, "wrong": [], "minutes": (time.monotonic() - started) / 60, "above": above}


def _table(runs: int, plans: tuple[tuple[int, int], ...]) -> str:
    lines = ["| machine | as fast | 3 % faster | 3 % slower |", "|---|---:|---:|---:|"]
    for machine in MACHINES:
        cells = []
        for gain in FALSE:
            found = sum((verdicts(gain, most, machine, runs, least) for most, least in plans), Counter[str]())
            wrong = sum(found[state] for state in FALSE[gain]) / found.total()
            cells.append(f"{wrong:.1%} false, {found['unknown'] / found.total():.0%} not certain")
        lines.append(f"| {machine} | {' | '.join(cells)} |")
    return "\n".join(lines)
