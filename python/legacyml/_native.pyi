# SPDX-License-Identifier: BSD-3-Clause
"""The extension that build_native.py describes: what cffi makes of legacyml.h."""

from typing import Any

ffi: Any
lib: Any
