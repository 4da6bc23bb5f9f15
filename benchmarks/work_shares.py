"""Which share of a network's operations attention is: what no way of attending to fewer tokens can pass.

    python benchmarks/work_shares.py [--json PATH]

Operations are counted on tensors that have a shape and no memory, in seconds on any machine; nothing is timed.
"""

from __future__ import annotations

from typing import Any

import torch
from shared.measuring import arguments
from shared.record import Row, report
from shared.roof import counting

# isort: split
from shared.unets import SD15, SDXL, bootstrap

LAYOUTS: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "SD1.5": (SD15, (64, 96, 128)),
    "SDXL": (SDXL | {"model_channels": 320}, (128, 256)),
}
"""The network as ComfyUI makes it, and sides of latents."""
KINDS = {"bmm": "attention", "attention": "attention", "mm": "linear layers", "convolution": "convolutions"}
"""What the end of an operator's name says of it; the first that fits counts."""


def shares(config: dict[str, Any], side: int) -> dict[str, float]:
    """Return the shares of one call for a latent of ``side`` x ``side``, by kind."""
    from comfy.ldm.modules.diffusionmodules.openaimodel import UNetModel
    from comfy.ops import disable_weight_init

    with torch.device("meta"), torch.no_grad(), counting() as counter:
        network = UNetModel(**config, dtype=torch.float32, operations=disable_weight_init)
        label = torch.empty(2, config["adm_in_channels"]) if config["adm_in_channels"] else None
        network(torch.empty(2, 4, side, side), torch.ones(2), torch.empty(2, 77, config["context_dim"]), y=label)
    counted = {str(operator): count for operator, count in counter.get_flop_counts()["Global"].items()}
    found = dict.fromkeys(KINDS.values(), 0.0)
    for name, count in counted.items():
        kind = next(kind for part, kind in KINDS.items() if part in name)
        found[kind] += count / sum(counted.values())
    return found


def main() -> None:
    """Count every size."""
    options = arguments(__doc__.splitlines()[0])
    bootstrap()
    rows = [
        Row("share of the operations", f"{layout}, {8 * side} x {8 * side}", quality=shares(config, side))
        for layout, (config, sides) in LAYOUTS.items()
        for side in sides
    ]
    notes = {"attention": "both products inside of all attention, self and cross; projections count as linear layers"}
    report(rows, "all operations of one call with guidance", options.json, notes)


if __name__ == "__main__":
    main()
