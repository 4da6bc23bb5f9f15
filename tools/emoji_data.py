"""The pictures and words of the emoji model: fetched by name from npm, turned into four-channel "latents".

A premultiplied RGBA picture scaled to [-1, 1] has four channels, like a Stable Diffusion latent, so the model
needs no VAE: "decoding" is compositing on white. The pictures are Noto Emoji by Google (Apache-2.0).
"""

from __future__ import annotations

import json
import subprocess
import tarfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image

PACKAGE = "emoji-datasource-google"
VERSION = "16.0.0"
CREDIT = f"Noto Emoji by Google, Apache-2.0 (npm {PACKAGE} {VERSION}, MIT)"
PAD, NULL = "<pad>", "<null>"
TOKENS = 4  # length of every caption after padding

# npm short name -> caption. Single objects with a clear outline, because 32 by 32 pixels hold no more.
CONCEPTS: dict[str, str] = {
    "apple": "red apple",
    "banana": "banana",
    "strawberry": "strawberry",
    "watermelon": "watermelon",
    "lemon": "lemon",
    "grapes": "grapes",
    "cherries": "cherries",
    "peach": "peach",
    "pineapple": "pineapple",
    "tomato": "tomato",
    "carrot": "carrot",
    "pizza": "pizza",
    "hamburger": "hamburger",
    "doughnut": "doughnut",
    "cookie": "cookie",
    "birthday": "birthday cake",
    "dog": "dog",
    "cat": "cat",
    "mouse": "mouse",
    "rabbit": "rabbit",
    "fox_face": "fox",
    "bear": "bear",
    "panda_face": "panda",
    "tiger": "tiger",
    "lion_face": "lion",
    "cow": "cow",
    "pig": "pig",
    "frog": "frog",
    "monkey_face": "monkey",
    "chicken": "chicken",
    "penguin": "penguin",
    "butterfly": "butterfly",
    "bee": "bee",
    "ladybug": "ladybug",
    "turtle": "turtle",
    "octopus": "octopus",
    "fish": "fish",
    "whale": "whale",
    "sunflower": "sunflower",
    "tulip": "tulip",
    "rose": "rose",
    "cactus": "cactus",
    "evergreen_tree": "tree",
    "four_leaf_clover": "clover",
    "mushroom": "mushroom",
    "sunny": "sun",
    "crescent_moon": "moon",
    "fire": "fire",
}


def fetch(cache: Path) -> Path:
    """Return the unpacked npm package below `cache`; downloads the one named package the first time."""
    root = cache / f"{PACKAGE}-{VERSION}"
    if (root / "emoji_pretty.json").is_file():
        return root
    cache.mkdir(parents=True, exist_ok=True)
    archive = cache / f"{PACKAGE}-{VERSION}.tgz"
    if not archive.is_file():
        subprocess.run(["npm", "pack", f"{PACKAGE}@{VERSION}", "--silent"], cwd=cache, check=True)
    with tarfile.open(archive) as tar:
        for member in tar:
            # The archive's bulk is sprite sheets, which nobody here reads.
            inner = member.name.removeprefix("package/")
            if inner.startswith("img/google/64/") or "/" not in inner:
                member.name = inner
                tar.extract(member, root, filter="data")
    return root


def placeholders(cache: Path) -> Path:
    """Write pictures of the right form but no meaning, in place of the package: for rehearsals without a network."""
    root = cache / f"{PACKAGE}-{VERSION}"
    folder = root / "img" / "google" / "64"
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(CONCEPTS):
        Image.new("RGBA", (64, 64), (5 * number, 255 - 5 * number, 128, 255)).save(folder / f"{name}.png")
    table = [{"short_name": name, "image": f"{name}.png"} for name in CONCEPTS]
    (root / "emoji_pretty.json").write_text(json.dumps(table), encoding="utf-8")
    return root


def to_latent(picture: Image.Image, size: int) -> torch.Tensor:
    """RGBA picture -> premultiplied tensor [4, size, size] in [-1, 1].

    Premultiplied, because the colour of a fully transparent pixel is arbitrary, hence not learnable.
    """
    pixels = torch.from_numpy(np.asarray(picture.convert("RGBA"), dtype=np.float32) / 255.0)
    alpha = pixels[..., 3:]
    premultiplied = torch.cat([pixels[..., :3] * alpha, alpha], dim=-1).permute(2, 0, 1)[None]  # HWC -> BCHW
    if premultiplied.shape[-1] != size:
        premultiplied = torch.nn.functional.adaptive_avg_pool2d(premultiplied, size)
    return premultiplied[0] * 2.0 - 1.0


def composite(latent: torch.Tensor) -> torch.Tensor:
    """[batch, 4, height, width] in [-1, 1] -> RGB on white [batch, height, width, 3] in [0, 1]."""
    pixels = (latent.float() + 1.0).mul(0.5).clamp(0.0, 1.0)
    rgb = pixels[:, :3] + (1.0 - pixels[:, 3:])
    return rgb.clamp(0.0, 1.0).permute(0, 2, 3, 1)


def save_grid(latent: torch.Tensor, path: Path, columns: int = 8) -> None:
    """Write [batch, 4, height, width] as one PNG, four times as large by nearest so that faults stay visible."""
    rgb = (composite(latent.cpu()) * 255.0).round().to(torch.uint8)
    rows = [torch.cat(list(rgb[i : i + columns]), dim=1) for i in range(0, len(rgb), columns)]
    width = max(row.shape[1] for row in rows)
    rows = [torch.nn.functional.pad(row, (0, 0, 0, width - row.shape[1]), value=255) for row in rows]
    picture = Image.fromarray(torch.cat(rows).numpy())
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.resize((picture.width * 4, picture.height * 4), Image.Resampling.NEAREST).save(path)


def vocabulary(captions: list[str]) -> dict[str, int]:
    """Word -> row of the embedding table; the two special entries come first."""
    words = [PAD, NULL]
    for caption in captions:
        words += [word for word in caption.split() if word not in words]
    return {word: row for row, word in enumerate(words)}


def tokenize(caption: str, words: dict[str, int]) -> list[int]:
    """Caption -> TOKENS ids; the empty caption is the unconditional one."""
    ids = [words[word] for word in caption.split()] or [words[NULL]]
    if len(ids) > TOKENS:
        raise ValueError(f"the caption {caption!r} has {len(ids)} words, at most {TOKENS} are allowed")
    return ids + [words[PAD]] * (TOKENS - len(ids))


class Emoji:
    """The pictures of CONCEPTS, in batches.

    Args:
        cache: folder for the npm package.
        size: of the pictures, in pixels.
        mirror: whether half of them are mirrored.
    """

    credit = CREDIT

    def __init__(self, cache: Path, size: int, mirror: bool = False) -> None:
        pictures, self.captions = load(cache, size)
        self._pictures = torch.cat([pictures, pictures.flip(-1)]) if mirror else pictures

    def batch(self, count: int) -> tuple[torch.Tensor, list[str]]:
        """Return pictures [count, 4, size, size], drawn by chance, and their captions."""
        picked = torch.randint(len(self._pictures), (count,))
        return self._pictures[picked], [self.captions[number % len(self.captions)] for number in picked.tolist()]

    def shown(self, count: int) -> list[str]:
        """Return captions that are worth a look."""
        return self.captions[:: max(1, len(self.captions) // count)][:count]


def load(cache: Path, size: int) -> tuple[torch.Tensor, list[str]]:
    """Return pictures [concepts, 4, size, size] and their captions, in the order of CONCEPTS."""
    root = fetch(cache)
    entries = json.loads((root / "emoji_pretty.json").read_text("utf-8"))
    table = {entry["short_name"]: entry for entry in entries}
    missing = [name for name in CONCEPTS if name not in table]
    if missing:
        raise SystemExit(f"{PACKAGE} {VERSION} has no emoji called {', '.join(missing)}")
    pictures = []
    for name in CONCEPTS:
        with Image.open(root / "img" / "google" / "64" / table[name]["image"]) as picture:
            pictures.append(to_latent(picture, size))
    return torch.stack(pictures), list(CONCEPTS.values())
