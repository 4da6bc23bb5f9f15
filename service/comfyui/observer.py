"""Watches ordinary sampling runs of MODELs: seconds, a sketch of each evaluation, and the input of a few.

It is beside the run, never in it: what the sampler is given is what it would be given without, bit for bit, and nothing
waits for the device before the sampler ends.
"""

from __future__ import annotations

import copy
import math
import time
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ...measure.replay import Decoding, RecordedEvaluation, Sampling, Subsample
from ...optimizers.core.devices import synchronize
from ...optimizers.core.not_copied import NotCopied
from ...optimizers.core.technique import STEP_REUSE
from ...optimizers.in_comfyui.comfy_step_reuse import blocks_of, other_cache, refusals, sampler_name, shapes_in
from ...optimizers.in_comfyui.run.sampling_run import SamplerCall, counted, taking_part
from ...optimizers.in_comfyui.run.stack import stack_of
from ...optimizers.in_comfyui.structure.model_facts import is_flow
from ...optimizers.in_comfyui.structure.protocols import VAE, Executor, ModelPatcher, Options
from ...optimizers.step_reuse.parts import Blend, split_for
from ...optimizers.step_reuse.path import LEFT_OUT, RESIZED

_KEY = "paceline_observer"

MOST_BYTES = 256 * 2**20
"""Of kept inputs in one run of a workflow."""

FREE_BYTES = 2**30
"""With less memory free on the CPU, no inputs are kept."""

PLACES = 8
"""How many steps' inputs are kept, evenly over the run, each with that of the step after it."""


@dataclass
class ReplayInputs:
    """What samples a run once more: the guider before its run, and its arguments."""

    guider: Any
    sampler: Any
    noise: Tensor
    latent: Tensor
    sigmas: Tensor
    mask: Tensor | None
    seed: int | None
    shapes: list[Any]

    @property
    def bytes(self) -> int:
        return self.noise.nbytes + self.latent.nbytes + (0 if self.mask is None else self.mask.nbytes)

    def sample(self, sampler: Any, sigmas: Tensor, model: ModelPatcher | None = None, callback: Any = None) -> Tensor:
        """Sample once more with another sampler, other noise levels, or another MODEL; return the LATENT's samples."""
        import comfy.nested_tensor
        import comfy.utils

        def streams(packed: Tensor) -> Any:
            if len(self.shapes) < 2:
                return packed
            return comfy.nested_tensor.NestedTensor(comfy.utils.unpack_latents(packed, self.shapes))

        guider = copy.copy(self.guider)
        if model is not None:
            guider.model_patcher, guider.model_options = model, model.model_options
        mask = None if self.mask is None else streams(self.mask)
        noise, latent = streams(self.noise), streams(self.latent)
        samples: Tensor = guider.sample(
            noise, latent, sampler, sigmas, mask, callback=callback, disable_pbar=True, seed=self.seed
        )
        return samples


class Observer:
    """All sampling runs of one run of a workflow, in the order in which they ended.

    Attributes:
        keep: whether sketches and inputs are kept, beside seconds, counts and what each run began with.
        samplings: of runs that came to their end.
        decodings: one for each link, its first, with the seconds of all.
    """

    def __init__(self, keep: bool = True) -> None:
        self.keep = keep
        self.samplings: list[Sampling] = []
        self.decodings: list[Decoding] = []

    def on_vae(self, vae: VAE, link: str) -> VAE:
        """Return a copy of a VAE whose decodings are observed; ``link`` names it."""
        watched = copy.copy(vae)
        for method in ("decode", "decode_tiled"):
            setattr(watched, method, partial(self._decode, vae, link, method))
        return watched

    def _decode(self, vae: VAE, link: str, method: str, samples: Any, *args: Any, **options: Any) -> Any:
        started = time.perf_counter()
        result = getattr(vae, method)(samples, *args, **options)  # on the CPU, so the device has come to its end
        seconds = time.perf_counter() - started
        before = next((one for one in self.decodings if one.link == link), None)
        if before is not None:
            before.seconds += seconds
        elif isinstance(samples, Tensor):
            self.decodings.append(Decoding(link, vae, method, samples, seconds, args, options))
        return result

    def on(self, model: ModelPatcher, link: str = "") -> ModelPatcher:
        """Return a clone of a MODEL that is observed; ``link`` names it."""
        from comfy.patcher_extension import WrappersMP

        watch, clone = _Watch(self, model, link), model.clone()
        for kind, wrapper in (
            (WrappersMP.OUTER_SAMPLE, watch.outer_sample),
            (WrappersMP.SAMPLER_SAMPLE, watch.sampler_sample),
            (WrappersMP.PREDICT_NOISE, watch.predict_noise),
            (WrappersMP.CALC_COND_BATCH, watch.calc_cond_batch),
        ):
            clone.remove_wrappers_with_key(kind, _KEY)
            clone.add_wrapper_with_key(kind, _KEY, wrapper)
        return clone

    @property
    def bytes(self) -> int:
        """The memory of kept inputs."""
        return sum(one.bytes for one in self.samplings)

    def forget(self) -> None:
        """Drop all that is kept; who evaluates some of it again keeps that until its end."""
        self.samplings, self.decodings = [], []

    @property
    def empty(self) -> bool:
        return not self.samplings and not self.decodings


class _Watch(NotCopied):
    """The wrappers of one MODEL, with what is known of a run that goes on: tensors are on its device.

    ``done`` are the steps that its sampler has reported.
    """

    def __init__(self, observer: Observer, model: ModelPatcher, link: str) -> None:
        self._observer, self._model, self._link = observer, model, link
        self._found: Sampling | None = None
        self._run: Sampling | None = None
        self._positive: Tensor | None = None
        self._started = 0.0

    def outer_sample(self, executor: Executor, *args: Any, **kwargs: Any) -> Any:
        """Time the whole run, and note what it is given (ComfyUI's OUTER_SAMPLE wrapper)."""
        noise, latent, sampler, sigmas, mask = args[:5]
        seed = args[7] if len(args) > 7 else kwargs.get("seed")
        guider = copy.copy(executor.class_obj)
        shapes = kwargs.get("latent_shapes") or [noise.shape]
        again = ReplayInputs(guider, sampler, noise, latent, sigmas, mask, seed, list(shapes))
        self._started, self._found = time.perf_counter(), None
        try:
            result = executor(*args, **kwargs)
            if self._found is not None:
                self._ended(self._found, again)
            return result
        finally:
            self._found = self._run = None

    def _ended(self, found: Sampling, again: ReplayInputs) -> None:
        for name in ("conds", "inner_model", "loaded_models"):  # of the run that is over
            again.guider.__dict__.pop(name, None)
        again.sigmas, again.mask = again.sigmas.cpu(), None if again.mask is None else again.mask.cpu()
        found.again = again
        needed = found.points or not self._observer.keep  # else there is nothing to evaluate again
        if not needed or found.bytes + self._observer.bytes > MOST_BYTES:
            found.again = None
        self._observer.samplings.append(found)

    def sampler_sample(self, executor: Executor, *args: Any, **kwargs: Any) -> Any:
        """Begin to watch evaluations, and read what they were when they are over (SAMPLER_SAMPLE wrapper)."""
        guider, sigmas, extra, callback, *rest = args
        call, keep = SamplerCall.of(executor, args, kwargs), self._observer.keep
        noise, mask = call.noise, call.mask
        sketch = Subsample(noise.shape, split_for(shapes_in(guider.conds) or [noise.shape], mask))
        self._run = run = Sampling(
            link=self._link,
            solver=sampler_name(call.sampler),
            levels=sigmas.tolist(),  # nothing is at work yet
            flow=is_flow(guider.model_patcher),
            shape=tuple(noise.shape),
            sketch=sketch,
            model=self._model if keep else None,
        )
        self.done, self._begun, self._resized, self._left_out = 0, 0.0, False, False
        self._sigmas: list[Tensor] = []
        self._whole = self._steps_to_keep(run.levels, noise) if self._can_probe(call.options) else set()
        self._blocks = blocks_of(guider.model_patcher, call.options)
        try:
            result = executor(guider, sigmas, extra, counted(self, callback), *rest, **kwargs)
        finally:
            self._run = None
            self._blocks.leave()
        synchronize(noise.device)
        if not run.evaluations:
            return result
        run.loading_seconds, run.sampling_seconds = self._begun - self._started, time.perf_counter() - self._begun
        if mask is not None:
            run.blend = Blend(sketch.of(mask).cpu(), sketch.of(call.latent).cpu())
        reuses = stack_of(guider.model_patcher).find(STEP_REUSE) is not None
        met = {RESIZED: self._resized, LEFT_OUT: self._left_out and not reuses}
        run.refusals = [*refusals(call.sampler, guider, call.options), *(why for why, so in met.items() if so)]
        if self._resized:
            run.seen = []
        before: object = None
        read = torch.stack(self._sigmas).tolist() if run.seen else []
        for number, (sigma, one) in enumerate(zip(read, run.seen, strict=True)):
            active = tuple(taking_part(guider.conds, sigma))
            one.sigma, one.anew, before = sigma, number > 0 and active != before, active
            one.to_cpu()
        self._found = run
        return result

    def _can_probe(self, options: Options) -> bool:
        """Return whether single evaluations can be made: not where a node on the model leaves some out."""
        skips = stack_of(self._model).find(STEP_REUSE) is not None or other_cache(options) is not None
        return self._observer.keep and not skips

    def _steps_to_keep(self, levels: list[float], noise: Tensor) -> set[int]:
        import comfy.model_management

        steps, room = len(levels) - 1, MOST_BYTES - self._observer.bytes - 3 * noise.nbytes
        most = room // noise.nbytes
        count = min(PLACES, steps, (most + 1) // 2)
        if most < 1 or comfy.model_management.get_free_memory(torch.device("cpu")) < FREE_BYTES:
            return set()
        first = [int((number + 0.5) * steps / count) for number in range(count)]
        return {*[*first, *(min(place + 1, steps - 1) for place in first)][:most]}

    def predict_noise(self, executor: Executor, x: Tensor, timestep: Tensor, *args: Any, **kwargs: Any) -> Any:
        """Keep a part of one evaluation (PREDICT_NOISE wrapper)."""
        run = self._run
        if run is None:
            return executor(x, timestep, *args, **kwargs)
        if not run.evaluations:
            self._begun = time.perf_counter()
        self._resized |= tuple(x.shape) != run.shape
        keep, whole = self._observer.keep and not self._resized, None
        if keep and self.done in self._whole:
            self._whole.remove(self.done)
            whole = x.clone()
        self._asked, self._positive = False, None
        level = timestep.flatten()[0].clone()
        guided = executor(x, timestep, *args, **kwargs)
        self._left_out |= self._blocks.were_left_out()
        if keep:
            self._sigmas.append(level)
            sketch = run.sketch.of(x), run.sketch.of(guided), self._positive
            run.seen.append(RecordedEvaluation(math.nan, *sketch, whole=whole))
        run.evaluations += 1
        return guided

    def calc_cond_batch(
        self, executor: Executor, model: object, conds: list[Any], x: Tensor, timestep: Tensor, model_options: Options
    ) -> Any:
        """Keep a part of the positive pass of an evaluation's first call (CALC_COND_BATCH wrapper)."""
        outputs, run = executor(model, conds, x, timestep, model_options), self._run
        if run is not None:
            passes = [out for out, cond in zip(outputs, conds, strict=True) if cond is not None]
            run.computed += len(passes)
            first = not self._asked and 0 < len(passes) <= 2
            if self._observer.keep and first and tuple(x.shape) == run.shape:
                self._positive = run.sketch.of(passes[0])
            self._asked = True
        return outputs
