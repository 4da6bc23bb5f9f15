"""Plans for Reuse Steps are found on recorded outputs and hold for real, with the demo's trained model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import emoji_model
import pytest
import torch
from paceline.core.errors import InvalidSetting, UnsupportedModel
from paceline.optimizers.step_reuse.plan import COMPUTE, Plan


@pytest.fixture(scope="module")
def model(studio) -> Any:
    return emoji_model.load()


@pytest.fixture(scope="module")
def job(model) -> Any:
    return job_of(model, "red apple", steps=9)


def job_of(model: Any, prompt: str, steps: int, sampler: str = "dpmpp_2m", cfg: float = 2.0) -> Any:
    from paceline.workbench.comfyui.sampling import SamplingJob

    latent = {"samples": torch.zeros(1, 4, 32, 32)}
    return SamplingJob(model[1](prompt), model[1](""), latent, 7, steps, cfg, sampler, "karras")


@pytest.mark.parametrize("sampler", ["dpmpp_2m", "euler_ancestral", "uni_pc"])
def test_a_replay_without_skips_is_the_run(model, sampler):
    """The network is asked for nothing in a replay, and the real sampler comes to the same latent."""
    from paceline.workbench.comfyui.calibration import record

    job = job_of(model, "pizza", 8, sampler)
    with torch.inference_mode():
        recording = record(model[0], job)
        asked: list[int] = []
        hook = model[0].model.diffusion_model.register_forward_pre_hook(lambda *_: asked.append(1))
        replayed = recording.replay(model[0])
        hook.remove()
    assert recording.levels == 8
    assert recording.share(replayed) < 1e-3
    assert asked == []


def test_a_plan_is_found_that_holds_for_real(model, job):
    """What the search says is checked by real runs: the plan leaves out steps, and the worst prompt is inside."""
    from paceline.workbench.comfyui.calibration import calibrate
    from paceline.workbench.comfyui.calibration.search import with_plan
    from paceline.workbench.comfyui.sampling import sample

    said: list[str] = []
    with torch.inference_mode():
        found = calibrate(model[0], [job], 0.2, said.append)
        clone = with_plan(model[0], found.plan)
        full, drawn, other = (
            sample(which, job, seed, lambda: 0.0, lambda: None).latent
            for which, seed in ((model[0], 7), (clone, 7), (model[0], 8))
        )
    assert found.evaluations <= 8 and found.tried > 20
    share = ((drawn - full).square().mean() / (other - full).square().mean()).sqrt().item()
    assert found.share == pytest.approx(share, rel=1e-3) and share <= 0.2
    assert (found.plan.sampler, found.plan.steps, found.plan.guidance, found.plan.budget) == ("dpmpp_2m", 9, 2.0, 0.2)
    assert found.plan.actions[0] == COMPUTE
    assert Plan.from_json(found.plan.to_json()) == found.plan
    assert said[0] == "prompt 1 of 1 in full"


def test_each_plan_of_a_search_leaves_out_more_and_stays_inside(model, job):
    from paceline.workbench.comfyui.calibration import record, search

    tried: list[int] = []
    with torch.inference_mode():
        recording = record(model[0], job)
        path = search(
            model[0],
            [recording],
            lambda actions: Plan("BaseModel", "dpmpp_2m", "karras", 2.0, actions),
            True,
            0.1,
            lambda: tried.append(1),
        )
    assert path[0].evaluations == 9 and path[0].share == 0.0
    evaluations = [one.evaluations for one in path]
    assert evaluations == sorted(set(evaluations), reverse=True) and len(path) > 1
    assert all(one.share <= 0.1 for one in path)
    assert len(tried) > 9


def test_nothing_may_move_in_a_budget_of_nothing(model, job):
    from paceline.workbench.comfyui.calibration import calibrate

    with torch.inference_mode():
        found = calibrate(model[0], [job], 0.0)
    assert set(found.plan.actions) == {COMPUTE} and found.share == 0.0 and found.evaluations == 9


def test_a_plan_that_breaks_its_budget_for_real_is_not_given(model, job, monkeypatch):
    """Replays that say that nothing moves: every real run is checked, so the plan is still inside."""
    from paceline.workbench.comfyui.calibration import calibrate
    from paceline.workbench.comfyui.calibration.recording import Recording

    replay = Recording.replay

    def dream(self: Any, model: Any) -> torch.Tensor:
        replay(self, model)  # so that the node has counted its steps
        return self.latent.clone()

    monkeypatch.setattr(Recording, "replay", dream)
    with torch.inference_mode():
        found = calibrate(model[0], [job], 0.02)
    assert 0 < found.share <= 0.02


def test_mistakes_are_sentences(model, job):
    from paceline.workbench.comfyui.calibration import calibrate, record

    with pytest.raises(InvalidSetting, match="there are 2"):
        calibrate(model[0], [job, replace(job, steps=13)], 0.1)
    with pytest.raises(InvalidSetting, match="Give at least one job"):
        calibrate(model[0], [], 0.1)
    with pytest.raises(InvalidSetting, match="budget is 2"):
        calibrate(model[0], [job], 2.0)
    area = [[job.positive[0][0], {"area": (16, 16, 0, 0), "strength": 1.0}]]
    with pytest.raises(UnsupportedModel, match="prompts without areas"), torch.inference_mode():
        record(model[0], replace(job, positive=area))


def test_a_plan_is_kept_where_the_presets_are(model, tmp_path, monkeypatch):
    import folder_paths
    from paceline.workbench.comfyui.calibration import Calibration, save_plan

    monkeypatch.setattr(folder_paths, "get_system_user_directory", lambda name: str(tmp_path / name), raising=False)
    plan = Plan("BaseModel", "euler", "normal", 2.0, (COMPUTE,) * 9)
    path = save_plan("mine", Calibration(plan, 9.0, 0.0, 0))
    assert path == tmp_path / "paceline" / "plans" / "mine.json"
    assert Plan.from_json(path.read_text()) == plan
