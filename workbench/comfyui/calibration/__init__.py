"""Find a plan for Reuse Steps: a few prompts in full, then every candidate on what the network said in them."""

from .calibrate import Calibration, calibrate, save_plan
from .recording import record
from .search import search

__all__ = ["Calibration", "calibrate", "record", "save_plan", "search"]
