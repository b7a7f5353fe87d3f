# SPDX-License-Identifier: MIT
"""A value that one caller at a time computes, cached on the server beside the lock of its name."""
from __future__ import annotations

from typing import Any, Awaitable, Callable, Coroutine, Optional, TypeVar

from . import _calls as calls
from ._call import Call, run
from ._client import Client, default_client
from ._errors import Busy, Error, LockLost, TimedOut
from ._inspect import Value
from ._lib import Duration, Name, milliseconds, raw_of
from ._lock import Lock
from ._watch import Handle

T = TypeVar("T")


class Steps:
    """What has to be done for a value, and in which order; how it is done is the caller's."""

    def __init__(self, client: Any, name: Name, ttl: Duration, stale: Duration,
                 refresh: bool) -> None:
        self.client = client  # the hf_client
        self.name = name
        self.ttl_ms, self.stale_ms = milliseconds(ttl), milliseconds(stale)
        self.refresh = refresh

    async def call(self, call: Call[T]) -> T:
        raise NotImplementedError

    async def take(self, wait: bool) -> bool:
        """The lock of this name; False: others have it, and wait was False."""
        raise NotImplementedError

    def handle(self) -> Handle:
        """Of the lock."""
        raise NotImplementedError

    async def give_back(self) -> None:
        """Lost or not: the value matters, and _keep() has told."""
        raise NotImplementedError

    async def compute(self) -> Name:
        raise NotImplementedError

    async def _get(self) -> Optional[Value]:
        return None if self.refresh else await self.call(calls.once_get(self.client, self.name))

    def _old_will_do(self, old: Optional[Value]) -> bool:
        return old is not None and self.stale_ms > 0 and -old.fresh * 1000 < self.stale_ms

    async def value(self) -> Value:
        old = await self._get()
        if old is not None and old.fresh > 0:
            return old
        if old is not None and self._old_will_do(old):
            if not await self.take(False):
                return old
        else:
            try:
                await self.take(True)
            except (Busy, TimedOut):  # done just now, while others still stand before us?
                found = await self._get()
                if found is None or found.fresh <= 0:
                    raise
                return found
        try:
            found = await self._get()
            if found is not None and found.fresh > 0:  # somebody was quicker
                return found
            return await self._keep(await self.compute())
        finally:
            await self.give_back()

    async def _keep(self, data: Name) -> Value:
        """Only a lost lock takes the value from its own caller."""
        value = Value(raw_of(data))
        value.fresh, value.computed = self.ttl_ms / 1000, True
        try:
            await self.call(calls.once_put(self.client, self.name, self.handle(), value,
                                           self.ttl_ms, self.stale_ms))
        except LockLost:
            raise
        except Error:
            value.cached = False  # too large, or the server could not be reached
        return value


class ThreadSteps(Steps):
    """None of its steps ever waits for an event loop."""

    lock: Lock
    wait: Optional[Duration]
    function: Callable[[], Name]

    async def call(self, call: Call[T]) -> T:
        return run(call)

    async def take(self, wait: bool) -> bool:
        if not wait:
            return self.lock.try_acquire() is not None
        self.lock.acquire(self.wait)
        return True

    def handle(self) -> Handle:
        return self.lock._held_handle()

    async def give_back(self) -> None:
        self.lock._give_back()

    async def compute(self) -> Name:
        return self.function()


def _at_once(steps: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never waits for an event loop."""
    try:
        steps.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise RuntimeError("a step waited for an event loop")


def once(name: Name, compute: Callable[[], Name], *, ttl: Duration, stale: Duration = 0,
         wait: Optional[Duration] = None, refresh: bool = False, lease: Optional[Duration] = None,
         grace: Optional[Duration] = None, client: Optional[Client] = None) -> Value:
    """The cached value of this name, or what compute() returns, which is then cached for ttl.

    Callers that come together cause one computation. What compute() raises is raised here, nothing
    is cached, and the next caller computes. stale: for so long after the ttl callers may get the
    old value while somebody computes a new one. refresh: compute even if there is a fresh one.
    lease and grace are the ttl and the grace of the lock.
    """
    c = client or default_client()
    steps = ThreadSteps(c.ptr, name, ttl, stale, refresh)
    steps.lock = Lock(name, ttl=lease, grace=grace, client=c)
    steps.wait, steps.function = wait, compute
    return _at_once(steps.value())


def once_drop(name: Name, *, client: Optional[Client] = None) -> None:
    """Forget the cached value."""
    run(calls.once_drop((client or default_client()).ptr, name))
