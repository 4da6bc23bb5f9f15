"""Draw all cases of one commit in one host: ``python -m house.drawing PACK_FOLDER HOST RESULT.json [ONLY]``."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from comfy_host import pack, standins

Draw = Callable[[], dict[str, Any]]
"""Gives digests: ``image`` with the technique, ``plain`` without, ``restored`` after it was taken off; and the number
of ``graphs`` that torch.compile made, if any."""


def digest(*tensors: Any) -> str:
    """Return the SHA-256 of tensors: their dtypes, shapes and bits."""
    import torch

    found = hashlib.sha256()
    for tensor in tensors:
        whole = tensor.detach().cpu().contiguous()
        found.update(f"{whole.dtype} {tuple(whole.shape)} ".encode())
        found.update(whole.flatten().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()[:16]


def graphs() -> dict[str, int]:
    """Return how many graphs torch.compile has made since the last call, if any."""
    from torch._dynamo.utils import counters

    made = int(counters["stats"]["unique_graphs"])
    counters.clear()
    return {"graphs": made} if made else {}


def load(folder: Path) -> None:
    """Import the pack in ``folder`` under the name ``paceline``.

    Where it would time functions, the later one counts as twice as quick: int8 stands behind floating point, so the
    error of each layer decides, and not how busy the machine is.
    """
    pack.load_pack(folder)
    for file in folder.glob("*/**/layer_times.py"):
        module = ".".join(("paceline", *file.relative_to(folder).with_suffix("").parts))
        import_module(module).interleaved_seconds = _in_order
    for file in folder.glob("*/**/gains.py"):
        import_module(".".join(("paceline", *file.relative_to(folder).with_suffix("").parts))).Gains.note = _nothing


def _in_order(device: Any, functions: Sequence[Callable[[], Any]]) -> list[float]:
    for function in functions:
        function()
    return [2.0**-number for number in range(len(functions))]


def _nothing(*_: Any) -> None:
    """Keep no times."""


def draw_all(folder: Path, host: str, result: Path, only: str = "") -> None:
    """Draw every case whose name contains ``only`` and write the digests to ``result``."""
    import torch

    torch.set_num_threads(1)
    standins.install()
    load(folder.resolve())
    drawn: dict[str, dict[str, Any]] = {}
    for name, draw in import_module(f"house.{host}_cases").cases():
        if only not in name:
            continue
        torch.manual_seed(0)
        try:
            case: dict[str, Any] = dict(draw())
        except Exception as error:
            # A refusal is a result as well: it must be the same one, but its words may change.
            ours = str(type(error).__module__).startswith("paceline.")
            case = {"image": f"error {type(error).__name__}", "error": str(error) if ours else traceback.format_exc()}
        drawn[name] = case
        if "graphs" in case or "error" in case:
            torch._dynamo.reset()
    result.write_text(json.dumps(drawn, indent=1))


if __name__ == "__main__":
    draw_all(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), *sys.argv[4:])
    sys.stderr.flush()
    os._exit(0)  # ComfyUI's threads must not keep a finished process alive
