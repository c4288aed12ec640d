#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes src/model/unicode_tables.h, the character classes that cutting text into words needs.

    tools/gen_unicode.py          write the file; needs a database of Unicode 16, if not Python's then unicodedata2 16.0.0
    tools/gen_unicode.py --check  write nothing, exit 1 if the file is wrong

The version is that of the regular expressions in Hugging Face tokenizers 0.23, whose words must be found again. With a
database of another version --check compares the characters that both versions must have: no class of a character in
use has changed since Unicode 14.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

try:
    import unicodedata2 as unicodedata
except ImportError:
    import unicodedata  # type: ignore[no-redef]

VERSION = "16.0.0"
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
ROW = re.compile(r"^  \{0x(\w+), 0x(\w+), (\w+)\},$", re.MULTILINE)


def char_class(code: int) -> str | None:
    """The class of a code point as it is spelled in the header, or None for all others."""
    category = unicodedata.category(chr(code))
    # White_Space is the separators and these controls: U+0009 to U+000D and U+0085.
    if category[0] == "Z" or 9 <= code <= 13 or code == 0x85:
        return "ML_CHAR_SPACE"
    return {"L": "ML_CHAR_LETTER", "N": "ML_CHAR_NUMBER"}.get(category[0])


def ranges() -> list[tuple[int, int, str]]:
    """(first, last, class) of every run of code points of one class, in rising order."""
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
    """The text of the header."""
    table = ranges()
    rows = [f"  {{0x{first:04X}, 0x{last:04X}, {name}}},\n" for first, last, name in table]
    head = HEADER.format(version=VERSION, count=len(table))
    return head + "".join(rows) + "};\n\n#endif\n"


def version_number(version: str) -> tuple[int, ...]:
    """A version that compares as it should."""
    return tuple(map(int, version.split(".")))


def first_difference(text: str) -> int | None:
    """The first code point whose class in the header is not the database's, where both know it; None if there is none."""
    table = {code: name for first, last, name in ROW.findall(text) for code in range(int(first, 16), int(last, 16) + 1)}
    database_is_older = version_number(unicodedata.unidata_version) < version_number(VERSION)
    for code in range(sys.maxunicode + 1):
        # A newer database has characters that the header cannot have.
        known = unicodedata.category(chr(code)) != "Cn" if database_is_older else code in table
        if known and table.get(code) != char_class(code):
            return code
    return None


def main(arguments: list[str]) -> int:
    """Writes or checks the header; returns the exit status."""
    if arguments not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    same_version = unicodedata.unidata_version == VERSION
    if not arguments:
        if not same_version:
            print(f"the database here is of Unicode {unicodedata.unidata_version}, the tables are of {VERSION}: "
                  f"install unicodedata2=={VERSION}", file=sys.stderr)
            return 2
        TARGET.write_text(render(), encoding="ascii")
        return 0
    text = TARGET.read_text(encoding="ascii") if TARGET.exists() else ""
    if same_version:
        if text != render():
            print(f"{TARGET.name} is not what this program writes: run tools/gen_unicode.py", file=sys.stderr)
            return 1
    elif f"Unicode {VERSION};" not in text:
        print(f"{TARGET.name} is not of Unicode {VERSION}: run tools/gen_unicode.py", file=sys.stderr)
        return 1
    elif (code := first_difference(text)) is not None:
        print(f"{TARGET.name}: U+{code:04X} has another class in Unicode {unicodedata.unidata_version}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
