"""Write the example workflows anew: ``python tools/update_examples.py [NAME ...]``.

They are built from ``tools/examples/`` and from what a real server says about the nodes, so that a new input
or another default of a node needs no work by hand. Their thumbnails are made by the browser tests, see
``tests/browser/test_templates.py``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from comfy_host.paths import ROOT  # noqa: E402
from comfy_host.server import ComfyServer  # noqa: E402
from examples.graph import Graph  # noqa: E402
from examples.recipes import EXAMPLES  # noqa: E402

FOLDER = ROOT / "example_workflows"


def main(names: list[str]) -> None:
    """Write the named examples, or all."""
    with ComfyServer(cpu=True) as server, server.client() as client:
        info = client.object_info()
    for name in names or EXAMPLES:
        graph = Graph(info)
        EXAMPLES[name](graph)
        text = json.dumps(graph.workflow(), indent=1, ensure_ascii=False)
        (FOLDER / f"{name}.json").write_text(f"{text}\n", encoding="utf-8")
        print(f"{name}: {len(graph.workflow()['nodes'])} nodes")


if __name__ == "__main__":
    main(sys.argv[1:])
