# SPDX-License-Identifier: BSD-3-Clause
"""python -m legacyml_convert: the same program as legacyml-convert."""

import sys

from .cli import main

sys.exit(main())
