"""Do two commits draw the same images, bit for bit, with each technique alone and with all together?

    python tools/house/same_images.py BEFORE AFTER [--only TEXT]

BEFORE and AFTER are commits, or folders with the pack. The exit status is 1 if anything differs or a case is missing.
All cases take some minutes for one commit, on one core; ``--only`` takes those whose name contains TEXT.

The pack is loaded from each commit, in a process for each host; models and cases come from the commit of this file.
Where a pack refuses a case, both must refuse it with an error of the same class.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

FOLDERS = [str(Path(__file__).resolve().parents[2] / name) for name in ("tools", "tests")]
sys.path[:0] = FOLDERS
from comfy_host import pack, standins  # noqa: E402
from comfy_host.paths import ROOT, cache_dir  # noqa: E402


def digest(tensors: Sequence[Any]) -> str:
    """Return the SHA-256 of tensors: their dtypes, shapes and bits."""
    import torch

    found = hashlib.sha256()
    for tensor in tensors:
        whole = tensor.detach().cpu().contiguous()
        found.update(f"{whole.dtype} {tuple(whole.shape)} ".encode())
        found.update(whole.flatten().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()[:16]


def draw_all(folder: Path, host: str, only: str) -> dict[str, str]:
    """Draw the cases of one host with the pack in ``folder``, and return their digests.

    Where it would time functions, the later one counts as twice as quick: int8 stands behind floating point, so the
    error of each layer decides, and not how busy the machine is.
    """

    def in_order(device: Any, functions: Sequence[Callable[[], Any]]) -> list[float]:
        for function in functions:
            function()
        return [2.0**-number for number in range(len(functions))]

    standins.install()
    pack.load_pack(folder)
    import torch

    torch.set_num_threads(1)
    import_module("paceline.optimizers.quantization.layer_times").interleaved_seconds = in_order
    import_module("paceline.optimizers.token_merging.gains").Gains.note = lambda *_: None
    found = {}
    for name, draw in getattr(import_module("house.cases"), host)():
        if only in name:
            torch.manual_seed(0)
            try:
                found[name] = digest(draw())
            except Exception as error:
                found[name] = f"error {type(error).__name__}"
                if not type(error).__module__.startswith("paceline."):
                    traceback.print_exc()
            torch._dynamo.reset()
    return found


@contextmanager
def checked_out(name: str) -> Iterator[Path]:
    """Give the folder ``name``, or a temporary worktree of the commit ``name``."""
    if Path(name).is_dir():
        yield Path(name).resolve()
        return
    with tempfile.TemporaryDirectory() as folder:
        git, place = ["git", "-C", str(ROOT), "worktree"], Path(folder) / "pack"
        subprocess.run([*git, "add", "--quiet", "--detach", str(place), name], check=True)
        try:
            yield place
        finally:
            subprocess.run([*git, "remove", "--force", str(place)], check=True)


def drawn(name: str, only: str) -> dict[str, str]:
    """Return the digests of the cases with a commit or folder."""
    cases: dict[str, str] = {}
    with checked_out(name) as folder, tempfile.TemporaryDirectory() as home:
        own = {"PYTHONPATH": os.pathsep.join(FOLDERS), "PACELINE_CACHE": str(cache_dir()), "OMP_NUM_THREADS": "1"}
        environment = {**os.environ, **own, "HOME": home, "TMPDIR": home}
        for host in ("comfyui", "diffusers"):
            command = [sys.executable, __file__, str(folder), f"{home}/{host}.json", "--draw", host, "--only", only]
            subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, cwd=home, check=True)
            cases |= json.loads(Path(command[3]).read_text())
    return cases


def main() -> int:
    """Read the command line, draw, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", help="commit or folder")
    parser.add_argument("after", help="the same")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose name contains TEXT")
    parser.add_argument("--draw", help=argparse.SUPPRESS)  # the process for one host, which writes to AFTER
    given = parser.parse_args()
    if given.draw:
        Path(given.after).write_text(json.dumps(draw_all(Path(given.before), given.draw, given.only)))
        os._exit(0)  # ComfyUI's threads must not keep a finished process alive
    before, after = drawn(given.before, given.only), drawn(given.after, given.only)
    different = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    for name in different:
        print(f"{name}: {before.get(name, 'missing')} -> {after.get(name, 'missing')}")
    print(f"{len(before) - len(different)} of {len(before)} cases are the same.")
    return 1 if different or not before else 0


if __name__ == "__main__":
    sys.exit(main())
