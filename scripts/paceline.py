"""The accordion *Paceline*, as Stable Diffusion WebUI and Forge look for it: a class in a file of ``scripts/``.

They load the file by its path. The checkout becomes a package whose name is its folder's path, as in ComfyUI, so an
installed package ``paceline`` is neither hidden nor used.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from modules import script_callbacks

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = str(ROOT).replace(".", "_")

if PACKAGE not in sys.modules:
    spec = spec_from_file_location(PACKAGE, ROOT / "__init__.py", submodule_search_locations=[str(ROOT)])
    assert spec is not None and spec.loader is not None
    sys.modules[PACKAGE] = module_from_spec(spec)
    spec.loader.exec_module(sys.modules[PACKAGE])

ACCORDION = import_module(f"{PACKAGE}.scripts.page.accordion")
PacelineScript = ACCORDION.PacelineScript

script_callbacks.on_app_started(ACCORDION.add_route)
