# SPDX-License-Identifier: MIT
"""A replacement for the Lock of redis-py: the same arguments, methods and keys.

    from holdfast.compat import Lock

    with Lock(redis.Redis(), "report", timeout=10, blocking_timeout=5):
        ...
    r.lock("report", timeout=10, lock_class=Lock)     # or so

The key is the name as it is, and its value the token, so this and redis-py's own Lock exclude each
other: a fleet can be moved over one program at a time. README.md lists what differs.
compat_asyncio has the same in the place of redis.asyncio.lock.Lock.
"""
from __future__ import annotations

import atexit
import os
import sys
import threading
import uuid
import weakref
from contextlib import contextmanager
from importlib import import_module
from types import SimpleNamespace, TracebackType
from typing import TYPE_CHECKING, Any, Dict, Iterator, Optional, Tuple, Type, Union
from urllib.parse import quote

from . import _calls as calls
from ._call import run
from ._client import Client
from ._errors import Busy, LockLost, NotHeld, NotOwner, TimedOut
from ._lib import ffi, lib, wait_of
from ._lock import LockOptions

try:
    _redis_py: Any = import_module("redis.exceptions")
except ImportError:  # a program that has left redis-py behind
    _redis_py = None

if TYPE_CHECKING or _redis_py is None:

    class LockError(ValueError):
        """It could not be taken, released or extended."""

    class LockNotOwnedError(LockError):
        """It is not ours any more."""

else:
    LockError, LockNotOwnedError = _redis_py.LockError, _redis_py.LockNotOwnedError

Number = Union[int, float]
NOT_OURS = (LockLost, NotHeld, NotOwner)


@contextmanager
def as_redis_py_says() -> Iterator[None]:
    """For calls that find the lock another's. The loss of a lock of a block around us, which may
    arrive here as anywhere, is told as it is."""
    try:
        yield
    except NOT_OURS as e:
        if isinstance(e, LockLost) and e.code is None:
            raise
        raise LockNotOwnedError(str(e)) from e


_clients: Dict[Tuple[int, str, Optional[str]], Client] = {}
_clients_mutex = threading.Lock()


def url_of(redis: Any) -> Tuple[str, Optional[str]]:
    """Where a client of redis-py is connected, and its password."""
    pool = getattr(redis, "connection_pool", None)
    if pool is None or hasattr(pool, "sentinel_manager"):
        raise TypeError(f"the server of {redis!r} is not known: give a URL, or a holdfast.Client, "
                        "instead (docs/urls.md has those of Sentinel and Cluster)")
    k = pool.connection_kwargs
    user = quote(k.get("username") or "", safe="")
    user = user + "@" if user else ""
    db = int(k.get("db") or 0)
    if k.get("path"):
        return f"unix://{user}{quote(k['path'])}?db={db}", k.get("password")
    tls = "SSL" in pool.connection_class.__name__
    options = {"cacert": k.get("ssl_ca_certs"), "cert": k.get("ssl_certfile"),
               "key": k.get("ssl_keyfile")} if tls else {}
    query = "&".join(f"{o}={quote(v, safe='')}" for o, v in options.items() if v)
    host = str(k.get("host", "localhost"))
    host = f"[{host}]" if ":" in host else quote(host, safe="")
    return (f"redis{'s' if tls else ''}://{user}{host}:{k.get('port', 6379)}/{db}"
            + ("?" + query if query else "")), k.get("password")


def _client_of(redis: Any) -> Client:
    """One client for each server; a child process has its own."""
    if isinstance(redis, Client):
        return redis
    url, password = (redis, None) if isinstance(redis, str) else url_of(redis)
    key = (os.getpid(), url, password)
    with _clients_mutex:
        found = _clients.get(key)
        if found is None or found.closed:
            found = _clients[key] = Client(url, prefix="", password=password)
        return found


def options_of(name: Union[str, bytes], token: bytes, timeout: Optional[Number]) -> LockOptions:
    """Its end may come in any way: by its timeout, or from whoever knows the token. So nobody who
    waits for it is in a deadlock."""
    o = LockOptions(name, timeout, None, None, timeout is None, token, False, 0, 0, None)
    o.c.any_thread = 1
    return o


class _Taken:
    """A lock that is held under a token. One with a timeout outlives this object, and the program,
    if it is not released: some programs rely on that to do a thing at most once in a while."""

    def __init__(self, client: Client, name: Union[str, bytes], token: bytes,
                 timeout: Optional[Number]) -> None:
        self.token = token
        self._outlives = timeout is not None
        self._handle = options_of(name, token, timeout).open(client, client.ptr)

    def acquire(self, wait: Optional[Number]) -> int:
        try:
            fence = run(calls.lock_acquire(self._handle, wait_of(wait)))
        except BaseException:
            self._handle.free()  # gives back what may have been granted
            raise
        _all_taken.add(self)
        return fence

    def release(self) -> None:
        if not self._handle.usable():
            raise NotHeld("the client is closed, or the parent's")
        run(calls.lock_release(self._handle))

    def extend(self, ttl: Number) -> None:
        run(calls.lock_extend(self._handle, ttl))

    def leave(self) -> None:
        """Let it end by itself."""
        if self._outlives and self._handle.held():
            lib.hf_lock_detach(self._handle.lock, 0, ffi.NULL)

    def __del__(self) -> None:
        if sys is not None and not sys.is_finalizing() and hasattr(self, "_handle"):
            self.leave()


_all_taken: "weakref.WeakSet[_Taken]" = weakref.WeakSet()


def _at_exit() -> None:
    for taken in list(_all_taken):
        taken.leave()


atexit.register(_at_exit)  # before the clients are closed, which would release


class CompatBase:
    """What this Lock and the one of compat_asyncio have in common."""

    def __init__(self, redis: Any, name: Union[str, bytes], timeout: Optional[Number] = None,
                 sleep: Number = 0.1, blocking: bool = True,
                 blocking_timeout: Optional[Number] = None, thread_local: bool = True,
                 raise_on_release_error: bool = True) -> None:
        self.redis = redis
        self.name = name
        self.timeout = timeout or None
        self.sleep = sleep
        self.blocking = blocking
        self.blocking_timeout = blocking_timeout
        self.thread_local = bool(thread_local)
        self.raise_on_release_error = raise_on_release_error
        self.local: Any = threading.local() if self.thread_local else SimpleNamespace()
        self.local.token = self.local.taken = None

    def _token(self) -> Optional[bytes]:
        token: Optional[bytes] = getattr(self.local, "token", None)
        return token

    def _wanted(self, blocking: Optional[bool], blocking_timeout: Optional[Number],
                token: Union[str, bytes, None]) -> Tuple[bytes, Optional[Number]]:
        """The token of a new grant, and how long to wait for it."""
        raw = token.encode() if isinstance(token, str) else token or uuid.uuid1().hex.encode()
        if not (self.blocking if blocking is None else blocking):
            return raw, 0
        limit = self.blocking_timeout if blocking_timeout is None else blocking_timeout
        return raw, None if limit is None else max(limit, 0)

    @property
    def fence(self) -> int:
        """The fencing number of the present grant, which redis-py does not have; 0: none."""
        return int(getattr(self.local, "fence", 0)) if self._token() is not None else 0

    def _given(self) -> bytes:
        """The token of what is given back now."""
        token = self._token()
        if token is None:
            raise LockError(f"the lock {self.name!r} is not held: nothing to release")
        self.local.token = self.local.taken = None
        return token

    def _needs_timeout(self, what: str) -> bytes:
        token = self._token()
        if token is None:
            raise LockError(f"the lock {self.name!r} is not held: nothing to {what}")
        if self.timeout is None:
            raise LockError(f"the lock {self.name!r} has no timeout to {what}: it is renewed")
        return token


class Lock(CompatBase):
    """As redis.lock.Lock.

    redis             a client of redis-py, a URL, or a holdfast.Client whose prefix is ""
    timeout           after how many seconds it ends by itself; None: it is renewed as long as this
                      process lives
    sleep             not used: who waits is woken when the turn has come
    thread_local      False: taken in one thread, it may be released in another
    """

    def __enter__(self) -> "Lock":
        if self.acquire():
            return self
        raise LockError(f"the lock {self.name!r} could not be had in time")

    def __exit__(self, kind: Optional[Type[BaseException]], exc: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        try:
            self.release()
        except LockError:
            if self.raise_on_release_error:
                raise

    def _taken(self) -> Optional[_Taken]:
        taken: Optional[_Taken] = getattr(self.local, "taken", None)
        return taken

    def acquire(self, sleep: Optional[Number] = None, blocking: Optional[bool] = None,
                blocking_timeout: Optional[Number] = None,
                token: Union[str, bytes, None] = None) -> bool:
        """Take the lock; False: not in time. token: the value of the key; None: a random one."""
        raw, wait = self._wanted(blocking, blocking_timeout, token)
        taken = _Taken(_client_of(self.redis), self.name, raw, self.timeout)
        try:
            fence = taken.acquire(wait)
        except (Busy, TimedOut):
            return False
        self.local.token, self.local.taken, self.local.fence = raw, taken, fence
        return True

    def locked(self) -> bool:
        """Whether anybody holds it."""
        return bool(_client_of(self.redis).inspect(self.name).holders)

    def owned(self) -> bool:
        """Whether this holds it; the server is asked."""
        token = self._token()
        if token is None:
            return False
        try:
            _client_of(self.redis).owner_check(self.name, token)
        except NotOwner:
            return False
        return True

    def release(self) -> None:
        """LockNotOwnedError: it was not ours any more, and nobody else's was touched."""
        taken = self._taken()
        token = self._given()
        with as_redis_py_says():
            if taken is not None and taken.token == token:
                taken.release()
            else:
                self.do_release(token)

    def do_release(self, expected_token: Union[str, bytes]) -> None:
        """Release by the token alone, wherever it was taken."""
        with as_redis_py_says():
            _client_of(self.redis).owner_release(self.name, expected_token)

    def extend(self, additional_time: Number, replace_ttl: bool = False) -> bool:
        """Add to what is left; replace_ttl: set it instead."""
        token = self._needs_timeout("extend")
        with as_redis_py_says():
            left = 0 if replace_ttl else _client_of(self.redis).owner_check(self.name, token)
            self._set_ttl(token, left + additional_time)
        return True

    def reacquire(self) -> bool:
        """Set what is left to the whole timeout again."""
        token = self._needs_timeout("reacquire")
        with as_redis_py_says():
            self._set_ttl(token, self.timeout or 0)
        return True

    def _set_ttl(self, token: bytes, ttl: Number) -> None:
        taken = self._taken()
        if taken is not None and taken.token == token:
            taken.extend(ttl)
        else:
            _client_of(self.redis).owner_extend(self.name, token, ttl)
