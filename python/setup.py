# SPDX-License-Identifier: BSD-3-Clause
"""pip install ./python: compiles liblegacyml.so.0 for this CPU and the extension, and puts both into the package.

The C sources are those of the checkout that this folder lies in, or of an sdist, which has a copy in csrc/. LEGACYML_ISA names another build.
An editable install compiles nothing: there `make python` does.
"""

from __future__ import annotations

import atexit
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist

HERE = Path(__file__).resolve().parent
COPY = "csrc"
# Not in the checkout, where the next build would find what this one left.
BUILD = tempfile.mkdtemp(prefix="legacyml-")
atexit.register(shutil.rmtree, BUILD, ignore_errors=True)
NEEDED = ("Makefile", "LICENSE", "src", "python/legacyml/build_native.py", "python/legacyml_which_isa")


def sources() -> Path:
    """The folder with the Makefile and src/."""
    for top in (HERE / COPY, HERE.parent):
        if all((top / name).exists() for name in NEEDED):
            return top
    sys.exit(
        f"legacyml: the C sources are in the checkout that holds the folder python, and not in {HERE.parent}: run pip install CHECKOUT/python"
    )


def chosen_isa(top: Path) -> str:
    """LEGACYML_ISA, or what legacyml-which-isa says."""
    python = str(top / "python")
    wanted = os.environ.get("LEGACYML_ISA")
    if wanted is None:
        run = subprocess.run([sys.executable, "-m", "legacyml_which_isa"], cwd=python, stdout=subprocess.PIPE, text=True, check=False)
        if run.returncode != 0:
            sys.exit("legacyml: which build fits this CPU is not known: the line above says why, LEGACYML_ISA names one all the same")
        return run.stdout.strip()
    sys.path.insert(0, python)
    from legacyml_which_isa.cpu import Host, architecture
    from legacyml_which_isa.table import BUILDS

    arch = architecture(Host.here())
    isas = [build.isa for build in BUILDS[arch]]
    if wanted not in isas:
        sys.exit(f"legacyml: LEGACYML_ISA={wanted!r} is no build for {arch}; there are {', '.join(isas)}")
    return wanted


class BuildWithMake(build_ext):
    def run(self) -> None:
        if getattr(self, "editable_mode", False) or self.inplace:
            return
        top = sources()
        isa = chosen_isa(top)
        if sys.platform != "linux":
            sys.exit(f"legacyml: pip builds on Linux, and this is {platform.system()}: build the library with CMake (CONTRIBUTING.md)")
        if shutil.which("make") is None:
            sys.exit("legacyml: make was not found: install make and a C compiler")
        package = Path(self.build_lib).resolve() / "legacyml"
        package.mkdir(parents=True, exist_ok=True)
        lib, out = f"{BUILD}/lib-{isa}", f"{BUILD}/package"
        options = [f"ISA={isa}", f"BUILD={lib}", f"PY_LIB={lib}", f"PY_OUT={out}", f"PY_BUILD={BUILD}/generated", "PY_RPATH=$$ORIGIN"]
        # A make that runs pip passes on what is meant for itself.
        environment = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
        command = ["make", f"-j{os.cpu_count() or 1}", "python", f'PYTHON="{sys.executable}"', *options]
        print(f"legacyml: compiling the {isa} build", file=sys.stderr, flush=True)
        if subprocess.run(command, cwd=top, env=environment, check=False).returncode != 0:
            sys.exit(f"legacyml: the {isa} build could not be compiled: the lines above say why")
        shutil.copy(f"{lib}/liblegacyml.so.0", package)
        shutil.copy(f"{out}/_native.abi3.so", package)


class SdistWithSources(sdist):
    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        top = sources()
        for name in NEEDED:
            target = Path(base_dir) / COPY / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if (top / name).is_dir():
                shutil.copytree(top / name, target, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", ".*"), dirs_exist_ok=True)
            else:
                shutil.copy(top / name, target)


setup(
    cmdclass={"build_ext": BuildWithMake, "sdist": SdistWithSources},
    ext_modules=[Extension("legacyml._native", [], py_limited_api=True)],
    options={"build": {"build_base": f"{BUILD}/base"}, "bdist_wheel": {"py_limited_api": "cp39"}},
)
