"""ComfyUI without its server, for commands."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from ...core.errors import BackendUnavailable, PacelineError


def find_comfyui(given: str | None, pack: Path) -> Path:
    """Return ComfyUI's folder: the given one, or the one around ``pack``, which may be a link in ``custom_nodes``.

    `BackendUnavailable` if there is none.
    """
    folder = Path(given or os.environ.get("COMFYUI_PATH") or pack.parent.parent)
    if not all((folder / name).exists() for name in ("main.py", "folder_paths.py", "comfy")):
        remedy = "Name its folder (with main.py) with --comfyui, or run the command of the copy in its custom_nodes."
        raise BackendUnavailable(f"There is no ComfyUI in {folder}.", remedy)
    return folder.resolve()


def command_parser(name: str, description: str | None) -> argparse.ArgumentParser:
    """Return what reads the arguments of a command of ours, all of which need a ComfyUI."""
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(name, description=description, formatter_class=layout)
    where = "ComfyUI's folder; default: COMFYUI_PATH, or where this pack is installed"
    parser.add_argument("--comfyui", metavar="FOLDER", help=where)
    return parser


def read_arguments(
    parser: argparse.ArgumentParser, arguments: Sequence[str]
) -> tuple[argparse.Namespace, Sequence[str]]:
    """Return a command's own arguments, and those after ``--``, which go to ComfyUI."""
    at = list(arguments).index("--") if "--" in arguments else len(arguments)
    return parser.parse_args(arguments[:at]), arguments[at + 1 :]


def start_comfyui(folder: Path, arguments: Sequence[str] = ()) -> None:
    """Make ``import comfy`` work in this process, with ``arguments`` as for ComfyUI's ``main.py``."""
    sys.path.insert(0, str(folder))
    sys.argv = [str(folder / "main.py"), *arguments]  # ComfyUI reads its command line while it is imported
    import comfy.options

    comfy.options.enable_args_parsing()
    import folder_paths
    import utils.extra_config
    from comfy.cli_args import args

    lists = [
        str(folder / "extra_model_paths.yaml"),
        *(path for group in args.extra_model_paths_config or () for path in group),
    ]
    for path in lists:
        if Path(path).is_file():
            utils.extra_config.load_extra_path_config(path)
    if args.output_directory:
        folder_paths.set_output_directory(os.path.abspath(args.output_directory))
    if args.user_directory:
        folder_paths.set_user_directory(os.path.abspath(args.user_directory))


def exit_status(run: Callable[[], object], stopped: str) -> int:
    """Run a command; return 0, 2 after an error of ours, or 130 where Ctrl-C stopped it.

    ``stopped`` is said then: what is kept, and how to go on.
    """
    try:
        run()
    except PacelineError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(stopped, file=sys.stderr)
        return 130
    return 0
