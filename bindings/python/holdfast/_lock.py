# SPDX-License-Identifier: MIT
"""Locks for threads: alone, shared, with slots, and several at once."""
from __future__ import annotations

import threading
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, List, Optional, Type, TypeVar, Union

from . import _calls as calls
from ._call import run, run_masked
from ._client import Client, default_client
from ._errors import Busy, Error, NotHeld
from ._lib import (Bytes, Duration, Name, check, ffi, grace_of, lib, milliseconds, new_error,
                   raw_of, text_of, wait_of)
from ._watch import (ClientBase, Handle, OnLost, checked_on_lost, enter_masked, interrupted, mask,
                     unmask)
from ._with import Blocks, ExitMethod, begin


class Default:
    """Says that an argument was not given, where None means something else."""

    def __repr__(self) -> str:
        return "as given to the constructor"


DEFAULT = Default()
Wait = Union[Duration, None, Default]


class LockOptions:
    """A name and its hf_lock_opts."""

    def __init__(self, name: Name, ttl: Optional[Duration], grace: Optional[Duration],
                 max_hold: Optional[Duration], renew: bool, owner: Optional[Name], shared: bool,
                 slots: int, permits: int, timeout: Optional[Duration]) -> None:
        self.name = Bytes(name)
        self.label = raw_of(name).decode(errors="backslashreplace")
        o = self.c = ffi.new("hf_lock_opts *")
        o.size = ffi.sizeof("hf_lock_opts")
        o.ttl_ms = milliseconds(ttl) if ttl is not None else 0
        o.grace_ms = grace_of(grace)
        o.max_hold_ms = milliseconds(max_hold) if max_hold is not None else 0
        o.no_renew = 0 if renew else 1
        if owner is not None:
            self._owner = Bytes(owner)
            o.owner = self._owner.c
        o.shared = 1 if shared else 0
        o.slots = slots
        o.permits = permits
        o.timeout_ms = milliseconds(timeout) if timeout is not None else 0

    def open(self, client: ClientBase, ptr: Any) -> Handle:
        ret, err = ffi.new("hf_lock **"), new_error()
        check(lib.hf_lock_open(ptr, self.name.c, self.c, ret, err), err)
        return Handle(client, self.label, ret[0], ret[0], lib.hf_lock_free)


def release_handle(h: Handle) -> None:
    """Masked. In any thread, if no other uses the handle."""
    if not h.usable():
        raise NotHeld("the client is closed, or the parent's")
    run_masked(calls.lock_release(h))


C = TypeVar("C", bound=ClientBase)


class LockBase(Generic[C]):
    """What a lock of a thread and one of a task have in common: options, and what is known of the
    lock without asking anybody."""

    _whose = "thread"

    def __init__(self, name: Name, *, wait: Optional[Duration] = None,
                 ttl: Optional[Duration] = None, grace: Optional[Duration] = None,
                 max_hold: Optional[Duration] = None, renew: bool = True,
                 owner: Optional[Name] = None, shared: bool = False, slots: int = 0,
                 permits: int = 0, timeout: Optional[Duration] = None,
                 on_lost: OnLost = "interrupt", client: Optional[C] = None) -> None:
        self.name = name
        self.wait = wait
        self.on_lost = checked_on_lost(on_lost)
        self._options = LockOptions(name, ttl, grace, max_hold, renew, owner, shared, slots,
                                    permits, timeout)
        self._client = client
        self._prepare()

    def _prepare(self) -> None:
        """The rest of the constructor, whose arguments are the same for all."""

    def __repr__(self) -> str:
        return f"<holdfast.{type(self).__name__} {self.name!r} {self.state}>"

    def _found(self) -> Optional[Handle]:
        """The handle of the thread or task that asks, if it has one."""
        raise NotImplementedError

    def _held_handle(self) -> Handle:
        h = self._found()
        if h is None:
            raise NotHeld(f'this {self._whose} does not hold the lock "{self._options.label}"')
        return h

    def _wait_ms(self, wait: Wait) -> int:
        return wait_of(self.wait if isinstance(wait, Default) else wait)

    @property
    def held(self) -> bool:
        """True while it is certainly ours, by our own clock; asks nobody."""
        h = self._found()
        return h is not None and h.held()

    @property
    def fence(self) -> int:
        """The fencing number of the present or lost grant; 0: none."""
        h = self._found()
        return h.fence() if h is not None else 0

    @property
    def state(self) -> str:
        """"free", "held", "in doubt" or "lost" """
        h = self._found()
        state = lib.hf_lock_state(h.lock) if h is not None else lib.HF_STATE_FREE
        return {lib.HF_STATE_FREE: "free", lib.HF_STATE_SAFE: "held",
                lib.HF_STATE_IN_DOUBT: "in doubt"}.get(state, "lost")

    @property
    def time_left(self) -> float:
        """How long, in seconds, it is certainly still ours if no answer comes from now on."""
        h = self._found()
        return float(lib.hf_lock_time_left_ms(h.lock)) / 1000 if h is not None else 0.0

    @property
    def owner(self) -> str:
        """The owner id of the grant: whoever knows it can release the lock. "": none."""
        h = self._found()
        return (text_of(lib.hf_lock_owner(h.lock)) or "") if h is not None else ""


class Lock(LockBase[Client]):
    """A lock: one holder at a time, over all threads, processes and machines that use the server.

        with holdfast.Lock("report", wait=10) as fence:
            ...                    # pass fence along with every write

    The object may be shared by threads: each takes the lock for itself, and they exclude one
    another. A thread that holds it may take it again, and releases it as often.

    wait      how long acquire() waits; None: without a limit; 0: it tries once
    ttl       the lease, which is renewed in the background; None: 30 s
    grace     how long this process must be gone before a waiter takes over; None: a few seconds;
              0: not before the ttl ends
    max_hold  after this time it is no longer renewed; None: no limit
    renew     False: not renewed: call extend()
    owner     an owner id of your own: exactly the value of the key
    shared    True: shared with other readers
    slots     a semaphore with so many; permits: how many of them one acquire takes
    timeout   the longest that release() and extend() may take; None: that of the client
    on_lost   what becomes of a `with` block whose lock is lost: "interrupt" (LockLost is raised in
              it), "ignore" (it is raised at the end of the block), or a function that is called
              with the LockLost, in a thread of its own
    Durations are seconds, a timedelta, or a text such as "1h30m".
    """

    def _prepare(self) -> None:
        self._mine = threading.local()
        self._blocks = Blocks()

    # ---- handles: one for each thread ----

    def _found(self) -> Optional[Handle]:
        h: Optional[Handle] = getattr(self._mine, "handle", None)
        if h is not None and not h.usable():
            h = self._mine.handle = None
        return h

    def _handle(self) -> Handle:
        h = self._found()
        if h is not None and h.abandoned():
            h.forsake()
            self._drop(h)
            h = None
        if h is None:
            client = self._client or default_client()
            h = self._mine.handle = self._options.open(client, client.ptr)
        return h

    def _drop(self, h: Handle) -> None:
        """After a wait that was broken off: what may have been granted is given back, and nothing
        of it meets the next one."""
        self._mine.handle = None
        h.free()

    # ---- taking and giving back ----

    def _acquire(self, wait: Wait) -> int:
        """Masked."""
        h = self._handle()
        if h.fence() != 0:
            return run_masked(calls.lock_acquire(h, 0))
        return run_masked(calls.lock_acquire(h, self._wait_ms(wait)), lambda: self._drop(h))

    def acquire(self, wait: Wait = DEFAULT) -> int:
        """Take the lock and return its fencing number. Busy or TimedOut: it could not be had."""
        enter_masked()
        try:
            fence = self._acquire(wait)
            if interrupted():  # its caller would not learn that it has it
                release_handle(self._handle())
            return fence
        finally:
            unmask()

    def try_acquire(self) -> Optional[int]:
        """Take the lock if it is free now: its fencing number, or None."""
        try:
            return self.acquire(0)
        except Busy:
            return None

    def release(self) -> None:
        """Give it back. LockLost: it was lost before, and nobody else's was touched."""
        enter_masked()
        try:
            release_handle(self._held_handle())
        finally:
            unmask()

    def _give_back(self) -> None:
        """As release(), and does not tell what goes wrong. A loss of another lock is raised."""
        mask()
        try:
            release_handle(self._held_handle())
        except Error:
            pass
        finally:
            unmask()

    def __enter__(self) -> int:
        enter_masked()
        try:
            fence = self._acquire(DEFAULT)
            h = self._handle()
            begin(self, [h], self.on_lost, lambda: release_handle(h))
            return fence
        finally:
            unmask()

    if TYPE_CHECKING:

        def __exit__(self, kind: Optional[Type[BaseException]], exc: Optional[BaseException],
                     trace: Optional[TracebackType]) -> None: ...

    else:
        __exit__ = ExitMethod()

    # ---- while it is held ----

    def extend(self, ttl: Duration) -> None:
        """Set the lease to ttl from now, longer or shorter, also for later renewals."""
        run(calls.lock_extend(self._held_handle(), ttl))

    def verify(self) -> None:
        """Ask the server whether it is still ours; LockLost if not."""
        run(calls.lock_verify(self._held_handle()))

    def downgrade(self) -> None:
        """From the only holder to one of several that share it, with nobody in between."""
        run(calls.lock_downgrade(self._held_handle()))

    def detach(self, ttl: Optional[Duration] = None) -> None:
        """Hold it no longer, but let it end by itself, ttl from now."""
        run(calls.lock_detach(self._held_handle(), ttl))


class Shared(Lock):
    """A lock that readers share; Lock of the same name is the writer's."""

    def __init__(self, name: Name, **options: Any) -> None:
        super().__init__(name, shared=True, **options)


class Semaphore(Lock):
    """A lock with so many slots. All that use it must give the same number."""

    def __init__(self, name: Name, slots: int, **options: Any) -> None:
        super().__init__(name, slots=slots, **options)


class Multi:
    """Several locks, all or none: names, or locks with options of their own.

        with holdfast.Multi("account:17", "account:42", wait=10) as fences:
    """

    def __init__(self, *locks: Union[Lock, Name], wait: Optional[Duration] = None,
                 on_lost: OnLost = "interrupt", client: Optional[Client] = None) -> None:
        self.locks = [x if isinstance(x, Lock) else Lock(x, client=client) for x in locks]
        self.wait = wait
        self.on_lost = checked_on_lost(on_lost)
        self._blocks = Blocks()

    def _acquire(self, wait: Wait) -> List[int]:
        """Masked."""
        handles = [x._handle() for x in self.locks]
        wait_ms = wait_of(self.wait if isinstance(wait, Default) else wait)
        return run_masked(calls.multi_acquire(handles, wait_ms), lambda: self._drop(handles))

    def acquire(self, wait: Wait = DEFAULT) -> List[int]:
        """Take all of them; their fencing numbers, in the order in which they were given."""
        enter_masked()
        try:
            fences = self._acquire(wait)
            if interrupted():  # its caller would not learn that it has them
                self._release([x._handle() for x in self.locks])
            return fences
        finally:
            unmask()

    def _drop(self, handles: List[Handle]) -> None:
        for x, h in zip(self.locks, handles):
            x._drop(h)

    def _release(self, handles: List[Handle]) -> None:
        if not all(h.usable() for h in handles):
            raise NotHeld("the client is closed, or the parent's")
        run_masked(calls.multi_release(handles))

    def release(self) -> None:
        """Give all of them back. If some cannot be, the others still are."""
        enter_masked()
        try:
            self._release([x._held_handle() for x in self.locks])
        finally:
            unmask()

    @property
    def held(self) -> bool:
        """True while all of them are certainly ours."""
        return all(x.held for x in self.locks)

    def __enter__(self) -> List[int]:
        enter_masked()
        try:
            fences = self._acquire(DEFAULT)
            handles = [x._handle() for x in self.locks]
            begin(self, handles, self.on_lost, lambda: self._release(handles))
            return fences
        finally:
            unmask()

    if TYPE_CHECKING:

        def __exit__(self, kind: Optional[Type[BaseException]], exc: Optional[BaseException],
                     trace: Optional[TracebackType]) -> None: ...

    else:
        __exit__ = ExitMethod()
