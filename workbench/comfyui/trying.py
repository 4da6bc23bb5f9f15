"""What trying a candidate has in common, whatever it changes: why it is refused, and how its times are told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ...core.errors import CannotHelp, PacelineError
from ...core.phrases import phrase
from ...optimizers.hosts.comfyui.compilation.comfy_env import TooLong, compiled_until
from ..expectation.expect import Probed
from ..measurement.speedup import Speedup

_MOST = 1000.0
"""Times as fast that are told at most."""


@contextmanager
def trying(name: str, refused: dict[str, Probed], deadline: float, seconds: float) -> Iterator[None]:
    """Note in ``refused`` why a candidate cannot be computed; what the plain one (``""``) raises is raised.

    What still compiles at ``deadline``, of ``time.monotonic``, is given up; ``seconds`` is how long that was.
    """
    try:
        with compiled_until(deadline):
            yield
    except TooLong:
        why = phrase(
            "compiling takes longer than the {seconds:.0f} s of this test, and how long is not known here",
            seconds=seconds,
        )
        refused[name] = Probed(name, why_not=why, once=seconds)
    except RuntimeError as error:  # a kernel's refusal, or memory; ComfyUI's cancel is none
        if not name:
            raise
        refused[name] = Probed(name, why_not=str(error))


def brief_of(error: PacelineError) -> str:
    """Return why a candidate cannot be made, in a few words where there are such."""
    return error.brief if isinstance(error, CannotHelp) else str(error)


def ends_of(speedup: Speedup) -> tuple[float, float, float]:
    """Return how many times as fast: from, likely, to."""
    return speedup.low, speedup.ratio, min(speedup.high, _MOST)
