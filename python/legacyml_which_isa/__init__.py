# SPDX-License-Identifier: BSD-3-Clause
"""Says which build of legacyml fits this CPU. Imports nothing of the runtime: it must work where no build runs."""

from .cpu import Facts, Host, read
from .decide import Decision, decide
from .errors import Refusal
from .version import __version__

__all__ = ["Decision", "Facts", "Host", "Refusal", "__version__", "decide", "read"]
