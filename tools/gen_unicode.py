#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes src/model/unicode_tables.h, the character classes that cutting text into words needs.

Usage: gen_unicode.py [--check]

``--check`` writes nothing and exits 1 if the file is not what this program would write, or 2 if this Python knows
another version of Unicode than the file was made from, so that the two cannot be compared.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from pathlib import Path

TARGET = Path(__file__).resolve().parent.parent / "src" / "model" / "unicode_tables.h"

HEADER = """\
/* SPDX-License-Identifier: BSD-3-Clause
 * Letters, numbers and white space of Unicode {version}; written by tools/gen_unicode.py. */
#ifndef ML_MODEL_UNICODE_TABLES_H
#define ML_MODEL_UNICODE_TABLES_H

#include <stdint.h>

enum {{ ML_CHAR_OTHER, ML_CHAR_LETTER, ML_CHAR_NUMBER, ML_CHAR_SPACE }};

/* Code points first to last have one class, in rising order; what is in no range is ML_CHAR_OTHER. */
static const struct {{
  uint32_t first, last;
  int char_class;
}} ml_unicode_ranges[{count}] = {{
"""


def char_class(code: int) -> str | None:
    """Returns the class of a code point as it is spelled in the header, or None for all others."""
    category = unicodedata.category(chr(code))
    # White_Space is the separators and these controls: U+0009 to U+000D and U+0085.
    if category[0] == "Z" or 9 <= code <= 13 or code == 0x85:
        return "ML_CHAR_SPACE"
    return {"L": "ML_CHAR_LETTER", "N": "ML_CHAR_NUMBER"}.get(category[0])


def ranges() -> list[tuple[int, int, str]]:
    """Returns (first, last, class) of every run of code points of one class, in rising order."""
    found: list[tuple[int, int, str]] = []
    for code in range(sys.maxunicode + 1):
        name = char_class(code)
        if name is None:
            continue
        if found and found[-1][1] == code - 1 and found[-1][2] == name:
            found[-1] = (found[-1][0], code, name)
        else:
            found.append((code, code, name))
    return found


def render() -> str:
    """Returns the text of the header."""
    table = ranges()
    rows = [f"  {{0x{first:04X}, 0x{last:04X}, {name}}},\n" for first, last, name in table]
    head = HEADER.format(version=unicodedata.unidata_version, count=len(table))
    return head + "".join(rows) + "};\n\n#endif\n"


def main(arguments: list[str]) -> int:
    """Writes or checks the header; returns the exit status."""
    if arguments not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    if not arguments:
        TARGET.write_text(render(), encoding="ascii")
        return 0
    text = TARGET.read_text(encoding="ascii") if TARGET.exists() else ""
    version = re.search(r"Unicode ([0-9.]+);", text)
    if version and version[1] != unicodedata.unidata_version:
        print(f"{TARGET.name} is of Unicode {version[1]}, this Python has {unicodedata.unidata_version}: not compared",
              file=sys.stderr)
        return 2
    if text != render():
        print(f"{TARGET.name} is out of date: run tools/gen_unicode.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
