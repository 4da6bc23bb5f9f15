"""Which folders ``pip install`` takes, and under which names; the rest is in pyproject.toml.

ComfyUI needs this layout: the root of the repository is the package. pip gives the same root the name ``paceline``, so
``optimizers`` becomes ``paceline.optimizers``, and ``nodes``, whose plain name belongs to ComfyUI, is never importable.
The list is made here because pyproject.toml cannot say "all packages below this folder, under another name".
"""

from typing import Any

from setuptools import find_namespace_packages, setup
from setuptools.command.build_py import build_py

BELOW = find_namespace_packages(
    ".",
    include=[f"{name}{below}" for name in ("optimizers", "measure") for below in ("", ".*")],
    exclude=[f"*.in_{host}{below}" for host in ("comfyui", "webui") for below in ("", ".*")],
)


class BuildPy(build_py):
    """Leaves this file out, which lies in the package's folder."""

    def find_package_modules(self, package: str, package_dir: str) -> list[Any]:
        """Return the modules of a package."""
        return [found for found in super().find_package_modules(package, package_dir) if found[1] != "setup"]


setup(
    packages=["paceline", *(f"paceline.{name}" for name in BELOW)],
    package_dir={"paceline": "."},
    cmdclass={"build_py": BuildPy},
)
