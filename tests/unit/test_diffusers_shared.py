"""Components that several pipelines share: who asked for what, who runs them now, and from which thread."""

from __future__ import annotations

import copy
import gc
import threading
from typing import Any

import diffusers
import pytest
import torch
from cases import often
from paceline import Attention, FuseQKV, Precision, ReuseSteps, TokenMerging, optimize, report, restore
from random_pipelines import baseline, differences, distance, own_loop, picture, small, state_of

REUSE = ReuseSteps(budget=0.15)
MERGED = TokenMerging(method="merge", ratio=0.5)


def evaluations(pipe: Any, **arguments: Any) -> int:
    """How often the UNet computes in one picture of a pipeline."""
    calls: list[int] = []
    handle = pipe.unet.conv_in.register_forward_hook(lambda *_: calls.append(1))
    pipe(generator=torch.Generator().manual_seed(1), output_type="latent", **arguments)
    handle.remove()
    return len(calls)


def image_to_image(pipe: Any) -> tuple[Any, dict[str, Any]]:
    """A pipeline that shares all parts of another, and what it is called with."""
    made = diffusers.StableDiffusionImg2ImgPipeline.from_pipe(pipe)
    made.set_progress_bar_config(disable=True)
    asked = small("sd15-img2img")
    arguments = asked.arguments(asked.pipe, ["a lighthouse"], 64)
    return made, {**arguments, "strength": 0.8, "num_inference_steps": 40}


def with_scheduler_of_its_own(first: Any) -> Any:
    """A pipeline with the parts of another, and a scheduler of its own."""
    scheduler = diffusers.DDIMScheduler.from_config(first.pipe.scheduler.config)
    made = diffusers.StableDiffusionPipeline(**{**first.pipe.components, "scheduler": scheduler})
    made.set_progress_bar_config(disable=True)
    return made


def test_reuse_steps_follows_the_pipeline_that_runs() -> None:
    alone, arguments = image_to_image(small("sd15").pipe)
    optimize(alone, REUSE)
    expected = evaluations(alone, **arguments)
    first = small("sd15")
    optimize(first.pipe, REUSE)
    picture(first, size=64, steps=8)
    second, _ = image_to_image(first.pipe)
    assert evaluations(second, **arguments) == expected < 30
    assert any(f"{expected} of 33" in line for line in report(second).lines[0].summary.details)
    del first
    gc.collect()
    assert evaluations(second, **arguments) == expected


def test_a_second_pipeline_with_a_scheduler_of_its_own_has_runs_of_its_own() -> None:
    first, alone = small("sd15"), small("sd15")
    scheduler = diffusers.EulerDiscreteScheduler.from_config(first.pipe.scheduler.config)
    second = diffusers.StableDiffusionPipeline(**{**first.pipe.components, "scheduler": scheduler})
    second.set_progress_bar_config(disable=True)
    alone.pipe.scheduler = copy.deepcopy(scheduler)
    arguments = {**first.arguments(first.pipe, ["a"], 64), "num_inference_steps": 20}
    optimize(alone.pipe, REUSE)
    optimize(first.pipe, REUSE)
    expected = evaluations(alone.pipe, **arguments)
    for _ in range(2):
        evaluations(first.pipe, **arguments)
        assert evaluations(second, **arguments) == expected < 20


def test_restoring_one_pipeline_leaves_what_another_has_asked_for() -> None:
    base, refiner = small("sd15"), small("sd15")
    before = state_of(base.pipe)
    refiner.pipe.register_modules(vae=base.pipe.vae)
    for one in (base, refiner):
        optimize(one.pipe, Precision("bf16", vae_dtype="fp32"), FuseQKV())
    expected = picture(refiner)
    restore(base.pipe)
    assert torch.equal(picture(refiner), expected)
    assert distance(picture(base), baseline("sd15")) <= 2e-5  # its VAE still computes query, key and value at once
    restore(refiner.pipe)
    assert not differences(before, state_of(base.pipe))
    assert torch.equal(picture(base), baseline("sd15"))


@pytest.mark.parametrize("setting", often([FuseQKV(), REUSE], [FuseQKV(), MERGED, REUSE, Attention("vanilla")]))
def test_threads_with_a_scheduler_of_their_own_do_not_disturb_each_other(setting: Any) -> None:
    """Exact techniques serve both; of the others a second thread has none, and is exact."""
    first = small("sd15")
    pipes = [with_scheduler_of_its_own(first) for _ in range(2)]
    arguments = {**first.arguments(first.pipe, ["a"], 64), "num_inference_steps": 12, "output_type": "latent"}

    def draw(pipe: Any, seed: int) -> torch.Tensor:
        return pipe(**arguments, generator=torch.Generator().manual_seed(seed)).images  # type: ignore[no-any-return]

    plain = [draw(pipe, seed) for seed, pipe in enumerate(pipes)]
    optimize(pipes[0], setting, components=["unet"])
    alone = [draw(pipe, seed) for seed, pipe in enumerate(pipes)]
    drawn: dict[int, torch.Tensor] = {}
    meet = threading.Barrier(2)

    def work(seed: int) -> None:
        meet.wait()
        drawn[seed] = draw(pipes[seed], seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if setting in (FuseQKV(), Attention("vanilla")):
        assert all(distance(drawn[seed], plain[seed]) <= 2e-5 for seed in range(2))
    else:  # one of the two begins: it has its run, and the other is plain until that one is over
        assert any(torch.equal(drawn[seed], alone[seed]) for seed in range(2))
        furthest = max(distance(one, plain[seed]) for seed, one in enumerate(alone))
        assert all(distance(drawn[seed], plain[seed]) <= 1.5 * furthest for seed in range(2))


def test_a_run_that_began_plain_stays_plain_when_the_other_thread_is_done() -> None:
    """It would draw neither picture: not the plain one, and not the merged one."""
    first = small("sd15")
    pipes = [with_scheduler_of_its_own(first) for _ in range(2)]
    arguments = {**first.arguments(first.pipe, ["a"], 64), "num_inference_steps": 6, "output_type": "latent"}
    begun, over = threading.Event(), threading.Event()

    def draw(pipe: Any, callback: Any = None) -> torch.Tensor:
        made = pipe(**arguments, generator=torch.Generator().manual_seed(0), callback_on_step_end=callback)
        return made.images  # type: ignore[no-any-return]

    plain = draw(pipes[1])
    optimize(pipes[0], TokenMerging(method="merge", ratio=0.5, residual="off"), components=["unet"])
    drawn: list[torch.Tensor] = []

    def between(pipe: Any, step: int, timestep: Any, values: dict[str, Any]) -> dict[str, Any]:
        if step == 1:
            begun.set()
            over.wait(60)
        return values

    other = threading.Thread(target=lambda: drawn.append(draw(pipes[1], between)))

    def beside(pipe: Any, step: int, timestep: Any, values: dict[str, Any]) -> dict[str, Any]:
        if step == 1:
            other.start()
            begun.wait(60)
        return values

    draw(pipes[0], beside)
    over.set()
    other.join()
    assert torch.equal(drawn[0], plain)


def test_in_a_loop_of_ones_own_nothing_is_taken_for_the_pipelines_run() -> None:
    pipeline = small("sd15")
    plain = own_loop(pipeline.pipe, 20)
    optimize(pipeline.pipe, REUSE, TokenMerging(method="kv_downsample"), components=["unet"])
    picture(pipeline, size=64, steps=6)
    drawn = [own_loop(pipeline.pipe, 20) for _ in range(2)]
    assert torch.equal(*drawn) and distance(drawn[0], plain) > 0
    said = str(report(pipeline.pipe))
    assert "residual left out: the begin and the end of a step are unknown here" in said
    assert "the begin of a run is unknown" in said and "not asked for a step" not in said
