"""What ordinary runs took is kept in one small file, without anything that tells what was drawn."""

from __future__ import annotations

import json
from pathlib import Path
from threading import Lock
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from executing import node
from faster_prompts import ask, job_of, plain
from paceline.optimizers.core.errors import InvalidSetting, PacelineError


def of_seed(seed: int, steps: int = 20) -> dict[str, Any]:
    return plain(Path("a secret.safetensors"), f"a secret and {seed}", seed=seed, steps=steps)


PROMPT = of_seed(77)


class Runs:
    """A server that knows some prompts, and what was kept of them."""

    def __init__(self) -> None:
        from paceline.service.outcomes import Outcomes

        self.queue = SimpleNamespace(mutex=Lock(), currently_running={}, history={})
        self.outcomes = Outcomes()
        self.kept, self.server = self.outcomes.kept, SimpleNamespace(prompt_queue=self.queue)

    def ended(self, sampling: float, nodes=("3", "5"), loaded=False, prompt=PROMPT, **more: Any):
        id = f"prompt {len(self.queue.history)}"
        self.queue.history[id] = {"prompt": (0, id, prompt, {}, [])}
        seconds = {"samplingRun": sampling, "textEncoding": 0.5, "saving": 0.25, "otherNodes": 0.25}
        sent = {"prompt_id": id, "seconds": seconds, "nodes": [*nodes], "loaded": loaded, **more}
        return self.outcomes.ended(sent, self.server)["slower"]

    def sampling(self, prompt: Any, sampler: str = "5") -> Any:
        """Return what the chip of a sampler is told."""
        self.queue.history["asked"] = {"prompt": (0, "asked", prompt, {}, [])}
        return self.outcomes.samplings("asked", self.server)[sampler]


@pytest.fixture
def runs(comfyui, user_folder) -> Runs:
    return Runs()


def test_the_same_workflow_slower_than_it_was_is_told_with_what_changed(runs, monkeypatch):
    assert [runs.ended(10.0, prompt=of_seed(seed)) for seed in range(3)] == [None] * 3
    assert runs.ended(99.0, prompt=of_seed(9, steps=200)) is None  # another workflow
    assert runs.ended(99.0, nodes=("1", "3", "5"), loaded=True) is None  # the first after a start
    monkeypatch.setattr("paceline.service.faster.same_work.host_version", lambda: "9.9")
    assert runs.ended(20.0, prompt=of_seed(5)) is None
    text = runs.ended(21.0, prompt=of_seed(6))["text"]
    assert "in steps: 20.5 of 21.5 s now, 10 of 11 s before. Changed since: ComfyUI" in text and "9.9" in text


def test_what_is_kept_tells_nothing_of_what_was_drawn(runs):
    runs.ended(10.0)
    text = runs.kept.path.read_text()
    (kept,) = runs.outcomes.payload()["runs"]
    assert "secret" not in text and "77" not in json.dumps(kept["about"])
    assert kept["about"].items() >= {"solver": "euler", "steps": "20", "size": "64 x 64"}.items()
    assert kept["seconds"] == {"steps": 10.0, "text": 0.5, "rest": 0.5} and {"ComfyUI", "torch"} < kept["facts"].keys()
    runs.kept.clear()
    assert runs.outcomes.payload() == {"runs": []} and not runs.kept.path.read_bytes()


def test_what_cannot_be_forgotten_is_said(runs, monkeypatch):
    runs.ended(10.0)
    monkeypatch.setattr("os.replace", Mock(side_effect=PermissionError(13, "Permission denied")))
    with pytest.raises(PacelineError, match="outcomes.jsonl could not be written: Permission denied"):
        runs.kept.clear()
    assert len(runs.kept.read()) == 1


def test_measurements_and_unknown_prompts_are_no_runs(runs):
    assert runs.ended(10.0, prompt=PROMPT | {"9": node("_PacelineTrial")}) is None
    sent = {"prompt_id": "unknown", "seconds": {}, "nodes": [], "loaded": False}
    assert runs.outcomes.ended(sent, runs.server) == {"slower": None}
    assert runs.kept.read() == []
    for wrong in (None, {}, sent | {"seconds": {"samplingRun": -1.0}}, sent | {"more": 1}):
        with pytest.raises(InvalidSetting, match="This request cannot be read"):
            runs.outcomes.ended(wrong, runs.server)


def test_a_run_that_is_watched_is_kept_as_one_of_the_workflow(runs):
    """As ``tune`` tells of it: its whole seconds, and of no node."""
    runs.ended(8.0)
    began = ask(do="run", prompt=PROMPT, choice="fast")
    job_of(began).observer.samplings.append(SimpleNamespace(link="0", loading_seconds=1.5, sampling_seconds=6.0))
    assert set(began["prompt"]) != set(PROMPT)
    runs.ended(8.0, prompt=began["prompt"])
    plain_run, watched = runs.kept.read()
    assert (watched.work, watched.workflow) == (plain_run.work, plain_run.workflow)
    parts = {"loading": {"": 1.5}, "samplingRun": {"5": 6.0}, "otherNodes": {"": 1.5}}
    assert watched.parts == parts and watched.seconds == {"loading": 1.5, "steps": 6.0, "rest": 1.5}
    time = ask(do="look", prompt=PROMPT, choice="fast")["time"]
    assert [(one["kind"], one["name"]) for one in time["parts"]][0] == ("samplingRun", "KSampler")
    assert any(one["remedy"]["text"].startswith("Not measured apart") for one in time["parts"])


def test_the_file_stays_small_and_other_lines_in_it_do_no_harm(runs, monkeypatch):
    monkeypatch.setattr("paceline.service.faster.kept_runs.MOST_BYTES", 4000)
    for number in range(30):
        runs.ended(float(number), prompt=of_seed(number))
    assert runs.kept.path.stat().st_size <= 4000
    assert runs.kept.read()[-1].seconds["steps"] == 29.0
    with runs.kept.path.open("a") as file:
        file.write('nonsense\n{"work": 7}\n')
    runs.ended(5.0)
    assert runs.kept.read()[-1].seconds["steps"] == 5.0 and "nonsense" not in runs.kept.path.read_text()


def with_ours(prompt: dict[str, Any], **others: Any) -> dict[str, Any]:
    """Return a prompt whose sampler has our node before it."""
    model = prompt["5"]["inputs"]["model"]
    sampler = prompt["5"] | {"inputs": prompt["5"]["inputs"] | {"model": ["ours", 0]}}
    return prompt | {"ours": node("PacelineReuseSteps", model=model, budget=0.1), "5": sampler} | others


def test_a_chip_is_told_of_runs_without_our_nodes_and_of_no_other_size(runs):
    for seed, prompt in enumerate((PROMPT, with_ours(PROMPT), of_seed(3, steps=7))):
        runs.ended(10.0, prompt=prompt, steps={"5": [0.5 + seed, 0.25]})
    plain_one, ours = runs.sampling(of_seed(8)), runs.sampling(with_ours(of_seed(9)))
    assert (plain_one["techniques"], ours["techniques"]) == (0, 1)
    assert ours["off"] == plain_one["off"] == pytest.approx({"seconds": 0.5287, "within": 3.864}, rel=1e-3)
    wide = PROMPT | {"4": PROMPT["4"] | {"inputs": PROMPT["4"]["inputs"] | {"width": 128}}}
    assert runs.sampling(wide)["off"] is None
    assert runs.outcomes.samplings("prompt 1", runs.server)["5"] == ours
    assert runs.outcomes.samplings("unknown", runs.server) == {}
    with pytest.raises(InvalidSetting):
        runs.ended(10.0, steps={"5": [0.0]})


def test_a_watched_sampler_is_a_plain_one_and_so_is_one_behind_remove_optimizations(runs):
    watched = with_ours(PROMPT, ours=node("_PacelineObserved", model=PROMPT["5"]["inputs"]["model"], job="j", link="0"))
    assert runs.sampling(watched) == runs.sampling(PROMPT)
    removed = {"off": node("PacelineRemoveOptimizations", model=["ours", 0])}
    second = node("KSampler", model=["off", 0], latent_image=["5", 0])
    assert runs.sampling(with_ours(PROMPT, second=second, **removed), "second")["techniques"] == 0


def test_a_workflow_of_many_paths_and_one_that_goes_in_a_circle_are_described(runs):
    """Each of 60 LoRAs has two links to the one before: 2^60 paths. The fifth hangs on the sampler."""
    loras = {str(at): node("LoraLoader", model=[str(at - 1), 0], clip=[str(at - 1), 1]) for at in range(1, 61)}
    sampled = loras | {"5": node("KSampler", model=["60", 0], positive=["60", 1])}
    assert runs.sampling(sampled) == {"techniques": 0, "off": None}
