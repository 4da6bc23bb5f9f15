"""Files in ComfyUI's output folder: those of one result share a prefix and a number, as ComfyUI's own do.

Files that are not to be kept go into ComfyUI's folder for temporary files, which it empties when it starts.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import wave
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from PIL import Image
from PIL.PngImagePlugin import PngInfo
from torch import Tensor

from ...optimizers.core.errors import InvalidSetting, UnsupportedModel, require_text
from ...optimizers.core.files import require_space, write_atomically
from ...optimizers.in_comfyui.int8_linear import int8_layers
from ...optimizers.in_comfyui.second_weights.clone import require_plain_weights
from ...optimizers.in_comfyui.structure.model_facts import describe_model, require_model
from ...optimizers.in_comfyui.structure.protocols import ModelPatcher

_REMEDY = "Choose a name, or a sub-folder and a name: paceline/compare."

FRAMES_A_SECOND = 24
"""A latent does not have its video's frame rate. Most models draw 16 to 25 frames a second."""

Entry = dict[str, str]
"""A file as ComfyUI's front end wants it: ``filename``, ``subfolder``, ``type``."""


class OutputFiles:
    """The files of one result, under the number that is free when the first one is asked for.

    The prefix may name a sub-folder, and hold ComfyUI's ``%year%`` and the like; `InvalidSetting` at once if it leads
    out of the folder, which should not be found after all the work. Without ``keep`` the files are temporary.
    """

    def __init__(self, prefix: str, keep: bool = True) -> None:
        if not require_text("filename_prefix", prefix).isprintable():
            raise InvalidSetting("filename_prefix holds characters that cannot be seen, such as a line break.", _REMEDY)
        self._prefix, self._type = prefix, "output" if keep else "temp"
        self._next_free()

    def _next_free(self) -> tuple[Path, str]:
        """Return the beginning of new files' paths, and their sub-folder."""
        import folder_paths

        try:
            root = folder_paths.get_directory_by_type(self._type)
            folder, name, number, subfolder, _ = folder_paths.get_save_image_path(self._prefix, root)
        except Exception:  # ComfyUI raises the base class itself
            problem = f"filename_prefix is {self._prefix!r}, which leads out of ComfyUI's output folder."
            raise InvalidSetting(problem, _REMEDY) from None
        return Path(folder) / f"{name}_{number:05}_", subfolder

    @cached_property
    def _place(self) -> tuple[Path, str]:
        return self._next_free()

    def save_picture(self, ending: str, picture: Image.Image, workflow: dict[str, object] | None = None) -> Entry:
        """Write a PNG file, with a workflow in it that opens when the file is dropped on the canvas."""
        from comfy.cli_args import args

        metadata = PngInfo()
        for key, value in (workflow or {}).items() if not args.disable_metadata else ():
            metadata.add_text(key, json.dumps(value))
        return self._save(ending, lambda path: picture.save(path, format="PNG", pnginfo=metadata, compress_level=4))

    def save_motion(self, ending: str, frames: Sequence[Image.Image]) -> Entry:
        """Write an animated WebP file, ``FRAMES_A_SECOND`` quick."""
        first, *rest = frames
        options = {"save_all": True, "append_images": rest, "duration": round(1000 / FRAMES_A_SECOND), "loop": 0}
        return self._save(ending, lambda path: first.save(path, format="WEBP", quality=80, method=0, **options))

    def save_sound(self, ending: str, sound: Tensor, rate: int) -> Entry:
        """Write a WAV file of 16 bits from ``[channels, samples]`` in [-1, 1]."""
        numbers = sound.clamp(-1, 1).mul(32767).round().short().T.contiguous().numpy()

        def write(path: Path) -> None:
            with wave.open(str(path), "wb") as file:
                file.setnchannels(sound.shape[0])
                file.setsampwidth(2)
                file.setframerate(rate)
                file.writeframes(numbers.astype("<i2").tobytes())

        return self._save(ending, write)

    def save_json(self, ending: str, content: dict[str, object]) -> Entry:
        text = json.dumps(content, indent=1, allow_nan=False) + "\n"
        return self._save(ending, lambda path: path.write_text(text, encoding="utf-8"))

    def _save(self, ending: str, write: Callable[[Path], object]) -> Entry:
        write_atomically(self.path(ending), write)
        return self.entry(ending)

    def path(self, ending: str) -> Path:
        start, _ = self._place
        return start.with_name(start.name + ending)

    def entry(self, ending: str) -> Entry:
        """Return the description of the file with this ending, whether it is written yet or not."""
        return {"filename": self.path(ending).name, "subfolder": self._place[1], "type": self._type}


def save_int8_model(patcher: ModelPatcher, path: Path, prompt: Any = None, workflow: Any = None) -> None:
    """Write the network of a MODEL, with its LoRAs in it, as ComfyUI's node ModelSave does; whole, or not at all.

    ``prompt``, ``workflow``: the graph and what the page adds to it, which go into the file's header. Raises
    `UnsupportedModel` if no layer of the MODEL is in int8, or its weights are foreign, `NotEnoughSpace` if it would not
    fit.
    """
    import comfy.model_management
    import folder_paths
    from comfy_extras.nodes_model_merging import save_checkpoint

    require_model(patcher)
    require_plain_weights("Save int8 Model", patcher.model, describe_model(patcher))
    if not int8_layers(patcher.model.diffusion_model):
        raise UnsupportedModel(
            f"This {describe_model(patcher)} has no layers in int8, so there is nothing to save.",
            "Put Quantize int8 before this node, or save the model with ComfyUI's ModelSave.",
        )
    require_space(path.parent, comfy.model_management.module_size(patcher.model.diffusion_model))

    def write(temporary: Path) -> None:
        Path(folder_paths.get_temp_directory()).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder_paths.get_temp_directory()) as folder:
            save_checkpoint(
                patcher, filename_prefix=path.stem, output_dir=folder, prompt=prompt, extra_pnginfo=workflow
            )
            shutil.move(next(Path(folder).iterdir()), temporary)

    write_atomically(path, write)
