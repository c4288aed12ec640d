# SPDX-License-Identifier: BSD-3-Clause
"""legacyml: inference for small Llama-style language models, the same bits on every CPU."""

from __future__ import annotations

from ._native import ffi as _ffi
from ._native import lib as _lib
from .errors import UnsupportedCPUError
from .version import __version__

__all__ = ["UnsupportedCPUError", "__version__", "isa", "version"]


def version() -> str:
    """The version of the library that runs; `__version__` is the binding's."""
    return str(_ffi.string(_lib.ml_version()).decode())


def isa() -> str:
    """The instruction set of the library that runs: "sse2", "avx2", ..."""
    return str(_ffi.string(_lib.ml_isa_name()).decode())


def _check() -> None:
    # The name of the library has the ABI's number, which LD_LIBRARY_PATH or a link made by hand can belie.
    if _lib.ml_version_number() >> 16 != _lib.LEGACYML_VERSION_MAJOR:
        needed = f"{_lib.LEGACYML_VERSION_MAJOR}.x"
        raise ImportError(f"this binding was compiled for liblegacyml {needed}, but {version()} was found", name=__name__)
    err = _ffi.new("ml_error *")
    if _lib.ml_isa_check(err) != _lib.ML_OK:
        raise UnsupportedCPUError(_ffi.string(err.text).decode(), name=__name__)


_check()
