# SPDX-License-Identifier: BSD-3-Clause
"""Writes the C source of the extension: python build_native.py HEADER OUT.c

The declarations are those of legacyml.h. The extension is compiled by `make python`, for the limited API.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from cffi import FFI  # type: ignore[import-untyped,unused-ignore]


def declarations(header: str) -> str:
    """What cffi's parser takes: no preprocessor but integer constants, which the compiler fills in, and no ML_API."""
    text = re.sub(r"^#ifdef __cplusplus\n.*?^#endif\n", "", header, flags=re.MULTILINE | re.DOTALL)
    constants = re.findall(r"^#define (\w+) \d+u?\b(?! *[^/\s])", text, flags=re.MULTILINE)
    text = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)
    return text.replace("ML_API ", "") + "".join(f"#define {name} ...\n" for name in constants)


def main(header: str, out: str) -> None:
    ffi = FFI()
    ffi.cdef(declarations(Path(header).read_text(encoding="utf-8")))
    ffi.set_source("legacyml._native", "#include <legacyml.h>\n")
    ffi.emit_c_code(out)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: build_native.py HEADER OUT.c")
    main(*sys.argv[1:])
