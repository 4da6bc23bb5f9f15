"""Apply ToMe where the network draws a part at a time: windows of frames, areas, masks, projections in pieces."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from cases import often
from comfy_host import in_process
from comfy_host.transformers import ALL, build, conditioning, latent
from distances import close
from transformer_calls import HALVES, every_second, reduced_as, sample


def windows(model):
    """Two frames at a time and the one before, which ComfyUI adds."""
    from comfy_extras.nodes_context_windows import ContextWindowsManualNode

    options = {"context_schedule": "standard_static", "context_stride": 1, "closed_loop": False, "dim": 2}
    given = ContextWindowsManualNode.execute(model, 2, 1, fuse_method="pyramid", freenoise=False, **options)
    return given.result[0]


def drawn(name, model, positive, samples):
    result = in_process.sample(model, positive, positive, samples, 7, 1, 1.0, scheduler="simple")
    return torch.cat([stream.flatten() for stream in result.unbind()])


def checked(studio, name, plain_model, positive, samples, sizes=""):
    """Check that Apply ToMe is active in all calls."""
    plain, model = drawn(name, plain_model, positive, samples), studio.tome(plain_model, **HALVES)
    reduced = drawn(name, model, positive, samples)
    assert reduced.isfinite().all() and not close(reduced, plain)
    report = studio.report(model)
    assert "active in 2 of 2 blocks" in report and "fallbacks: 0" in report and sizes in report


WINDOWS = {"wan": "288 -> 105", "wan_animate": "288 -> 166", "wan_scail": "360 -> 177", "kandinsky5": "288 -> 105"}


@pytest.mark.parametrize("name", often(("wan_animate", "wan_scail"), WINDOWS))
def test_windows_of_frames(studio, zoo, name):
    """Conditions are cut with the video; Animate's first frame of a window stays whole."""
    more = {"pose_video_latent": torch.randn(1, 16, 6, 8, 12)} if name == "wan_scail" else {}
    six = latent(name).repeat(1, 1, 2, 1, 1)
    checked(studio, name, windows(zoo(name)), conditioning(name, seed=1, **more), six, WINDOWS[name])


@pytest.mark.parametrize("name", often(("krea2", "joyimage"), ["krea2", "ideogram4", "omnigen2", "joyimage", "lens"]))
def test_a_text_for_a_part_of_the_picture(studio, zoo, name):
    [[text, options]] = conditioning(name, seed=1)
    positive = [[text, options], [text, options | {"area": (8, 12, 4, 6), "strength": 1.0}]]
    checked(studio, name, zoo(name), positive, latent(name))


@pytest.mark.parametrize(
    "name", often(("hidream_o1", "ltx2"), ["wan_scail", "hidream_o1", "kandinsky5_image", "minimax_h3", "ltx2"])
)
def test_a_mask_over_a_part_of_the_picture(studio, zoo, name):
    samples = latent(name)
    masks = [torch.ones_like(stream[:, :1]) for stream in (samples.unbind() if ALL[name].sound else [samples])]
    masks[0][..., :8] = 0
    mask = type(samples)(masks) if ALL[name].sound else masks[0]
    checked(studio, name, zoo(name), conditioning(name, seed=1), {"samples": samples, "noise_mask": mask})


def test_a_video_without_its_sound(studio, zoo):
    checked(studio, "ltx2", zoo("ltx2"), conditioning("ltx2", seed=1), latent("ltx2").unbind()[0], "1152 -> 351")


def test_queries_and_keys_that_are_projected_in_pieces(studio):
    """Kandinsky 5 does so from 8193 tokens on; attention looks at all of them at once."""
    model = build("kandinsky5")

    def override(func, q, k, v, heads, **options):
        if k.shape[2] == 3 * 48 * 64:
            k, v = (every_second(x, 0, 3, 48, 64, 2) for x in (k, v))
        return func(q, k, v, heads, **options)

    reduced_as(studio, model, override, partial(sample, "kandinsky5", height=96, width=128, cfg=1.0))
