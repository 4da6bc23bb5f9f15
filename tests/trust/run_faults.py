"""Faults of machines on real servers: killed, full disk, read-only, damaged files, two servers, launch flags."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import faults
from flags import FLAGS, under_flags
from hosting import trust_server


def try_faults(kills: int, graphs: int, minutes: float) -> dict[str, Any]:
    """Try all faults, none begun after so many minutes, and return what was found, for the table in docs/TRUST.md."""
    found: dict[str, Any] = {}
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)

        def on_one_server(what: str) -> faults.Found:
            with trust_server([], base_directory=base / what) as server, server.client() as client:
                if what == "damaged files":
                    return faults.damaged_files(client, server.base_directory, seed=0)
                if not faults.can_mount(base / "probe"):
                    return 0, []
                return faults.full_and_read_only_disks(client, server.base_directory)

        tries = {
            "SIGKILL while saving, comparing, sweeping": lambda: faults.kill_at_random_points(
                base / "killed", kills, 0
            ),
            "full and read-only disks": lambda: on_one_server("full disks"),
            "damaged files": lambda: on_one_server("damaged files"),
            "two servers with one user folder": lambda: faults.two_servers(base / "shared"),
            **{" ".join(flags): (lambda flags=flags: under_flags(flags, graphs)) for flags in FLAGS},
        }
        for name, attempt in tries.items():
            started = time.monotonic()
            if started - begun > minutes * 60:
                continue
            try:
                count, problems = attempt()
            except Exception as error:
                count, problems = 1, [f"{type(error).__name__}: {error}"]
            found[name] = {"tried": count, "wrong": problems, "minutes": (time.monotonic() - started) / 60}
            print(f"{name}: {count} tried, {len(problems)} wrong", *problems, sep="\n  ", flush=True)
    return found
