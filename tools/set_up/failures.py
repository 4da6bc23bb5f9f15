"""Turn what went wrong in the set-up into a sentence and what to do about it."""

from __future__ import annotations

_TAIL_LINES = 12

# Parts of messages of pip and the operating system, and what to do about them.
_KNOWN = (
    (
        ("No space left on device", "Errno 28", "not enough space"),
        "The disk is full. Free some space, or set PACELINE_VENV and PACELINE_CACHE to folders on another disk.",
    ),
    (
        ("Name or service not known", "Temporary failure in name resolution", "NewConnectionError",
         "Network is unreachable", "Connection refused", "ConnectTimeout", "Read timed out", "ProxyError",
         "getaddrinfo failed", "Max retries exceeded", "(from versions: none)"),
        "The package index could not be reached. Check the network and pip's settings (pip config list), "
        "then run the same command again: it continues where it stopped.",
    ),
    (
        ("Permission denied", "Errno 13"),
        "A folder is not writable. Set PACELINE_VENV and PACELINE_CACHE to folders that are.",
    ),
    (
        ("ensurepip is not", "No module named ensurepip", "No module named venv"),
        "This Python lacks the venv module. On Debian and Ubuntu: apt install python3-venv.",
    ),
    (
        ("No matching distribution found", "Could not find a version that satisfies"),
        "A package is not offered for this Python version or platform. Python 3.10 to 3.13 are known to work: "
        "make setup PYTHON=python3.12",
    ),
)  # fmt: skip


class SetupFailed(Exception):
    """The set-up cannot go on.

    Args:
        problem: what failed.
        remedy: what to do about it.
    """

    def __init__(self, problem: str, remedy: str = "") -> None:
        super().__init__(f"{problem}\n{remedy}".strip())


def remedy_for(text: str) -> str:
    """Return what to do about a known problem that ``text`` mentions, or ""."""
    return next((remedy for signs, remedy in _KNOWN if any(sign in text for sign in signs)), "")


def explain(log: str) -> str:
    """Return the end of ``log`` and, if a known problem is in it, what to do."""
    lines = [line for line in log.splitlines() if line.strip()]
    tail = "\n".join(f"    {line}" for line in lines[-_TAIL_LINES:])
    return "\n".join(part for part in (tail, remedy_for(log)) if part)
