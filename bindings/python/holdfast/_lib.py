# SPDX-License-Identifier: MIT
"""The shared library, and what every call of it needs: names, durations, errors."""
from __future__ import annotations

import math
import os
from datetime import timedelta
from typing import Any, NoReturn, Optional, Union

from ._errors import error_of
from ._ffi import ffi as ffi
from ._version import SONAME

Duration = Union[int, float, str, timedelta]
Name = Union[str, bytes]


def _load() -> Any:
    """$HOLDFAST_LIBRARY; the library that came with this package; the system's."""
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), SONAME)
    named = os.environ.get("HOLDFAST_LIBRARY")
    path = named or (beside if os.path.exists(beside) else SONAME)
    try:
        return ffi.dlopen(path)
    except OSError as e:
        raise ImportError(
            f"the library {path} cannot be loaded ({e}): install libholdfast, "
            "or let HOLDFAST_LIBRARY name the file"
        ) from None


lib = _load()

_KNOWN = {
    lib.HF_KNOWN_AS_ASKED: "as asked",
    lib.HF_KNOWN_UNCHANGED: "unchanged",
    lib.HF_KNOWN_NOT_HELD: "not held",
    lib.HF_KNOWN_NOTHING: "nothing",
}
_FOR_EVER: int = lib.HF_WAIT_FOREVER
_NO_TAKEOVER: int = lib.HF_NO_TAKEOVER


def raw_of(data: Name) -> bytes:
    """bytes() would take a number too, and make so many NULs of it."""
    if isinstance(data, str):
        return data.encode()
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data)
    raise TypeError(f"{type(data).__name__} {data!r:.100}: give a str or bytes")


class Bytes:
    """Bytes for a call: .c is an hf_bytes that lives as long as this object."""

    __slots__ = ("_data", "_struct", "c")

    def __init__(self, data: Name) -> None:
        raw = raw_of(data)
        self._data = ffi.from_buffer(raw)
        self._struct = ffi.new("hf_bytes *")
        self._struct.data = self._data
        self._struct.len = len(raw)
        self.c = self._struct[0]


def c_text(text: Optional[str]) -> Any:
    return ffi.NULL if text is None else ffi.new("char[]", text.encode())


def text_of(pointer: Any) -> Optional[str]:
    """A string of the library; None for NULL. Bytes that are no UTF-8 survive a round trip."""
    return None if pointer == ffi.NULL else ffi.string(pointer).decode(errors="surrogateescape")


def fail(err: Any) -> NoReturn:
    """Raise what a call has said."""
    message = ffi.string(err.message).decode(errors="replace")
    raise error_of(int(err.code), text_of(lib.hf_err_name(err.code)) or "?",
                   _KNOWN.get(err.known, "nothing"), message)


def check(result: int, err: Any) -> None:
    if result:
        fail(err)


def new_error() -> Any:
    return ffi.new("hf_error *")


def milliseconds(d: Duration) -> int:
    """Seconds, a timedelta, or a text such as "1h30m". Rounded up: a little is not nothing."""
    if isinstance(d, str):
        ret, err = ffi.new("int64_t *"), new_error()
        check(lib.hf_duration_parse(d.encode(), ret, err), err)
        return int(ret[0])
    seconds = d.total_seconds() if isinstance(d, timedelta) else float(d)
    if not 0 <= seconds < 1e11:  # NaN is not, either
        raise ValueError(f"a duration of {d!r}: give 0 seconds or more")
    return math.ceil(round(seconds * 1000, 6))


def wait_of(wait: Optional[Duration]) -> int:
    """None waits without a limit."""
    return _FOR_EVER if wait is None else milliseconds(wait)


def grace_of(grace: Optional[Duration]) -> int:
    """None is the library's default; 0 that nobody may take over before the ttl ends."""
    if grace is None:
        return 0
    return milliseconds(grace) or _NO_TAKEOVER


def version() -> str:
    """The version of the shared library."""
    return text_of(lib.hf_version()) or ""
