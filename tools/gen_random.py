#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A model with random weights: python tools/gen_random.py OUT.mlb [options]"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))

from legacyml_convert.random_model import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
