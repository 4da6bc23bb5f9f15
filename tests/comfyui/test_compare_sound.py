"""Compare Models on videos with sound, on the real classes: one wrong frame is named, and how far the sound is."""

import json
import wave
from itertools import count
from types import SimpleNamespace

import pytest
import torch
from cases import often
from comfy_host import transformers
from PIL import Image

RATE, SAMPLES = 16_000, 24_000


class AudioVAE:
    """Decodes ``[batch, ...]`` to a chord of twenty tones, as loud as the latent's first numbers."""

    audio_sample_rate = RATE

    def decode(self, latent):
        times = torch.arange(SAMPLES) / RATE
        tones = torch.sin(2 * torch.pi * (200 + 150 * torch.arange(20))[:, None] * times)
        return (latent.flatten(1)[:, :20].tanh() @ tones / 20)[..., None].expand(-1, -1, 2)


class VideoVAE:
    """Decodes ``[batch, channels, frames, height, width]`` to its first three channels, eight pixels a place."""

    def decode(self, latent):
        pixels = latent[:, :3].sigmoid().movedim(1, -1)
        return pixels.repeat_interleave(8, 2).repeat_interleave(8, 3)


@pytest.fixture(scope="module", params=often(["ltx2"], transformers.WITH_SOUND))
def scene(request, studio):
    name = request.param
    shapes = [stream.shape[1:] for stream in transformers.latent(name).unbind()]
    return SimpleNamespace(name=name, model=transformers.build(name), shapes=shapes)


def changed(scene, stream, place, factor):
    """Return a MODEL that predicts ``factor`` times as much at a place of the video (0) or of the sound (1)."""

    def post(arguments):
        denoised = arguments["denoised"].clone()
        parts = denoised.flatten(1).split([shape.numel() for shape in scene.shapes], 1)
        parts[stream].unflatten(1, scene.shapes[stream])[place].mul_(factor)
        return denoised

    clone = scene.model.clone()
    clone.set_model_sampler_post_cfg_function(post)
    return clone


def compared(scene, optimized, vae=None, audio_vae=None, batch=1):
    from paceline.measure.measure import MeasurePlan
    from paceline.service.comfyui.compare import Side, compare
    from paceline.service.comfyui.sampling_job import SamplingJob

    prompts = (transformers.conditioning(scene.name, seed=seed) for seed in (1, 2))
    latent = {"samples": transformers.latent(scene.name, batch=batch)}
    job = SamplingJob(*prompts, latent, 1, 2, 2.0, "euler", "simple")
    sides = [Side(model, vae, audio_vae) for model in (scene.model, optimized)]
    plan = MeasurePlan(job.steps, 2, controls=())
    with torch.inference_mode():
        return compare(*sides, job, plan, clock=count().__next__, show=lambda share: None)


@pytest.mark.parametrize("audio_vae", [None, AudioVAE()])
def test_the_distance_of_the_sound_is_shown_and_the_picture_alone_is_judged(scene, audio_vae):
    from paceline.service.comfyui.comparison_report import comparison_lines

    found = compared(scene, changed(scene, 1, ..., 0.0), VideoVAE(), audio_vae)
    assert found.verdict.quality in ("identical", "not visible", "hardly visible", "visible")
    (line,) = (one for one in comparison_lines(found) if one.startswith("sound: "))
    assert line.endswith(" of the latent" if audio_vae is None else ", the farthest")
    assert any("no audio_vae" in note for note in found.notes) == (audio_vae is None)


def test_a_sound_that_is_no_number_is_broken(scene):
    broken = SimpleNamespace(audio_sample_rate=RATE, decode=lambda latent: AudioVAE().decode(latent) * float("nan"))
    found = compared(scene, changed(scene, 1, ..., 0.5), VideoVAE(), broken)
    assert found.verdict.state == "broken" and "sound has values that are not numbers" in found.verdict.headline


def test_a_fault_of_one_frame_only_is_found_and_named(scene):
    found = compared(scene, changed(scene, 0, (..., 1, slice(None), slice(None)), -1.0), VideoVAE(), AudioVAE())
    assert found.verdict.state == "suspicious" and "frame 2 " in found.verdict.headline, found.verdict
    assert found.evidence.frames == 3 and found.evidence.worst % 3 == 1


def test_the_video_moves_and_the_sound_can_be_heard(scene, studio, temp_folder):
    prompts = [transformers.conditioning(scene.name, seed=seed) for seed in (1, 2)]
    with torch.inference_mode():
        output = studio.nodes["PacelineCompareModels"].execute(
            model_baseline=scene.model, model_optimized=changed(scene, 1, ..., 0.5), positive=prompts[0],
            negative=prompts[1], latent_image={"samples": transformers.latent(scene.name)}, vae=VideoVAE(),
            audio_vae=AudioVAE(), save_files=False, runs=1, seed=1, steps=2,
            cfg=2.0, sampler_name="euler", scheduler="simple", denoise=1.0,
        )  # fmt: skip
    (shown,), folder = output.ui["paceline_comparison"], temp_folder / "paceline"
    motion = Image.open(folder / shown["files"]["motion"]["filename"])
    assert motion.n_frames == 3 and motion.size[0] > motion.size[1] * 2
    sides = []
    for side in ("baseline", "optimized"):
        with wave.open(str(folder / shown["files"]["sounds"][side]["filename"])) as file:
            assert (file.getframerate(), file.getnchannels(), file.getnframes()) == (RATE, 2, SAMPLES)
            sides.append(file.readframes(SAMPLES))
    assert sides[0] != sides[1]
    saved = json.loads(next(folder.glob("*.json")).read_text())
    assert saved["frames"] == 3 and saved["sound"]["second"] and saved["files"]["sounds"]
    assert (shown["shown"], shown["count"]) == ([1, 2, 3], 3)


def test_a_vae_at_the_wrong_input_is_refused(scene):
    from paceline.optimizers.core.errors import InvalidSetting

    with pytest.raises(InvalidSetting, match="decodes sound.*audio_vae"):
        compared(scene, scene.model.clone(), AudioVAE())
    with pytest.raises(InvalidSetting, match="audio_vae decodes pictures"):
        compared(scene, scene.model.clone(), VideoVAE(), VideoVAE())
