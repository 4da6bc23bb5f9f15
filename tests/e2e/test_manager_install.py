"""ComfyUI-Manager's own code installs, updates, disables and removes the pack, and leaves nothing behind."""

from __future__ import annotations

import functools
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from comfy_host.paths import host_dir
from e2e.package_tools import copy_of_the_pack, environment, git, run

pytestmark = pytest.mark.slow

NAME = "ComfyUI-Paceline"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The pack's repository, of which ``published`` is a copy."""
    return copy_of_the_pack(tmp_path / "source")


@pytest.fixture
def publish(source: Path, tmp_path: Path) -> Callable[[], None]:
    """Put what is committed where the web server has it."""
    bare = tmp_path / "www" / f"{NAME}.git"
    git(tmp_path, "clone", "-q", "--bare", source, bare)

    def push() -> None:
        git(source, "push", "-q", bare, "main")
        git(bare, "update-server-info")  # a plain web server can serve it then

    push()
    return push


@pytest.fixture
def address(publish: Callable[[], None], tmp_path: Path) -> Iterator[str]:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *arguments: object) -> None:
            pass

    handler = functools.partial(Quiet, directory=str(tmp_path / "www"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/{NAME}.git"
        server.shutdown()
        thread.join()


@pytest.fixture
def comfyui(tmp_path: Path) -> Path:
    """A fresh ComfyUI whose Manager uses pip: uv would not see the packages that it has from elsewhere."""
    folder = tmp_path / "ComfyUI"
    shutil.copytree(host_dir(), folder, ignore=shutil.ignore_patterns("user", "output", "temp", "__pycache__"))
    settings = folder / "user" / "__manager" / "config.ini"
    settings.parent.mkdir(parents=True)
    settings.write_text("[default]\nuse_uv = False\nnetwork_mode = offline\n")
    return folder


def files(folder: Path) -> set[str]:
    """Everything but what Python and the Manager itself write."""
    ignored = {"__pycache__", "__manager", ".disabled"}
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and not ignored & set(path.relative_to(folder).parts)
    }


@pytest.mark.thorough
def test_install_update_disable_and_uninstall(comfyui: Path, source: Path, publish, address: str, tmp_path: Path):
    programs = environment()

    def manager(*arguments: str) -> str:
        return run(programs / "cm-cli", *arguments, "--mode", "local", folder=tmp_path, COMFYUI_PATH=str(comfyui))

    def packages() -> list[str]:
        return run(programs / "pip", "freeze", folder=tmp_path).splitlines()

    nodes = comfyui / "custom_nodes"
    files_before, packages_before = files(comfyui), packages()

    assert "INSTALLED" in manager("install", address)
    assert (nodes / NAME / "__init__.py").is_file()
    assert packages() == packages_before

    log = run(Path(sys.executable), comfyui / "main.py", "--quick-test-for-ci", "--cpu", folder=tmp_path)
    assert "IMPORT FAILED" not in log
    assert "cannot be loaded" not in log
    assert any(line.endswith(NAME) and "seconds:" in line for line in log.splitlines())

    (source / "CHANGELOG.md").write_text("a later version\n")
    git(source, "commit", "-qam", "later")
    publish()
    manager("update", NAME)
    assert (nodes / NAME / "CHANGELOG.md").read_text() == "a later version\n"

    assert "DISABLED" in manager("disable", NAME)
    assert not (nodes / NAME).exists()
    assert "ENABLED" in manager("enable", NAME)
    assert (nodes / NAME).exists()

    assert "UNINSTALLED" in manager("uninstall", NAME)
    left = {name for name in files(comfyui) - files_before if not name.startswith(("user/", "input/", "output/"))}
    assert left == set()
    assert packages() == packages_before
