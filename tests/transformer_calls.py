"""Calls of ComfyUI's networks in tests, mostly diffusion transformers, and what leaving out tokens by hand gives."""

from __future__ import annotations

import torch
from comfy_host import in_process
from comfy_host.transformers import TRANSFORMERS, conditioning, latent
from distances import close

NAMES = list(TRANSFORMERS)
HALVES = {"method": "kv_downsample", "ratio": 0.75}
TEXT = 20


def sample(name, model, height=16, width=24, steps=1, text=TEXT, batch=1, cfg=7.0, **more):
    return in_process.sample(
        model,
        conditioning(name, text, seed=1, **more),
        conditioning(name, text, seed=2, **more),
        latent(name, height, width, batch),
        steps=steps,
        seed=7,
        cfg=cfg,
        scheduler="simple",
    )


def grid(name, height=16, width=24):
    """Tokens before the image, frames, rows and columns that are thinned out, and tokens behind, of a model call."""
    entry = TRANSFORMERS[name]
    rows, columns = -(-height // entry.patch), -(-width // entry.patch)
    frames = (entry.frames or 1) // entry.settings.get("patch_size_t", 1)
    padding = -(frames * rows * columns) % entry.padding
    if name.startswith("wan_animate"):  # its first frame is the reference
        return rows * columns, frames - 1, rows, columns, 0
    if name in ("joyimage", "lens"):
        return 0, frames, rows, columns, TEXT
    alone = name.startswith(("wan", "anima", "cosmos", "ltx", "kandinsky"))
    return 0 if alone else entry.text(TEXT), frames, rows, columns, padding


def with_override(model, override):
    clone = model.clone()
    clone.model_options["transformer_options"]["optimized_attention_override"] = override
    return clone


def attention_lengths(model, draw):
    """Draw, and return the numbers of queries and keys of all attention calls, in their order."""
    seen = []

    def spy(func, q, k, v, *args, **kwargs):
        assert v.shape[1] == k.shape[1]
        seen.append((q.shape[1], k.shape[1]))
        return func(q, k, v, *args, **kwargs)

    draw(with_override(model, spy))
    return seen


def every_second(x, text, frames, rows, columns, axis, borders=True):
    """Leave out every second row and column of the image, with ``borders`` but the last, by slicing."""
    before, image, behind = x.tensor_split([text, text + frames * rows * columns], dim=axis)
    image = image.unflatten(axis, (frames, rows, columns))
    for side in (axis + 1, axis + 2):
        even = image.movedim(side, 0)[::2]
        last = image.movedim(side, 0)[-1:] if borders else even[:0]
        image = torch.cat([even, last]).movedim(0, side)
    return torch.cat([before, image.flatten(axis, axis + 2), behind], dim=axis)


def oracle(name, borders=True):
    """An override that does by hand what kv_downsample with a ratio of 0.75 should do on even sizes."""
    text, frames, rows, columns, padding = grid(name)
    image = frames * rows * columns
    sizes = {text + image + padding: text}
    if name == "sd35_medium":
        sizes[image] = 0

    def override(func, q, k, v, heads, mask=None, skip_reshape=False, **kwargs):
        axis = 2 if skip_reshape else 1
        if (q.shape[axis] == k.shape[axis] or name in ("hidream_o1", "qwen_image21")) and k.shape[axis] in sizes:
            before = sizes[k.shape[axis]]
            k, v = (every_second(x, before, frames, rows, columns, axis, borders) for x in (k, v))
            if mask is not None:
                mask = every_second(mask, before, frames, rows, columns, mask.ndim - 1, borders)
        return func(q, k, v, heads, mask=mask, skip_reshape=skip_reshape, **kwargs)

    return override


def reduced_as(studio, plain, override, draw, *said):
    """Check that Apply ToMe draws what an override does by hand, another picture than the plain model, and says so."""
    model = studio.tome(plain, **HALVES)
    reduced = draw(model)
    assert close(reduced, draw(with_override(plain, override))) and not close(reduced, draw(plain))
    report = studio.report(model)
    assert all(words in report for words in ("fallbacks: 0", *said)), report


def left_alone(studio, plain, draw, *said):
    """Check that Apply ToMe changes nothing, and says why."""
    model = studio.tome(plain, **HALVES)
    assert torch.equal(draw(model), draw(plain))
    report = studio.report(model)
    assert all(words in report for words in said), report
