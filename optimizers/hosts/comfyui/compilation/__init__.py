"""Compile UNet: run a MODEL's network through torch.compile, for the length of each model call."""

from .network import SCOPES, NetworkSettings
from .prepare import compilable
from .technique import CompileUNet

__all__ = ["SCOPES", "CompileUNet", "NetworkSettings", "compilable"]
