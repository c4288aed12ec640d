# SPDX-License-Identifier: BSD-3-Clause
"""python -m legacyml_which_isa: the same program as legacyml-which-isa."""

import sys

from .cli import main

sys.exit(main())
