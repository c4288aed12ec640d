# SPDX-License-Identifier: BSD-3-Clause
"""What can go wrong, as one sentence and an exit status; the statuses mean what they mean in ml_run."""

from __future__ import annotations

EXIT_USAGE = 2
EXIT_IO = 3
EXIT_CPU = 7
EXIT_INTERRUPTED = 130


class Refusal(Exception):
    """str(error) is one sentence that names what was found and what was expected."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status
