# SPDX-License-Identifier: BSD-3-Clause
"""Recognises chat templates by the marks they contain; no template is run."""

from __future__ import annotations

import re

END_PIECES = frozenset(
    {
        "<|im_end|>",
        "<|endoftext|>",
        "<|end_of_text|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|end|>",
        "<end_of_turn>",
        "<EOT>",
    }
)
"""Special pieces that end a text or a turn in the models that have them, named as the end or not."""

# A system message that stands in the template itself; quotes and braces would mean that it is put together.
_CHATML_SYSTEM = re.compile(r"<\|im_start\|>system(?:\n|\\n)([^'\"{}]*?)<\|im_end\|>")


def recognise(template: str) -> tuple[str, str]:
    """(name, default system message) of a Jinja chat template; ("", "") for one that is not known."""
    if "<|im_start|>" in template and "<|im_end|>" in template:
        system = _CHATML_SYSTEM.search(template)
        return "chatml", system.group(1).replace("\\n", "\n") if system else ""
    if "[INST]" in template and "<<SYS>>" in template:
        return "llama2", ""
    if "<|user|>" in template and "<|assistant|>" in template and "<|end|>" not in template:
        if "eos_token" in template or "</s>" in template:
            return "zephyr", ""
    return "", ""
