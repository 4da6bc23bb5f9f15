"""Find a plan for Reuse Steps: a few prompts in full, then every candidate on what the network said in them."""

from .calibrate import Calibration, calibrate
from .recording import record
from .saved import is_saved, plan_text, save_plan
from .search import search

__all__ = ["Calibration", "calibrate", "is_saved", "plan_text", "record", "save_plan", "search"]
