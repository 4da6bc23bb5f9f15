"""A database server for the tests that share work between processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from needs import missing


@contextmanager
def postgresql() -> Iterator[str]:
    """Run a PostgreSQL server of our own, on a socket in a temporary folder; gives its URL."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb")) or [Path(shutil.which("initdb") or "missing")]
    if not found[-1].exists():
        missing("PostgreSQL is not installed (Debian: apt install postgresql)")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        user = {}
        if os.geteuid() == 0:  # the server refuses to run as root
            shutil.chown(folder, "nobody")
            user = {"user": "nobody"}
        run = partial(subprocess.run, check=True, cwd=folder, stdout=subprocess.DEVNULL, **user)
        run([found[-1], "-D", f"{folder}/db", "-U", "test", "-A", "trust", "--no-sync"])
        options = f"-c listen_addresses='' -c unix_socket_directories='{folder}' -c fsync=off"
        control = [found[-1].parent / "pg_ctl", "-D", f"{folder}/db", "-w", "-t", "600", "-l", f"{folder}/log"]
        run([*control, "-o", options, "start"])
        yield f"postgresql+psycopg://test@/postgres?host={folder}"
        run([*control, "-m", "immediate", "stop"])
