"""Set Attention Processor, whatever the host: which backend, which calls it takes, and what happens when it fails."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ...core.activity import Activity, Summary
from ...core.devices import is_out_of_memory
from ...core.technique import ATTENTION, Technique
from .backend import AttentionCall, AttentionFunction, Backend
from .registry import choose, get, require

AUTO = "auto"

FULL_PRECISION = "the model asks for full precision here"

KERNEL_ERRORS = (RuntimeError, ValueError, NotImplementedError)
"""What kernels raise for a call that they cannot take."""


class AttentionChoice(Technique):
    """Attention with one backend, for one model.

    Attributes:
        backend: what computes it.
        function: the backend's function.
        notes: what else is said about it.
    """

    kind = ATTENTION
    title = "Set Attention Processor"
    backend: Backend
    function: AttentionFunction
    notes: Sequence[str] = ()
    _why = ""
    _broken: dict[tuple[object, ...], str]

    def choose(self, name: str, device: torch.device, dtype: torch.dtype, head_sizes: Sequence[int]) -> None:
        """Take the backend ``name``, or the best one for ``auto``, and try it out on ``device``.

        Raises:
            InvalidSetting: if there is no backend of that name.
            BackendUnavailable: if it cannot run here, or takes none of the head sizes.
        """
        self._broken = {}
        if name == AUTO:
            name, self._why = choose(device, dtype, head_sizes)
        self.backend = get(name)
        # Any head size that the limits allow will do for the probe; if there is none, it says so.
        calls = [AttentionCall(device.type, dtype, size, query_tokens=64, key_tokens=64) for size in head_sizes]
        fitting = [call.head_dim for call in calls if self.backend.refusal(call) is None]
        self.function = require(name, device, dtype, (fitting or head_sizes)[0])

    def attend(
        self,
        activity: Activity,
        place: str,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None,
        scale: float | None,
        enable_gqa: bool,
        refusal: str | None = None,
        full_precision: bool = False,
    ) -> Tensor | None:
        """Compute one call with the backend; None where it must be left to the host, which is counted with the reason.

        Args:
            activity: counts it.
            place: what is counted.
            q: as in ``AttentionFunction``, as are the next five.
            k: keys.
            v: values.
            mask: of the scores, or None.
            scale: of the scores, or None.
            enable_gqa: whether query heads may share key heads.
            refusal: why the backend cannot take this call, where the host knows.
            full_precision: whether the model asks for a backend that quantises nothing.
        """
        call = AttentionCall.of(q, k, v, mask)
        reason = refusal or self.backend.refusal(call)
        if reason is None and full_precision and not self.backend.exact:
            reason = FULL_PRECISION
        kind = (call.head_dim, call.dtype, call.has_mask)
        reason = reason or self._broken.get(kind)
        if reason is None:
            try:
                output = self.function(q, k, v, mask=mask, scale=scale, enable_gqa=enable_gqa)
            except KERNEL_ERRORS as error:
                reason = self._broken[kind] = limit_of(error)
            else:
                activity.use(place)
                return output
        activity.fall_back(reason)
        return None

    def describe(self) -> str:
        """Return the backend, why it was chosen, and what else is to be said."""
        chosen = f"auto: {self.backend.name} ({self._why})" if self._why else self.backend.name
        return "; ".join([chosen, *self.notes])

    def summarize(self, activity: Activity) -> Summary:
        """Return e.g. ``sdpa in 640 attention calls``."""
        calls, fallbacks, details = activity.use_count, activity.fallback_count, activity.fallback_lines()
        counts = {"calls": calls, "fallbacks": fallbacks}
        if not calls:
            why = "every call fell back" if fallbacks else "no attention call of this model was reached"
            return Summary("inactive", f"{self.backend.name} not active: {why}", counts, details)
        state = "partly" if fallbacks else "active"
        return Summary(state, f"{self.backend.name} in {calls} attention calls", counts, details)


def limit_of(error: Exception) -> str:
    """Return what a kernel's error says: a limit that is not declared, to be remembered so that it is met once.

    Raises:
        Exception: ``error`` itself if memory ran out. The host frees some and tries again: that is not for us to hide,
            and says nothing of what the kernel can do.
    """
    if is_out_of_memory(error):
        raise error
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}"
