"""Token reduction in diffusers' transformers: fewer image keys and values, text and queries whole.

Inside of attention, keys carry their place in the picture already (RoPE, or embeddings added before), so image tokens
are left out on a regular grid and never averaged. See the same technique for ComfyUI in ``hosts/comfyui``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from ....core.errors import UnsupportedModel
from ...families import families, find_family
from ...families.family import TEXT_FIRST, TokenLayout
from ...token_merging import TokenMergingSettings, choose_method, kept_tokens
from .host import Host
from .intercept import AttentionIntercept
from .patches import Patches, current
from .token_reduction import TokenReduction

_OTHER_TOKENS = "the number of tokens is not that of text and image (reference images, or tokens added by others)"
_NO_SDPA = "the attention processor does not use scaled_dot_product_attention, so its keys cannot be reached"
_SAME_SIZE = "text and image have the same number of tokens, so their attention calls cannot be told apart"


class JointTokenReduction(TokenReduction):
    """Apply ToMe on one transformer. ``max_downsample`` and what concerns matching have no meaning here.

    Raises:
        UnsupportedModel: on attaching, for other classes, and for settings that would have to merge tokens.
    """

    places = "attention layers"

    def __init__(self, settings: TokenMergingSettings) -> None:
        super().__init__(settings)
        self._kept: dict[int, torch.Tensor | None] = {}
        self._tokens = 0
        self._text = 0
        self._seen = 0
        self._family = TokenLayout(TEXT_FIRST, (), "")
        self._layout: tuple[Any, tuple[int, int]] | None = None

    def describe(self) -> str:
        """Return what is left out, and where."""
        settings = self.settings
        return (
            f"{settings.method}: leave out {settings.ratio:.0%} of the image keys and values in {self.total_places} "
            f"{self.places}; text and queries stay whole, max_downsample does not apply"
        )

    def attach(self, host: Host, patches: Patches) -> None:
        """Shadow the forward of every attention layer."""
        model = host.component.part
        self._family = _tokens_of(model)
        _require_possible(host.component.class_name, self.settings)
        layers = [(name, part) for name, part in model.named_modules() if hasattr(part, "get_processor")]
        self.total_places = len(layers)
        for name, layer in layers:
            patches.shadow(layer, "forward", self._thinned(name, current(layer, "forward")))

    def before(self, host: Host, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Work out which keys stay in this call."""
        super().before(host, args, kwargs)
        self._seen = 0
        self._kept = {}
        if not self.active:
            return
        hidden = kwargs["hidden_states"] if "hidden_states" in kwargs else args[0]
        text = kwargs["encoder_hidden_states"] if "encoder_hidden_states" in kwargs else args[1]
        rows, columns = self._grid(host.component.part, hidden, kwargs)
        self._tokens, self._text = rows * columns, text.shape[1]
        tokens = self._tokens + self._text
        found = hidden.shape[1] if hidden.dim() == 3 else self._tokens
        if found != self._tokens or self._tokens == self._text:
            self.activity.fall_back(_SAME_SIZE if found == self._tokens else _OTHER_TOKENS)
            self.active = False
            return
        if self.settings.method == "auto" and choose_method(tokens, hidden.device.type) is None:
            self.activity.skip("all", f"{tokens} tokens are too few to gain from fewer")
            self.active = False
            return
        image = kept_tokens(rows, columns, self.settings.ratio * self.ratio_factor, hidden.device)
        text_places = torch.arange(self._text, device=hidden.device)
        text_first = self._family.in_diffusers == TEXT_FIRST
        joint = [text_places, image + self._text] if text_first else [image, text_places + self._tokens]
        self._kept = {tokens: torch.cat(joint), self._tokens: image}

    def run_changed(self) -> None:
        """Forget the size of another run's image."""
        self._layout = None

    def _grid(self, model: Any, hidden: torch.Tensor, kwargs: dict[str, Any]) -> tuple[int, int]:
        """Return rows and columns of image tokens."""
        if not self._family.places:  # a latent: [batch, channels, height, width]
            patch = model.config.patch_size
            return hidden.shape[-2] // patch, hidden.shape[-1] // patch
        places = kwargs.get(self._family.places)  # [tokens, 3], row and column of each token
        if places is None:
            return 0, 0
        if self._layout is None or self._layout[0] is not places:
            ids = places if places.dim() == 2 else places[0]
            # Read once for each run: this waits for the device.
            sides = (ids[:, 1:].amax(0) + 1).tolist()
            self._layout = (places, (int(sides[0]), int(sides[1])))
        return self._layout[1]

    def _thinned(self, name: str, forward: Callable[..., Any]) -> Callable[..., Any]:
        def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **options: Any) -> torch.Tensor:
            self._seen += 1
            kept = self._kept.get(k.shape[2])
            if kept is None or q.shape[2] != k.shape[2]:
                if k.shape[2] != self._text:
                    self.activity.fall_back(_OTHER_TOKENS)
            else:
                self.activity.use(name, k.shape[2], kept.shape[0])
                k, v = k.index_select(2, kept), v.index_select(2, kept)
                mask = options.get("attn_mask")
                if mask is not None and mask.shape[-1] != 1:
                    options["attn_mask"] = mask.index_select(-1, kept)
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, **options)

        mode = AttentionIntercept(attend)

        @functools.wraps(forward)
        def thinned(*args: Any, **options: Any) -> Any:
            if not self.active:
                return forward(*args, **options)
            seen = self._seen
            with mode:
                result = forward(*args, **options)
            if self._seen == seen:
                self.activity.fall_back(_NO_SDPA)
            return result

        return thinned


def _tokens_of(model: Any) -> TokenLayout:
    family = find_family(model)
    if family is not None and family.tokens is not None:
        return family.tokens
    paths = (path for one in families() if one.tokens is not None for path in one.networks)
    served = ", ".join(path.removeprefix("diffusers.") for path in paths if path.startswith("diffusers."))
    raise UnsupportedModel(
        f"Apply ToMe cannot reduce tokens in a {type(model).__name__}.",
        f"Leave TokenMerging out. It works with UNet2DConditionModel and with {served}.",
    )


def _require_possible(model: str, settings: TokenMergingSettings) -> None:
    if settings.method not in ("auto", "kv_downsample"):
        raise UnsupportedModel(
            f"Apply ToMe: method is {settings.method}, but a {model} is a diffusion transformer, whose keys carry "
            "their place in the picture and cannot be averaged.",
            "Set method to auto or kv_downsample, which leave out keys and values instead.",
        )
    if settings.merge_crossattn or settings.merge_mlp:
        raise UnsupportedModel(
            f"Apply ToMe: of a {model}, only keys and values of the attention over the image can be reduced.",
            "Switch merge_crossattn and merge_mlp off.",
        )
