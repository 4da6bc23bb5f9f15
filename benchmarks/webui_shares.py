"""What Reuse Steps and Apply ToMe leave out in Stable Diffusion WebUI and Forge, and in ComfyUI, of the same picture.

    WEBUI_PATH=... FORGE_PATH=... python benchmarks/webui_shares.py [--quick] [--json PATH]

The hosts draw from one random checkpoint of SD 1.5's layout, with the same sampler, schedule, seed and prompts. *share*
is what is left: of the evaluations with Reuse Steps; of the tokens of all self-attention blocks with Apply ToMe.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from shared.measuring import arguments
from shared.record import ROOT, Row, report

sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tests")]
from comfy_host import standins  # noqa: E402

standins.install()

from comfy_host import in_process, workflow  # noqa: E402
from comfy_host.cached import generated  # noqa: E402
from comfy_host.server import ComfyServer  # noqa: E402
from webui import models  # noqa: E402
from webui.host import NAMES, running  # noqa: E402

HOSTS_OWN = "the host's own"
REUSE, TOME = "Reuse Steps", "Apply ToMe"
SOLVERS = {"euler": "Euler", "dpmpp_2m": "DPM++ 2M"}
BUDGETS = (0.15, 0.3)
METHODS = ("merge", "kv_downsample")
STEPS = 20

Said = Mapping[str, Any]
Case = tuple[str, str, float]
"""What is used, with its solver or method, and its budget or ratio."""

CASES = [(REUSE, solver, budget) for solver in SOLVERS for budget in BUDGETS]
CASES += [(TOME, method, 0.75) for method in METHODS]


def share(said: Said) -> float:
    """Return what is left of the evaluations, or of the tokens of the blocks that were reached, of all blocks."""
    counts = said["counts"]
    if "evaluations" in counts:
        return (counts["computed"] - 0.5 * counts["guidance_reused"]) / counts["evaluations"]
    before, after = map(int, re.search(r"(\d+) -> (\d+)", " ".join(said["details"])).groups())  # type: ignore[union-attr]
    return 1 - counts["blocks"] / counts["all_blocks"] * (1 - after / before)


def in_comfyui(cases: list[Case]) -> Iterator[float]:
    checkpoint = generated("small", models)
    with ComfyServer(models={"checkpoints": [checkpoint]}, cpu=True) as server, server.client() as client:
        info = client.object_info()
        for what, how, amount in cases:
            solver, size = (how, 64) if what == REUSE else ("euler", 128)
            settings = {"budget": amount} if what == REUSE else {"preset": "custom", "method": how, "ratio": amount}
            kind = "PacelineReuseSteps" if what == REUSE else "PacelineApplyToMe"
            sampling = {"seed": 1, "steps": STEPS if what == REUSE else 2, "cfg": 6.0, "sampler_name": solver}
            sampling |= {"scheduler": "karras", "positive": ["3", 0], "negative": ["4", 0], "latent_image": ["5", 0]}
            nodes = [
                ("CheckpointLoaderSimple", {"ckpt_name": checkpoint.name}),
                (kind, {"model": ["1", 0], **settings}),
                ("CLIPTextEncode", {"clip": ["1", 1], "text": "a red house"}),
                ("CLIPTextEncode", {"clip": ["1", 1], "text": "blurry"}),
                ("EmptyLatentImage", {"width": size, "height": size}),
                ("KSampler", {"model": ["2", 0], **sampling}),
                ("VAEDecode", {"samples": ["6", 0], "vae": ["1", 2]}),
                ("PreviewImage", {"images": ["7", 0]}),
            ]
            prompt = {str(at): workflow.with_defaults(info, *node[:1], **node[1]) for at, node in enumerate(nodes, 1)}
            told = client.run(prompt).of_type("paceline.activity")
            yield share([event for event in told if event["node"] == "2"][-1])


def in_webui(name: str, cases: list[Case]) -> Iterator[float]:
    with tempfile.TemporaryDirectory() as folder, running(name, Path(folder)) as host:
        for what, how, amount in cases:
            if what == REUSE:
                values = ("auto", 0.0, "auto", amount, HOSTS_OWN)
                options = {"sampler_name": SOLVERS[how], "steps": STEPS}
            else:
                values, options = (how, amount, "auto", 0.0, HOSTS_OWN), {"width": 128, "height": 128, "steps": 2}
            host.draw((True, "Custom", "As above", *values), scheduler="Karras", **options)
            yield share(host.report()[what])


def main() -> None:
    options = arguments((__doc__ or "").splitlines()[0])
    cases = CASES[::3] if options.quick else CASES
    in_process.bootstrap()
    names = [name for name in NAMES if os.environ.get(f"{name}_PATH")]
    found = {"ComfyUI": list(in_comfyui(cases))} | {name: list(in_webui(name, cases)) for name in names}
    rows = [
        Row(host, f"{what}, {how} {amount:g}", quality={"share": left, "of ComfyUI's": left / found["ComfyUI"][at]})
        for at, (what, how, amount) in enumerate(cases)
        for host, left in ((host, shares[at]) for host, shares in found.items())
    ]
    report(rows, "ComfyUI", options.json)


if __name__ == "__main__":
    main()
