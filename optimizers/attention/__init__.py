"""Attention backends behind one signature: what each takes, whether it runs here, and why not.

Start with ``names()`` (cheap), ``choose`` (what ``auto`` means), ``require`` (a tested function or a reasoned
error) and ``get(name).refusal(AttentionCall.of(q, k, v, mask))`` before each call.
"""

from .backend import AttentionCall, AttentionFunction, Backend, Limits
from .probing import Probe, forget_probes, probe
from .registry import AUTO_ORDER, BACKENDS, choose, get, names, require

__all__ = [
    "AUTO_ORDER",
    "BACKENDS",
    "AttentionCall",
    "AttentionFunction",
    "Backend",
    "Limits",
    "Probe",
    "choose",
    "forget_probes",
    "get",
    "names",
    "probe",
    "require",
]
