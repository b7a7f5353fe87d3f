# SPDX-License-Identifier: MIT
"""Increasing ids, unique over all clients of the server."""
from __future__ import annotations

from typing import Any, Generic, Optional

from . import _watch
from ._call import Call, run
from ._client import Client, default_client
from ._lib import Bytes, Name, check, ffi, lib, new_error
from ._lock import C
from ._watch import ClientBase, Handle


class SequenceBase(Generic[C]):
    """What sequences of threads and of tasks have in common: one handle for all of them."""

    def __init__(self, name: Name, *, block: int = 0, start: int = 0, from_time: bool = False,
                 client: Optional[C] = None) -> None:
        self.name = name
        self._client = client
        self._found: Optional[Handle] = None
        o = self._options = ffi.new("hf_sequence_opts *")
        o.size = ffi.sizeof("hf_sequence_opts")
        o.block, o.start, o.from_time = block, start, 1 if from_time else 0

    def _next(self, client: ClientBase, ptr: Any) -> Call[int]:
        ret, err, name = ffi.new("hf_sequence **"), new_error(), Bytes(self.name)
        with _watch._mutex:  # two handles would not increase together
            h = self._found
            if h is None or not h.usable():
                check(lib.hf_sequence_open(ptr, name.c, self._options, ret, err), err)
                h = self._found = Handle(client, str(self.name), ret[0], ffi.NULL,
                                         lib.hf_sequence_free)
        number = ffi.new("uint64_t *")
        return Call("hf_sequence_next", h.what, number, read=lambda: int(number[0]), keep=h)


class Sequence(SequenceBase[Client]):
    """Increasing ids, unique over all clients of the server, with gaps. Any number of threads may
    share the object.

        orders = holdfast.Sequence("orders")
        print(next(orders), next(orders))

    block      how many ids one round trip reserves; 0: 1000; 1: ids increase in real time over all
               clients
    start      the first id, if there is no counter yet; 0: 1
    from_time  no id is below the server's time in microseconds, so that a counter that the server
               has lost repeats nothing
    """

    def next(self) -> int:
        """The next id. Unsure: no answer came, at worst there is a gap: call it again."""
        client = self._client or default_client()
        return run(self._next(client, client.ptr))

    def __iter__(self) -> "Sequence":
        return self

    def __next__(self) -> int:
        return self.next()
