"""Do two commits draw the same images, bit for bit, with each technique alone and with all together?

    python tools/house/same_images.py BEFORE AFTER [--only TEXT] [--out FOLDER]
    python tools/house/same_images.py BEFORE --out FOLDER

BEFORE and AFTER are commits, folders with the pack, or JSON files that an earlier run wrote to its FOLDER. The exit
status is 1 if anything differs, if a case is missing, or if the image after Remove Optimizations (``restore``) is not
that of the model without the technique. All cases take about eight minutes for one commit, on one core; ``--only``
takes the cases whose name contains TEXT, for example "tokens", "sdxl", "diffusers flux" or "stack".

The pack is loaded from each commit, in a process for each host; models and cases come from the commit of this file. Of
a pack it uses node ids, their inputs and the names that ``paceline`` exports. Where a pack refuses a case, both must
refuse it with an error of the same class. Nothing depends on how busy the machine is: see ``drawing.load``.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FOLDERS = [str(Path(__file__).resolve().parents[2] / name) for name in ("tools", "tests")]
sys.path[:0] = FOLDERS
from comfy_host.paths import ROOT, cache_dir  # noqa: E402

Drawn = dict[str, dict[str, Any]]


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


def drawn(name: str, only: str, out: Path) -> Drawn:
    """Return the cases of a commit, folder or JSON file; new ones are written to ``out``."""
    if name.endswith(".json"):
        return {case: found for case, found in json.loads(Path(name).read_text()).items() if only in case}
    with checked_out(name) as folder:
        cases = {**_in_a_process(folder, "comfyui", only), **_in_a_process(folder, "diffusers", only)}
    file = out / f"{'_'.join(part for part in Path(name).parts if part != '/')}.json"
    file.write_text(json.dumps(cases, indent=1))
    print(f"{name}: {len(cases)} cases, written to {file}", flush=True)
    return cases


def _in_a_process(folder: Path, host: str, only: str) -> Drawn:
    with tempfile.TemporaryDirectory() as home:
        result, log = Path(home) / "cases.json", Path(home) / "log"
        own = {"PYTHONPATH": os.pathsep.join(FOLDERS), "PACELINE_CACHE": str(cache_dir()), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "house.drawing", str(folder), host, str(result), only]
        with log.open("w") as output:
            environment = {**os.environ, **own, "HOME": home, "TMPDIR": home}
            done = subprocess.run(command, env=environment, stdout=output, stderr=output, cwd=home)
        if done.returncode != 0:
            print(log.read_text()[-4000:], file=sys.stderr)
            raise SystemExit(f"{host}: drawing with {folder} ended with status {done.returncode}.")
        found: Drawn = json.loads(result.read_text())
        return found


def verdict(before: dict[str, Any] | None, after: dict[str, Any] | None) -> str:
    """Return ``same``, or what is wrong with a case."""
    if before is None or after is None:
        return "missing"
    if before["image"] != after["image"]:
        return f"DIFFERENT: {before['image']} -> {after['image']} {after.get('error', '').strip()}"
    if after.get("plain") != before.get("plain"):
        return "DIFFERENT without the technique"
    if after.get("restored") != after.get("plain"):
        return "NOT RESTORED"
    if before.get("graphs") != after.get("graphs"):  # no error: the image is the same, and it may be what was wanted
        return f"same; graphs {before.get('graphs')} -> {after.get('graphs')}"
    return "same"


def main() -> int:
    """Read the command line, draw, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", help="commit, folder, or JSON of an earlier run")
    parser.add_argument("after", nargs="?", help="the same; not given: only write the JSON of BEFORE")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose name contains TEXT")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="where to write JSON files")
    given = parser.parse_args()
    out = given.out or Path(tempfile.mkdtemp(prefix="same_images_"))
    out.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a temporary worktree is removed
    before = drawn(given.before, given.only, out)
    if given.after is None:
        return 0
    after = drawn(given.after, given.only, out)
    said = {name: verdict(before.get(name), after.get(name)) for name in {**before, **after}}
    wrong = {name: text for name, text in said.items() if not text.startswith("same")}
    for name, text in [*said.items(), *wrong.items()]:
        print(f"{name}: {text}")
    print(f"{len(said) - len(wrong)} of {len(said)} cases are the same.")
    return 1 if wrong or not said else 0


if __name__ == "__main__":
    sys.exit(main())
