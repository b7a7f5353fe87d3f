# SPDX-License-Identifier: MIT
"""Optimistic updates: read a key, compute, and write it back if nobody wrote it meanwhile."""
from __future__ import annotations

from typing import Any, Callable, List, Optional, Union

from ._call import Call, nothing, run
from ._calls import limit_of
from ._client import Client, default_client
from ._lib import Bytes, Duration, Name, ffi, lib, raw_of


class Delete:
    """Says that a key, or the field of a hash, is to be deleted."""

    def __repr__(self) -> str:
        return "holdfast.DELETE"


DELETE = Delete()
Change = Callable[[Optional[bytes]], Union[str, bytes, None, Delete]]


class Update:
    """One update: its tries, and what the last one has decided."""

    def __init__(self, key: Name, change: Change, field: Optional[Name], ttl: Optional[Duration],
                 tries: int, max_size: int) -> None:
        self._key = Bytes(key)
        self._change = change
        self._error: Optional[BaseException] = None
        self._value: Optional[bytes] = None
        self._new: List[Bytes] = []  # what the library may still read
        self._field = Bytes(field) if field is not None else None
        o = self._options = ffi.new("hf_update_opts *")
        o.size = ffi.sizeof("hf_update_opts")
        if self._field is not None:
            o.field = self._field.c
        o.ttl_ms = lib.HF_KEEP_TTL if ttl is None else limit_of(ttl) or lib.HF_NO_TTL
        o.tries, o.max_size = tries, max_size
        self._function = ffi.callback("hf_change(void *, hf_bytes, hf_bytes *)", self._decide,
                                      error=lib.HF_CHANGE_NOTHING, onerror=self._failed)

    def _failed(self, kind: Any, error: BaseException, trace: Any) -> None:
        """An exception cannot pass through the library: it is raised at the end."""
        self._error = error

    def stop(self) -> None:
        """The next try is none."""
        self._change = lambda old: None

    def _decide(self, _arg: Any, old: Any, ret_new: Any) -> int:
        self._error = None
        was = bytes(ffi.buffer(old.data, old.len)) if old.data != ffi.NULL else None
        self._value = was
        new = self._change(was)
        if new is None:
            return int(lib.HF_CHANGE_NOTHING)
        if isinstance(new, Delete):
            self._value = None
            return int(lib.HF_CHANGE_DELETE)
        self._value = raw_of(new)
        data = Bytes(self._value)
        self._new = [data]
        ret_new[0] = data.c
        return int(lib.HF_CHANGE_SET)

    def call(self, client: Any) -> Call[None]:
        return Call("hf_update_run", client, self._key, self._options, self._function, ffi.NULL,
                    read=nothing, keep=self)

    def result(self) -> Optional[bytes]:
        if self._error is not None:
            raise self._error
        return self._value


def update(key: Name, change: Change, *, field: Optional[Name] = None,
           ttl: Optional[Duration] = None, tries: int = 0, max_size: int = 0,
           client: Optional[Client] = None) -> Optional[bytes]:
    """Read a key, and write back what change() makes of it, if nobody wrote it meanwhile; else
    start again. No lock is held, and a lost reply does not make the change twice. Returns what the
    value is now; None: there is none.

        holdfast.update("stock:42", lambda old: str(int(old or 0) + 1))

    change    gets the value, or None if there is none; returns the new one, holdfast.DELETE, or None
              to leave it as it is. It is called again for each try, so it should only compute. What
              it raises is raised here, and nothing is written
    key       yours: used as given, without the prefix of locks
    field     a field of the hash at key; None: key is a string
    ttl       the new ttl of the key; None: as it was; 0: none
    tries     0: 100; then Conflict
    max_size  of the value, in bytes; 0: a mebibyte, which is the most
    """
    u = Update(key, change, field, ttl, tries, max_size)
    run(u.call((client or default_client()).ptr))
    return u.result()
