"""What a user can choose, by name, in the order of the node's list."""

from __future__ import annotations

from .automatic import Automatic
from .kv_downsample import KVDownsampling
from .local_merge import LocalMerging
from .merging import Merging
from .method import Method

METHODS: dict[str, type[Method]] = {
    "auto": Automatic,
    "merge": Merging,
    "local_merge": LocalMerging,
    "kv_downsample": KVDownsampling,
}
