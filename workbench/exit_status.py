"""How a command ends: its exit status, and what it says where it could not do its work."""

from __future__ import annotations

import sys
from collections.abc import Callable

from ..core.errors import PacelineError


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
