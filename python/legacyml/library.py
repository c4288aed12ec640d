# SPDX-License-Identifier: BSD-3-Clause
"""The functions of legacyml.h that can fail, as functions that raise, and handles that are freed with their last reference."""

from __future__ import annotations

import os
from array import array
from typing import Any

from ._native import ffi, lib
from .errors import ArgumentError, error_of


def version() -> str:
    """The version of the library that runs; `__version__` is the binding's."""
    return str(ffi.string(lib.ml_version()).decode())


def isa() -> str:
    """The instruction set of the library that runs: "sse2", "avx2", ..."""
    return str(ffi.string(lib.ml_isa_name()).decode())


def check() -> None:
    """Raises ImportError if the library is of another ABI, UnsupportedCPUError if this CPU cannot run it."""
    # The name of the library has the ABI's number, which LD_LIBRARY_PATH or a link made by hand can belie.
    if lib.ml_version_number() >> 16 != lib.LEGACYML_VERSION_MAJOR:
        needed = f"{lib.LEGACYML_VERSION_MAJOR}.x"
        raise ImportError(f"this binding was compiled for liblegacyml {needed}, but {version()} was found", name="legacyml")
    call(lib.ml_isa_check)


def call(function: Any, *arguments: Any) -> None:
    """Calls a function whose last argument is an ml_error, without the interpreter lock."""
    err = ffi.new("ml_error *")
    status = function(*arguments, err)
    if status != lib.ML_OK:
        raise error_of(status, ffi.string(err.text).decode("utf-8", "replace"))


def _owned(handle: Any, free: Any, keep: Any = None) -> Any:
    """The handle, freed with its last reference, before what it keeps. A forked process leaves it alone: the worker threads of a context are
    not there, and to wait for them would be for ever."""
    process, getpid = os.getpid(), os.getpid

    def release(pointer: Any, keep: Any = keep) -> None:
        if getpid() == process:
            free(pointer)

    return ffi.gc(handle, release)


def _path(path: Any) -> bytes:
    encoded = os.fsencode(path) if os.name != "nt" else os.fsdecode(path).encode("utf-8", "surrogatepass")
    if b"\0" in encoded:
        raise ArgumentError(f"{os.fsdecode(encoded)!r} has a NUL character, which no path has")
    return encoded


def open_model(path: Any, flags: int) -> Any:
    out = ffi.new("ml_model **")
    call(lib.ml_model_open, _path(path), flags, out)
    return _owned(out[0], lib.ml_model_close)


def open_tokenizer(path: Any, n_vocab: int) -> Any:
    out = ffi.new("ml_tokenizer **")
    call(lib.ml_tokenizer_open, _path(path), n_vocab, out)
    return _owned(out[0], lib.ml_tokenizer_close)


def create_context(model: Any, n_ctx: int, threads: int) -> Any:
    out = ffi.new("ml_context **")
    call(lib.ml_context_create, model, n_ctx, threads, out)
    return _owned(out[0], lib.ml_context_free, model)


def bytes_of(text: str | bytes) -> bytes:
    """UTF-8. Bytes are taken as they are; half a character, which only str can have, is refused."""
    if not isinstance(text, str):
        return bytes(text)
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ArgumentError(f"the text has half a character at {error.start}, U+{ord(text[error.start]):04X}; give bytes instead") from None


def encode(tokenizer: Any, text: bytes, flags: int) -> array[int]:
    capacity = len(text) + lib.ML_ENCODE_EXTRA
    ids, n = ffi.new("int32_t[]", capacity), ffi.new("size_t *")
    call(lib.ml_tokenizer_encode, tokenizer, text, len(text), flags, ids, capacity, n)
    return array("i", ffi.buffer(ids, 4 * n[0])[:])


def piece(tokenizer: Any, previous: int, token: int) -> bytes:
    """The bytes of one id behind another (-1 = none)."""
    n = ffi.new("size_t *")
    start = lib.ml_tokenizer_piece(tokenizer, previous, token, n)
    if start == ffi.NULL:
        raise ArgumentError(f"token id {token}; this tokenizer has ids 0 to {lib.ml_tokenizer_vocab(tokenizer) - 1}")
    return bytes(ffi.buffer(start, n[0]))
