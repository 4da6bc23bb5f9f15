"""The command of the pack: ``python custom_nodes/ComfyUI-Paceline tune`` makes a workflow faster."""

import importlib
import importlib.util
import sys
from pathlib import Path

_COMMANDS = {"tune": "service.faster.tune"}
"""Modules of the commands. pip does not install them, as they work in ComfyUI only."""


def _package() -> str:
    """Return the name of this package, and load it under one where Python was given the folder."""
    if __package__:
        return __package__
    folder = Path(sys.path[0]).absolute()
    sys.path.pop(0)  # else the folder `nodes` would hide ComfyUI's module of that name
    name = "paceline"
    spec = importlib.util.spec_from_file_location(
        name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None and spec.loader is not None, "the file lies beside this one"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return name


def main() -> int:
    """Run the command that is named first."""
    package, arguments = _package(), sys.argv[1:]
    folder = Path(sys.modules[package].__path__[0])
    name = arguments[0] if arguments else ""
    if name not in _COMMANDS:
        print(
            f"There is no command {name!r}: give {', '.join(_COMMANDS)}; --help after one of them tells its options.",
            file=sys.stderr,
        )
        return 2
    if not (folder / "nodes").is_dir():
        print(f"{name} needs ComfyUI: run it as `python custom_nodes/ComfyUI-Paceline {name}`.", file=sys.stderr)
        return 2
    try:
        importlib.import_module("torch")  # told here, and not when the command comes to need it
        command = importlib.import_module(f"{package}.{_COMMANDS[name]}")
    except ModuleNotFoundError as error:
        if str(error.name).startswith(package):
            raise
        print(
            f"{name} needs the Python that runs ComfyUI: {sys.executable} has no {error.name}. Start it as "
            f"`/path/to/that/python custom_nodes/ComfyUI-Paceline {name}`.",
            file=sys.stderr,
        )
        return 2

    return int(command.main(arguments[1:]))


if __name__ == "__main__":
    sys.exit(main())
