# SPDX-License-Identifier: MIT
"""Latches and barriers: waiting for one another."""
from __future__ import annotations

import threading
from types import TracebackType
from typing import Any, Generic, Optional, Type

from . import _calls as calls
from ._call import Call, T, run
from ._calls import Count, Place
from ._client import Client, default_client
from ._errors import Invalid
from ._lib import Bytes, Duration, Name, check, ffi, grace_of, lib, new_error, wait_of
from ._lock import DEFAULT, C, Default, Wait
from ._watch import ClientBase, Handle


class MeetBase(Generic[C]):
    """What all of them have in common."""

    name: Name
    _client: Optional[C]
    _limit: Optional[Duration]

    def _prepare(self) -> None:
        """The rest of the constructor, whose arguments are the same for threads and for tasks."""

    def _open(self, client: ClientBase, ptr: Any) -> Handle:
        raise NotImplementedError

    def _wait_ms(self, wait: Wait) -> int:
        return wait_of(self._limit if isinstance(wait, Default) else wait)


class LatchBase(MeetBase[C]):
    """What latches of threads and of tasks have in common."""

    def __init__(self, name: Name, *, wait: Optional[Duration] = None,
                 ttl: Optional[Duration] = None, client: Optional[C] = None) -> None:
        self.name = name
        self._limit = wait
        self._client = client
        o = self._options = ffi.new("hf_latch_opts *")
        o.size = ffi.sizeof("hf_latch_opts")
        o.ttl_ms = calls.limit_of(ttl)
        self._prepare()

    def _open(self, client: ClientBase, ptr: Any) -> Handle:
        ret, err, name = ffi.new("hf_latch **"), new_error(), Bytes(self.name)
        check(lib.hf_latch_open(ptr, name.c, self._options, ret, err), err)
        return Handle(client, str(self.name), ret[0], ffi.NULL, lib.hf_latch_free)


class BarrierBase(MeetBase[C]):
    """What barriers of threads and of tasks have in common."""

    def __init__(self, name: Name, parties: int, *, wait: Optional[Duration] = None,
                 grace: Optional[Duration] = None, leave: bool = False,
                 client: Optional[C] = None) -> None:
        self.name = name
        self.parties = parties
        self._limit = wait
        self._client = client
        o = self._options = ffi.new("hf_barrier_opts *")
        o.size = ffi.sizeof("hf_barrier_opts")
        o.grace_ms = grace_of(grace)
        o.leave = 1 if leave else 0
        self._prepare()

    def _open(self, client: ClientBase, ptr: Any) -> Handle:
        ret, err, name = ffi.new("hf_barrier **"), new_error(), Bytes(self.name)
        check(lib.hf_barrier_open(ptr, name.c, self.parties, self._options, ret, err), err)
        return Handle(client, str(self.name), ret[0], ffi.NULL, lib.hf_barrier_free)

    def _leaves(self) -> None:
        if not self._options.leave:
            raise Invalid("a block is left together too: give the barrier leave=True")


class OfThread(MeetBase[Client]):
    """One handle for each thread that uses the object."""

    def _prepare(self) -> None:
        self._mine = threading.local()

    def _handle(self) -> Handle:
        h: Optional[Handle] = getattr(self._mine, "handle", None)
        if h is None or not h.usable():
            client = self._client or default_client()
            h = self._mine.handle = self._open(client, client.ptr)
        return h

    def _drop(self) -> None:
        """After a wait that was broken off: nothing of it meets the next one."""
        h: Optional[Handle] = getattr(self._mine, "handle", None)
        self._mine.handle = None
        if h is not None:
            h.free()

    def _run(self, call: Call[T]) -> T:
        return run(call, self._drop)


class Latch(OfThread, LatchBase[Client]):
    """A count on the server that goes down to zero, and callers that wait for that. Whoever knows
    the name may set it, count it down and wait for it.

        holdfast.Latch("loads").set(3)            # once
        holdfast.Latch("loads").count_down()      # three times, anywhere
        holdfast.Latch("loads").wait("2h")        # any number of times

    wait  how long wait() waits; None: without a limit
    ttl   how long a latch that nobody uses is kept; None: a day
    """

    def set(self, count: int) -> None:
        """Set it, if there is none or it has reached zero. Busy: it is still counting down."""
        self._run(calls.latch_set(self._handle(), count))

    def reset(self, count: int) -> None:
        """The same even while it is counting down: who waits for it gets Broken."""
        self._run(calls.latch_reset(self._handle(), count))

    def count_down(self, n: int = 1) -> int:
        """Count down, not below zero; what is left. NotSet: there is no latch of this name. Unsure:
        call it again within a minute, in this thread and with the same n: it counts once."""
        return self._run(calls.latch_count_down(self._handle(), n))

    def count(self) -> Count:
        """What is left, and what it was set to. NotSet: there is none."""
        return self._run(calls.latch_count(self._handle()))

    def wait(self, wait: Wait = DEFAULT) -> None:
        """Wait until it has reached zero, also if it is not set yet. TimedOut, or Busy if wait is 0:
        it has not. Broken: it was reset, or disappeared from the server."""
        self._run(calls.latch_wait(self._handle(), self._wait_ms(wait)))


class Barrier(OfThread, BarrierBase[Client]):
    """A meeting of so many parties: each waits until all have arrived, and then all go on. It can
    be used again at once. A party that dies, gives up or runs out of time breaks the meeting for
    all (Broken), so that nobody waits for ever. Each thread is a party.

        place = holdfast.Barrier("start", 4).wait(600)     # in each of four programs

        with holdfast.Barrier("merge", 4, leave=True):     # they also leave together
            ...

    wait   how long wait() and leave() wait; None: without a limit
    grace  how long this process must be gone before the meeting is broken; None: a few seconds
    leave  True: the parties also leave together; all of them must say so
    """

    def wait(self, wait: Wait = DEFAULT) -> Place:
        """Arrive, and wait for the others. TimedOut: the meeting is broken for them too. Busy: wait
        was 0, others are missing, and this one has not arrived."""
        return self._run(calls.barrier_wait(self._handle(), self._wait_ms(wait)))

    def leave(self, wait: Wait = DEFAULT) -> None:
        """Wait until all parties want to leave."""
        self._run(calls.barrier_leave(self._handle(), self._wait_ms(wait)))

    def __enter__(self) -> Place:
        self._leaves()
        return self.wait()

    def __exit__(self, kind: Optional[Type[BaseException]], exc: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        if exc is None:
            self.leave()
        else:
            self._drop()  # the others do not wait for us
