"""Other projects' own tests, plain and with our techniques on their models; what passes in one way only is printed.

    make peers DIFFUSERS=/path/to/a/checkout/of/diffusers
    .venv/bin/python tests/trust/peers/run_peers.py --diffusers FOLDER --tests tests/models/unets -- -k save

A project is a row of ``PEERS``: its tests and the plugin for pytest that puts ours on. No model is downloaded: tests
that need one fail both ways, and do not count. What is tested is the version that is installed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Peer:
    """Another project.

    Attributes:
        plugin: for pytest, in this folder.
        tests: files and folders of its checkout.
    """

    name: str
    plugin: str
    tests: tuple[str, ...]


PEERS = (
    Peer(
        "diffusers", "on_construction",
        (
            "tests/models/unets/test_models_unet_2d_condition.py",
            "tests/models/autoencoders/test_models_autoencoder_kl.py",
            "tests/models/controlnets",
            "tests/models/transformers/test_models_transformer_flux.py",
            "tests/models/transformers/test_models_transformer_sd3.py",
            "tests/models/transformers/test_models_transformer_wan.py",
            "tests/models/transformers/test_models_transformer_ltx.py",
            "tests/models/transformers/test_models_transformer_z_image.py",
            "tests/models/transformers/test_models_transformer_qwenimage.py",
            "tests/models/transformers/test_models_transformer_sana.py",
            "tests/models/test_attention_processor.py",
            "tests/pipelines/stable_diffusion",
            "tests/pipelines/stable_diffusion_xl",
            "tests/pipelines/stable_diffusion_3",
            "tests/pipelines/controlnet",
            "tests/pipelines/flux",
            "tests/pipelines/wan",
            "tests/pipelines/ltx",
            "tests/pipelines/z_image",
            "tests/pipelines/qwenimage",
            "tests/pipelines/sana",
            "tests/pipelines/pag",
        ),
    ),
)  # fmt: skip


def compare(peer: Peer, folder: Path, tests: tuple[str, ...], more: list[str]) -> dict[str, Any]:
    """Return how a peer's tests end both ways, and those that pass in one way only."""
    plain, _ = outcomes(peer, folder, tests, more, ours=False)
    ours, put_on = outcomes(peer, folder, tests, more, ours=True)
    both = plain.keys() | ours.keys()
    return {
        "commit": said_by_git(folder, "log", "-1", "--format=%h of %cs"),
        "version": version(peer.name),
        "tests": list(tests),
        "plain": dict(Counter(plain.values())),
        "ours": dict(Counter(ours.values())),
        "put_on": put_on,
        "lost": sorted(one for one in both if plain.get(one) == "passed" != ours.get(one)),
        "won": sorted(one for one in both if ours.get(one) == "passed" != plain.get(one)),
    }


def outcomes(
    peer: Peer, folder: Path, tests: tuple[str, ...], more: list[str], ours: bool
) -> tuple[dict[str, str], dict[str, int]]:
    """Return how each test ends, and how often each technique was put on."""
    with tempfile.TemporaryDirectory() as kept:
        result, told = Path(kept) / "result.xml", Path(kept) / "put_on"
        paths = [str(HERE), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": os.pathsep.join(filter(None, paths)),
                       "PACELINE_PUT_ON": str(told)}  # fmt: skip
        plugin = ["-p", peer.plugin] if ours else []
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore", *plugin,
                   f"--junitxml={result}", f"--rootdir={folder}", *tests, *more]  # fmt: skip
        subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, check=False)
        found = {}
        for case in ElementTree.parse(result).iter("testcase"):
            kinds = {child.tag for child in case}
            ended = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
            found[f"{case.get('classname')}::{case.get('name')}"] = ended
        rows = [line.split("\t") for line in told.read_text().splitlines()] if told.exists() else []
    return found, {name: int(count) for name, count in rows}


def said_by_git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=True).stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for peer in PEERS:
        parser.add_argument(f"--{peer.name}", type=Path, help=f"a checkout of {peer.name}")
    parser.add_argument("--tests", nargs="*", help="only these files and folders of it")
    parser.add_argument("--json", type=Path, help="where to write what was found")
    parser.add_argument("more", nargs="*", help="for pytest, behind --")
    given = parser.parse_args()
    found = {}
    for peer in PEERS:
        folder = getattr(given, peer.name)
        if folder is not None:
            found[peer.name] = compare(peer, folder.resolve(), tuple(given.tests or peer.tests), given.more)
    print(json.dumps(found, indent=1))
    if given.json:
        given.json.write_text(json.dumps(found, indent=1))
    return 0 if found and not any(one["lost"] for one in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
