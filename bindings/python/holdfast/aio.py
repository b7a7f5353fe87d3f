# SPDX-License-Identifier: MIT
"""Holdfast for asyncio.

    async with holdfast.aio.Lock("report", wait=10) as fence:
        ...

Nothing here blocks the event loop, and waiting needs no thread: a thousand tasks that wait share
one connection. The objects and their options are those of the package itself. A lock belongs to a
task: tasks that share a Lock object exclude one another.

If a lock is lost, the task is cancelled in its `async with` block, as asyncio.timeout() does it,
and the block ends with LockLost.
"""
from __future__ import annotations

import asyncio
import weakref
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Awaitable, Callable, List, Optional, Type, TypeVar, Union

from . import _calls as calls
from ._async_with import Blocks, ExitMethod, begin, begins
from ._call import Call
from ._calls import Count, Place
from ._election import ElectionBase, part_of
from ._errors import Busy, Error, Invalid, NotHeld, TimedOut
from ._inspect import Leader, Value
from ._lib import Duration, Name, wait_of
from ._lock import DEFAULT, Default, LockBase, Wait
from ._loop import Client, client_of, client_or_default, default_client
from ._meet import BarrierBase, LatchBase, MeetBase
from ._once import Steps
from ._sequence import SequenceBase
from ._update import Change, Update
from ._watch import Handle, OnLost, checked_on_lost

__all__ = [
    "Barrier", "Client", "Count", "Election", "Latch", "Leader", "Lock", "Multi", "Place",
    "Semaphore", "Sequence", "Shared", "Value", "default_client", "leader", "observe", "once",
    "once_drop", "update",
]

T = TypeVar("T")


# ---- locks -------------------------------------------------------------------------------------


class _Grants:
    """What each task holds of one Lock."""

    def __init__(self) -> None:
        self.handles: "weakref.WeakKeyDictionary[Any, Handle]" = weakref.WeakKeyDictionary()

    def get(self) -> Optional[Handle]:
        h = self.handles.get(asyncio.current_task())
        return h if h is not None and h.usable() else None

    def set(self, h: Handle) -> None:
        self.handles[asyncio.current_task()] = h

    def drop(self, task: Any, h: Handle) -> None:
        """If it holds nothing any more."""
        if h.fence() == 0:
            if self.handles.get(task) is h:
                del self.handles[task]
            client_of(h).free(h)


def usable(h: Handle) -> Handle:
    if not h.usable():
        raise NotHeld("the client is closed, or the parent's")
    return h


class Lock(LockBase[Client]):
    """As holdfast.Lock, for the tasks of an event loop.

    on_lost "interrupt" cancels the task in the block, which then ends with LockLost; a function is
    called in the event loop.
    """

    _whose = "task"

    def _prepare(self) -> None:
        self._grants = _Grants()
        self._blocks = Blocks()

    def _found(self) -> Optional[Handle]:
        return self._grants.get()

    async def acquire(self, wait: Wait = DEFAULT) -> int:
        """Take the lock and return its fencing number. Busy or TimedOut: it could not be had."""
        client = await client_or_default(self._client)
        found = self._grants.get()
        h = found or self._options.open(client, client.ptr)
        try:
            fence = await client.run_or_undo(calls.lock_acquire(h, self._wait_ms(wait)),
                                             lambda: calls.lock_release(h))
        finally:
            if found is None and h.fence() == 0:
                client.free(h)
        self._grants.set(h)
        return fence

    async def try_acquire(self) -> Optional[int]:
        """Take the lock if it is free now: its fencing number, or None."""
        try:
            return await self.acquire(0)
        except Busy:
            return None

    async def _with(self, call: Callable[..., Call[None]], *args: Any) -> None:
        await self._of(asyncio.current_task(), self._held_handle(), call, *args)

    async def _of(self, task: Any, h: Handle, call: Callable[..., Call[None]], *args: Any) -> None:
        """The grant of a task, which may be gone."""
        try:
            await client_of(h).run(call(usable(h), *args))
        finally:
            self._grants.drop(task, h)

    async def release(self) -> None:
        """Give it back. LockLost: it was lost before, and nobody else's was touched."""
        await self._with(calls.lock_release)

    async def extend(self, ttl: Duration) -> None:
        """Set the lease to ttl from now, longer or shorter, also for later renewals."""
        await self._with(calls.lock_extend, ttl)

    async def verify(self) -> None:
        """Ask the server whether it is still ours; LockLost if not."""
        await self._with(calls.lock_verify)

    async def downgrade(self) -> None:
        """From the only holder to one of several that share it, with nobody in between."""
        await self._with(calls.lock_downgrade)

    async def detach(self, ttl: Optional[Duration] = None) -> None:
        """Hold it no longer, but let it end by itself, ttl from now."""
        await self._with(calls.lock_detach, ttl)

    async def __aenter__(self) -> int:
        exit = begins(self)
        fence = await self.acquire()
        h, task = self._held_handle(), asyncio.current_task()
        await begin(self, exit, [h], lambda: self._of(task, h, calls.lock_release))
        return fence

    if TYPE_CHECKING:

        async def __aexit__(self, kind: Optional[Type[BaseException]],
                            exc: Optional[BaseException],
                            trace: Optional[TracebackType]) -> None: ...

    else:
        __aexit__ = ExitMethod()


class Shared(Lock):
    """A lock that readers share; Lock of the same name is the writer's."""

    def __init__(self, name: Name, **options: Any) -> None:
        super().__init__(name, shared=True, **options)


class Semaphore(Lock):
    """A lock with so many slots. All that use it must give the same number."""

    def __init__(self, name: Name, slots: int, **options: Any) -> None:
        super().__init__(name, slots=slots, **options)


class Multi:
    """Several locks, all or none: names, or locks with options of their own."""

    def __init__(self, *locks: Union[Lock, Name], wait: Optional[Duration] = None,
                 on_lost: OnLost = "interrupt", client: Optional[Client] = None) -> None:
        self.locks = [x if isinstance(x, Lock) else Lock(x, client=client) for x in locks]
        self.wait = wait
        self.on_lost = checked_on_lost(on_lost)
        self._blocks = Blocks()

    async def _one_client(self) -> Client:
        """That of all the locks."""
        found = [await client_or_default(x._client) for x in self.locks]
        if not found:
            raise Invalid("no lock was given")
        if any(c is not found[0] for c in found):
            raise Invalid("the locks are of different clients")
        return found[0]

    async def acquire(self, wait: Wait = DEFAULT) -> List[int]:
        """Take all of them; their fencing numbers, in the order in which they were given."""
        client = await self._one_client()
        handles = [x._grants.get() or x._options.open(client, client.ptr) for x in self.locks]
        wait_ms = wait_of(self.wait if isinstance(wait, Default) else wait)
        fences = await client.run_or_undo(calls.multi_acquire(handles, wait_ms),
                                          lambda: calls.multi_release(handles))
        for x, h in zip(self.locks, handles):
            x._grants.set(h)
        return fences

    async def release(self) -> None:
        """Give all of them back. If some cannot be, the others still are."""
        await self._of(asyncio.current_task(), [x._held_handle() for x in self.locks])

    async def _of(self, task: Any, handles: List[Handle]) -> None:
        """The grants of a task, which may be gone."""
        try:
            await client_of(handles[0]).run(calls.multi_release([usable(h) for h in handles]))
        finally:
            for x, h in zip(self.locks, handles):
                x._grants.drop(task, h)

    @property
    def held(self) -> bool:
        """True while all of them are certainly ours."""
        return all(x.held for x in self.locks)

    async def __aenter__(self) -> List[int]:
        exit = begins(self)
        fences = await self.acquire()
        handles, task = [x._held_handle() for x in self.locks], asyncio.current_task()
        await begin(self, exit, handles, lambda: self._of(task, handles))
        return fences

    if TYPE_CHECKING:

        async def __aexit__(self, kind: Optional[Type[BaseException]],
                            exc: Optional[BaseException],
                            trace: Optional[TracebackType]) -> None: ...

    else:
        __aexit__ = ExitMethod()


# ---- election and once -------------------------------------------------------------------------


class Election(ElectionBase[Client]):
    """As holdfast.Election. A candidate belongs to one task at a time."""

    def _prepare(self) -> None:
        self._blocks = Blocks()

    async def campaign(self, value: Optional[Name] = None, wait: Wait = DEFAULT) -> int:
        """Become leader, and return the term: the fencing number. If it leads already, the value is
        changed."""
        client = await client_or_default(self._client)
        h = self._found
        if h is None or not h.usable():
            h = self._found = self._options.open(client, client.ptr)
        call = self._campaign_of(h, value, wait)
        if h.held():  # it stays leader, whatever becomes of the value
            return await client.run(call)
        return await client.run_or_undo(call, lambda: calls.election_resign(h))

    async def resign(self) -> None:
        """Stop leading: the next candidate takes over."""
        await self._resign(self._leading())

    async def _resign(self, h: Handle) -> None:
        await client_of(h).run(calls.election_resign(usable(h)))

    async def set_value(self, value: Name) -> None:
        """Change what others see."""
        h = self._leading()
        await client_of(h).run(calls.election_set_value(h, value))

    async def __aenter__(self) -> int:
        exit = begins(self)
        term = await self.campaign()
        h = self._leading()
        await begin(self, exit, [h], lambda: self._resign(h))
        return term

    if TYPE_CHECKING:

        async def __aexit__(self, kind: Optional[Type[BaseException]],
                            exc: Optional[BaseException],
                            trace: Optional[TracebackType]) -> None: ...

    else:
        __aexit__ = ExitMethod()


async def leader(name: Name, *, client: Optional[Client] = None) -> Optional[Leader]:
    """Who leads now; None: nobody."""
    c = await client_or_default(client)
    found = await c.run(calls.election_leader(c.ptr, name))
    return found if found.leads else None


async def observe(name: Name, seen: Optional[Leader] = None, *,
                  wait: Optional[Duration] = None, client: Optional[Client] = None) -> Leader:
    """As holdfast.observe()."""
    c, left = await client_or_default(client), wait_of(wait)
    end = c.loop.time() + left / 1000
    while True:
        try:
            return await c.run(calls.election_observe(c.ptr, name, seen,
                                                      part_of(left, end, c.loop.time())))
        except TimedOut:
            if 0 <= left and end <= c.loop.time():
                raise


class _TaskSteps(Steps):
    of: Client
    lock: Lock
    wait: Optional[Duration]
    function: Callable[[], Awaitable[Name]]

    async def call(self, call: Call[T]) -> T:
        return await self.of.run(call)

    async def take(self, wait: bool) -> bool:
        if not wait:
            return await self.lock.try_acquire() is not None
        await self.lock.acquire(self.wait)
        return True

    def handle(self) -> Handle:
        return self.lock._held_handle()

    async def give_back(self) -> None:
        with suppress(Error):
            await self.lock.release()

    async def compute(self) -> Name:
        return await self.function()


async def once(name: Name, compute: Callable[[], Awaitable[Name]], *, ttl: Duration,
               stale: Duration = 0, wait: Optional[Duration] = None, refresh: bool = False,
               lease: Optional[Duration] = None, grace: Optional[Duration] = None,
               client: Optional[Client] = None) -> Value:
    """As holdfast.once(); compute() is awaited."""
    c = await client_or_default(client)
    steps = _TaskSteps(c.ptr, name, ttl, stale, refresh)
    steps.of, steps.lock = c, Lock(name, ttl=lease, grace=grace, client=c)
    steps.wait, steps.function = wait, compute
    return await steps.value()


async def once_drop(name: Name, *, client: Optional[Client] = None) -> None:
    """Forget the cached value."""
    c = await client_or_default(client)
    await c.run(calls.once_drop(c.ptr, name))


# ---- latches and barriers ----------------------------------------------------------------------


class _OfTask(MeetBase[Client]):
    """One handle for each task that uses the object."""

    def _prepare(self) -> None:
        self._handles: "weakref.WeakKeyDictionary[Any, Handle]" = weakref.WeakKeyDictionary()

    async def _run(self, call: Callable[..., Call[T]], *args: Any) -> T:
        client = await client_or_default(self._client)
        task = asyncio.current_task()
        h = self._handles.get(task)
        if h is None or not h.usable():
            h = self._handles[task] = self._open(client, client.ptr)
        try:
            return await client_of(h).run(call(h, *args))
        except asyncio.CancelledError:
            self._drop()  # nothing of this wait meets the next one
            raise

    def _drop(self) -> None:
        h = self._handles.pop(asyncio.current_task(), None)
        if h is not None:
            h.free()


class Latch(_OfTask, LatchBase[Client]):
    """As holdfast.Latch."""

    async def set(self, count: int) -> None:
        """Set it, if there is none or it has reached zero. Busy: it is still counting down."""
        await self._run(calls.latch_set, count)

    async def reset(self, count: int) -> None:
        """The same even while it is counting down: who waits for it gets Broken."""
        await self._run(calls.latch_reset, count)

    async def count_down(self, n: int = 1) -> int:
        """Count down, not below zero; what is left. Unsure: call it again within a minute, in this
        task and with the same n: it counts once."""
        return await self._run(calls.latch_count_down, n)

    async def count(self) -> Count:
        """What is left, and what it was set to. NotSet: there is none."""
        return await self._run(calls.latch_count)

    async def wait(self, wait: Wait = DEFAULT) -> None:
        """Wait until it has reached zero, also if it is not set yet."""
        await self._run(calls.latch_wait, self._wait_ms(wait))


class Barrier(_OfTask, BarrierBase[Client]):
    """As holdfast.Barrier. Each task is a party; one that is cancelled while it waits breaks the
    meeting."""

    async def wait(self, wait: Wait = DEFAULT) -> Place:
        """Arrive, and wait for the others."""
        return await self._run(calls.barrier_wait, self._wait_ms(wait))

    async def leave(self, wait: Wait = DEFAULT) -> None:
        """Wait until all parties want to leave."""
        await self._run(calls.barrier_leave, self._wait_ms(wait))

    async def __aenter__(self) -> Place:
        self._leaves()
        return await self.wait()

    async def __aexit__(self, kind: Optional[Type[BaseException]], exc: Optional[BaseException],
                        trace: Optional[TracebackType]) -> None:
        if exc is None:
            await self.leave()
        else:
            self._drop()  # the others do not wait for us


# ---- sequences and updates: a thread makes these calls, as the library has no others for them ---


class Sequence(SequenceBase[Client]):
    """As holdfast.Sequence; also `async for`. Each id is fetched by a thread."""

    async def next(self) -> int:
        """The next id. Unsure: no answer came, at worst there is a gap: call it again."""
        client = await client_or_default(self._client)
        return await client.run_in_thread(self._next(client, client.ptr), lambda: None)

    def __aiter__(self) -> "Sequence":
        return self

    async def __anext__(self) -> int:
        return await self.next()


async def update(key: Name, change: Change, *, field: Optional[Name] = None,
                 ttl: Optional[Duration] = None, tries: int = 0, max_size: int = 0,
                 client: Optional[Client] = None) -> Optional[bytes]:
    """As holdfast.update(); change() is an ordinary function, and is called in a thread."""
    c = await client_or_default(client)
    u = Update(key, change, field, ttl, tries, max_size)
    await c.run_in_thread(u.call(c.ptr), u.stop)
    return u.result()
