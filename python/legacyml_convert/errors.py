# SPDX-License-Identifier: BSD-3-Clause
"""What can go wrong, as one sentence and an exit status; the statuses mean what they mean in ml_run."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Callable

EXIT_IO = 3
EXIT_MEMORY = 6
EXIT_INTERRUPTED = 130


class ConvertError(Exception):
    """A refusal: str(error) is one sentence that names what was found and what was expected."""

    status = 1


class UsageError(ConvertError):
    """The command line asks for something that does not exist."""

    status = 2


class InputError(ConvertError):
    """A file that is named cannot be read."""

    status = 3


class FormatError(ConvertError):
    """A file is not what it should be, or says something that .mlb cannot say."""

    status = 4


class ShapeError(ConvertError):
    """Sizes do not fit each other or the format."""

    status = 5


def require_file(path: Path) -> None:
    """Refuses what is there but is no plain file: a pipe without a writer would be waited for without end."""
    if path.exists() and not path.is_file():
        kind = "a folder" if path.is_dir() else "a device, a pipe or a socket"
        raise InputError(f"{path.name} is {kind}; expected a plain file")


@contextlib.contextmanager
def about(path: str | os.PathLike[str]) -> Iterator[None]:
    """Puts the path before the sentence of any refusal."""
    try:
        yield
    except ConvertError as error:
        raise type(error)(f"{os.fspath(path)}: {error}") from None


def exit_status(program: str, run: Callable[[], None]) -> int:
    """Runs a program's body; an error becomes its sentence on stderr and its exit status."""
    try:
        run()
        return 0
    except ConvertError as error:
        print(f"{program}: {error}", file=sys.stderr)
        return error.status
    except OSError as error:
        named = error.filename is not None and error.strerror is not None
        print(f"{program}: {f'{os.fspath(error.filename)}: {error.strerror}' if named else error}", file=sys.stderr)
        return EXIT_IO
    except MemoryError as error:
        print(f"{program}: not enough memory{f': {error}' if str(error) else ''}", file=sys.stderr)
        return EXIT_MEMORY
    except KeyboardInterrupt:
        print(f"{program}: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
