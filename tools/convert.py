#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""legacyml-convert from a checkout: python tools/convert.py INPUT OUT.mlb"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))

from legacyml_convert.cli import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
