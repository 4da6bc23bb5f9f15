"""Put faults into the code that decides what a user gets, one at a time, and count how many the tests notice.

Each fault runs in a process of its own that is forked from one with torch in memory. The faulty file is only ever
compiled from memory: nothing is written into the working tree. Exit status 1 where fewer are noticed than ``LEAST``.

    python tools/mutants.py                  all targets
    python tools/mutants.py rounding -j 2    one of them, two processes
"""

from __future__ import annotations

import argparse
import importlib.abc
import importlib.machinery
import importlib.util
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

from comfy_host.paths import ROOT
from mutation.faults import Fault, faults

LEAST = 0.85
"""Share of the faults that must be noticed."""

TIMEOUT_FACTOR, TIMEOUT_LEAST = 10, 60.0


@dataclass(frozen=True)
class Target:
    """Files to put faults into, and the tests that must notice."""

    files: tuple[str, ...]
    tests: tuple[str, ...]


TARGETS = {
    "matching": Target(
        ("optimizers/token_merging/matching.py",),
        ("test_token_merging_devices.py", "test_token_merging_matching.py", "test_token_merging_oracle.py"),
    ),
    "rounding": Target(
        ("optimizers/quantization/rounding.py",), ("test_quantization_rounding.py", "test_quantization_kernels.py")
    ),
    "guards": Target(
        ("optimizers/compilation/weights.py", "optimizers/compilation/compiled.py"),
        (
            "test_compilation_weights.py",
            "test_compilation_artifacts.py",
            "test_compilation_results.py",
            "test_compilation_function.py",
        ),
    ),
    "verdict": Target(
        (
            "workbench/measurement/evidence.py",
            "workbench/measurement/verdict.py",
            "workbench/measurement/verdict_text.py",
        ),
        ("test_measurement_verdict.py", "test_measurement_limits.py"),
    ),
}


class FaultyFile(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Imports one module of the pack from another source than its file's."""

    def __init__(self, file: Path, source: str) -> None:
        self.module = ".".join(("paceline", *file.relative_to(ROOT).with_suffix("").parts))
        self.file, self.source = file, source

    def find_spec(
        self, fullname: str, path: object = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Answer for the module, and leave all others to Python."""
        if fullname != self.module:
            return None
        return importlib.util.spec_from_file_location(fullname, self.file, loader=self)

    def get_source(self, fullname: str) -> str:
        """Return the changed source."""
        return self.source

    def get_code(self, fullname: str) -> CodeType:
        """Return the changed source as code of the file."""
        return compile(self.source, str(self.file), "exec")


def run_tests(tests: tuple[str, ...], faulty: FaultyFile | None, output: Path) -> None:
    """Run the tests in this process, which must be a forked one, and end it with pytest's exit status."""
    os.setsid()  # what a hanging test has started ends with it
    with output.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    if faulty is not None:
        sys.meta_path.insert(0, faulty)
    import pytest

    names = [str(ROOT / "tests" / "unit" / test) for test in tests]
    status = pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "--rootdir", str(ROOT), *names])
    sys.stdout.flush()
    os._exit(int(status))


class Runner:
    """Runs tests in forked processes, some at a time."""

    def __init__(self, jobs: int, folder: Path) -> None:
        self.jobs, self.folder = jobs, folder

    def one(self, tests: tuple[str, ...]) -> tuple[int, float, Path]:
        """Run the tests on the code as it is; return exit status, seconds and the file with what they printed."""
        begun, output = time.monotonic(), self.folder / "unchanged.log"
        _, status = os.waitpid(self._start(tests, None, output), 0)
        return os.waitstatus_to_exitcode(status), time.monotonic() - begun, output

    def each(
        self, tests: tuple[str, ...], file: Path, changes: list[Fault], timeout: float
    ) -> Iterator[tuple[Fault, bool]]:
        """Yield each fault and whether the tests noticed it; one that makes them hang is noticed too."""
        waiting, running = list(reversed(changes)), dict[int, tuple[Fault, float]]()
        while waiting or running:
            while waiting and len(running) < self.jobs:
                fault = waiting.pop()
                process = self._start(tests, FaultyFile(file, fault.source), self.folder / f"{len(waiting)}.log")
                running[process] = fault, time.monotonic() + timeout
            done, status = os.waitpid(-1, os.WNOHANG)
            if done in running:
                fault, _ = running.pop(done)
                yield fault, os.waitstatus_to_exitcode(status) != 0
                continue
            for process, (_, deadline) in running.items():
                if time.monotonic() > deadline:
                    os.kill(process, signal.SIGKILL)
            time.sleep(0.02)

    def _start(self, tests: tuple[str, ...], faulty: FaultyFile | None, output: Path) -> int:
        process = os.fork()
        if process == 0:
            try:
                run_tests(tests, faulty, output)
            finally:
                os._exit(99)
        return process


def check(name: str, runner: Runner) -> tuple[int, int]:
    """Print what the tests of a target do not notice; return how many faults they notice and how many there are."""
    target = TARGETS[name]
    status, seconds, output = runner.one(target.tests)
    if status:
        sys.exit(f"The tests of {name} fail without any fault:\n{output.read_text(errors='replace')[-3000:]}")
    noticed = every = 0
    for relative in target.files:
        file = ROOT / relative
        changes = faults(file.read_text(encoding="utf-8"))
        timeout = max(TIMEOUT_LEAST, TIMEOUT_FACTOR * seconds)
        survivors = []
        for fault, seen in runner.each(target.tests, file, changes, timeout):
            every, noticed = every + 1, noticed + seen
            if not seen:
                survivors.append(fault)
        print(f"{name}: {relative}: {len(changes) - len(survivors)} of {len(changes)} noticed", flush=True)
        for fault in sorted(survivors, key=lambda fault: fault.line):
            print(f"    {relative}:{fault.line}: {fault.text}", flush=True)
    return noticed, every


def main() -> int:
    """Run what the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("targets", nargs="*", help=f"of {', '.join(TARGETS)}; all if none is named")
    parser.add_argument("-j", "--jobs", type=int, default=2, help="processes at a time")
    given = parser.parse_args()
    unknown = sorted(set(given.targets) - set(TARGETS))
    if unknown:
        parser.error(f"there is no target {unknown[0]}; there are {', '.join(TARGETS)}")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ["CI"] = "1"  # hypothesis then draws the same examples each time, and nothing is skipped
    os.chdir(ROOT)
    import hypothesis  # noqa: F401  (what every process needs, before it is forked)
    import numpy  # noqa: F401
    import pytest  # noqa: F401
    import torch
    import torch._dynamo  # noqa: F401

    torch.set_num_threads(1)  # threads do not survive a fork
    low = []
    with tempfile.TemporaryDirectory(prefix="paceline_mutants_") as folder:
        for name in given.targets or TARGETS:
            noticed, every = check(name, Runner(given.jobs, Path(folder)))
            print(f"{name}: {noticed} of {every} faults noticed, {noticed / every:.0%}", flush=True)
            if noticed < LEAST * every:
                low.append(name)
    if low:
        print(f"Fewer than {LEAST:.0%} are noticed in: {', '.join(low)}.")
    return bool(low)


if __name__ == "__main__":
    sys.exit(main())
