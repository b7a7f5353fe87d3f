# SPDX-License-Identifier: MIT
"""A replacement for the Lock of redis.asyncio: the same arguments, methods and keys.

    from holdfast.compat_asyncio import Lock

    async with Lock(redis.asyncio.Redis(), "report", timeout=10, blocking_timeout=5):
        ...
    r.lock("report", timeout=10, lock_class=Lock)     # or so

It excludes redis-py's own Lock, and that of threads. README.md lists what differs.
"""
from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, Optional, Tuple, Type, Union

from . import _calls as calls
from ._errors import Busy, TimedOut
from ._lib import wait_of
from ._loop import Client, loop_client
from ._watch import Handle
from .compat import NOT_OURS, CompatBase, LockError, LockNotOwnedError, Number, options_of, url_of

__all__ = ["Lock", "LockError", "LockNotOwnedError"]


async def _client_of(redis: Any) -> Client:
    """One client for each server and event loop."""
    if isinstance(redis, Client):
        return await redis.open()
    url, password = (redis, None) if isinstance(redis, str) else url_of(redis)
    return await loop_client((url, password), lambda: Client(url, prefix="", password=password))


def _forget(client: Client, h: Handle) -> None:
    client.outliving.discard(h)
    client.free(h)


def _forget_ended(client: Client) -> None:
    """Those that were never released, and are over."""
    for h in [h for h in client.outliving if not h.held()]:
        _forget(client, h)


class Lock(CompatBase):
    """As redis.asyncio.lock.Lock. A grant belongs to the object: any task that has it may release
    it.

    redis             a client of redis.asyncio, a URL, or a holdfast.aio.Client whose prefix is ""
    timeout           after how many seconds it ends by itself; None: it is renewed as long as this
                      object and its event loop live
    sleep             not used: who waits is woken when the turn has come
    thread_local      False: taken in the loop of one thread, it may be released in another's
    """

    async def __aenter__(self) -> "Lock":
        if await self.acquire():
            return self
        raise LockError(f"the lock {self.name!r} could not be had in time")

    async def __aexit__(self, kind: Optional[Type[BaseException]], exc: Optional[BaseException],
                        trace: Optional[TracebackType]) -> None:
        try:
            await self.release()
        except LockError:
            if self.raise_on_release_error:
                raise

    async def acquire(self, blocking: Optional[bool] = None,
                      blocking_timeout: Optional[Number] = None,
                      token: Union[str, bytes, None] = None) -> bool:
        """Take the lock; False: not in time. token: the value of the key; None: a random one."""
        raw, wait = self._wanted(blocking, blocking_timeout, token)
        client = await _client_of(self.redis)
        _forget_ended(client)
        h = options_of(self.name, raw, self.timeout).open(client, client.ptr)
        try:
            fence = await client.run_or_undo(calls.lock_acquire(h, wait_of(wait)),
                                             lambda: calls.lock_release(h))
        except (Busy, TimedOut):
            client.free(h)
            return False
        except BaseException:
            client.free(h)
            raise
        if self.timeout is not None:
            client.outliving.add(h)
        self.local.token, self.local.taken, self.local.fence = raw, (raw, client, h), fence
        return True

    def _taken(self, token: bytes) -> Tuple[Optional[Client], Optional[Handle]]:
        """The grant of this token, if this object has it and the running event loop can use it."""
        taken: Optional[Tuple[bytes, Client, Handle]] = getattr(self.local, "taken", None)
        if taken is None or taken[0] != token or not taken[2].usable():
            return None, None
        ours = taken[1].loop is asyncio.get_running_loop()
        return taken[1:] if ours else (None, None)

    async def locked(self) -> bool:
        """Whether anybody holds it."""
        return bool((await (await _client_of(self.redis)).inspect(self.name)).holders)

    async def owned(self) -> bool:
        """Whether this holds it; the server is asked."""
        token = self._token()
        if token is None:
            return False
        try:
            await (await _client_of(self.redis)).owner_check(self.name, token)
        except NOT_OURS:
            return False
        return True

    async def release(self) -> None:
        """LockNotOwnedError: it was not ours any more, and nobody else's was touched."""
        client, h = self._taken(self._token() or b"")
        token = self._given()
        if client is None or h is None:
            await self.do_release(token)
            return
        try:
            await client.run(calls.lock_release(h))
        except NOT_OURS as e:
            raise LockNotOwnedError(str(e)) from e
        finally:
            _forget(client, h)

    async def do_release(self, expected_token: Union[str, bytes]) -> None:
        """Release by the token alone, wherever it was taken."""
        try:
            await (await _client_of(self.redis)).owner_release(self.name, expected_token)
        except NOT_OURS as e:
            raise LockNotOwnedError(str(e)) from e

    async def extend(self, additional_time: Number, replace_ttl: bool = False) -> bool:
        """Add to what is left; replace_ttl: set it instead."""
        token = self._needs_timeout("extend")
        client = await _client_of(self.redis)
        try:
            left = 0 if replace_ttl else await client.owner_check(self.name, token)
            await self._set_ttl(token, left + additional_time)
        except NOT_OURS as e:
            raise LockNotOwnedError(str(e)) from e
        return True

    async def reacquire(self) -> bool:
        """Set what is left to the whole timeout again."""
        token = self._needs_timeout("reacquire")
        try:
            await self._set_ttl(token, self.timeout or 0)
        except NOT_OURS as e:
            raise LockNotOwnedError(str(e)) from e
        return True

    async def _set_ttl(self, token: bytes, ttl: Number) -> None:
        client, h = self._taken(token)
        if client is not None and h is not None:
            await client.run(calls.lock_extend(h, ttl))
        else:
            await (await _client_of(self.redis)).owner_extend(self.name, token, ttl)
