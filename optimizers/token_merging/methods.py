"""What a user can choose, by name, in the order of the node's list."""

from __future__ import annotations

from collections.abc import Mapping

from .automatic import Automatic
from .kv_downsample import KVDownsampling
from .merging import Merging
from .method import Method

METHODS: Mapping[str, type[Method]] = {
    "auto": Automatic,
    "merge": Merging,
    "kv_downsample": KVDownsampling,
}
