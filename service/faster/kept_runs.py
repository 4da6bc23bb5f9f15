"""What ordinary runs took, kept in one file on this machine, and what that tells: no text, no name of a file, no seed.

Does a workflow take clearly longer than it did? Like is compared with like: runs in which the same nodes did something,
as ComfyUI keeps the results of others. Where models were loaded from disk, as in the first run after a start, loading
and compiling do not count: they depend on what the system holds in memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from threading import Lock
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import Self

from ...optimizers.core.errors import InvalidSetting
from ...optimizers.core.files import fingerprint_of, write_atomically
from ...optimizers.core.phrases import Phrase, phrase, phrase_of
from ...optimizers.in_comfyui.structure.user_folder import user_folder
from .same_work import about, facts_here, lasting_nodes, sampled_by, techniques_before, workflow_key
from .sentences import STAGES, by_stage
from .workflow import Workflow

BEFORE, MOST_BEFORE = 3, 5
"""So many runs must have been quicker, and so many of the latest are looked at."""

NOW = 2
"""So many must have been slower, one after the other up to the latest: one alone can be chance."""

LONGER, SECONDS = 1.3, 1.0
"""The quickest of these takes so many times as long as the slowest of those before, and so many seconds more."""

COLD = ("loading", "compiling")
"""Stages that say nothing where models were loaded from disk."""


@dataclass(frozen=True)
class Trial:
    """What became of a node on the link of a plan, by its number, or of an offer, where that is empty.

    ``said``: as ``core/phrases.data`` gives it; ``once``: seconds after which a compilation was given up, 0 for none.
    """

    link: str
    name: str
    choice: str
    said: Any
    once: float = 0.0

    @property
    def sentence(self) -> str:
        """What is said of it, a phrase."""
        said: str = phrase_of(self.said)
        return said


@dataclass(frozen=True)
class KeptRun:
    """What an ordinary run took.

    Attributes:
        work: hash of the workflow without seeds, texts and names of files, and of the nodes that did something.
        when: when it ended, ISO 8601 in UTC.
        seconds: of each stage.
        loaded: whether models were loaded from disk.
        facts: versions and devices.
        about: what was drawn: family of the model, solver, steps, size; and with which of our nodes.
        workflow: hash of the workflow alone.
        parts: seconds by kind of node and by node.
        again: why weights were loaded again; empty where they were not, or that is not known.
        tried: what was tried and offered after the run.
        plain_steps: seconds of a step in each half of a sampler's run without our nodes, by what was sampled.
    """

    work: str
    when: str
    seconds: dict[str, float]
    loaded: bool
    facts: dict[str, str]
    about: dict[str, str]
    workflow: str = ""
    parts: dict[str, dict[str, float]] = field(default_factory=dict)
    again: str = ""
    tried: list[Trial] = field(default_factory=list)
    plain_steps: dict[str, list[float]] = field(default_factory=dict)

    @property
    def counted(self) -> dict[str, float]:
        """The seconds that can be compared with other runs'."""
        return {stage: each for stage, each in self.seconds.items() if not (self.loaded and stage in COLD)}

    @property
    def total(self) -> float:
        return sum(self.counted.values())


def slower(outcomes: Sequence[KeptRun], latest: KeptRun) -> Phrase | None:
    """Return the stage that became slower in the runs like ``latest``, since when, and the changed versions.

    None where nothing did, or it is not clear.
    """
    alike = [one for one in outcomes if (one.work, one.loaded) == (latest.work, latest.loaded)]
    found = sorted(_changes(alike), key=lambda pair: pair[0])
    if not found:
        return None
    split = found[-1][1]
    before, after = alike[max(0, split - MOST_BEFORE) : split], alike[split:]

    def middle(runs: Sequence[KeptRun], stage: str) -> float:
        return median(one.counted.get(stage, 0.0) for one in runs)

    stages = {stage for one in alike for stage in one.counted}
    stage = max(sorted(stages), key=lambda name: middle(after, name) - middle(before, name))
    then, now, arrow = before[-1].facts, after[0].facts, "\N{RIGHTWARDS ARROW}"  # a Windows console has none to print
    names = [name for name in dict.fromkeys([*then, *now]) if then.get(name) != now.get(name)]
    changed = ", ".join(f"{name} {then.get(name, '?')} {arrow} {now.get(name, '?')}" for name in names)
    same = phrase("Versions and device are the same as before.")
    return phrase(
        "Slower since {when}, in {stage}: {now:.3g} of {total:.3g} s now, {was:.3g} of {before:.3g} s before. "
        "{changed}",
        when=after[0].when.replace("T", " ")[:16] + " UTC",
        stage=STAGES[stage],
        now=middle(after, stage),
        total=median(one.total for one in after),
        was=middle(before, stage),
        before=median(one.total for one in before),
        changed=phrase("Changed since: {what}.", what=changed) if changed else same,
    )


def _changes(runs: Sequence[KeptRun]) -> Iterator[tuple[float, int]]:
    """Yield how many times as long runs take from a number on, for each number from which they clearly take longer."""
    for split in range(BEFORE, len(runs) - NOW + 1):
        slowest = max(one.total for one in runs[max(0, split - MOST_BEFORE) : split])
        quickest = min(one.total for one in runs[split:])
        if quickest >= LONGER * slowest and quickest - slowest >= SECONDS:
            yield quickest / max(slowest, 1e-3), split


MOST_BYTES = 10**6
"""The oldest runs leave first."""

_KEPT_RUN = TypeAdapter(KeptRun)

Seconds = Annotated[dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]], Field(max_length=20)]
"""Of a run, by kind of node; see ``KINDS`` in web/js/speed/timeline.js."""

StepSeconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Sent(BaseModel):
    """What a route is sent."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @classmethod
    def read(cls, sent: Any) -> Self:
        """Return the request; `InvalidSetting` names its first fault."""
        try:
            return cls.model_validate(sent)
        except ValidationError as error:
            wrong = error.errors(include_input=False, include_url=False)[0]
            where = ".".join(str(part)[:40] for part in wrong["loc"]) or "it"
            remedy = f"Send {', '.join(cls.model_fields)}."
            raise InvalidSetting(f"This request cannot be read: {where}: {wrong['msg']}.", remedy) from None


class Ended(Sent):
    """What the page tells of a run.

    Attributes:
        seconds: by kind of node; ``parts`` the same by kind and node.
        nodes: those that did something.
        loaded: whether one read a model from disk.
        again: why weights were loaded again; empty where they were not, or that is not known.
        steps: by sampler, seconds of a step in each half of its run.
    """

    prompt_id: str = Field(max_length=100)
    seconds: Seconds
    nodes: list[str] = Field(max_length=3000)
    loaded: bool
    parts: dict[str, Annotated[dict[str, float], Field(max_length=3000)]] = Field(default_factory=dict, max_length=20)
    again: str = Field(default="", max_length=500)
    steps: dict[str, Annotated[list[StepSeconds], Field(max_length=2)]] = Field(default_factory=dict, max_length=100)


def history(runs: Iterable[KeptRun], choice: str) -> list[tuple[str, Trial]]:
    """Return the trials for a choice in runs of one workflow, each node's last with its day."""
    found = {(one.link, one.name): (run.when[:10], one) for run in runs for one in run.tried if one.choice == choice}
    return [*found.values()]


class KeptRuns:
    """The runs in one file, a line of JSON each, the oldest first."""

    _lock = Lock()

    def __init__(self) -> None:
        self._last = ""

    @property
    def path(self) -> Path:
        return user_folder("outcomes.jsonl")

    def read(self) -> list[KeptRun]:
        """Return the kept runs; lines that are none of ours are left out."""
        try:
            lines = self.path.read_bytes()[-2 * MOST_BYTES :].splitlines()
        except OSError:
            return []
        runs = []
        for line in lines:
            with suppress(ValidationError):
                runs.append(_KEPT_RUN.validate_json(line))
        return runs

    def add(self, run: KeptRun, prompt_id: str) -> list[KeptRun]:
        """Keep a run, once if two tabs tell of it; return all that are kept."""
        with self._lock:
            known = self.read()
            if self._last != prompt_id:
                self._last = prompt_id
                known.append(run)
                self._write(known)
        return known

    def note(self, workflow: Workflow, trials: Sequence[Trial]) -> None:
        """Note with the last run of a workflow what was tried on it, as ``KeptRun.tried``."""
        key = workflow_key(workflow)
        with self._lock:
            known = self.read()
            last = max((number for number, run in enumerate(known) if run.workflow == key), default=None)
            if trials and last is not None:
                known[last] = replace(known[last], tried=[*trials])
                self._write(known)

    def clear(self) -> None:
        """Forget all runs; `NotWritten` if the file cannot be changed."""
        with self._lock:
            self._write([])

    def _write(self, runs: list[KeptRun]) -> None:
        lines = [json.dumps(asdict(one)).encode() + b"\n" for one in runs]
        while sum(map(len, lines)) > MOST_BYTES:
            del lines[: max(1, len(lines) // 10)]
        write_atomically(self.path, lambda path: path.write_bytes(b"".join(lines)))


def kept_run(ended: Ended, workflow: Workflow) -> KeptRun:
    """Return the facts of a run to keep."""
    seconds = {stage: round(each, 3) for stage, each in by_stage(ended.seconds).items()}
    parts = {kind: {id: round(each, 3) for id, each in nodes.items()} for kind, nodes in ended.parts.items()}
    plain = [id for id in ended.steps if id in workflow and not techniques_before(workflow, id)]
    return KeptRun(
        fingerprint_of([lasting_nodes(workflow), sorted({*ended.nodes} & {*workflow})])[:16],
        datetime.now(timezone.utc).isoformat(timespec="seconds"),
        seconds,
        ended.loaded,
        facts_here(),
        about(workflow),
        workflow_key(workflow),
        parts,
        ended.again,
        plain_steps={sampled_by(workflow, id): [round(each, 5) for each in ended.steps[id]] for id in plain},
    )
