# SPDX-License-Identifier: BSD-3-Clause
"""Converters from llama2.c checkpoints, Hugging Face Llama folders and GGUF to .mlb; reader and writer of .mlb."""

from .errors import ConvertError, FormatError, ShapeError, UsageError
from .mlb import Header, MlbFile, MlbWriter
from .version import __version__

__all__ = ["ConvertError", "FormatError", "Header", "MlbFile", "MlbWriter", "ShapeError", "UsageError", "__version__"]
