# SPDX-License-Identifier: BSD-3-Clause
"""The version, the same as LEGACYML_VERSION in src/include/legacyml.h."""

__version__ = "0.1.0"
