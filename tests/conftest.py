"""What all tests share: the pack loaded as ComfyUI loads it, a ComfyUI in this process, and a real server.

Everything expensive is made when the first test asks for it.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import dealing
import pytest
import texts
from browser.chrome import find_browser
from comfy_host import in_process, pack, slow_kernels, standins, transformers
from comfy_host.cached import generated
from comfy_host.paths import ROOT
from texts import reads  # noqa: F401 - a fixture

SAID = pytest.StashKey[bool]()


class PageServer:
    """Keeps events with their payloads, and the page that each is for."""

    def __init__(self) -> None:
        self.client_id: str | None = "a page"
        self.last_prompt_id = "a prompt"
        self.sent: list[tuple[str, dict[str, Any], str | None]] = []

    def send_sync(self, event: str, payload: dict[str, Any], client: str | None) -> None:
        json.dumps(payload, allow_nan=False)
        self.sent.append((event, payload, client))


if TYPE_CHECKING:
    from comfy_host.client import ComfyClient
    from comfy_host.server import ComfyServer

# Before torch is imported, and for every process that tests start: threads that wait for a core sleep, not spin.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
if "PYTEST_XDIST_WORKER_COUNT" in os.environ:
    # Processes side by side that each take all cores only wait for each other. Also holds for those that tests start.
    threads = max(1, (os.cpu_count() or 1) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"]))
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))

standins.install()
slow_kernels.install()
pack.load_pack()  # tests write `from paceline.optimizers... import ...` at their top


@pytest.fixture(scope="session", autouse=True)
def attention_is_not_timed() -> Iterator[None]:
    """What Apply ToMe decides by times would be another thing on each machine."""
    from paceline.optimizers.token_merging.gains import Gains

    with patch.object(Gains, "note", lambda *_: None):
        yield


@pytest.fixture(scope="session", autouse=True)
def attention_is_fused_on_processors() -> None:
    """What Fuse QKV does on a card is tested on a processor, where it would leave all layers alone."""
    from paceline.optimizers.qkv_fusion import SLOWER

    SLOWER.clear()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-seconds", action="store_true", help="write what each file took to tests/seconds.json")
    parser.addoption("--write-texts", action="store_true", help="write what people read to tests/texts.json")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--write-seconds") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(dealing.Stopwatch())


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.config.getoption("--write-texts"):
        texts.write({item.path.stem for item in session.items})


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip what needs a GPU or a newer ComfyUI than there is; processes side by side begin with what takes longest."""
    if config.getoption("--write-texts"):
        items[:] = [item for item in items if "reads" in getattr(item, "fixturenames", ())]
    if hasattr(config, "workerinput"):
        dealing.longest_first(items)
    lacking = transformers.lacking()
    for item in items:
        values = item.callspec.params.values() if hasattr(item, "callspec") else ()
        for name in lacking.intersection(value.split(" ")[0] for value in values if isinstance(value, str)):
            item.add_marker(pytest.mark.skip(reason=f"this ComfyUI has no {transformers.ALL[name].config}"))
    if not any(item.get_closest_marker("gpu") for item in items):
        return
    import torch

    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


def say_once_what_no_browser_means(config: pytest.Config, ids: list[str]) -> None:
    """Before the first test runs: how many are skipped for want of a browser, and what installs one."""
    count = sum(id.startswith("tests/browser/") for id in ids)
    if count and find_browser() is None and not config.stash.get(SAID, False):
        config.stash[SAID] = True
        text = f"{count} browser tests will be skipped: there is no browser. `make setup BROWSER=1` installs one."
        config.get_terminal_writer().line(f"\n{text}", yellow=True)


def pytest_collection_finish(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):
        say_once_what_no_browser_means(session.config, [item.nodeid for item in session.items])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node: Any, ids: list[str]) -> None:
    say_once_what_no_browser_means(node.config, ids)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hand out units of tests in the order of the collection, which is that of ``dealing.longest_first``."""
    from xdist.scheduler import LoadScopeScheduling

    class ByUnit(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return dealing.unit(nodeid)

    return ByUnit(config, log)


@pytest.fixture(scope="session", autouse=True)
def written(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Let the ComfyUI in this process write into a folder of its own: kept timings, compiled code, numbered files."""
    in_process.folder = tmp_path_factory.mktemp("comfyui")


@pytest.fixture(scope="session")
def comfy() -> ModuleType:
    """ComfyUI's package ``comfy``, ready in this process, on the CPU."""
    in_process.bootstrap()
    import comfy

    return comfy


@pytest.fixture(scope="module", autouse=True)
def quick_collector() -> None:
    """Set aside what is in memory before the tests of a file.

    ComfyUI and many tests collect garbage often. After compiling, each time takes seconds with all that torch keeps.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def sd15_checkpoint(comfy: ModuleType) -> Path:
    """A checkpoint with random weights that CheckpointLoaderSimple loads as SD1.5."""
    return generated("sd15")


@pytest.fixture(scope="session")
def controlnet_checkpoint(comfy: ModuleType) -> Path:
    """A ControlNet with random weights that fits ``sd15_checkpoint``."""
    return generated("controlnet")


@pytest.fixture(scope="session")
def lora_file(comfy: ModuleType) -> Path:
    """A LoRA with random weights that fits ``sd15_checkpoint``."""
    return generated("lora")


@pytest.fixture(scope="session")
def server(
    sd15_checkpoint: Path, controlnet_checkpoint: Path, lora_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ComfyServer]:
    """A running ComfyUI server with this pack, nodes of the demo and for tests, and generated models."""
    from comfy_host.server import ComfyServer
    from trust import hosting

    packs = [ROOT / "tools" / "demo" / "icon_nodes", hosting.NODES]
    frontend = os.environ.get("PACELINE_FRONTEND")  # a folder: another version than the installed one
    with ComfyServer(
        arguments=["--front-end-root", frontend] if frontend else [],
        custom_nodes=packs,
        models={
            "checkpoints": [sd15_checkpoint],
            "controlnet": [controlnet_checkpoint],
            "loras": [lora_file, *hosting.write_loras(tmp_path_factory.mktemp("loras"))],
        },
        cpu=None if os.environ.get("PACELINE_TEST_GPU") else True,
    ) as running:
        yield running


@pytest.fixture(scope="session")
def client(server: ComfyServer) -> Iterator[ComfyClient]:
    """A client of the running server."""
    with server.client() as connected:
        yield connected


@pytest.fixture
def page_server(monkeypatch: pytest.MonkeyPatch) -> PageServer:
    """What nodes in this process tell the page."""
    server = PageServer()
    monkeypatch.setitem(sys.modules, "server", SimpleNamespace(PromptServer=SimpleNamespace(instance=server)))
    return server


@pytest.fixture
def fresh_compiler() -> Iterator[None]:
    """torch.compile without what other tests compiled."""
    import torch._dynamo

    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
