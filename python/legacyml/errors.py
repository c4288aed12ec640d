# SPDX-License-Identifier: BSD-3-Clause
"""Exceptions of the binding: one class for each ml_status, and one for a Model that cannot be used now."""

from __future__ import annotations

from typing import Any


class LegacymlError(Exception):
    """What every exception of this package is. str(error) is one sentence with what was found and what was expected."""

    status: int | None = None
    """The ml_status of legacyml.h, which is also the exit status of ml_run; None where the library was not asked."""


class ArgumentError(LegacymlError, ValueError):
    """An argument is out of its range (ML_E_ARG)."""

    status = 2


class FileError(LegacymlError, OSError):
    """A file cannot be opened, read or mapped (ML_E_IO)."""

    status = 3


class FormatError(LegacymlError, ValueError):
    """A file, a saved state or a text is not what it should be (ML_E_FORMAT)."""

    status = 4


class ShapeError(LegacymlError, ValueError):
    """Sizes do not fit each other, or the context is full (ML_E_SHAPE)."""

    status = 5


class OutOfMemoryError(LegacymlError, MemoryError):
    """Not enough memory or address space (ML_E_NOMEM)."""

    status = 6


class UnsupportedCPUError(LegacymlError, ImportError):
    """This CPU cannot run the library that was found: the message says what is missing and what to install (ML_E_ISA)."""

    status = 7


class NumericError(LegacymlError, ArithmeticError):
    """A logit is not finite (ML_E_NUMERIC)."""

    status = 8


class StateError(LegacymlError, RuntimeError):
    """The Model is closed, belongs to the process that forked this one, or is asked for something inside its own callback."""


CLASSES: dict[int, type[LegacymlError]] = {
    cls.status: cls
    for cls in (ArgumentError, FileError, FormatError, ShapeError, OutOfMemoryError, UnsupportedCPUError, NumericError)
    if cls.status is not None
}


def error_of(status: int, text: str) -> LegacymlError:
    """The exception for a status that is not ML_OK."""
    arguments: dict[str, Any] = {"name": "legacyml"} if status == UnsupportedCPUError.status else {}
    return CLASSES.get(status, LegacymlError)(text, **arguments)
