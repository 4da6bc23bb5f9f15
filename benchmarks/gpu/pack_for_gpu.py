"""Put everything that benchmarks/on_gpu.sh needs on a bare GPU machine into one file.

    python benchmarks/gpu/pack_for_gpu.py [--out .cache/gpu_carry/pack.tar.xz] [--without NAME ...]

ComfyUI without its server and its largest vocabularies, and the wheels that such a machine lacks, for Python 3.12 on
Linux x86-64. Where little can be carried, leave out wheels, and of the repository ``benchmarks/weights``. On the
machine are expected: torch, torchvision, transformers, numpy, scipy, pillow, safetensors, psutil, tqdm, einops, pyyaml,
pytest, hypothesis, scikit-image.
"""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from comfy_host.paths import cache_dir, host_dir  # noqa: E402

WHEELS = (
    "comfy-kitchen", "comfy-aimdo", "torchsde", "trampoline", "tomesd", "torchao", "diffusers", "pydantic",
    "pydantic-core", "annotated-types", "typing-inspection", "sageattention==1.0.6",
)  # fmt: skip
"""In the versions that are installed here, where none is named."""
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_24_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
LEFT_OUT = ("comfy_kitchen/backends/hip/", "test/")
"""Compiled for other devices, or data that no benchmark reads."""
LARGEST_HOST_FILE = 600_000
HOST_FOLDERS = ("comfy", "comfy_api", "comfy_execution", "comfy_extras", "utils", "app", "middleware", "protocol")
KEPT = ("comfy/sd1_tokenizer/vocab.json",)
"""Larger than that, and needed."""


def wheels(without: list[str]) -> Iterator[tuple[str, bytes]]:
    """Give the files inside of the wheels, by their place in ``site``."""
    wanted = [name for name in WHEELS if name.split("==")[0] not in without]
    pinned = [name if "==" in name else f"{name}=={metadata.version(name)}" for name in wanted]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "-d", folder]
        command += ["--python-version=3.12", "--implementation=cp", *(f"--platform={name}" for name in PLATFORMS)]
        subprocess.run([*command, *pinned], check=True, stdin=subprocess.DEVNULL)
        for wheel in sorted(Path(folder).glob("*.whl")):
            with zipfile.ZipFile(wheel) as archive:
                for entry in archive.infolist():
                    if not entry.is_dir() and not entry.filename.startswith(LEFT_OUT):
                        yield f"site/{entry.filename}", archive.read(entry)


def host() -> Iterator[tuple[str, bytes]]:
    """Give the files of ComfyUI."""
    root = host_dir()
    files = [*root.glob("*.py"), *(path for folder in HOST_FOLDERS for path in (root / folder).rglob("*"))]
    for path in sorted(files):
        name = path.relative_to(root).as_posix()
        wanted = path.is_file() and "__pycache__" not in path.parts
        if wanted and (path.stat().st_size <= LARGEST_HOST_FILE or name in KEPT):
            yield f"comfyui/{name}", path.read_bytes()


def repository_size() -> int:
    """Return the bytes of the files that git would carry."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, check=True, capture_output=True).stdout.split(b"\0")
    return sum(path.stat().st_size for path in (ROOT / name.decode() for name in names if name) if path.is_file())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=cache_dir() / "gpu_carry" / "pack.tar.xz")
    parser.add_argument("--without", nargs="*", default=[], metavar="NAME", help="wheels to leave out")
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    partial = options.out.with_suffix(".partial")
    count = 0
    with tarfile.open(partial, "w:xz", preset=6) as archive:
        for part in (host(), wheels(options.without)):
            for name, content in part:
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
                count += 1
    partial.replace(options.out)
    size, repository = options.out.stat().st_size, repository_size()
    print(f"{options.out}: {count} files, {size / 2**20:.1f} MiB; the repository has {repository / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
