# SPDX-License-Identifier: BSD-3-Clause
"""What can go wrong, as one sentence and an exit status; the statuses mean what they mean in ml_run."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
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


class FormatError(ConvertError):
    """A file is not what it should be, or says something that .mlb cannot say."""

    status = 4


class ShapeError(ConvertError):
    """Sizes do not fit each other or the format."""

    status = 5


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
        print(f"{program}: {error}", file=sys.stderr)
        return EXIT_IO
    except MemoryError as error:
        print(f"{program}: not enough memory{f': {error}' if str(error) else ''}", file=sys.stderr)
        return EXIT_MEMORY
    except KeyboardInterrupt:
        print(f"{program}: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
