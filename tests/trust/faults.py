"""What happens to servers: they are killed, disks are full or read only, files are damaged, two share a folder.

After each fault the next prompt must draw the right picture, nothing may lie half-written under its final name, and
nothing that was finished may be lost. Each function returns what was wrong, in sentences, and how often it tried.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import prompts
from bad_inputs import unclear
from comfy_host.client import ComfyClient, PromptFailed
from executing import node
from hosting import trust_server
from judge import is_sentence_of_ours

Found = tuple[int, list[str]]
"""How many faults were tried, and what was wrong."""
_numbers = iter(range(10**6, 10**9))


def digest(client: ComfyClient, prompt: prompts.Prompt) -> str:
    """Run a prompt and return the hash of the picture that it keeps."""
    shown: dict[str, Any] = json.loads(client.run(prompt, timeout=300.0).texts["keep"][0])
    return str(shown["digest"])


def plain_digest(client: ComfyClient) -> str:
    """Return the hash of the plain picture, drawn anew."""
    return digest(client, prompts.picture(again=next(_numbers)))


def broken_files(folder: Path) -> list[str]:
    """Return the files below ``folder`` that are not whole: safetensors, PNG, JSON and databases."""
    from PIL import Image
    from safetensors.torch import load_file

    readers: dict[str, Callable[[Path], object]] = {
        ".safetensors": load_file,
        ".png": lambda path: Image.open(path).load(),
        ".json": lambda path: json.loads(path.read_text("utf-8")),
        ".db": _check_database,
    }
    broken = []
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.name.startswith(".") and path.suffix in readers:
            try:
                readers[path.suffix](path)
            except Exception as error:
                broken.append(f"{path.name} is not whole: {type(error).__name__}: {error}")
    return broken


def _check_database(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as database:
        found = database.execute("pragma integrity_check").fetchall()
    if found != [("ok",)]:
        raise ValueError(str(found))


def kill_at_random_points(base: Path, times: int, seed: int) -> Found:
    """Kill a server with SIGKILL while it saves, compares and sweeps; start it again; nothing finished may be lost."""
    draw, problems, expected = random.Random(seed), [], ""
    for turn in range(times):
        finished: set[str] = set()
        study = f"killed {turn}"
        with trust_server([], base_directory=base) as server, server.client() as client:
            expected = expected or plain_digest(client)
            sweep = prompts.swept(study, steps=6)
            save = prompts.quantized(next(_numbers), f"faults/{turn}")
            prompt = (sweep, save, prompts.compared(next(_numbers)))[turn % 3]
            started = time.monotonic()
            client.queue(prompt)
            time.sleep(draw.uniform(0.1, 3.0))
            os.kill(server.pid, signal.SIGKILL)
            after = time.monotonic() - started
            finished = _finished_cells(base)
        problems += [f"killed after {after:.1f} s: {text}" for text in broken_files(base / "output")]
        with trust_server([], base_directory=base) as server, server.client() as client:
            if plain_digest(client) != expected:
                problems.append(f"turn {turn}: the next picture differs")
            if turn % 3 == 0:
                client.run(prompts.swept(study, steps=6), timeout=900.0)
                if not finished <= (now := _finished_cells(base)) or len(now) != 6:
                    problems.append(f"turn {turn}: {len(finished)} cells were finished, and now {len(now)} of 6")
    return times, problems


def _finished_cells(base: Path) -> set[str]:
    """Return the finished trials in the database of sweeps."""
    path = base / "user" / "__paceline" / "sweeps" / "sweeps.db"
    if not path.exists():
        return set()
    with contextlib.closing(sqlite3.connect(path)) as database:
        try:
            newest = "select max(study_id) from studies"
            rows = database.execute(
                f"select trial_id from trials where state = 'COMPLETE' and study_id = ({newest})"
            ).fetchall()
        except sqlite3.OperationalError:  # killed before its tables were made
            return set()
    return {str(row[0]) for row in rows}


@contextlib.contextmanager
def small_disk(folder: Path, kilobytes: int, read_only: bool = False) -> Iterator[None]:
    """Let ``folder`` be a disk of its own, with so much room. Needs the rights of an administrator; see `can_mount`."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder)], check=True)
    try:
        if read_only:
            subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def can_mount(folder: Path) -> bool:
    """Return whether this process may mount a disk."""
    try:
        with small_disk(folder, 4):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


def full_and_read_only_disks(client: ComfyClient, base: Path) -> Found:
    """Write with no room, with some room, and where nothing may be written: a sentence or the right result."""
    problems, tried, expected = [], 0, plain_digest(client)
    places = {"output": base / "output" / "paceline", "user": base / "user" / "__paceline"}
    for place, folder in places.items():
        for kilobytes, read_only in ((4, False), (40, False), (400, False), (4000, True)):
            what = f"{place} folder of {kilobytes} kB{', read only' if read_only else ''}"
            for name, prompt in (
                ("save", prompts.quantized(next(_numbers), "paceline/int8")),
                ("compare", prompts.compared(next(_numbers))),
                ("sweep", prompts.swept(f"disk {tried}")),
            ):
                tried += 1
                shutil.rmtree(folder, ignore_errors=True)
                with small_disk(folder, kilobytes, read_only):
                    problems += [f"{name}, {what}: {text}" for text in _fails_clearly(client, prompt)]
                    problems += [f"{name}, {what}: {text}" for text in broken_files(folder)]
        if plain_digest(client) != expected:
            problems.append(f"{place}: the next picture differs")
    return tried, problems


def _fails_clearly(client: ComfyClient, prompt: prompts.Prompt) -> list[str]:
    try:
        client.run(prompt, timeout=300.0)
    except PromptFailed as error:
        ours = (error.node_type or "").startswith("Paceline")
        if ours and (not is_sentence_of_ours(error) or unclear(str(error))):
            return [f"{error.node_type}: {error.exception_type}: {error}\n{error.traceback[-1200:]}"]
    return []


def damaged_files(client: ComfyClient, base: Path, seed: int) -> Found:
    """Damage each file that we keep in the user's folder, in several ways; what reads it says so or does without."""
    home, draw, problems, tried = base / "user" / "__paceline", random.Random(seed), [], 0
    expected = plain_digest(client)
    preset = {"paceline_recipe": 1, "name": "kept", "steps": [{"node": "PacelineFuseQKV", "inputs": {}}]}

    def all_prompts() -> list[prompts.Prompt]:
        optimized = prompts.picture(again=next(_numbers))
        optimized["preset"] = node("PacelineOptimizePreset", model=["model", 0], preset="kept")
        optimized["fault"]["inputs"]["model"] = ["preset", 0]
        return [prompts.quantized(next(_numbers)), prompts.swept("damaged", again=next(_numbers)), optimized]

    def fill() -> None:
        shutil.rmtree(home, ignore_errors=True)
        (home / "presets").mkdir(parents=True)
        (home / "presets" / "kept.json").write_text(json.dumps(preset))
        for prompt in all_prompts():
            client.run(prompt, timeout=300.0)

    fill()
    for name in [path.relative_to(home) for path in sorted(home.rglob("*")) if path.is_file()]:
        content = (home / name).read_bytes()
        for how, damaged in _damages(content, draw).items():
            tried += 1
            if damaged is None:
                (home / name).unlink()
                (home / name).mkdir()
            else:
                (home / name).write_bytes(damaged)
            for prompt in all_prompts():
                problems += [f"{name} {how}: {text}" for text in _fails_clearly(client, prompt)]
            if (home / name).is_dir():
                shutil.rmtree(home / name)
            (home / name).write_bytes(content)
    if plain_digest(client) != expected:
        problems.append("the next picture differs")
    return tried, problems


def _damages(content: bytes, draw: random.Random) -> dict[str, bytes | None]:
    middle = len(content) // 2
    return {
        "is empty": b"",
        "is cut off": content[:middle],
        "has random bytes": content[:middle] + draw.randbytes(64) + content[middle + 64 :],
        "is no text": draw.randbytes(200),
        "is another JSON": b'[{"a": NaN}, null, 1e999]',
        "is a JSON of wrong types": b'{"cpu": 7, "steps": "x", "paceline_recipe": {}}',
        "is a folder": None,
    }


def two_servers(shared: Path) -> Found:
    """Let two servers share one user folder and write to it at the same time."""
    import threading

    problems: list[str] = []
    shared.mkdir(parents=True, exist_ok=True)
    options = {"arguments": ["--user-directory", str(shared)]}
    with trust_server([], **options) as one, trust_server([], **options) as other:

        def work(server: Any, name: str) -> None:
            with server.client() as client:
                for turn in range(3):
                    for prompt in (prompts.quantized(next(_numbers)), prompts.swept("shared", again=turn)):
                        problems.extend(f"server {name}: {text}" for text in _fails_clearly(client, prompt))

        threads = [threading.Thread(target=work, args=pair) for pair in ((one, "one"), (other, "other"))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with one.client() as first, other.client() as second:
            if plain_digest(first) != plain_digest(second):
                problems.append("their pictures differ")
    return 12, problems + broken_files(shared)
