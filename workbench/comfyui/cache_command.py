"""``cache``: look at the compiled code that is kept, and carry it to an identical machine of the same owner.

    python custom_nodes/ComfyUI-Paceline cache list
    python custom_nodes/ComfyUI-Paceline cache export compiled.zip
    python custom_nodes/ComfyUI-Paceline cache import compiled.zip --fingerprint <as printed>

What comes after -- goes to ComfyUI: name --base-directory or --user-directory there as you do when you start it.
Compiled code is a program that runs with your rights. So an import needs the fingerprint that the export has printed:
carry it over yourself, and never import a file that somebody else has made.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ...core.errors import PacelineError
from ...optimizers.compilation.cache_folder import CacheFolder
from ...optimizers.hosts.comfyui.paths import user_folder
from .cache_transfer import Refused, export_cache, import_cache
from .standalone import command_parser, find_comfyui, read_arguments, start_comfyui


def main(arguments: Sequence[str], pack: Path) -> int:
    """Run the command line and return the exit status; ``pack`` is the folder of this pack, as it was named."""
    options, comfyuis = read_arguments(_parser(), arguments)
    try:
        if options.store is None:
            start_comfyui(find_comfyui(options.comfyui, pack), comfyuis)
        folder = CacheFolder(options.store or user_folder("compiled"))
        if options.command == "list":
            print(f"{folder.size() / 1e6:.1f} MB in {folder.path}")
        elif options.command == "export":
            print(f"fingerprint {export_cache(folder, options.file)}")
        else:
            imported = import_cache(folder, options.file, options.fingerprint)
            print(f"{imported} files imported. They are programs: ComfyUI will run them with your rights.")
    except (PacelineError, Refused, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("cache", __doc__)
    parser.add_argument("--store", type=Path, help="folder with compiled code, in the place of ComfyUI's")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="show how much is kept, and where")
    commands.add_parser("export", help="write all of it into a file").add_argument("file", type=Path)
    importing = commands.add_parser(
        "import", help="read such a file. It holds programs that will run with your rights: it must be your own"
    )
    importing.add_argument("file", type=Path)
    importing.add_argument("--fingerprint", required=True, help="as the export has printed it")
    return parser
