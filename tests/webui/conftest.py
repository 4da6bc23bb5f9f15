"""Stable Diffusion WebUI and Forge as they are, without a page, each with the extension and a generated checkpoint.

``WEBUI_PATH`` and ``FORGE_PATH`` are their folders, set up so that they start without the network; their Python is
``venv/bin/python`` there, or ``WEBUI_PYTHON`` and ``FORGE_PYTHON``.
"""

from __future__ import annotations

import base64
import io
import json
import os
import re
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import torch
from comfy_host import checkpoints, in_process, vaes
from comfy_host.paths import ROOT
from comfy_host.processes import free_port
from PIL import Image
from waiting import until

FLAGS = "--skip-prepare-environment --skip-torch-cuda-test --skip-python-version-check --skip-version-check "
FLAGS += "--no-download-sd-model --api --nowebui"
OF_HOST = {"WEBUI": "--use-cpu all --no-half --precision full", "FORGE": "--always-cpu --all-in-fp32"}

OPTIONS = {"sd_vae_decode_method": "Approx cheap", "live_previews_enable": False, "token_merging_ratio": 0.0}
"""Set once, so that a request can change them for itself. The decoder is a matrix: pictures cost a second less."""

OFF: tuple[object, ...] = ()


class Host:
    """A running host. ``draw`` asks for pictures, with the arguments of the extension."""

    def __init__(self, name: str, path: Path, folder: Path) -> None:
        self.name, self.port = name, free_port()
        python = os.environ.get(f"{name}_PYTHON", str(path / "venv" / "bin" / "python"))
        flags = f"{FLAGS} {OF_HOST[name]} --port {self.port} --data-dir {folder}".split()
        self.log = folder / "log.txt"
        with self.log.open("w") as log:
            self.process = subprocess.Popen([python, "launch.py", *flags], cwd=path, stdout=log, stderr=log)

    def ready(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()[-3000:]
        try:
            return bool(self.ask("/sdapi/v1/sd-models"))
        except (urllib.error.URLError, ConnectionError):
            return False

    def ask(self, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data)
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=600) as answer:
            return json.load(answer)

    def asked(self, arguments: tuple[object, ...] = OFF, **options: Any) -> dict[str, Any]:
        """Return the host's answer to a request for pictures."""
        body = {"prompt": "a red house", "negative_prompt": "blurry", "seed": 1, "steps": 10, "cfg_scale": 6}
        body |= {"width": 64, "height": 64, "sampler_name": "Euler"} | options
        others = body.get("alwayson_scripts", {})
        if arguments:
            body["alwayson_scripts"] = {**others, "Paceline": {"args": list(arguments)}}
        path = "/sdapi/v1/img2img" if "init_images" in body else "/sdapi/v1/txt2img"
        return self.ask(path, body)

    def draw(self, arguments: tuple[object, ...] = OFF, **options: Any) -> list[bytes]:
        """Return the pixels of the pictures."""
        return self.pixels(self.asked(arguments, **options)["images"])

    def pixels(self, images: list[str]) -> list[bytes]:
        return [pixels(image) for image in images]

    def report(self) -> dict[str, dict[str, Any]]:
        return {one["title"]: one for one in self.ask("/paceline/report")}


def pixels(image: str) -> bytes:
    return Image.open(io.BytesIO(base64.b64decode(image))).convert("RGB").tobytes()


@pytest.fixture(scope="session", params=["WEBUI", "FORGE"])
def host(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    name = request.param
    if not os.environ.get(f"{name}_PATH"):
        pytest.skip(f"{name}_PATH is not set: it names the folder of a host that starts by itself")
    path, folder = Path(os.environ[f"{name}_PATH"]), tmp_path_factory.mktemp(name.lower())
    (folder / "extensions").mkdir()
    (folder / "extensions" / "paceline").symlink_to(ROOT)
    models = folder / "models"
    in_process.bootstrap()
    checkpoint = models / "Stable-diffusion" / "tiny.safetensors"
    checkpoints.sd15(checkpoint, dtype=torch.float16, vae=half_vae)
    checkpoints.lora(models / "Lora" / "small.safetensors", strength=2.0)
    if name == "WEBUI":  # Forge reads the UNet's shape from the weights
        text = (path / "configs" / "v1-inference.yaml").read_text()
        shape = {"attention_resolutions": "[2, 1]", "num_res_blocks": "1", "channel_mult": "[1, 2]"}
        for key, value in shape.items():  # the UNet's lines come before those of the VAE
            text = re.sub(rf"{key}: .*", f"{key}: {value}", text, count=1)
        checkpoint.with_suffix(".yaml").write_text(text)
    running = Host(name, path, folder)
    try:
        assert until(running.ready, 600)
        running.ask("/sdapi/v1/options", OPTIONS)
        yield running
    finally:
        running.process.terminate()
        running.process.wait(60)


def half_vae(seed: int) -> dict[str, torch.Tensor]:
    return {name: tensor.half() for name, tensor in vaes.sd15_state_dict(seed).items()}
