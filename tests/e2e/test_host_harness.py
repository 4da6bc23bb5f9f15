"""The harness itself: failures have their reasons, and no server outlives the process that started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from comfy_host.client import ComfyClient, PromptFailed
from comfy_host.paths import ROOT
from faster import plain
from waiting import until

pytestmark = pytest.mark.slow


def alive(pid: int) -> bool:
    try:
        # A zombie has ended; only its parent has not asked yet.
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def test_a_failing_node_raises_its_message(client: ComfyClient, sd15_checkpoint: Path):
    prompt = plain(sd15_checkpoint, steps=2)
    prompt["4"]["class_type"] = "EmptySD3LatentImage"
    prompt["6"]["inputs"]["samples"] = ["4", 0]  # 16 channels into a VAE for 4
    with pytest.raises(PromptFailed, match="channels") as caught:
        client.run(prompt)
    assert (caught.value.node_id, caught.value.node_type) == ("6", "VAEDecode")
    assert caught.value.exception_type == "RuntimeError"
    assert "decode" in caught.value.traceback
    client.run(plain(sd15_checkpoint, steps=2))  # the server goes on


def test_a_refused_prompt_raises_the_reason(client: ComfyClient, sd15_checkpoint: Path):
    prompt = plain(sd15_checkpoint, steps=2)
    prompt["5"]["inputs"]["sampler_name"] = "no such sampler"
    with pytest.raises(PromptFailed, match="sampler_name: 'no such sampler' not in") as caught:
        client.run(prompt)
    assert (caught.value.node_id, caught.value.node_type) == ("5", "KSampler")


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform != "linux", reason="relies on Linux's parent death signal")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_the_server_ends_with_the_process_that_started_it(number):
    code = (
        "import signal, sys, time; sys.path.insert(0, sys.argv[1])\n"
        # A shell starts what runs in its background so that it ignores SIGINT, and this process would inherit that.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from comfy_host.server import ComfyServer\n"
        "with ComfyServer(load_pack=False, cpu=True) as server:\n"
        "    print(server.pid, flush=True); time.sleep(600)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code, str(ROOT / "tools")], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    try:
        assert alive(pid)
        parent.send_signal(number)
        parent.wait()
        assert until(lambda: not alive(pid))
    finally:
        parent.kill()
        if alive(pid):
            os.kill(pid, signal.SIGKILL)
