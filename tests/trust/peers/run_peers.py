"""diffusers' own tests, plain and with our techniques on its models; what passes in one way only is printed.

    make peers DIFFUSERS=/path/to/a/checkout/of/diffusers
    .venv/bin/python tests/trust/peers/run_peers.py --diffusers FOLDER --tests tests/models/unets -- -k save

No model is downloaded: tests that need one fail both ways, and do not count. What is tested is the version that is
installed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TESTS = (
    "models/unets/test_models_unet_2d_condition.py", "models/autoencoders/test_models_autoencoder_kl.py",
    "models/controlnets", "models/transformers/test_models_transformer_flux.py",
    "models/transformers/test_models_transformer_sd3.py", "models/transformers/test_models_transformer_wan.py",
    "models/transformers/test_models_transformer_ltx.py", "models/transformers/test_models_transformer_z_image.py",
    "models/transformers/test_models_transformer_qwenimage.py", "models/transformers/test_models_transformer_sana.py",
    "models/test_attention_processor.py", "pipelines/stable_diffusion", "pipelines/stable_diffusion_xl",
    "pipelines/stable_diffusion_3", "pipelines/controlnet", "pipelines/flux", "pipelines/wan", "pipelines/ltx",
    "pipelines/z_image", "pipelines/qwenimage", "pipelines/sana", "pipelines/pag",
)  # fmt: skip


def compare(folder: Path, tests: list[str], more: list[str]) -> dict[str, Any]:
    """Return how the tests end both ways, for docs/TRUST.md, and those that pass in one way only."""
    started = time.monotonic()
    (plain, _), (ours, put_on) = (outcomes(folder, tests, more, with_ours) for with_ours in (False, True))
    ends = [Counter(one.values()) for one in (plain, ours)]
    lost, won = (
        sorted(test for test in plain.keys() | ours.keys() if one.get(test) == "passed" != other.get(test))
        for one, other in ((plain, ours), (ours, plain))
    )
    git = subprocess.run(["git", "-C", str(folder), "log", "-1", "--format=%h of %cs"], capture_output=True, text=True)
    rows = [("passed plain", ends[0]["passed"]), ("passed with ours", ends[1]["passed"])]
    rows += [("failed both ways, most for want of a file", ends[0]["failed"] - len(won))]
    rows += [
        ("skipped", ends[0]["skipped"]),
        *((f"put on new models: {what}", count) for what, count in put_on.items()),
    ]
    return {
        "tried": f"{ends[0]['passed']:,} tests",
        "rows": rows,
        "wrong": [f"passes plain only: `{test}`" for test in lost],
        "minutes": (time.monotonic() - started) / 60,
        "above": f"diffusers {version('diffusers')}, its tests at commit {git.stdout.strip()}: "
        + ", ".join(f"`{test}`" for test in tests),
        "below": "\n".join(f"- passes with ours only: `{test}`" for test in won),
    }


def outcomes(folder: Path, tests: list[str], more: list[str], ours: bool) -> tuple[dict[str, str], dict[str, int]]:
    """Return how each test ends, and how often each technique was put on."""
    with tempfile.TemporaryDirectory() as kept:
        result, told = Path(kept) / "result.xml", Path(kept) / "put_on"
        paths = [str(HERE), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": os.pathsep.join(filter(None, paths)),
                       "PACELINE_PUT_ON": str(told)}  # fmt: skip
        plugin = ["-p", "on_construction"] if ours else []
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--diffusers", type=Path, required=True, help="a checkout of diffusers")
    parser.add_argument("--tests", nargs="*", help="only these files and folders of it")
    parser.add_argument("--json", type=Path, help="where to write what was found")
    parser.add_argument("more", nargs="*", help="for pytest, behind --")
    given = parser.parse_args()
    found = compare(given.diffusers.resolve(), given.tests or [f"tests/{test}" for test in TESTS], given.more)
    print(json.dumps(found, indent=1))
    if given.json:
        given.json.write_text(json.dumps(found, indent=1))
    return bool(found["wrong"])


if __name__ == "__main__":
    sys.exit(main())
