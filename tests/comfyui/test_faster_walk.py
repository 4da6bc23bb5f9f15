"""How many files a reader opens who follows a request call by call, and whether a call ever goes up."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import check_layers
from comfy_host.paths import ROOT
from faster_prompts import ask, plain

REQUEST = ("service/faster/", *(f"service/{name}.py" for name in ("routes", "before_run", "outcomes")))
"""The files of the request itself; those below answer what its functions ask by name."""
SERVICE = ("service/comfyui", "service/recipe", "service/apply_recipe", "service/faster", "service")
LAYERS = ("optimizers", "measure", *SERVICE, "nodes", "scripts")


class Walk:
    """The functions of the product that a call enters, in the order in which a reader meets each for the first time.

    A comprehension or a lambda belongs to the function that it stands in. Nodes' classes are handed in from above, and
    asked what they say of themselves: no climb.
    """

    def __init__(self, until: str) -> None:
        self.stays: list[tuple[str, list[str]]] = []
        self.climbs: set[str] = set()
        self._until, self._met = until, set[Any]()

    def __enter__(self) -> Walk:
        sys.setprofile(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    @property
    def returns(self) -> int:
        return len(self.stays) - len({file for file, _ in self.stays})

    def _called(self, frame: FrameType, event: str, _: object) -> None:
        file, code = _file_of(frame), frame.f_code
        if event != "call" or not file:
            return
        if code.co_name == self._until:
            sys.setprofile(None)
            return
        caller = frame.f_back
        while caller is not None and not _file_of(caller):
            caller = caller.f_back
        above = caller is not None and _layer(file) > _layer(_file_of(caller))
        if caller is not None and above and not file.startswith("nodes/"):
            self.climbs.add(f"{_file_of(caller)} calls {code.co_name} of {file}")
        if code in self._met or code.co_name.startswith("<") or not file.startswith(REQUEST):
            return
        self._met.add(code)
        if not self.stays or self.stays[-1][0] != file:
            self.stays.append((file, []))
        self.stays[-1][1].append(code.co_name)


def _file_of(frame: FrameType) -> str:
    """Return the file of the product that a frame is in, below the checkout; empty for any other."""
    path = Path(frame.f_code.co_filename)
    parts = path.relative_to(ROOT).parts if path.is_relative_to(ROOT) else ()
    return "/".join(parts) if parts and parts[0] in check_layers.LAYERS else ""


def _layer(file: str) -> int:
    return next(index for index, layer in enumerate(LAYERS) if file.startswith((f"{layer}/", f"{layer}.")))


def test_a_request_is_followed_downwards_in_few_files(comfyui):
    prompt = plain(Path("x"))
    asked = {"do": "look", "prompt": prompt, "choice": "fast"}
    ask(**asked)  # imports what is imported when it is needed
    with Walk(until="_look") as walk:
        ask(**asked)
    met = [function for _, functions in walk.stays for function in functions]
    assert met[0] == "faster_payload" and "_plan" in met
    followed = "\n".join(f"{file}: {', '.join(functions)}" for file, functions in walk.stays)
    assert len(walk.stays) <= 8 and walk.returns <= 4, followed
    assert not walk.climbs
