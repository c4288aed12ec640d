# SPDX-License-Identifier: BSD-3-Clause
"""Exceptions of the binding."""


class UnsupportedCPUError(ImportError):
    """This CPU cannot run the library that was found: the message says what is missing and what to install."""
