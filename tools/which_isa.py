#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""legacyml-which-isa from a checkout: python tools/which_isa.py"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))

from legacyml_which_isa.cli import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
