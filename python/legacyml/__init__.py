# SPDX-License-Identifier: BSD-3-Clause
"""legacyml: inference for small Llama-style language models, the same bits on every CPU."""

from .version import __version__  # isort: skip  (before the function version, which has the name of the module)
from .errors import (
    ArgumentError,
    FileError,
    FormatError,
    LegacymlError,
    NumericError,
    OutOfMemoryError,
    ShapeError,
    StateError,
    UnsupportedCPUError,
)
from .generation import Completion, Stream
from .library import check as _check
from .library import isa, version
from .model import Model, ModelInfo
from .scoring import Perplexity, TokenLogprobs

__all__ = [
    "ArgumentError",
    "Completion",
    "FileError",
    "FormatError",
    "LegacymlError",
    "Model",
    "ModelInfo",
    "NumericError",
    "OutOfMemoryError",
    "Perplexity",
    "ShapeError",
    "StateError",
    "Stream",
    "TokenLogprobs",
    "UnsupportedCPUError",
    "__version__",
    "isa",
    "version",
]

_check()
