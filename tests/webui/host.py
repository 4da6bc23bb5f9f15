"""Stable Diffusion WebUI and Forge as they are, each with the extension and generated models.

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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from comfy_host import in_process
from comfy_host.cached import generated
from comfy_host.paths import ROOT
from comfy_host.processes import die_with_parent, free_port
from PIL import Image
from waiting import until

from . import models

NAMES = ("WEBUI", "FORGE")

FLAGS = "--skip-prepare-environment --skip-torch-cuda-test --skip-python-version-check --skip-version-check "
FLAGS += "--no-download-sd-model --api"
OF_HOST = {"WEBUI": "--use-cpu all --no-half --precision full", "FORGE": "--always-cpu --all-in-fp32"}

OPTIONS = {"sd_vae_decode_method": "Approx cheap", "live_previews_enable": False, "token_merging_ratio": 0.0}
"""Set once, so that a request can change them for itself. The decoder is a matrix: pictures cost a second less."""

ON_PAGE = {"Width": 64, "Height": 64, "Sampling steps": 9, "Seed": 1, "Prompt": "a red house"}
"""What the page of text to picture begins with."""

Arguments = tuple[object, ...]

OFF: Arguments = ()
HOSTS_OWN = "the host's own"


def custom(method: str = "auto", ratio: float = 0.0, budget: float = 0.0, backend: str = HOSTS_OWN) -> Arguments:
    return (True, "Custom", "As above", method, ratio, "auto", budget, backend)


MERGE = custom("merge", ratio=0.5)
REUSE = custom(budget=0.3)
ALL = custom("merge", ratio=0.5, budget=0.3, backend="vanilla")


class Host:
    """A running host. ``draw`` asks for pictures, with the arguments of the extension."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder, self.port = name, folder, free_port()
        path = Path(os.environ[f"{name}_PATH"])
        python = os.environ.get(f"{name}_PYTHON", str(path / "venv" / "bin" / "python"))
        flags = f"{FLAGS} {OF_HOST[name]} --port {self.port} --data-dir {folder} --gradio-allowed-path {path}".split()
        self.log = folder / "log.txt"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [python, "launch.py", *flags], cwd=path, stdout=log, stderr=log, preexec_fn=die_with_parent
            )

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ready(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()[-3000:]
        if "Startup time" not in self.log.read_text():  # routes of extensions come after those of the host
            return False
        try:
            return bool(self.ask("/sdapi/v1/sd-models"))
        except (urllib.error.URLError, ConnectionError):
            return False

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(60)

    def ask(self, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.base_url}{path}", data)
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=600) as answer:
            return json.load(answer)

    def asked(self, arguments: Arguments = OFF, **options: Any) -> dict[str, Any]:
        """Return the host's answer to a request for pictures."""
        body = {"prompt": "a red house", "negative_prompt": "blurry", "seed": 1, "steps": 10, "cfg_scale": 6}
        body |= {"width": 64, "height": 64, "sampler_name": "Euler"} | options
        others = body.get("alwayson_scripts", {})
        if arguments:
            body["alwayson_scripts"] = {**others, "Paceline": {"args": list(arguments)}}
        path = "/sdapi/v1/img2img" if "init_images" in body else "/sdapi/v1/txt2img"
        return self.ask(path, body)

    def draw(self, arguments: Arguments = OFF, **options: Any) -> list[bytes]:
        """Return the pixels of the pictures."""
        return self.pixels(self.asked(arguments, **options)["images"])

    def pixels(self, images: list[str]) -> list[bytes]:
        return [pixels(image) for image in images]

    def report(self) -> dict[str, dict[str, Any]]:
        return {one["title"]: one for one in self.ask("/paceline/report")}


def pixels(image: str) -> bytes:
    return Image.open(io.BytesIO(base64.b64decode(image))).convert("RGB").tobytes()


def trouble(again: bool = False, fail_in: int = -1, stop_in: int = -1, look: bool = False) -> dict[str, Any]:
    """Return what asks the extension in ``webui_extension/`` for something; an option of a request."""
    return {"alwayson_scripts": {"Trouble": {"args": [again, fail_in, stop_in, look]}}}


def needed(name: str) -> None:
    """Skip the test where a host is not there."""
    if not os.environ.get(f"{name}_PATH"):
        pytest.skip(f"{name}_PATH is not set: it names the folder of a host that starts by itself")


@contextmanager
def running(name: str, folder: Path, extensions: Mapping[str, Path] | None = None) -> Iterator[Host]:
    """Start a host with ``folder`` for its data, and the extension and that of the tests if no others are named."""
    given = {"paceline": ROOT, "trouble": ROOT / "tests" / "webui_extension"} if extensions is None else extensions
    (folder / "extensions").mkdir(exist_ok=True)
    for extension, source in given.items():
        (folder / "extensions" / extension).symlink_to(source)
    _prepare(name, folder)
    host = Host(name, folder)
    try:
        assert until(host.ready, 600), host.log.read_text()[-3000:]
        host.ask("/sdapi/v1/options", OPTIONS)
        yield host
    finally:
        host.stop()


def _prepare(name: str, folder: Path) -> None:
    """Put models and what the page begins with into a folder for data."""
    in_process.bootstrap()
    for path, source in {
        "Stable-diffusion/tiny": generated("small", models),
        "Stable-diffusion/other": generated("refiner", models),
        "Lora/small": generated("strong_lora", models),
        "ControlNet/control": generated("controlnet"),
    }.items():
        file = folder / "models" / f"{path}.safetensors"
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.is_symlink():
            file.symlink_to(source)
    if name == "WEBUI":  # Forge reads the UNet's shape from the weights
        text = (Path(os.environ["WEBUI_PATH"]) / "configs" / "v1-inference.yaml").read_text()
        shape = {"attention_resolutions": "[2, 1]", "num_res_blocks": "1", "channel_mult": "[1, 1]"}
        for key, value in shape.items():  # the UNet's lines come before those of the VAE
            text = re.sub(rf"{key}: .*", f"{key}: {value}", text, count=1)
        for model in ("tiny", "other"):
            (folder / "models" / "Stable-diffusion" / f"{model}.yaml").write_text(text)
    places = {"Sampling steps": "customscript/sampler.py/", "Seed": "customscript/seed.py/"}
    values = {f"{places.get(label, '')}txt2img/{label}/value": value for label, value in ON_PAGE.items()}
    (folder / "ui-config.json").write_text(json.dumps(values))
    of_forge = {"sd_t2i_width": ON_PAGE["Width"], "sd_t2i_height": ON_PAGE["Height"]}  # its preset sets them again
    (folder / "config.json").write_text(json.dumps({"sd_model_checkpoint": "tiny.safetensors"} | of_forge))
