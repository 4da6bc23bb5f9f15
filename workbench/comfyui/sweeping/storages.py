"""Which databases a sweep may use: those that the owner of the server has written down.

A workflow can come from a stranger. So it names a storage and cannot say where one is: that would let it connect the
server to any machine, or write files anywhere.
"""

from __future__ import annotations

import json
import re

from ....core.errors import InvalidSetting
from ....optimizers.hosts.comfyui.paths import user_folder
from ...sweep.storage import Storage, sqlite_storage

_NAME = re.compile(r"\w[\w -]{0,79}")
_HOW = (
    "Leave it empty for a file on this server, or let the server's owner write name and URL of the database into "
    "user/__paceline/storages.json, and give the name."
)


def storage_named(name: str) -> Storage:
    """Return a storage by the name that a workflow gives it; an empty one is a file in ComfyUI's user folder.

    `InvalidSetting` if there is none. It does not repeat what was given, which may hold a password.
    """
    if isinstance(name, str) and not name.strip():
        return sqlite_storage("SQLite in the user's folder", user_folder("sweeps", "sweeps.db"))
    if not isinstance(name, str) or not _NAME.fullmatch(name.strip()):
        raise InvalidSetting("storage is not the name of a storage: a workflow cannot give an address.", _HOW)
    found = _configured()
    if name.strip() not in found:
        there = f"There are: {', '.join(found)}." if found else "There are none."
        raise InvalidSetting(f"storage names no storage of this server. {there}", _HOW)
    return Storage(name.strip(), found[name.strip()])


def _configured() -> dict[str, str]:
    path = user_folder("storages.json")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError):
        content = None
    if not isinstance(content, dict) or not all(
        _NAME.fullmatch(name) and isinstance(url, str) for name, url in content.items()
    ):
        raise InvalidSetting(
            "The server's file storages.json cannot be read.",
            'It must be JSON that maps names (letters, digits, spaces, _ and -) to URLs: {"lab": "postgresql..."}.',
        )
    return content
