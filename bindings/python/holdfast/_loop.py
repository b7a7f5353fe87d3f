# SPDX-License-Identifier: MIT
"""The client of an event loop, and the blocks whose locks it watches."""
from __future__ import annotations

import asyncio
import atexit
import itertools
import os
import select
import sys
import threading
import weakref
from contextlib import suppress
from typing import (TYPE_CHECKING, Any, AsyncGenerator, Awaitable, Callable, Dict, Generator,
                    List, Optional, Set, Tuple)

from . import _calls as calls
from ._call import Call, T
from ._client import Log, client_options
from ._errors import Error, LockLost
from ._inspect import Info
from ._lib import Duration, Name, c_text, check, fail, ffi, lib, new_error, text_of
from ._update import Change
from ._watch import ClientBase, Handle, OnLost, alone

if TYPE_CHECKING:
    from .aio import Barrier, Election, Latch, Lock, Multi, Sequence

_Done = Tuple[int, Any]  # the result, and a copy of the error

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
        super().__init__()
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
        self._blocks: "weakref.WeakKeyDictionary[Handle, List[Block]]" = (
            weakref.WeakKeyDictionary())
        self._threads: Set["asyncio.Future[int]"] = set()  # in which calls are made
        self.outliving: Set[Handle] = set()  # what they hold ends by itself, and not with us

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
            await asyncio.shield(asyncio.ensure_future(self._free(ptr)))

    async def _free(self, ptr: Any) -> None:
        if self._threads:  # they use it
            await asyncio.wait(list(self._threads))
        await self.loop.run_in_executor(None, self._end, ptr)

    def _end(self, ptr: Any) -> None:
        """What is to end by itself is not released."""

        def close() -> None:
            for h in list(self.outliving):
                if h.what != ffi.NULL and lib.hf_lock_is_held(h.lock):
                    lib.hf_lock_detach(h.lock, 0, ffi.NULL)
            lib.hf_client_free(ptr)

        self.free_client(close)

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
            self._end(self._detach())

    # ---- calls ----

    async def run(self, call: Call[T]) -> T:
        """Begin a call, and wait for its end. A task that is cancelled meanwhile still waits for
        that, as the handle is in use until then; to cancel the call makes it short."""
        future: "asyncio.Future[_Done]" = self.loop.create_future()
        number, err = next(_numbers), new_error()
        _calls[number] = (self, future, call)
        result = call.begin(_done, ffi.cast("void *", number), err)
        if result:
            del _calls[number]
            fail(err)
        try:
            result, err = await asyncio.shield(future)
        except asyncio.CancelledError:
            if call.cancel and not future.done():
                call.cancel()
            await _sit_out(future)
            if future.result()[0] == lib.HF_OK:
                call.read()  # and forget it: some of it has to be freed
                call.succeeded = True
            raise
        check(result, err)
        return call.read()

    async def run_or_undo(self, call: Call[T], undo: Callable[[], Call[None]]) -> T:
        """As run(). A task that is cancelled does not learn what it has got: the call of undo()
        gives that back. What then goes wrong is not told, so that the task stays cancelled."""
        try:
            return await self.run(call)
        except asyncio.CancelledError:
            if call.succeeded and not self.closed:
                with suppress(Error):
                    await self.run(undo())
            raise

    async def run_in_thread(self, call: Call[T], stop: Callable[[], object]) -> T:
        """As run(), for what the library has no other call for; stop() makes it short."""
        err = new_error()
        future = self.loop.run_in_executor(None, call.make, 0, err)
        self._threads.add(future)
        future.add_done_callback(self._threads.discard)
        try:
            result = await asyncio.shield(future)
        except asyncio.CancelledError:
            stop()
            await _sit_out(future)
            raise
        check(result, err)
        return call.read()

    # ---- losses ----

    def watch(self, h: Handle, block: "Block") -> None:
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

    def unwatch(self, h: Handle, block: "Block") -> None:
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
            for block in list(self._blocks.get(h, [])):
                self._tell(block, h.loss())

    def _tell(self, block: "Block", error: LockLost) -> None:
        """What a caller's function raises keeps no other loss from being told: each descriptor is
        reported once."""
        try:
            block.tell(error)
        except Exception as e:
            self.loop.call_exception_handler(
                {"message": f"on_lost of {block.handles[0].label!r} has failed", "exception": e})

    # ---- what this client can make ----

    def lock(self, name: Name, **options: Any) -> "Lock":
        from .aio import Lock

        return Lock(name, client=self, **options)

    def shared(self, name: Name, **options: Any) -> "Lock":
        from .aio import Shared

        return Shared(name, client=self, **options)

    def semaphore(self, name: Name, slots: int, **options: Any) -> "Lock":
        from .aio import Semaphore

        return Semaphore(name, slots, client=self, **options)

    def multi(self, *locks: Any, **options: Any) -> "Multi":
        from .aio import Multi

        return Multi(*locks, client=self, **options)

    def election(self, name: Name, value: Name = b"", **options: Any) -> "Election":
        from .aio import Election

        return Election(name, value, client=self, **options)

    def latch(self, name: Name, **options: Any) -> "Latch":
        from .aio import Latch

        return Latch(name, client=self, **options)

    def barrier(self, name: Name, parties: int, **options: Any) -> "Barrier":
        from .aio import Barrier

        return Barrier(name, parties, client=self, **options)

    def sequence(self, name: Name, **options: Any) -> "Sequence":
        from .aio import Sequence

        return Sequence(name, client=self, **options)

    async def update(self, key: Name, change: Change, **options: Any) -> Optional[bytes]:
        from .aio import update

        return await update(key, change, client=self, **options)

    # ---- by owner id; the side of the resource; looking: as in holdfast.Client ----

    async def owner_acquire(self, name: Name, ttl: Duration, owner: Name) -> int:
        return await self.run(calls.owner_acquire(self.ptr, name, ttl, owner))

    async def owner_release(self, name: Name, owner: Name) -> None:
        await self.run(calls.owner_release(self.ptr, name, owner))

    async def owner_extend(self, name: Name, owner: Name, ttl: Duration) -> None:
        await self.run(calls.owner_extend(self.ptr, name, owner, ttl))

    async def owner_check(self, name: Name, owner: Name) -> float:
        return await self.run(calls.owner_check(self.ptr, name, owner))

    async def guard_check(self, resource: Name, fence: int) -> None:
        await self.run(calls.guard_check(self.ptr, resource, fence))

    async def guard_set(self, key: Name, value: Name, fence: int) -> None:
        await self.run(calls.guard_set(self.ptr, key, value, fence))

    async def inspect(self, name: Name, timeout: Optional[Duration] = None) -> Info:
        return await self.run(calls.inspect(self.ptr, name, timeout))


async def _sit_out(future: "asyncio.Future[Any]") -> None:
    """However often the task is cancelled meanwhile."""
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError:
            pass


# ---- the client of each loop -------------------------------------------------------------------

_of_loops: "weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Dict[Any, Client]]" = (
    weakref.WeakKeyDictionary())
_open_clients: "weakref.WeakSet[Client]" = weakref.WeakSet()


async def loop_client(key: Any, make: Callable[[], Client]) -> Client:
    """The client that this event loop has under this key; the first time it is made. It is closed
    when the loop ends."""
    clients = _of_loops.setdefault(asyncio.get_running_loop(), {})
    client = clients.get(key)
    if client is None or client.pid != os.getpid() or (client._opening is not None
                                                      and client._opening.done() and client.closed):
        client = clients[key] = make()
        client.end = _close_with_loop(key, weakref.ref(client))
        await client.end.__anext__()  # from here on asyncio.run() ends it
    return await client.open()


async def default_client() -> Client:
    """The client that locks of this event loop use if they are given none."""
    return await loop_client(None, Client)


async def _close_with_loop(key: Any,
                           found: "weakref.ref[Client]") -> AsyncGenerator[None, None]:
    """asyncio.run() ends what is left of asynchronous generators before it closes its loop."""
    try:
        yield
    finally:
        client = found()
        if client is not None:
            _of_loops.get(client.loop, {}).pop(key, None)  # which nothing keeps alive any more
            await client.close()


def _at_exit() -> None:
    """Of loops that were left without an end."""
    for client in list(_open_clients) if alone() else ():
        if not client.closed and client.pid == os.getpid():
            client._end(client._detach())


atexit.register(_at_exit)


async def client_or_default(given: Optional[Client]) -> Client:
    return await given.open() if given is not None else await default_client()


def client_of(h: Handle) -> Client:
    assert isinstance(h.client, Client)
    return h.client


# ---- blocks ------------------------------------------------------------------------------------


class Block:
    """One `async with`, and what happens when one of its locks is lost."""

    def __init__(self, client: Client, handles: List[Handle], on_lost: OnLost,
                 release: Callable[[], Awaitable[None]], among: List["Block"]) -> None:
        self.client = client
        self.handles = handles
        self.on_lost = on_lost
        self.release = release  # in any task
        self.among = among  # the blocks of the same object that have not ended
        self.over = False
        self.task = asyncio.current_task()
        self.cancelling = _cancelling(self.task)
        self.told: Optional[LockLost] = None
        self.cancelled = False

    def begin(self) -> None:
        self.among.append(self)
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

    def stop(self) -> None:
        """From here on nothing arrives for this block."""
        self.over = True
        if self in self.among:
            self.among.remove(self)
        for h in self.handles:
            self.client.unwatch(h, self)

    def end(self, exc: Optional[BaseException]) -> Optional[LockLost]:
        """The loss, if the block is to end with it. A task that somebody else has cancelled too
        stays cancelled."""
        self.stop()
        lost = self.told
        for h in self.handles:
            if lost is None and h.lost():
                lost = h.loss()
        others = self.cancelled and _uncancel(self.task) > self.cancelling
        if exc is None:
            return None if others else lost
        ours = self.cancelled and not others and self.task is asyncio.current_task()
        return lost if ours and isinstance(exc, asyncio.CancelledError) else None


def _cancelling(task: Optional["asyncio.Task[Any]"]) -> int:
    """Python 3.9 and 3.10 do not count."""
    return int(task.cancelling()) if task is not None and hasattr(task, "cancelling") else 0


def _uncancel(task: Optional["asyncio.Task[Any]"]) -> int:
    return int(task.uncancel()) if task is not None and hasattr(task, "uncancel") else 0
