"""Computes a part of a run once more, with any MODEL or VAE: as a whole, or by one block of each kind, timed.

Of a sampler's run kept points are evaluated: its guider samples, with a sampler that only evaluates these. So
ControlNets, masks, hooks, ranges of conditionings and guiders are what they were, and a block gets what the network
gives it in a run. A VAE decodes the latent of the run again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Any

import torch
from torch import Tensor

from ...measure.replay import Decoding, Point, Sampling
from ...optimizers.compilation.compiler import BLOCK_CALL, block_kind, repeated_blocks
from ...optimizers.core.devices import synchronize
from ...optimizers.core.not_copied import Function, NotCopied
from ...optimizers.core.shadow import Shadows
from ...optimizers.in_comfyui.compilation.compile_vae import DECODER
from ...optimizers.in_comfyui.run.sampling_run import sampling_run
from ...optimizers.in_comfyui.structure.protocols import VAE, Executor, ModelPatcher
from ...optimizers.in_comfyui.targets.model_target import ModelTarget
from ...optimizers.in_comfyui.targets.vae_target import VAETarget
from .machine import stop_if_cancelled
from .observer import ReplayInputs

TIMED = 2
"""Calls of a block that are timed together, after one that is timed by itself."""

SEEN = 0.05
"""Kinds with less than this share of the blocks' time are not timed by themselves."""

_KEY = "paceline_one_block"


@dataclass(eq=False)
class Kind:
    """Blocks of one class, with weights and inputs of the same sizes.

    ``calls`` and ``seconds``: of all of them while they were watched; ``output``: what one of them gave.
    """

    output: Any
    calls: int = 0
    seconds: float = 0.0


Took = dict[Kind, tuple[float, float]]
"""Seconds of the first call of a block, and of one of those behind it."""

Around = Callable[[torch.nn.Module, Function], Any]
"""Runs a network, by what calls it."""

Again = list[tuple[Tensor, float]]
"""What was computed again, and its seconds."""


class AllTimed(BaseException):
    """All blocks that are to be timed were timed: nothing else of the network is needed."""


class TimedBlocks(NotCopied):
    """The blocks that a network repeats, by their names in it; itself, without a name, where it repeats none."""

    def __init__(self, network: torch.nn.Module) -> None:
        repeated = {*repeated_blocks(network)}
        alike = {name: block_kind(block) for name, block in network.named_modules() if block in repeated}
        self._alike = alike or {"": block_kind(network)}
        self._known: dict[object, Kind] = {}
        self.seconds = 0.0

    @property
    def kinds(self) -> list[Kind]:
        """What was watched, that first which takes longest."""
        kinds = sorted(self._known.values(), key=lambda kind: -kind.seconds)
        return [kind for kind in kinds if kind.seconds >= SEEN * self.seconds]

    def around(self, alone: Iterable[Kind] = (), took: Took | None = None) -> Around:
        """Return what runs a network, or a copy of it, with its blocks watched.

        Or one block of each kind runs ``alone``, which puts what it ``took`` there, and `AllTimed` ends the network.
        """
        return partial(self._around, [*alone], took)

    def _around(self, kinds: list[Kind], took: Took | None, network: torch.nn.Module, run: Function) -> Any:
        modules, left = dict(network.named_modules()), {*kinds}
        with Shadows() as shadows:
            for name in self._alike.keys() & modules.keys():
                block = vars(modules[name]).get(BLOCK_CALL) or modules[name]._call_impl
                alone = partial(self._alone, left, took) if took is not None else self._watched
                shadows.put(modules[name], BLOCK_CALL, partial(alone, name, block))
            return run()

    def _watched(self, name: str, block: Function, *inputs: Any, **named: Any) -> Any:
        given = _tensor(inputs, named)
        output, seconds = _timed(given.device, partial(block, *inputs, **named))
        kind = self._known.setdefault((self._alike[name], given.shape), Kind(output))
        kind.calls, kind.seconds, self.seconds = kind.calls + 1, kind.seconds + seconds, self.seconds + seconds
        return output

    def _alone(self, left: set[Kind], took: Took, name: str, block: Function, *inputs: Any, **named: Any) -> Any:
        given, call = _tensor(inputs, named), partial(block, *inputs, **named)
        kind = self._known.get((self._alike[name], given.shape))
        if kind is None:
            return call()
        if kind in left:
            _, first = _timed(given.device, call)
            _, seconds = _timed(given.device, lambda: [call() for _ in range(TIMED)][0])
            took[kind] = first, seconds / TIMED
            left.remove(kind)
            if not left:
                raise AllTimed
        return kind.output


class Steps:
    """The evaluations of a sampler's run, which any MODEL does again at the points that were kept."""

    target: Any = ModelTarget

    def __init__(self, sampling: Sampling) -> None:
        self.sampling, self.levels = sampling, sampling.levels
        self.plain: Any = sampling.model
        self.network: torch.nn.Module = sampling.model.model.diffusion_model
        self.seconds, self.each = sampling.sampling_seconds, sampling.sampling_seconds / max(1, sampling.evaluations)

    def points(self, distances: Sequence[float], most: int) -> list[Point]:
        """Return at ``most`` so many of the kept points, spread over the run: pairs where steps serve later ones.

        ``distances``: from a whole step to those that it serves, on average, in steps.
        """
        apart = max(1.0, max(distances, default=0.0) * self.sampling.evaluations / max(1, len(self.levels) - 1))
        kept, chosen = self.sampling.points, list[Point]()
        parts, some = max(1, most // 2) if distances else 0, min(most, len(kept))
        for part in range(parts):
            firsts = kept[part * len(kept) // parts : (part + 1) * len(kept) // parts]
            pairs = [(one, later) for one in firsts for later in kept if later[0] > one[0]]
            pairs.sort(key=lambda pair: abs(math.log((pair[1][0] - pair[0][0]) / apart)))
            chosen += [point for pair in pairs[:1] for point in pair]
        return chosen or [kept[int((number + 0.5) * len(kept) / some)] for number in range(some)]

    def again(
        self,
        model: ModelPatcher,
        around: Around | None,
        points: Sequence[Point],
        deadline: float = math.inf,
        ended: Callable[[], object] = lambda: None,
    ) -> Again:
        """Return outputs and seconds of points with a MODEL, none that begins behind the ``deadline``.

        Every other one, from the first on, is of a whole step. ``ended`` is called behind each.
        """
        import comfy.samplers
        from comfy.patcher_extension import WrappersMP

        done: Again = []

        def sample(denoiser: Any, noise: Tensor, sigmas: Tensor, extra_args: Any = None, **__: object) -> Tensor:
            run = sampling_run(extra_args["model_options"])
            for place, (_, sigma, kept) in enumerate(points):
                stop_if_cancelled()
                if monotonic() > deadline:
                    break
                x = kept.to(noise.device)
                level = torch.full((len(x),), sigma, device=x.device)
                run.whole = place % 2 == 0
                output, seconds = _timed(x.device, partial(denoiser, x, level, **extra_args))
                done.append((output.cpu(), seconds))
                ended()
            return noise

        if around is not None:
            model = model.clone()
            wrapper = partial(self._watched, around)  # inside of the stack's, so techniques are in place
            model.add_wrapper_with_key(WrappersMP.APPLY_MODEL, _KEY, wrapper)
        again: ReplayInputs = self.sampling.again
        again.sample(comfy.samplers.KSAMPLER(sample), again.sigmas, model)
        return done

    def _watched(self, around: Around, executor: Executor, *args: Any, **kwargs: Any) -> Any:
        try:
            return around(executor.class_obj.diffusion_model, partial(executor, *args, **kwargs))
        except AllTimed:
            return torch.zeros_like(args[0])


class Latents:
    """What a VAE has decoded in a run, which any VAE decodes again."""

    target: Any = VAETarget
    sampling: Any = None
    levels: Sequence[float] = ()

    def __init__(self, decoding: Decoding) -> None:
        self.decoding, self.plain = decoding, decoding.vae
        self.network: torch.nn.Module = getattr(decoding.vae.first_stage_model, DECODER, torch.nn.Module())
        self.seconds = self.each = decoding.seconds
        self._outputs: dict[torch.Size, Tensor] = {}

    def points(self, distances: Sequence[float], most: int) -> list[Point]:
        return [(0, 0.0, self.decoding.samples)]

    def again(
        self, vae: VAE, around: Around | None, _: Sequence[Point], deadline: float, ended: Callable[[], object]
    ) -> Again:
        """Return what a VAE decodes, and the seconds; nothing behind the ``deadline``."""
        stop_if_cancelled()
        if monotonic() > deadline:
            return []
        decoder: Any = getattr(vae.first_stage_model, DECODER)
        with Shadows() as shadows:
            if around is not None:
                shadows.put(decoder, BLOCK_CALL, partial(self._watched, around, decoder, []))
            decoded = _timed(self.decoding.samples.device, partial(self.decoding.again, vae))
        ended()
        return [decoded]

    def _watched(
        self, around: Around, decoder: Any, timed: list[bool], latent: Tensor, *more: Any, **named: Any
    ) -> Tensor:
        """Decode a latent or a tile; once all are ``timed``, return what it was before."""
        if not timed:
            try:
                output: Tensor = around(decoder, partial(decoder._call_impl, latent, *more, **named))
                return self._outputs.setdefault(latent.shape, output)
            except AllTimed:
                timed.append(True)
        return self._outputs[latent.shape]


def _tensor(inputs: tuple[Any, ...], named: dict[str, Any]) -> Tensor:
    return next(one for one in (*inputs, *named.values()) if isinstance(one, Tensor))


def _timed(device: torch.device, compute: Function) -> tuple[Any, float]:
    synchronize(device)
    started = time.perf_counter()
    output = compute()
    synchronize(device)
    return output, time.perf_counter() - started
