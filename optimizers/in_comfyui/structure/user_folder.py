"""Where this pack keeps its files."""

from __future__ import annotations

from pathlib import Path


def user_folder(*parts: str) -> Path:
    """Return our folder below ComfyUI's user folder, or one inside of it; it need not exist.

    ComfyUI lets a browser write into the folders of its users. Ours is one of those that start with two underscores,
    which can only be reached on the machine: what is kept there (compiled code) is run as a program.
    """
    import folder_paths

    return Path(folder_paths.get_system_user_directory("paceline"), *parts)
