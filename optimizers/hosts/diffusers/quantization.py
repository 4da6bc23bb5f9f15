"""Int8 linear layers in diffusers models; which ones and by what kernel is the rule of ``optimizers/quantization``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ....core.activity import Activity, Summary
from ....core.errors import UnsupportedModel, require_choice
from ....core.order import INT8
from ...quantization.kernels import Kernel, available, weight_only_linear
from ...quantization.layers import Chooser, Decisions, Tokens
from ...quantization.settings import QuantizationSettings
from ...quantization.timing import Timer, fastest
from .components import DENOISER, Component
from .host import Host, Technique
from .int8_products import Place, Product, places_of
from .patches import Patches

IMPLEMENTATIONS = ("auto", "torchao")


@dataclass(frozen=True)
class QuantizeInt8(QuantizationSettings):
    """Which layers compute in int8: the settings of the node Quantize int8, and one more.

    Attributes:
        implementation: ``auto`` takes the kernel that is fastest on the device; ``torchao`` torchao's ``quantize_``.

    Raises:
        InvalidSetting: as for ``QuantizationSettings``.
    """

    implementation: str = "auto"

    def __post_init__(self) -> None:
        """Check the values."""
        super().__post_init__()
        require_choice("implementation", self.implementation, IMPLEMENTATIONS)


class Int8Layers(Technique):
    """Quantize int8 on one component.

    The floating point weights stay in memory: they are what :func:`restore` gives back, and what a LoRA is merged into.

    Raises:
        UnsupportedModel: on attaching, if no layer would gain.
        BackendUnavailable: on attaching, if torchao is asked for and not there.
    """

    kind = INT8
    title = "Quantize int8"
    roles = (DENOISER,)

    def __init__(self, settings: QuantizationSettings) -> None:
        super().__init__(settings)
        self.decisions = Decisions(())
        self.kernel: Kernel | None = None
        self._products: dict[str, Product] = {}
        self._checksum: Tensor | None = None
        self._schedule: Any = None

    def describe(self) -> str:
        """Return how many layers are in int8 and what computes them."""
        by = self.kernel.name if self.kernel is not None else getattr(self.settings, "implementation", "weight only")
        kept: dict[str, int] = {}
        for verdict in self.decisions.kept:
            kept[verdict.reason] = kept.get(verdict.reason, 0) + 1
        rest = "".join(f"; {count} kept: {reason}" for reason, count in kept.items())
        return f"{self.settings.describe()}: {len(self._products)} products in int8 ({by}){rest}"

    def attach(self, host: Host, patches: Patches) -> None:
        """Choose, quantise, and shadow the forward of the layers chosen."""
        part = host.component.part
        places = list(places_of(host))
        if any(place.is_away for place in places):
            raise UnsupportedModel(
                f"Quantize int8: the weights of this {host.component.class_name} are not on a device between its calls "
                "(sequential offloading).",
                "Use enable_model_cpu_offload, which moves a model as a whole, or leave QuantizeInt8 out.",
            )
        dtype = next(part.parameters()).dtype
        self._choose(host.component, places, dtype)
        chosen = self.decisions.quantized
        if not chosen:
            raise UnsupportedModel(
                f"Quantize int8: none of the {len(places)} linear layers of this {host.component.class_name} gains "
                f"from int8 here. {self.describe()}",
                "Leave it out, or name layers with include.",
            )
        for place in places:
            verdict = chosen.get(place.name)
            if verdict is None:
                continue
            assert verdict.weight is not None
            product = Product(place, self._linear(), verdict.weight.rotation)
            product.quantize()
            self._products[place.name] = product
            place.put_in(product, self._counter(place.name), patches)
        self._checksum = self._fingerprint()

    def before(self, host: Host, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Quantise again where the floating point weights are others than before: a LoRA was merged, the model moved.

        Weights are looked at once for each sampling run, as reading them back waits for the device.
        """
        schedule = getattr(getattr(host.pipeline, "scheduler", None), "timesteps", None)
        moved = any(product.moved for product in self._products.values())
        if not moved and schedule is not None and schedule is self._schedule:
            return
        self._schedule = schedule
        found = self._fingerprint()
        if moved or self._checksum is None or not torch.equal(found, self._checksum):
            for product in self._products.values():
                product.quantize()
            self._checksum = found

    def summarize(self, activity: Activity) -> Summary:
        """Return e.g. ``int8 in 560 products of 10 model calls``."""
        text = f"int8 in {activity.use_count} products of {activity.model_calls} model calls"
        return Summary("active" if activity.use_count else "inactive", text)

    def _counter(self, name: str) -> Callable[[], None]:
        return lambda: self.activity.use(name)

    def _choose(self, component: Component, places: list[Place], dtype: torch.dtype) -> None:
        settings = self.settings
        if getattr(settings, "implementation", "auto") == "torchao":
            settings = replace(settings, rotation="off")  # torchao knows none
        device = places[0].layers[0].weight.device if places else torch.device("cpu")
        timings = timer = None
        if settings.mode == "int8":
            kernels, _ = available(device)
            shape = max((place.shape for place in places), key=lambda s: s.tokens * s.inputs * s.outputs)
            self.kernel, _ = fastest(kernels, shape, device, dtype)
            timer = Timer(self.kernel, device, dtype, _timings_file())
            timings = timer.time
        chooser = Chooser(settings, timings, Tokens(), device)
        with torch.inference_mode():
            verdicts = [chooser.decide(place.layer, place.weight) for place in places]
        if timer is not None:
            timer.remember()
        self.decisions = Decisions(tuple(verdicts))
        if getattr(settings, "implementation", "auto") == "torchao":
            self.kernel = None

    def _linear(self) -> Callable[..., Tensor]:
        if self.settings.mode == "weight_only":
            return weight_only_linear
        if self.kernel is not None:
            return self.kernel.linear
        return torch.nn.functional.linear

    def _fingerprint(self) -> Tensor:
        with torch.no_grad():
            sums = [layer.weight.flatten()[::97].double().sum() for p in self._products.values() for layer in p.layers]
            return torch.stack(sums)


def _timings_file() -> Path:
    return Path.home() / ".cache" / "paceline" / "int8_timings.json"
