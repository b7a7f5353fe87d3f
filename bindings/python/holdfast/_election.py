# SPDX-License-Identifier: MIT
"""Leader election: one leader at a time, with a value that everybody can read."""
from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Generic, Optional, Type

from . import _calls as calls
from ._call import Call, run, run_masked
from ._client import Client, default_client
from ._errors import NotHeld, TimedOut
from ._inspect import Leader
from ._lib import Bytes, Duration, Name, check, ffi, grace_of, lib, new_error, raw_of, wait_of
from ._lock import DEFAULT, C, Default, Wait
from ._watch import ClientBase, Handle, OnLost, checked_on_lost, enter_masked, interrupted, unmask
from ._with import Blocks, ExitMethod, begin


class ElectionOptions:
    """A name and its hf_election_opts."""

    def __init__(self, name: Name, ttl: Optional[Duration], grace: Optional[Duration]) -> None:
        self.name = Bytes(name)
        self.label = raw_of(name).decode(errors="backslashreplace")
        o = self.c = ffi.new("hf_election_opts *")
        o.size = ffi.sizeof("hf_election_opts")
        o.ttl_ms = calls.limit_of(ttl)
        o.grace_ms = grace_of(grace)

    def open(self, client: ClientBase, ptr: Any) -> Handle:
        ret, err = ffi.new("hf_election **"), new_error()
        check(lib.hf_election_open(ptr, self.name.c, self.c, ret, err), err)
        return Handle(client, self.label, ret[0], lib.hf_election_lock(ret[0]),
                      lib.hf_election_free)


def resign(h: Handle) -> None:
    """Masked."""
    if not h.usable():
        raise NotHeld("the client is closed, or the parent's")
    run_masked(calls.election_resign(h))


class ElectionBase(Generic[C]):
    """What a candidate of a thread and one of a task have in common."""

    def __init__(self, name: Name, value: Name = b"", *, wait: Optional[Duration] = None,
                 ttl: Optional[Duration] = None, grace: Optional[Duration] = None,
                 on_lost: OnLost = "interrupt", client: Optional[C] = None) -> None:
        self.name = name
        self.value = value
        self.wait = wait
        self.on_lost = checked_on_lost(on_lost)
        self._options = ElectionOptions(name, ttl, grace)
        self._client = client
        self._found: Optional[Handle] = None
        self._prepare()

    def _prepare(self) -> None:
        """The rest of the constructor, whose arguments are the same for all."""

    def _leading(self) -> Handle:
        if self._found is None or not self._found.usable():
            raise NotHeld(f'this candidate does not lead "{self._options.label}"')
        return self._found

    def _campaign_of(self, h: Handle, value: Optional[Name], wait: Wait) -> Call[int]:
        return calls.election_campaign(h, self.value if value is None else value,
                                       wait_of(self.wait if isinstance(wait, Default) else wait))

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


class Election(ElectionBase[Client]):
    """A candidate. Leading is holding the lock of the same name, and is lost in the same way.

        with holdfast.Election("primary", "db1:5432") as term:
            ...                    # lead

    value  what others see while this candidate leads; the other options are those of Lock.
    A candidate belongs to one thread at a time.
    """

    def _prepare(self) -> None:
        self._blocks = Blocks()

    def _handle(self) -> Handle:
        h = self._found
        if h is not None and h.abandoned():
            h.forsake()
            self._drop(h)
            h = None
        if h is None or not h.usable():
            client = self._client or default_client()
            h = self._found = self._options.open(client, client.ptr)
        return h

    def campaign(self, value: Optional[Name] = None, wait: Wait = DEFAULT) -> int:
        """Become leader, and return the term: the fencing number. If it leads already, the value is
        changed."""
        enter_masked()
        try:
            h = self._handle()
            led = h.held()
            term = self._campaign(h, value, wait)
            if interrupted() and not led:  # its caller would not learn that it leads
                resign(h)
            return term
        finally:
            unmask()

    def _campaign(self, h: Handle, value: Optional[Name], wait: Wait) -> int:
        """Masked. Who leads already stays leader, whatever becomes of the value."""
        broken: Optional[Callable[[], None]] = None if h.held() else lambda: self._drop(h)
        return run_masked(self._campaign_of(h, value, wait), broken)

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
        run(calls.election_set_value(self._leading(), value))

    def __enter__(self) -> int:
        enter_masked()
        try:
            h = self._handle()
            term = self._campaign(h, None, DEFAULT)
            begin(self, [h], self.on_lost, lambda: resign(h))
            return term
        finally:
            unmask()

    if TYPE_CHECKING:

        def __exit__(self, kind: Optional[Type[BaseException]], exc: Optional[BaseException],
                     trace: Optional[TracebackType]) -> None: ...

    else:
        __exit__ = ExitMethod()


def leader(name: Name, *, client: Optional[Client] = None) -> Optional[Leader]:
    """Who leads now; None: nobody."""
    found = run(calls.election_leader((client or default_client()).ptr, name))
    return found if found.leads else None


def part_of(left: int, end: float, now: float) -> int:
    """Observing cannot be cancelled, so it is done in parts of half a second: in milliseconds, how
    long the next one may take. left: of the whole, from its beginning; negative: no limit."""
    return 500 if left < 0 else min(max(0, int((end - now) * 1000)), 500)


def observe(name: Name, seen: Optional[Leader] = None, *, wait: Optional[Duration] = None,
            client: Optional[Client] = None) -> Leader:
    """Wait until leader, term or value differ from what was seen, and return them (also that nobody
    leads); without seen, at once. TimedOut: nothing changed."""
    c, left = client or default_client(), wait_of(wait)
    end = time.monotonic() + left / 1000
    while True:
        try:
            return run(calls.election_observe(c.ptr, name, seen,
                                              part_of(left, end, time.monotonic())))
        except TimedOut:
            if 0 <= left and end <= time.monotonic():
                raise
