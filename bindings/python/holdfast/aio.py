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
import atexit
import itertools
import os
import select
import sys
import threading
import weakref
from types import TracebackType
from typing import (Any, AsyncGenerator, Awaitable, Callable, Dict, Generator, List, Optional,
                    Tuple, Type, Union)

from ._client import Log, client_options
from ._election import ElectionOptions, Leader
from ._errors import Busy, Error, LockLost, NotHeld, TimedOut
from ._inspect import Info, info_of
from ._lib import (Bytes, Duration, Name, c_text, check, fail, ffi, lib, milliseconds, new_error,
                   text_of, wait_of)
from ._lock import DEFAULT, Default, LockOptions, Wait
from ._once import Value, computed_value, old_will_do, value_of
from ._watch import ClientBase, Handle, OnLost, checked_on_lost

_Done = Tuple[int, Any]  # the result, and a copy of the error
_Start = Callable[[Any, Any, Any], int]  # done, arg, reterr

_numbers = itertools.count(1)
_calls: Dict[int, Tuple["Client", "asyncio.Future[_Done]", Any]] = {}  # under way, by arg


@ffi.callback("void(hf_err, const hf_error *, void *)")  # type: ignore[misc]
def _done(result: int, err: Any, arg: Any) -> None:
    """By hf_client_dispatch() in the thread of the loop, or where the client is closed."""
    client, future, _keep = _calls.pop(int(ffi.cast("intptr_t", arg)))
    copy = new_error()
    if err != ffi.NULL:
        copy[0] = err[0]
    if client.thread == threading.get_ident():
        _settle(future, (result, copy))
    elif not client.loop.is_closed():
        client.loop.call_soon_threadsafe(_settle, future, (result, copy))


def _settle(future: "asyncio.Future[_Done]", what: _Done) -> None:
    if not future.done():
        future.set_result(what)


class Client(ClientBase):
    """A client of one event loop. Most programs need none of their own: locks use
    default_client(). Arguments as for holdfast.Client.

        async with holdfast.aio.Client("redis://db1") as client:
            async with client.lock("report"): ...
    """

    def __init__(self, url: Optional[str] = None, *, prefix: Optional[str] = None,
                 password: Optional[str] = None, program: Optional[str] = None,
                 info: Optional[str] = None, timeout: Optional[Duration] = None,
                 protocol: Optional[str] = None, replicas: int = 0,
                 wait: Optional[Duration] = None, repair: bool = True, confirm: bool = False,
                 log: Optional[Log] = None) -> None:
        self._url = url
        self._opts, self._keep = client_options(prefix, password, program, info, timeout, protocol,
                                                replicas, wait, repair, confirm, log)
        self._ptr: Any = ffi.NULL
        self.closed = True
        self.pid = os.getpid()
        self._opening: Optional["asyncio.Future[None]"] = None
        self.end: Optional[AsyncGenerator[None, None]] = None
        self._events: Optional[select.epoll] = None
        self._watched: Dict[int, "weakref.ref[Handle]"] = {}
        self._blocks: "weakref.WeakKeyDictionary[Handle, List[_Block]]" = (
            weakref.WeakKeyDictionary())

    # ---- life ----

    async def open(self) -> "Client":
        """Connect, if it is not connected yet. Several tasks may call it at once."""
        if self._opening is None:
            self.loop = asyncio.get_running_loop()
            self.thread = threading.get_ident()
            self.pid = os.getpid()
            self._opening = asyncio.ensure_future(self._open())
        elif self.loop is not asyncio.get_running_loop():
            raise Error("this client belongs to another event loop")
        await asyncio.shield(self._opening)
        return self

    async def _open(self) -> None:
        ret = ffi.new("hf_client **")
        future: "asyncio.Future[_Done]" = self.loop.create_future()
        number, err = next(_numbers), new_error()
        _calls[number] = (self, future, ret)
        result = lib.hf_client_open_async(c_text(self._url), self._opts, ret, _done,
                                          ffi.cast("void *", number), err)
        if result:
            del _calls[number]
            fail(err)
        self._ptr, self.closed = ret[0], False
        _open_clients.add(self)
        fd = ffi.new("int *")
        check(lib.hf_client_fd(self._ptr, fd, err), err)
        self._fd = int(fd[0])
        self.loop.add_reader(self._fd, self._dispatch)
        result, err = await future
        if result:
            await self.close()
            fail(err)

    def _dispatch(self) -> None:
        if not self.closed:
            lib.hf_client_dispatch(self._ptr)

    @property
    def ptr(self) -> Any:
        """The hf_client, for calls of the library."""
        if self.closed:
            raise Error("the client is closed, or not open yet: await its open()")
        return self._ptr

    @property
    def url(self) -> str:
        """Where it is connected, without the password."""
        return text_of(lib.hf_client_url(self.ptr)) or ""

    async def close(self) -> None:
        """Release what is still held, and disconnect; what is under way is cancelled. Saying
        good-bye may take a moment, so a thread does it."""
        ptr = self._detach()
        if ptr != ffi.NULL:
            await self.loop.run_in_executor(None, lib.hf_client_free, ptr)

    def _detach(self) -> Any:
        if self.closed:
            return ffi.NULL
        self.closed = True
        if not self.loop.is_closed():
            self.loop.remove_reader(self._fd)
            if self._events is not None:
                self.loop.remove_reader(self._events.fileno())
        if self._events is not None:
            self._events.close()
        ptr, self._ptr = self._ptr, ffi.NULL
        return ptr

    async def __aenter__(self) -> "Client":
        return await self.open()

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def __await__(self) -> Generator[Any, None, "Client"]:
        return self.open().__await__()

    def __del__(self) -> None:
        if not self.closed and not sys.is_finalizing():
            lib.hf_client_free(self._detach())

    # ---- calls ----

    async def call(self, start: _Start, cancel: Optional[Callable[[], object]] = None,
                   keep: Any = None) -> Tuple[int, Any]:
        """Begin an _async call, and wait for its end, of which its result and error are returned.
        A task that is cancelled meanwhile still waits for that, as the handle is in use until
        then; cancel() makes it short. keep is kept until then."""
        future: "asyncio.Future[_Done]" = self.loop.create_future()
        number, err = next(_numbers), new_error()
        _calls[number] = (self, future, keep)
        result = start(_done, ffi.cast("void *", number), err)
        if result:
            del _calls[number]
            fail(err)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            if cancel and not future.done():
                cancel()
            while not future.done():
                try:
                    await asyncio.wait([future])
                except asyncio.CancelledError:
                    pass
            raise

    # ---- losses ----

    def watch(self, h: Handle, block: "_Block") -> None:
        """The block is told if the lock of this handle is lost."""
        if self._events is None:
            self._events = select.epoll()
            self.loop.add_reader(self._events.fileno(), self._changed)
        if h.fd < 0:
            h.fd = h.descriptor()
            self._watched[h.fd] = weakref.ref(h)
            self._events.register(h.fd, select.EPOLLIN | select.EPOLLET)
        self._blocks.setdefault(h, []).append(block)
        self._look(h)

    def unwatch(self, h: Handle, block: "_Block") -> None:
        blocks = self._blocks.get(h, [])
        if block in blocks:
            blocks.remove(block)

    def free(self, h: Handle) -> None:
        """A handle that holds nothing. Its descriptor is not watched any more."""
        if h.fd >= 0 and not self.closed and self._events is not None:
            self._watched.pop(h.fd, None)
            try:
                self._events.unregister(h.fd)
            except OSError:
                pass
        h.fd = -1
        h.free()

    def _changed(self) -> None:
        assert self._events is not None
        for fd, _ in self._events.poll(0):
            found = self._watched.get(fd)
            h = found() if found else None
            if h is not None:
                self._look(h)

    def _look(self, h: Handle) -> None:
        if h.lost():
            for block in self._blocks.get(h, []):
                block.tell(h.loss())

    # ---- what this client can make ----

    def lock(self, name: Name, **options: Any) -> "Lock":
        return Lock(name, client=self, **options)

    def shared(self, name: Name, **options: Any) -> "Lock":
        return Shared(name, client=self, **options)

    def semaphore(self, name: Name, slots: int, **options: Any) -> "Lock":
        return Semaphore(name, slots, client=self, **options)

    def multi(self, *locks: Any, **options: Any) -> "Multi":
        return Multi(*locks, client=self, **options)

    def election(self, name: Name, value: Name = b"", **options: Any) -> "Election":
        return Election(name, value, client=self, **options)

    async def guard_check(self, resource: Name, fence: int) -> None:
        """Remember the fencing number; Stale if a larger one has been seen."""
        r, ptr = Bytes(resource), self.ptr
        check(*await self.call(lambda *end: lib.hf_guard_check_async(ptr, r.c, fence, *end)))

    async def guard_set(self, key: Name, value: Name, fence: int) -> None:
        """SET key value, only if the fencing number is not older than the newest one seen."""
        k, v, ptr = Bytes(key), Bytes(value), self.ptr
        check(*await self.call(lambda *end: lib.hf_guard_set_async(ptr, k.c, v.c, fence, *end)))

    async def inspect(self, name: Name, timeout: Optional[Duration] = None) -> Info:
        """Who holds a lock, and who waits for it."""
        n, ret, ptr = Bytes(name), ffi.new("hf_inspect_info **"), self.ptr
        limit = milliseconds(timeout) if timeout is not None else 0
        check(*await self.call(
            lambda *end: lib.hf_inspect_lock_async(ptr, n.c, limit, ret, *end), keep=ret))
        try:
            return info_of(ret[0])
        finally:
            lib.hf_inspect_free(ret[0])


# ---- the client of each loop -------------------------------------------------------------------

_defaults: "weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Client]" = (
    weakref.WeakKeyDictionary())
_open_clients: "weakref.WeakSet[Client]" = weakref.WeakSet()


async def default_client() -> Client:
    """The client that locks of this event loop use if they are given none. It is closed when the
    loop ends."""
    loop = asyncio.get_running_loop()
    client = _defaults.get(loop)
    if client is None or client.pid != os.getpid() or (client._opening is not None
                                                      and client._opening.done() and client.closed):
        client = _defaults[loop] = Client()
        client.end = _close_with_loop(weakref.ref(client))
        await client.end.__anext__()  # from here on asyncio.run() ends it
    return await client.open()


async def _close_with_loop(found: "weakref.ref[Client]") -> AsyncGenerator[None, None]:
    """asyncio.run() ends what is left of asynchronous generators before it closes its loop."""
    try:
        yield
    finally:
        client = found()
        if client is not None:
            _defaults.pop(client.loop, None)  # which nothing keeps alive any more
            await client.close()


def _at_exit() -> None:
    """Of loops that were left without an end."""
    for client in list(_open_clients):
        if not client.closed and client.pid == os.getpid():
            lib.hf_client_free(client._detach())


atexit.register(_at_exit)


async def _client(given: Optional[Client]) -> Client:
    return await given.open() if given is not None else await default_client()


# ---- blocks ------------------------------------------------------------------------------------


class _Block:
    """One `async with`, and what happens when one of its locks is lost."""

    def __init__(self, client: Client, handles: List[Handle], on_lost: OnLost) -> None:
        self.client = client
        self.handles = handles
        self.on_lost = on_lost
        self.task = asyncio.current_task()
        self.cancelling = _cancelling(self.task)
        self.told: Optional[LockLost] = None
        self.cancelled = False

    def begin(self) -> None:
        if self.on_lost != "ignore":
            for h in self.handles:
                self.client.watch(h, self)

    def tell(self, error: LockLost) -> None:
        if self.told is not None:
            return
        self.told = error
        if callable(self.on_lost):
            self.on_lost(error)
        elif self.task is not None:
            self.cancelled = True
            self.task.cancel()

    def end(self, exc: Optional[BaseException]) -> Optional[LockLost]:
        """The loss, if the block is to end with it. A task that somebody else has cancelled too
        stays cancelled."""
        for h in self.handles:
            self.client.unwatch(h, self)
        lost = self.told
        for h in self.handles:
            if lost is None and h.lost():
                lost = h.loss()
        others = self.cancelled and _uncancel(self.task) > self.cancelling
        if exc is None:
            return None if others else lost
        ours = self.cancelled and not others and isinstance(exc, asyncio.CancelledError)
        return lost if ours else None


def _cancelling(task: Optional["asyncio.Task[Any]"]) -> int:
    """Python 3.9 and 3.10 do not count."""
    return int(task.cancelling()) if task is not None and hasattr(task, "cancelling") else 0


def _uncancel(task: Optional["asyncio.Task[Any]"]) -> int:
    return int(task.uncancel()) if task is not None and hasattr(task, "uncancel") else 0


async def _leave(block: _Block, release: Callable[[], Awaitable[None]],
                 exc: Optional[BaseException]) -> None:
    error: Optional[Error] = block.end(exc)
    try:
        await release()
    except asyncio.CancelledError:
        # Ours, if the block had no await in which it could arrive.
        if error is None or exc is not None or not block.cancelled:
            raise
    except Error as e:
        if exc is None:
            error = error or e
    if error is not None:
        raise error from exc


# ---- locks -------------------------------------------------------------------------------------


class _Grants:
    """What each task holds of one Lock, and the blocks in which it does."""

    def __init__(self) -> None:
        self.handles: "weakref.WeakKeyDictionary[Any, Handle]" = weakref.WeakKeyDictionary()
        self.blocks: "weakref.WeakKeyDictionary[Any, List[_Block]]" = weakref.WeakKeyDictionary()

    def get(self) -> Optional[Handle]:
        h = self.handles.get(asyncio.current_task())
        return h if h is not None and h.usable() else None

    def set(self, h: Handle) -> None:
        self.handles[asyncio.current_task()] = h

    def drop(self, client: Client, h: Handle) -> None:
        self.handles.pop(asyncio.current_task(), None)
        client.free(h)

    def push(self, block: _Block) -> None:
        self.blocks.setdefault(asyncio.current_task(), []).append(block)

    def pop(self) -> _Block:
        return self.blocks[asyncio.current_task()].pop()


class Lock:
    """As holdfast.Lock, for the tasks of an event loop.

    on_lost "interrupt" cancels the task in the block, which then ends with LockLost; a function is
    called in the event loop.
    """

    def __init__(self, name: Name, *, wait: Optional[Duration] = None,
                 ttl: Optional[Duration] = None, grace: Optional[Duration] = None,
                 max_hold: Optional[Duration] = None, renew: bool = True,
                 owner: Optional[Name] = None, shared: bool = False, slots: int = 0,
                 permits: int = 0, timeout: Optional[Duration] = None,
                 on_lost: OnLost = "interrupt", client: Optional[Client] = None) -> None:
        self.name = name
        self.wait = wait
        self.on_lost = checked_on_lost(on_lost)
        self._options = LockOptions(name, ttl, grace, max_hold, renew, owner, shared, slots,
                                    permits, timeout)
        self._client = client
        self._grants = _Grants()

    def _held_handle(self) -> Handle:
        h = self._grants.get()
        if h is None:
            raise NotHeld(f'this task does not hold the lock "{self._options.label}"')
        return h

    async def acquire(self, wait: Wait = DEFAULT) -> int:
        """Take the lock and return its fencing number. Busy or TimedOut: it could not be had."""
        client = await _client(self._client)
        found = self._grants.get()
        h = found or self._options.open(client, client.ptr)
        wait_ms = wait_of(self.wait if isinstance(wait, Default) else wait)
        lock = h.lock
        try:
            result, err = await client.call(
                lambda *end: lib.hf_lock_acquire_async(lock, wait_ms, *end),
                lambda: lib.hf_lock_cancel(lock), h)
        except asyncio.CancelledError:
            if found is None and h.held():  # granted in the same moment
                await client.call(lambda *end: lib.hf_lock_release_async(lock, *end), keep=h)
            raise
        finally:
            if found is None and h.fence() == 0:
                client.free(h)
        check(result, err)
        self._grants.set(h)
        return h.fence()

    async def try_acquire(self) -> Optional[int]:
        """Take the lock if it is free now: its fencing number, or None."""
        try:
            return await self.acquire(0)
        except Busy:
            return None

    async def _with(self, start: Callable[..., int]) -> None:
        h = self._held_handle()
        client = h.client
        assert isinstance(client, Client)
        lock = h.lock
        try:
            check(*await client.call(lambda *end: start(lock, *end), keep=h))
        finally:
            if h.fence() == 0:
                self._grants.drop(client, h)

    async def release(self) -> None:
        """Give it back. LockLost: it was lost before, and nobody else's was touched."""
        await self._with(lib.hf_lock_release_async)

    async def extend(self, ttl: Duration) -> None:
        """Set the lease to ttl from now, longer or shorter, also for later renewals."""
        ms = milliseconds(ttl)
        await self._with(lambda lock, *end: lib.hf_lock_extend_async(lock, ms, *end))

    async def verify(self) -> None:
        """Ask the server whether it is still ours; LockLost if not."""
        await self._with(lib.hf_lock_verify_async)

    async def downgrade(self) -> None:
        """From the only holder to one of several that share it, with nobody in between."""
        await self._with(lib.hf_lock_downgrade_async)

    async def detach(self, ttl: Optional[Duration] = None) -> None:
        """Hold it no longer, but let it end by itself, ttl from now."""
        ms = milliseconds(ttl) if ttl is not None else 0
        await self._with(lambda lock, *end: lib.hf_lock_detach_async(lock, ms, *end))

    @property
    def held(self) -> bool:
        """True while it is certainly ours, by our own clock; asks nobody. In this task."""
        h = self._grants.get()
        return h is not None and h.held()

    @property
    def fence(self) -> int:
        """The fencing number of the present or lost grant of this task; 0: none."""
        h = self._grants.get()
        return h.fence() if h is not None else 0

    @property
    def time_left(self) -> float:
        """How long, in seconds, it is certainly still ours if no answer comes from now on."""
        h = self._grants.get()
        return float(lib.hf_lock_time_left_ms(h.lock)) / 1000 if h is not None else 0.0

    async def __aenter__(self) -> int:
        fence = await self.acquire()
        h = self._held_handle()
        assert isinstance(h.client, Client)
        block = _Block(h.client, [h], self.on_lost)
        self._grants.push(block)
        block.begin()
        return fence

    async def __aexit__(self, kind: Optional[Type[BaseException]], exc: Optional[BaseException],
                        trace: Optional[TracebackType]) -> None:
        await _leave(self._grants.pop(), self.release, exc)


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
        self._client = client
        self._grants = _Grants()

    async def acquire(self, wait: Wait = DEFAULT) -> List[int]:
        """Take all of them; their fencing numbers, in the order in which they were given."""
        given = self._client or (self.locks[0]._client if self.locks else None)
        client = await _client(given)
        handles = [x._grants.get() or x._options.open(client, client.ptr) for x in self.locks]
        array, n = ffi.new("hf_lock *[]", [h.lock for h in handles]), len(handles)
        wait_ms = wait_of(self.wait if isinstance(wait, Default) else wait)
        try:
            result, err = await client.call(
                lambda *end: lib.hf_multi_acquire_async(array, n, wait_ms, *end),
                lambda: lib.hf_multi_cancel(array, n), (array, handles))
        except asyncio.CancelledError:
            if n and all(h.held() for h in handles):
                await client.call(lambda *end: lib.hf_multi_release_async(array, n, *end),
                                  keep=(array, handles))
            raise
        check(result, err)
        for x, h in zip(self.locks, handles):
            x._grants.set(h)
        return [h.fence() for h in handles]

    async def release(self) -> None:
        """Give all of them back. If some cannot be, the others still are."""
        handles = [x._held_handle() for x in self.locks]
        client = handles[0].client
        assert isinstance(client, Client)
        array, n = ffi.new("hf_lock *[]", [h.lock for h in handles]), len(handles)
        try:
            check(*await client.call(
                lambda *end: lib.hf_multi_release_async(array, n, *end), keep=(array, handles)))
        finally:
            for x, h in zip(self.locks, handles):
                if h.fence() == 0:
                    x._grants.drop(client, h)

    @property
    def held(self) -> bool:
        """True while all of them are certainly ours."""
        return all(x.held for x in self.locks)

    async def __aenter__(self) -> List[int]:
        fences = await self.acquire()
        handles = [x._held_handle() for x in self.locks]
        client = handles[0].client
        assert isinstance(client, Client)
        block = _Block(client, handles, self.on_lost)
        self._grants.push(block)
        block.begin()
        return fences

    async def __aexit__(self, kind: Optional[Type[BaseException]], exc: Optional[BaseException],
                        trace: Optional[TracebackType]) -> None:
        await _leave(self._grants.pop(), self.release, exc)


# ---- election and once -------------------------------------------------------------------------


class Election:
    """As holdfast.Election. A candidate belongs to one task at a time."""

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
        self._blocks: List[_Block] = []

    def _leading(self) -> Tuple[Client, Handle]:
        h = self._found
        if h is None or not h.usable():
            raise NotHeld(f'this candidate does not lead "{self._options.label}"')
        assert isinstance(h.client, Client)
        return h.client, h

    async def campaign(self, value: Optional[Name] = None, wait: Wait = DEFAULT) -> int:
        """Become leader, and return the term: the fencing number. If it leads already, the value is
        changed."""
        client = await _client(self._client)
        h = self._found
        if h is None or not h.usable():
            h = self._found = self._options.open(client, client.ptr)
        v, term = Bytes(self.value if value is None else value), ffi.new("uint64_t *")
        wait_ms = wait_of(self.wait if isinstance(wait, Default) else wait)
        what, lock = h.what, h.lock
        try:
            result, err = await client.call(
                lambda *end: lib.hf_election_campaign_async(what, v.c, wait_ms, term, *end),
                lambda: lib.hf_lock_cancel(lock), (h, v, term))
        except asyncio.CancelledError:
            if h.held():
                await client.call(lambda *end: lib.hf_election_resign_async(what, *end), keep=h)
            raise
        check(result, err)
        return int(term[0])

    async def resign(self) -> None:
        """Stop leading: the next candidate takes over."""
        client, h = self._leading()
        what = h.what
        check(*await client.call(lambda *end: lib.hf_election_resign_async(what, *end), keep=h))

    async def set_value(self, value: Name) -> None:
        """Change what others see."""
        client, h = self._leading()
        what, v = h.what, Bytes(value)
        check(*await client.call(
            lambda *end: lib.hf_election_set_value_async(what, v.c, *end), keep=(h, v)))

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

    async def __aenter__(self) -> int:
        term = await self.campaign()
        client, h = self._leading()
        block = _Block(client, [h], self.on_lost)
        self._blocks.append(block)
        block.begin()
        return term

    async def __aexit__(self, kind: Optional[Type[BaseException]], exc: Optional[BaseException],
                        trace: Optional[TracebackType]) -> None:
        await _leave(self._blocks.pop(), self.resign, exc)


async def leader(name: Name, *, client: Optional[Client] = None) -> Optional[Leader]:
    """Who leads now; None: nobody."""
    c = await _client(client)
    n, ret, ptr = Bytes(name), ffi.new("hf_leader **"), c.ptr
    check(*await c.call(
        lambda *end: lib.hf_election_leader_async(ptr, n.c, ret, *end), keep=ret))
    found = Leader(ret[0])
    return found if found.leads else None


async def observe(name: Name, seen: Optional[Leader] = None, *,
                  wait: Optional[Duration] = None, client: Optional[Client] = None) -> Leader:
    """As holdfast.observe()."""
    c, n = await _client(client), Bytes(name)
    known = seen.ptr if seen else ffi.NULL
    left = wait_of(wait)
    end = c.loop.time() + left / 1000
    while True:  # in parts, since it cannot be cancelled
        ret, ptr = ffi.new("hf_leader **"), c.ptr
        part = 500 if left < 0 else min(max(0, int((end - c.loop.time()) * 1000)), 500)
        result, err = await c.call(lambda *done: lib.hf_election_observe_async(
            ptr, n.c, known, part, ret, *done), keep=(ret, seen))
        if not result:
            return Leader(ret[0])
        if result != lib.HF_ETIMEDOUT or (left >= 0 and c.loop.time() >= end):
            fail(err)


async def _get(c: Client, n: Bytes) -> Optional[Value]:
    ret, ptr = ffi.new("hf_value **"), c.ptr
    check(*await c.call(lambda *end: lib.hf_once_get_async(ptr, n.c, ret, *end), keep=ret))
    return value_of(ret[0])


async def once(name: Name, compute: Callable[[], Awaitable[Name]], *, ttl: Duration,
               stale: Duration = 0, wait: Optional[Duration] = None, refresh: bool = False,
               lease: Optional[Duration] = None, grace: Optional[Duration] = None,
               client: Optional[Client] = None) -> Value:
    """As holdfast.once(); compute() is awaited."""
    c, n = await _client(client), Bytes(name)
    ttl_ms, stale_ms = milliseconds(ttl), milliseconds(stale)
    old = None if refresh else await _get(c, n)
    if old is not None and old.fresh > 0:
        return old
    lock = Lock(name, ttl=lease, grace=grace, client=c)
    if old is not None and old_will_do(old, stale_ms):
        if await lock.try_acquire() is None:
            return old
    else:
        try:
            await lock.acquire(wait)
        except (Busy, TimedOut):  # done just now, while others still stand before us?
            found = None if refresh else await _get(c, n)
            if found is None or found.fresh <= 0:
                raise
            return found
    try:
        if not refresh:  # somebody was quicker
            found = await _get(c, n)
            if found is not None and found.fresh > 0:
                return found
        value = computed_value(await compute(), ttl_ms)
        await _keep(c, n, lock, value, ttl_ms, stale_ms)
        return value
    finally:
        try:
            await lock.release()
        except Error:
            pass  # lost or not: the value matters, and _keep() has told


async def _keep(c: Client, n: Bytes, lock: Lock, value: Value, ttl_ms: int,
                stale_ms: int) -> None:
    """Only a lost lock takes the value from its own caller."""
    v, h, ptr = Bytes(value), lock._held_handle(), c.ptr
    try:
        result, err = await c.call(
            lambda *end: lib.hf_once_put_async(ptr, n.c, h.lock, v.c, ttl_ms, stale_ms, *end),
            keep=(v, h))
        check(result, err)
    except LockLost:
        raise
    except Error:
        value.cached = False  # too large, or the server could not be reached
