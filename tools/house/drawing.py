"""Draw all cases of one commit in one host: ``python -m house.drawing PACK_FOLDER HOST RESULT.json [ONLY]``.

``same_images.py`` starts this, one process for each commit and host. The pack comes from PACK_FOLDER, the helpers from
the commit that this file stands in.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from comfy_host import pack, standins

from .digests import Draw

HOSTS = ("comfyui", "diffusers")


def load(folder: Path) -> None:
    """Import the pack in ``folder`` under the name ``paceline``, as ComfyUI loads a folder of ``custom_nodes``.

    Where it would time functions, the later one counts as twice as quick: int8 stands behind floating point, so the
    error of each layer decides, and not how busy the machine is.
    """
    pack.load_pack(folder)
    for name in ("layer_times", "kernel_times"):  # the second in older commits
        with contextlib.suppress(ModuleNotFoundError):
            import_module(f"paceline.optimizers.quantization.{name}").interleaved_seconds = _in_order
    with contextlib.suppress(ModuleNotFoundError):
        import_module("paceline.optimizers.token_merging.gains").Gains.note = _nothing


def _nothing(*_: Any) -> None:
    """Keep no times."""


def _in_order(device: Any, functions: Sequence[Callable[[], Any]]) -> list[float]:
    for function in functions:
        function()
    return [2.0**-number for number in range(len(functions))]


def _cases(host: str) -> Iterator[tuple[str, Draw]]:
    if host == "comfyui":
        from house import comfyui_cases

        return comfyui_cases.cases()
    from house import diffusers_cases

    return diffusers_cases.cases()


def draw_all(folder: Path, host: str, result: Path, only: str = "") -> None:
    """Draw every case whose name contains ``only`` and write the digests to ``result``."""
    import torch

    torch.set_num_threads(1)
    standins.install()
    load(folder.resolve())
    drawn: dict[str, dict[str, Any]] = {}
    for name, draw in _cases(host):
        if only not in name:
            continue
        torch.manual_seed(0)
        begun = time.time()
        try:
            case: dict[str, Any] = dict(draw())
        except Exception as error:
            # A refusal is a result as well: it must be the same one, but its words may change.
            case = {"image": f"error {type(error).__name__}", "error": str(error)[:500]}
            if not str(type(error).__module__).startswith("paceline."):
                case["error"] = traceback.format_exc()[-3000:]
        case["seconds"] = round(time.time() - begun, 1)
        drawn[name] = case
        print(f"{case['seconds']:6.1f} s  {name}: {case['image']}", file=sys.stderr, flush=True)
        if "graphs" in case or "error" in case:
            torch._dynamo.reset()
    result.write_text(json.dumps(drawn, indent=1))


if __name__ == "__main__":
    draw_all(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), *sys.argv[4:])
    sys.stderr.flush()
    os._exit(0)  # ComfyUI's threads must not keep a finished process alive
