"""Compile inductor's code for each technique to a GPU's machine code, on a machine without a GPU.

Run by ``make gpu-check``. ComfyUI's own networks on fake CUDA tensors are compiled through Compile UNet; the kernels
that inductor generates are counted, and compiled to cubins for four architectures. Triton, which torch's builds for a
CPU come without, is put into a folder of its own; ptxas comes with it. It fails if a graph breaks, or if a kernel does
not compile. How quick a kernel is it cannot say.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

BENCHMARKS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(BENCHMARKS), str(BENCHMARKS.parent / "testing")]
from comfy_host import checkpoints, fake_cuda, in_process, transformers  # noqa: E402
from comfy_host.paths import cache_dir  # noqa: E402
from shared import gpu_code  # noqa: E402
from shared.nodes import Apply, node, tome  # noqa: E402
from shared.record import Row, collected, report  # noqa: E402

TRITON = {"2.13": "3.7.1"}
"""The Triton that torch's builds for CUDA ask for, by torch's version."""

PLAIN = "plain"
CAPABILITIES = (80, 89, 90, 120)
Compiled = tuple[str, dict[int, int], str]
"""A kernel, how many cubins were made of it for each of these, and an error or nothing."""


@dataclass(frozen=True)
class Network:
    """A network of ComfyUI's and one call of it.

    Attributes:
        make: returns a MODEL.
        call: what the sampler would call it with.
        merges: whether tokens can be merged, in place of thinning out keys and values.
        work: in words.
    """

    make: Callable[[], Any]
    call: fake_cuda.Recorded
    merges: bool
    work: str


def half(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.float16)


def networks() -> dict[str, Network]:
    options = {"cond_or_uncond": [0, 1], "sample_sigmas": torch.linspace(14, 0, 31)}
    sigmas = torch.full((2,), 0.5)
    flux = {"hidden_size": 1024, "num_heads": 8, "axes_dim": [16, 56, 56], "mlp_ratio": 4.0}
    flux |= {"context_in_dim": 4096, "vec_in_dim": 768, "depth": 1, "depth_single_blocks": 1}
    return {
        "sd15": Network(
            partial(checkpoints.smallest_unet, width=320, context=768, dtype=torch.float16),
            fake_cuda.Recorded((torch.zeros(2, 4, 64, 64), sigmas), {"c_crossattn": half(2, 77, 768)}, options),
            True,
            "SD1.5's upper level at full width, 2 transformer blocks, fp16, latent 64x64, batch 2",
        ),
        "flux": Network(
            partial(transformers.build, "flux", dtype=torch.float16, **flux),
            fake_cuda.Recorded(
                (torch.zeros(2, 16, 64, 64), sigmas), {"c_crossattn": half(2, 256, 4096), "y": half(2, 768)}, options
            ),
            False,
            "Flux with 8 heads of 128 channels, 1 double and 1 single block, fp16, latent 64x64, batch 2",
        ),
    }


def int8(model: Any) -> Any:
    """Put every linear layer that is exact enough in int8, for the kernel of a GPU: what is quicker nobody measured."""
    from paceline.core.technique import attach
    from paceline.optimizers.hosts.comfyui.quantization.layers import linear_layers
    from paceline.optimizers.hosts.comfyui.quantization.technique import Int8Quantization
    from paceline.optimizers.hosts.comfyui.targets.model import ModelTarget
    from paceline.optimizers.quantization.kernels import TorchAO
    from paceline.optimizers.quantization.layers import choose_layers
    from paceline.optimizers.quantization.policy import QuantizationPolicy
    from paceline.optimizers.quantization.settings import QuantizationSettings

    settings, cpu = QuantizationSettings(preset="speed"), torch.device("cpu")
    read = [(layer, module.weight.detach) for layer, module in linear_layers(model, {})]
    policy = QuantizationPolicy(settings, replace(choose_layers(read, settings, cpu), kernel=TorchAO()))
    policy.require_gain("network")
    return attach(ModelTarget(model), Int8Quantization(policy))


SDPA = node("PacelineSetAttentionProcessor", backend="sdpa")
FUSE = node("PacelineFuseQKV")
THIN = tome(method="kv_downsample", max_downsample="8")
TECHNIQUES: dict[str, list[Apply]] = {
    PLAIN: [],
    "Set Attention sdpa": [SDPA],
    "Fuse QKV": [FUSE],
    "Quantize int8": [int8],
    "Apply ToMe kv_downsample": [THIN],
    "Apply ToMe merge": [tome(method="merge", max_downsample="8")],
    "Set Attention + Fuse QKV + ToMe kv_downsample": [SDPA, FUSE, THIN],
    "Quantize int8 + ToMe kv_downsample": [int8, THIN],
}


def compiled(model: Any) -> Any:
    """Return a MODEL through Compile UNet, in one graph or with an error."""
    from paceline.core.technique import attach
    from paceline.optimizers.compilation.compiler import Compiler
    from paceline.optimizers.compilation.settings import NetworkSettings
    from paceline.optimizers.hosts.comfyui.compilation.unet import CompileUNet
    from paceline.optimizers.hosts.comfyui.targets.model import ModelTarget

    how = NetworkSettings(backend=gpu_code.BACKEND, fullgraph=True, strict=True)
    return attach(ModelTarget(model), CompileUNet(model, how, Compiler()))


def generate(network: Network, changes: list[Apply]) -> tuple[gpu_code.Code, int]:
    """Return what inductor generates for a step, and how many operators a step without compilation launches."""
    from torch._dispatch.python import enable_python_dispatcher

    torch._dynamo.reset()
    model = network.make()
    for change in changes:
        model = change(model)
    mode = fake_cuda.fake_cuda()
    fake_cuda.move_model(model, mode)
    with enable_python_dispatcher():
        for _ in range(2):  # the first joins weights, and makes what is kept
            _, launches = fake_cuda.run(model, network.call, mode)
    stack = model.get_attachment("paceline")  # none where a node has found that it cannot help here
    for technique in () if stack is None else stack.techniques:
        state = technique.last_summary()
        if state.state != "active":
            raise RuntimeError(f"{technique.title} did not work: {state}")
    model = compiled(model)
    with gpu_code.generated() as found:
        fake_cuda.answer(model, network.call, mode)
    if len(found) != 1:
        raise RuntimeError(f"{len(found)} graphs, and one was expected")
    return found[0], launches.total


def row(title: str, network: Network, code: gpu_code.Code, eager: int) -> Row:
    launches = code.launches
    attention = sum(count for name, count in launches.items() if "attention" in name)
    products = sum(launches[name] for name in ("mm", "addmm", "bmm", "baddbmm", "_int_mm", "convolution"))
    total, generated = sum(launches.values()), launches["triton"]
    counts = {
        "kernels": total,
        "generated": generated,
        "different": len(code.kernels),
        "products": products,
        "attention": attention,
        "other": total - generated - products - attention,
        "eager_operators": eager,
    }
    return Row(name=title, work=network.work, quality={name: float(count) for name, count in counts.items()})


def environment() -> Path:
    """Return the folder with Triton in it, installed there if it is not.

    Raises:
        SystemExit: if this torch is not one whose Triton is known.
    """
    version = torch.__version__.partition("+")[0].rpartition(".")[0]
    if version not in TRITON:
        known = ", ".join(TRITON)
        sys.exit(f"This is torch {torch.__version__}; the Triton of torch {known} is known here. Run `make setup`.")
    if torch.backends.cuda.is_built():
        sys.exit("This torch is built for CUDA. Where the GPU is, run the tests: make test PYTEST_ARGS='-m gpu'")
    folder = cache_dir() / "gpu_check" / f"triton-{TRITON[version]}"
    if not (folder / "complete").is_file():
        print(f"Installing triton {TRITON[version]} in {folder} (200 MB) ...", flush=True)
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade", "--target", str(folder)]
        subprocess.run([*command, f"triton=={TRITON[version]}"], check=True, timeout=1200)
        (folder / "complete").touch()
    os.environ["TRITON_CACHE_DIR"] = str(folder.parent / "cubins")
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder.parent / "code")
    return folder


def begin(triton: Path) -> None:
    """Prepare a process."""
    in_process.bootstrap()
    gpu_code.pretend(triton)


def measure(task: tuple[str, str]) -> tuple[Row, dict[str, str]]:
    """Return the row of a network and a technique, and the sources of its kernels by name."""
    network = networks()[task[0]]
    code, eager = generate(network, TECHNIQUES[task[1]])
    return row(task[1], network, code, eager), code.kernels


def run(triton: Path, tasks: list[tuple[str, str]], processes: int) -> tuple[list[Row], list[Compiled]]:
    """Generate for each task, and compile each different kernel for each architecture."""
    rows: list[Row] = []
    sources: dict[str, str] = {}
    with ProcessPoolExecutor(processes, get_context("spawn"), begin, (triton,)) as pool:
        for found, kernels in pool.map(measure, tasks):
            rows += collected([found])
            sources |= {source: kernel for kernel, source in kernels.items()}
        compiling = [(kernel, source, CAPABILITIES) for source, kernel in sources.items()]
        print(f"compiling {len(compiling)} kernels", flush=True)
        return rows, list(pool.map(gpu_code.compile_kernel, compiling))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=networks(), help="one of the networks")
    parser.add_argument("--json", type=Path, help="write the table here")
    parser.add_argument("--processes", type=int, default=max(1, (os.cpu_count() or 2) // 2))
    options = parser.parse_args()
    tasks = [
        (name, title)
        for name, network in networks().items()
        for title in TECHNIQUES
        if options.only in (None, name) and (network.merges or "ToMe" not in title)
    ]
    rows, compiled_kernels = run(environment(), tasks, options.processes)
    cubins = sum(sum(made.values()) for _, made, _ in compiled_kernels)
    failed = [f"{kernel}: {error}" for kernel, _, error in compiled_kernels if error]
    targets = ", ".join(f"sm_{capability}" for capability in CAPABILITIES)
    notes = {
        "kernels": "launched in one compiled step; of these *generated* by inductor, as many of them *different*, "
        "matrix *products* and convolutions and *attention* of libraries, and *other* operators",
        "eager_operators": "launched in one step that is not compiled",
        "graphs": "one for each row, without a break",
        "compiled": f"{len(compiled_kernels)} different kernels to {cubins} cubins for {targets} with Triton's ptxas, "
        "each configuration that inductor would try. Generated for an H100; none of them was run",
        "Quantize int8": "all linear layers that are exact enough, computed with torchao's kernel",
    }
    report(rows, f"{PLAIN}, compiled", options.json, notes)
    print(f"{cubins} cubins for {targets}; {len(failed)} of {len(compiled_kernels)} kernels failed.")
    if failed:
        sys.exit("\n".join(failed))


if __name__ == "__main__":
    main()
