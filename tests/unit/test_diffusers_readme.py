"""The quick start of the README, run as it stands there, on a small pipeline where the text expects the large one."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from comfy_host.paths import ROOT
from random_pipelines import small

_SPECIAL = ("<|startoftext|>", "<|endoftext|>")


def section(title: str) -> str:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(rf"^## {title}$(.*?)^## ", text, flags=re.MULTILINE | re.DOTALL)
    assert found, f"README.md has no section {title}"
    return found.group(1)


def save_pipeline(folder: Path) -> None:
    """A pipeline with text encoder and tokenizer, all of them tiny and random."""
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

    letters = [chr(code) for code in range(33, 127)]
    words = [*_SPECIAL, *letters, *(letter + "</w>" for letter in letters)]
    (folder / "words").mkdir(parents=True)
    (folder / "words" / "vocab.json").write_text(json.dumps({word: number for number, word in enumerate(words)}))
    (folder / "words" / "merges.txt").write_text("#version: 0.2\n")
    tokenizer = CLIPTokenizer(
        str(folder / "words" / "vocab.json"), str(folder / "words" / "merges.txt"), model_max_length=77
    )
    pipe: Any = small("sd15").pipe
    config = CLIPTextConfig(
        vocab_size=len(words), hidden_size=pipe.unet.config.cross_attention_dim, intermediate_size=64,
        num_hidden_layers=1, num_attention_heads=2, bos_token_id=0, eos_token_id=1, pad_token_id=1,
    )  # fmt: skip
    pipe.register_modules(text_encoder=CLIPTextModel(config), tokenizer=tokenizer)
    pipe.unet.register_to_config(sample_size=16)  # 128 pixels instead of 512
    pipe.save_pretrained(folder)


def test_the_quick_start_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```", section("From Python"), flags=re.MULTILINE | re.DOTALL)
    (name,) = re.findall(r'from_pretrained\("([^"]+)"', code)
    save_pipeline(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(compile(code, "README.md", "exec"), names)
    printed = capsys.readouterr().out
    for title in ("Apply ToMe", "Set Attention Processor", "Fuse QKV"):
        assert re.search(rf"unet: {title}: .*\n    active: ", printed), printed
    assert (tmp_path / "astronaut.png").stat().st_size > 1000
    assert not names["report"].lines


def test_the_commands_of_the_documentation_exist() -> None:
    from paceline.optimizers.hosts.diffusers.bench.command import _parser

    text = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    commands = re.findall(r"^    python -m paceline (.*?)(?: +#.*)?$", text, flags=re.MULTILINE)
    assert len(commands) == 4
    for command in commands:
        _parser().parse_args(command.split())


def test_what_the_documentation_says_is_there_is_there() -> None:
    import paceline

    text = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)` \|", text, flags=re.MULTILINE)) == {
        "Attention", "Compile", "FuseQKV", "Precision", "QuantizeInt8", "ScheduleOnCPU", "TokenMerging",
    }  # fmt: skip
    for name in paceline.__all__:
        assert getattr(paceline, name) is not None
    with pytest.raises(AttributeError, match="optimise"):
        paceline.optimise  # noqa: B018


def test_importing_the_pack_imports_no_diffusers() -> None:
    code = (
        "import sys; sys.path.insert(0, 'tools')\n"
        "from comfy_host import pack; pack.load_pack()\n"
        "assert not {'torch', 'diffusers'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
