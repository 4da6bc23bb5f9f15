"""How a command ends: its exit status, and what it says where it could not do its work."""

from __future__ import annotations

import sys
from collections.abc import Callable

from ..core.errors import PacelineError


def exit_status(run: Callable[[], object], stopped: str, prefix: str = "") -> int:
    """Run a command; return 0, 2 after an error of ours, or 130 where it was stopped with Ctrl-C.

    Args:
        run: the command.
        stopped: what is said where it was stopped: what is kept, and how to go on.
        prefix: what errors begin with.
    """
    try:
        run()
    except PacelineError as error:
        print(f"{prefix}{error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(stopped, file=sys.stderr)
        return 130
    return 0
