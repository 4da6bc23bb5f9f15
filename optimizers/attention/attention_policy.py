"""Set Attention Processor, whatever the host: which backend, which calls it takes, and what happens when it fails."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..core.activity import Activity, Summary
from ..core.devices import is_compiling, is_out_of_memory
from ..core.errors import BackendUnavailable, error_line
from ..core.phrases import phrase
from ..core.technique import ATTENTION, Policy
from ..guard import GuardedEvaluation, rows_to_compare
from .backend import AttentionCall, AttentionFunction, Inputs
from .registry import NO_MEMORY, OWN, get, probe_backend
from .torch_attention import slice_mask

AUTO = "auto"

TOOLTIP = (
    "auto: torch's own (sdpa), unless you have chosen another attention before. vanilla: plain softmax, slow but "
    "reproducible. kitchen (ComfyUI's own) and sage: approximate (int8), fast for long sequences. If a backend cannot "
    "run here, the report gives the reason and the package to install."
)

FAR = "this layer was far from exact attention"
WRONG = "it gave wrong numbers"

FULL_PRECISION = "the model asks for full precision here"

HOST_DOES_IT = "attention"
"""Place that is skipped because the host computes with this very backend."""


class AttentionPolicy(Policy):
    """Attention with one backend, tried out on one model's device.

    Raises `InvalidSetting` for an unknown backend, `BackendUnavailable` if it cannot run here or takes none of the head
    sizes.

    Args:
        host_sdpa: the host's own way to call torch's SDPA; None for ours.
        always_raised: errors of the host that are no failure of a kernel.

    Attributes:
        failing: head sizes whose test call failed, and why. They are left to the host.
        broken: kinds of calls (see ``call_signature``) in which the backend failed, and why. They are left to the host.
    """

    kind = ATTENTION
    neutral = True
    title = "Set Attention Processor"

    def __init__(
        self,
        name: str,
        device: torch.device,
        dtype: torch.dtype,
        head_sizes: Sequence[int],
        host_sdpa: AttentionFunction | None = None,
        always_raised: tuple[type[BaseException], ...] = (),
        notes: Sequence[str] = (),
    ) -> None:
        self.always_raised, self.notes = always_raised, notes
        self.broken: dict[tuple[object, ...], str] = {}
        name = OWN if name == AUTO else name
        self.backend = get(name)
        calls = [AttentionCall(device.type, dtype, size, query_tokens=64, key_tokens=64) for size in head_sizes]
        fitting = [call.head_dim for call in calls if self.backend.refusal(call) is None]
        # A kernel is made for one head size: each that the limits allow is tried. If there is none, the first says why.
        found = {size: probe_backend(self.backend, device, dtype, size) for size in fitting or head_sizes[:1]}
        works = next((one.function for one in found.values() if one.function is not None), None)
        if works is None:
            first = next(iter(found.values()))
            problem = f"The attention backend '{name}' cannot be used here: {first.reason}."
            raise BackendUnavailable(problem, first.remedy, first.reason)
        self.function = host_sdpa if name == OWN and host_sdpa is not None else works
        failed = ((size, one.reason) for size, one in found.items() if one.function is None)
        self.failing = {size: f"head size {size}: {why}" for size, why in failed if why != NO_MEMORY}

    @property
    def approximation(self) -> str:
        return "" if self.backend.exact else self.backend.name

    def attend(
        self,
        activity: Activity,
        place: str,
        inputs: Inputs,
        refusal: str | None = None,
        full_precision: bool = False,
        evaluation: GuardedEvaluation | None = None,
    ) -> Tensor | None:
        """Compute one call with the backend; None where it must be left to the host, which is counted with the reason.

        ``refusal``: why the backend cannot take this call, where the host knows; ``full_precision``: the model asks for
        a backend that quantises nothing; ``evaluation``: where the guard keeps how far it is from exact attention.
        """
        watched = None if self.backend.exact or is_compiling() else evaluation
        layer = 0 if watched is None else watched.next_layer()
        reason = refusal or self.refusal(inputs, full_precision)
        if watched is not None and (watched.known.exact or layer in watched.left):
            reason = WRONG if watched.known.exact else FAR
        if reason is None:
            try:
                output = self.function(inputs)
            except Exception as error:  # a kernel's compiler raises errors of its own classes
                reason = self.broken[call_signature(inputs)] = limit_of(error, self.always_raised)
            else:
                if watched is not None and watched.compares:
                    self._compare(watched, layer, output, inputs)
                activity.use(place)
                return output
        activity.fall_back(reason)
        return None

    def _compare(self, evaluation: GuardedEvaluation, layer: int, output: Tensor, inputs: Inputs) -> None:
        """Compute some queries of a call exactly, for the guard. It may cost nobody a run: where it fails, it ends."""
        rows = rows_to_compare(inputs.q.shape[2])
        some = inputs._replace(q=inputs.q[:, :, rows], mask=slice_mask(inputs.mask, rows))
        try:
            evaluation.compare(layer, output[:, :, rows], get(OWN).load()(some))
        except Exception as error:
            evaluation.compares = False
            if not is_out_of_memory(error):
                limit_of(error, self.always_raised)

    def refusal(self, inputs: Inputs, full_precision: bool = False) -> str | None:
        """Return why the backend cannot take a call of these shapes, dtypes and device; None if it can."""
        reason = self.backend.refusal(AttentionCall.of(*inputs[:4]))
        if reason is None and full_precision and not self.backend.exact:
            reason = FULL_PRECISION
        return reason or self.failing.get(inputs.q.shape[-1]) or self.broken.get(call_signature(inputs))

    def clauses(self) -> tuple[str, ...]:
        return (self.backend.name, *(f"left to the host: {why}" for why in self.failing.values()), *self.notes)

    def summarize(self, activity: Activity) -> Summary:
        calls, fallbacks, details = activity.use_count, activity.fallback_count, activity.fallback_lines()
        if HOST_DOES_IT in activity.skipped and not calls and not fallbacks:
            return Summary("inactive", activity.skipped[HOST_DOES_IT], {"fallbacks": 0}, details)
        details += activity.skipped_lines()
        counts = {"calls": calls, "fallbacks": fallbacks}
        if not calls:
            why = "every call fell back" if fallbacks else "no attention call of this model was reached"
            if len(activity.fallbacks) == 1:
                why = next(iter(activity.fallbacks)).replace(";", ",")
            why = next(iter(activity.skipped.values()), why)
            headline = phrase("{name} not active: {why}", name=self.backend.name, why=why)
            return Summary("inactive", headline, counts, details)
        state = "partly" if fallbacks else "active"
        headline = phrase("{name} in {calls} attention {calls|call|calls}", name=self.backend.name, calls=calls)
        return Summary(state, headline, counts, details)


def call_signature(inputs: Inputs) -> tuple[object, ...]:
    """Return the properties of a call for which a kernel's failure is remembered."""
    return inputs.q.shape[-1], inputs.q.dtype, inputs.mask is not None


def limit_of(error: Exception, always_raised: tuple[type[BaseException], ...] = ()) -> str:
    """Return the text of a kernel's error: a limit that is not declared, to be remembered so that it is met once.

    Raises ``error`` itself if it is one of ``always_raised`` or if memory ran out: the host then frees some and tries
    again, and it says nothing of what the kernel can do.
    """
    if isinstance(error, always_raised) or is_out_of_memory(error):
        raise error
    return error_line(error, named=True)
