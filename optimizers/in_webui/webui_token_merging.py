"""Token merging in a UNet: around the forward of single layers, whatever attention the host computes inside."""

from __future__ import annotations

from torch import Tensor
from torch.nn import Module

from ..core.not_copied import Function
from ..core.shadow import Shadows
from ..models.families import transformer_blocks
from ..token_merging.call import OTHER_TOKENS, ModuleBlock, TokenCall, merged_layer
from ..token_merging.kept import UNTOLD, WINDOWS, SamplingStep
from ..token_merging.tome_policy import TokenMergingPolicy, no_unet
from ..token_merging.tome_settings import TokenMergingSettings
from .webui_models import computed_by_others, is_unet
from .webui_samplers import CHOOSES, OWN_LOOPS
from .webui_technique import WebUISampling, WebUITechnique


def image_attention(network: Module) -> tuple[ModuleBlock, ...]:
    """Return every block whose first attention is over the image; a name is e.g. ``input 4.0``."""
    found = (found for found in transformer_blocks(network) if not getattr(found[-1], "disable_self_attn", False))
    return tuple(
        ModuleBlock(f"{part} {row}.{number}", index, scale, block)
        for index, (part, row, number, scale, _, block) in enumerate(found)
    )


class WebUITokenMerging(WebUITechnique):
    """Apply ToMe on one UNet; `UnsupportedModel` for another network, or if the settings would reach no block."""

    policy: TokenMergingPolicy[ModuleBlock]

    def __init__(self, settings: TokenMergingSettings, sampling: WebUISampling) -> None:
        network, name = sampling.model.network, type(sampling.model.network).__name__
        if not is_unet(network):
            raise no_unet(name, "Reuse Steps and Set Attention Processor")
        super().__init__(TokenMergingPolicy(name, image_attention(network), settings))
        self._sampling, self._position = sampling, sampling.position
        self._values, self._units = sampling.solver.values(), sampling.units
        self._number, self._calls = 0, 0
        self._call = TokenCall(settings, (1, 1))  # before the first
        self._latent = (0, 0)
        self._left: list[tuple[str, str]] = []

    def attach(self, shadows: Shadows) -> None:
        settings = self.policy.settings
        for block in self.policy.blocks if settings.does_something else ():
            for name, layer in block.layers(settings):
                if reason := computed_by_others(layer):
                    self._left.append((block.name, reason))
                elif name == "attn1":
                    shadows.put(layer, "forward", self._self_attention(block, layer.forward))
                else:
                    shadows.put(layer, "forward", merged_layer(block, layer.forward, lambda: self._call))

    def before(self, x: Tensor) -> None:
        super().before(x)
        self._call.settle()
        policy, position, function = self.policy, self._position, self._sampling.solver.function
        for name, reason in self._left:
            self.activity.skip(name, reason)
        evaluation, refusal = None, ""
        if not self._values:
            refusal = CHOOSES.format(name=OWN_LOOPS[function]) if function in OWN_LOOPS else UNTOLD
        elif x.shape[-2:] != position.size[-2:]:
            refusal = WINDOWS
        # Calls for the passes of one evaluation, and for several prompts, come in the same order in each.
        self._calls = self._calls + 1 if position.number == self._number else 0
        self._number, self._latent = position.number, (x.shape[-2], x.shape[-1])
        if policy.settings.keeps and not refusal:
            taking_part = (position.prompts(), self._sampling.model.taking_part(self._units.sigma(position.now())))
            evaluation = SamplingStep(self._values, position.number, position.now(), taking_part)
        passes = (self._calls, x.shape)
        self._call = policy.call(TokenCall, self.activity, position.step, evaluation, passes, refusal)

    def ended(self) -> None:
        self._call.settle()
        super().ended()

    def _self_attention(self, block: ModuleBlock, forward: Function) -> Function:
        """Return ``forward`` of a self-attention with fewer keys, or fewer tokens altogether."""

        def reduced(x: Tensor, context: Tensor | None = None, *args: object, **options: object) -> object:
            keys_given = context is not None and context is not x
            values_given = options.get("value") is not None and options["value"] is not context
            if args or keys_given or values_given:
                self.activity.fall_back(OTHER_TOKENS)
                return forward(x, context, *args, **options)
            rest = {name: value for name, value in options.items() if name != "value"}

            def attend(tokens: Tensor, keys: Tensor | None) -> object:
                return forward(tokens, keys, **rest)

            size, masked = block.size(self._latent), options.get("mask") is not None
            return self._call.around_attention(block, x, size, masked, attend)

        return reduced
