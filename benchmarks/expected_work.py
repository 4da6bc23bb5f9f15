"""What a step of well-known models has to do: operations, bytes and kernels, counted on tensors without memory.

    python benchmarks/expected_work.py [--json PATH]

Nothing is timed; ``pages/expected.py`` makes the expected seconds of it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pkgutil import resolve_name
from typing import Any
from unittest.mock import patch

import torch
from shared.decoding import DECODERS
from shared.measuring import arguments
from shared.record import Row, collected, report
from shared.stack_variants import LARGE
from shared.unets import SD15, SDXL
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry, sdpa_flop_count

# isort: split
from comfy_host.fake_cuda import Launches
from comfy_host.in_process import bootstrap
from comfy_host.transformers import ALL

NOTES = {
    "products": "operations of matrix products and convolutions, two for a multiplication with its addition",
    "attention": "operations of both products inside of all attention, self and cross",
    "attention share": "of all of these operations: no way of attending to fewer tokens saves more than that",
    "product bytes": "read and written by these, weights included; two bytes a number",
    "weight bytes": "of all weights",
    "other bytes": "read and written by all other kernels (norms, activations, sums, copies); norms read twice",
    "kernels": "operators that start one",
    "large kernels": "matrix products, convolutions and attention",
    "UNets": "a step has both halves of the guidance in one batch; transformers are without, as ComfyUI runs them",
}


class Counter(Launches):
    """Counts while it is on; attention and RMS norms are one kernel each, as torch's fused ones are on a card."""

    def __init__(self) -> None:
        super().__init__()
        self.found = dict.fromkeys(("products", "attention", "product_bytes", "other_bytes", "large_kernels"), 0)
        self._fused = [
            patch("torch.nn.functional.scaled_dot_product_attention", self._attention),
            patch("torch.rms_norm", self._rms_norm),
        ]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        before, out = self.total, super().__torch_dispatch__(func, types, args, kwargs)
        if self.total > before and self.counts.pop("_unsafe_view", 0) == 0:
            operations = flop_registry.get(func.overloadpacket)
            size = _bytes((args, kwargs, out))
            if operations:
                self._large("products", operations(*args, **(kwargs or {}), out_val=out), size)
            else:
                self.found["other_bytes"] += size + ("norm" in str(func)) * _bytes(args[:1])
        return out

    def _attention(self, query: Any, key: Any, value: Any, *_: Any, **__: Any) -> Any:
        self.counts["attention"] += 1
        heads = query.shape[1]
        key, value = (one.expand(-1, heads, -1, -1) if one.shape[1] == 1 else one for one in (key, value))
        result = query.new_empty(*query.shape[:-1], value.shape[-1])
        self._large(
            "attention", sdpa_flop_count(query.shape, key.shape, value.shape), _bytes((query, key, value, result))
        )
        return result

    def _rms_norm(self, value: Any, *_: Any, **__: Any) -> Any:
        self.counts["rms_norm"] += 1
        self.found["other_bytes"] += 3 * _bytes(value)
        return value.new_empty(value.shape)

    def _large(self, kind: str, operations: int, size: int) -> None:
        self.found[kind] += operations
        self.found["product_bytes"] += size
        self.found["large_kernels"] += 1

    def __enter__(self) -> Any:
        for one in self._fused:
            one.start()
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        for one in self._fused:
            one.stop()


def _bytes(values: Any) -> int:
    return sum(one.numel() * one.element_size() for one in tree_leaves(values) if isinstance(one, torch.Tensor))


def counted(name: str) -> Row:
    """Count a step, or a decoding, of one entry of ``WORK``."""
    with torch.device("meta"), torch.no_grad():
        network, run = WORK[name]()
        with Counter() as counter:
            run(network)
    found = counter.found | {"kernels": counter.total, "weight_bytes": _bytes(list(network.parameters()))}
    found["attention_share"] = found["attention"] / (found["attention"] + found["products"])
    return Row("one step", name, quality={key: float(value) for key, value in found.items()})


def _unet(config: dict[str, Any], side: int) -> tuple[Any, Callable[[Any], Any]]:
    from comfy.ldm.modules.diffusionmodules.openaimodel import UNetModel

    network = UNetModel(**config | {"model_channels": 320}, dtype=torch.bfloat16, operations=_operations())
    label = _empty(2, config["adm_in_channels"]) if config["adm_in_channels"] else None
    text = _empty(2, 77, config["context_dim"])
    return network, lambda made: made(_empty(2, 4, side, side), torch.ones(2), text, y=label)


def _z_image() -> tuple[Any, Callable[[Any], Any]]:
    from comfy.ldm.lumina.model import NextDiT

    entry = ALL["z_image"]
    network = NextDiT(**{**entry.settings, **LARGE["z_image"], "cap_feat_dim": 2560}, dtype=torch.bfloat16,
                      device="meta", operations=_operations())  # fmt: skip
    return network, lambda made: made(_empty(1, 16, 128, 128), torch.ones(1), _empty(1, 256, 2560), 256)


def _flux() -> tuple[Any, Callable[[Any], Any]]:
    from comfy.ldm.flux.model import Flux

    real = {"context_in_dim": 4096, "vec_in_dim": 768}
    network = Flux(**{**ALL["flux"].settings, **LARGE["flux"], **real}, dtype=torch.bfloat16, device="meta",
                   operations=_operations())  # fmt: skip
    latent, one = _empty(1, 16, 128, 128), torch.ones(1)
    return network, lambda made: made(latent, one, _empty(1, 512, 4096), _empty(1, 768), one)


def _decoder() -> tuple[Any, Callable[[Any], Any]]:
    entry = DECODERS["vae_sdxl"]
    network = resolve_name(f"comfy.ldm.{entry.network}")(**entry.settings).bfloat16()
    del network.encoder
    return network, lambda made: made.decode(_empty(*entry.latent))


def _empty(*shape: int) -> torch.Tensor:
    return torch.empty(shape, dtype=torch.bfloat16)


def _operations() -> Any:
    return resolve_name("comfy.ops:disable_weight_init")


WORK: dict[str, Callable[[], tuple[Any, Callable[[Any], Any]]]] = {
    "SDXL, 1024 x 1024": partial(_unet, SDXL, 128),
    "SD 1.5, 512 x 512": partial(_unet, SD15, 64),
    "Z-Image, 1024 x 1024": _z_image,
    "Flux.1 dev, 1024 x 1024": _flux,
    "decoding with SDXL's VAE, 1024 x 1024": _decoder,
    "SDXL, 2048 x 2048": partial(_unet, SDXL, 256),
    "SD 1.5, 1024 x 1024": partial(_unet, SD15, 128),
}


def main() -> None:
    """Count all of them."""
    options = arguments(__doc__.splitlines()[0])
    bootstrap()
    report(collected(map(counted, WORK)), "all work of one step", options.json, NOTES)


if __name__ == "__main__":
    main()
