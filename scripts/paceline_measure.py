"""The script *Paceline: measure*; ``paceline.py``, which is loaded before, has made the package.

It has a file of its own because WebUI reloads a script as the last class of its file.
"""

from importlib import import_module
from pathlib import Path

PACKAGE = str(Path(__file__).resolve().parents[1]).replace(".", "_")

MeasureScript = import_module(f"{PACKAGE}.scripts.page.measure_script").MeasureScript
