# SPDX-License-Identifier: MIT
"""Leader election: one leader at a time, with a value that everybody can read."""
from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Optional, Type

from ._client import Client, default_client
from ._errors import NotHeld
from ._inspect import Party, party_of
from ._lib import (Bytes, Duration, Name, check, fail, ffi, grace_of, lib, milliseconds, new_error,
                   wait_of)
from ._lock import DEFAULT, Default, Wait
from ._watch import (ClientBase, Handle, OnLost, checked_on_lost, enter_masked, interrupted, unmask,
                     wait_for)
from ._with import Blocks, ExitMethod, begin


class ElectionOptions:
    """A name and its hf_election_opts."""

    def __init__(self, name: Name, ttl: Optional[Duration], grace: Optional[Duration]) -> None:
        self.name = Bytes(name)
        self.label = name if isinstance(name, str) else name.decode(errors="backslashreplace")
        o = self.c = ffi.new("hf_election_opts *")
        o.size = ffi.sizeof("hf_election_opts")
        o.ttl_ms = milliseconds(ttl) if ttl is not None else 0
        o.grace_ms = grace_of(grace)

    def open(self, client: ClientBase, ptr: Any) -> Handle:
        ret, err = ffi.new("hf_election **"), new_error()
        check(lib.hf_election_open(ptr, self.name.c, self.c, ret, err), err)
        return Handle(client, self.label, ret[0], lib.hf_election_lock(ret[0]),
                      lib.hf_election_free)


def resign(h: Handle) -> None:
    if not h.usable():
        raise NotHeld("the client is closed, or the parent's")
    err = new_error()
    check(lib.hf_election_resign(h.what, err), err)


class Election:
    """A candidate. Leading is holding the lock of the same name, and is lost in the same way.

        with holdfast.Election("primary", "db1:5432") as term:
            ...                    # lead

    value  what others see while this candidate leads; the other options are those of Lock.
    A candidate belongs to one thread at a time.
    """

    def __init__(self, name: Name, value: Name = b"", *, wait: Optional[Duration] = None,
                 ttl: Optional[Duration] = None, grace: Optional[Duration] = None,
                 on_lost: OnLost = "interrupt", client: Optional[Client] = None) -> None:
        self.name = name
        self.value = value
        self.wait = wait
        self.on_lost = checked_on_lost(on_lost)
        self._options = ElectionOptions(name, ttl, grace)
        self._client = client
        self._found: Optional[Handle] = None
        self._blocks = Blocks()

    def _handle(self) -> Handle:
        h = self._found
        if h is not None and h.abandoned():
            for block in list(h.blocks):
                block.end()
            self._drop(h)
            h = None
        if h is None or not h.usable():
            client = self._client or default_client()
            h = self._found = self._options.open(client, client.ptr)
        return h

    def _leading(self) -> Handle:
        if self._found is None or not self._found.usable():
            raise NotHeld(f'this candidate does not lead "{self._options.label}"')
        return self._found

    def campaign(self, value: Optional[Name] = None, wait: Wait = DEFAULT) -> int:
        """Become leader, and return the term: the fencing number. If it leads already, the value is
        changed."""
        enter_masked()
        try:
            term = self._campaign(value, wait)
            if interrupted():  # its caller would not learn that it leads
                resign(self._handle())
            return term
        finally:
            unmask()

    def _campaign(self, value: Optional[Name], wait: Wait) -> int:
        """Masked."""
        h = self._handle()
        v = Bytes(self.value if value is None else value)
        term, err = ffi.new("uint64_t *"), new_error()
        wait_ms = wait_of(self.wait if isinstance(wait, Default) else wait)
        what, lock = h.what, h.lock

        def call(ms: int) -> int:
            return int(lib.hf_election_campaign(what, v.c, ms, term, err))

        try:
            result = wait_for(call, wait_ms, lambda: lib.hf_lock_cancel(lock))
        except BaseException:
            self._drop(h)
            raise
        check(result, err)
        return int(term[0])

    def _drop(self, h: Handle) -> None:
        self._found = None
        h.free()

    def resign(self) -> None:
        """Stop leading: the next candidate takes over."""
        enter_masked()
        try:
            resign(self._leading())
        finally:
            unmask()

    def set_value(self, value: Name) -> None:
        """Change what others see."""
        v, err = Bytes(value), new_error()
        check(lib.hf_election_set_value(self._leading().what, v.c, err), err)

    @property
    def leads(self) -> bool:
        """True while it certainly leads, by our own clock; asks nobody."""
        h = self._found
        return h is not None and h.usable() and bool(lib.hf_election_is_leader(h.what))

    @property
    def term(self) -> int:
        """The present or lost term; 0: none."""
        h = self._found
        return int(lib.hf_election_term(h.what)) if h is not None and h.usable() else 0

    def __enter__(self) -> int:
        enter_masked()
        try:
            term = self._campaign(None, DEFAULT)
            h = self._handle()
            begin(self, [h], self.on_lost, lambda: resign(h))
            return term
        finally:
            unmask()

    if TYPE_CHECKING:

        def __exit__(self, kind: Optional[Type[BaseException]], exc: Optional[BaseException],
                     trace: Optional[TracebackType]) -> None: ...

    else:
        __exit__ = ExitMethod()


class Leader:
    """Who leads, as it was when it was asked."""

    def __init__(self, ptr: Any) -> None:
        self.ptr = ffi.gc(ptr, lib.hf_leader_free)
        #: False: nobody leads, and the rest means nothing
        self.leads = bool(ptr.leads)
        #: the fencing number; 0: a foreign client holds the lock
        self.term = int(ptr.term)
        #: None: not known yet, or not a candidate
        self.value: Optional[bytes] = None
        if ptr.value != ffi.NULL:
            self.value = bytes(ffi.buffer(ptr.value, ptr.value_len))
        self.party: Party = party_of(ptr.party)

    def __repr__(self) -> str:
        if not self.leads:
            return "<holdfast.Leader nobody>"
        return f"<holdfast.Leader term {self.term} value {self.value!r}>"


def leader(name: Name, *, client: Optional[Client] = None) -> Optional[Leader]:
    """Who leads now; None: nobody."""
    n, ret, err = Bytes(name), ffi.new("hf_leader **"), new_error()
    check(lib.hf_election_leader((client or default_client()).ptr, n.c, ret, err), err)
    found = Leader(ret[0])
    return found if found.leads else None


def observe(name: Name, seen: Optional[Leader] = None, *, wait: Optional[Duration] = None,
            client: Optional[Client] = None) -> Leader:
    """Wait until leader, term or value differ from what was seen, and return them (also that nobody
    leads); without seen, at once. TimedOut: nothing changed."""
    c, n = client or default_client(), Bytes(name)
    known = seen.ptr if seen else ffi.NULL
    left = wait_of(wait)
    # It cannot be cancelled, so the main thread comes up for Ctrl-C.
    part = 500 if threading.current_thread() is threading.main_thread() else left
    end = time.monotonic() + left / 1000
    while True:
        ret, err = ffi.new("hf_leader **"), new_error()
        now = part if left < 0 else min(max(0, int((end - time.monotonic()) * 1000)), part)
        result = lib.hf_election_observe(c.ptr, n.c, known, now, ret, err)
        if not result:
            return Leader(ret[0])
        if result != lib.HF_ETIMEDOUT or (left >= 0 and time.monotonic() >= end):
            fail(err)


