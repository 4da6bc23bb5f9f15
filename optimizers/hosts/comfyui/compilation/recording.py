"""Mode ``cuda-graph``: record a network's step and replay it, where that gives the same image."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from ....compilation.cuda_graphs import CudaRecording, Record, RecordedFunction
from ..stack import KEY
from .network_options import reads_places

NO_DEVICE = "CUDA graphs need a CUDA device"
PATCHED = "patches run Python in every step, which a recording cannot repeat"

# Parts of transformer_options that wrappers around the network read, and a network without patches does not.
_NOT_READ = (KEY, "wrappers", "callbacks", "uuids", "sample_sigmas", "patches", "patches_replace")


class RecordedNetwork:
    """The calls of one network, recorded where possible.

    Args:
        network: the live ``diffusion_model``, asked for the addresses of its weights.
        function: its compiled forward pass.
        record: makes a recording; for tests.

    Attributes:
        recorded: counts and failure of the recording.
        not_recorded: how many calls ran as they are, by reason.
    """

    def __init__(self, network: Any, function: Callable[..., Any], record: Record = CudaRecording) -> None:
        self._network = network
        self._options: dict[str, Any] = {}
        self.function = function
        self.recorded = RecordedFunction(function, record)
        self.not_recorded: dict[str, int] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run or replay the network."""
        options = _options(args, kwargs)
        reason = self.recorded.failure or (PATCHED if reads_places(options) else "")
        if reason:
            self.not_recorded[reason] = self.not_recorded.get(reason, 0) + 1
            return self.function(*args, **kwargs)
        kept = {name: value for name, value in options.items() if name not in _NOT_READ}
        args = tuple(kept if value is options else value for value in args)
        kwargs = {name: kept if value is options else value for name, value in kwargs.items()}
        return self.recorded(self._addresses(), *args, **kwargs)

    def _addresses(self) -> Hashable:
        """Stand for the weights: a recording reads them where they were. Another LoRA or an offload moves them."""
        return hash(tuple(weight.data_ptr() for weight in self._network.parameters()))


def _options(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    for value in (*args, *kwargs.values()):
        if isinstance(value, dict) and KEY in value:
            return value
    return {}
