# SPDX-License-Identifier: MIT
"""A value that one caller at a time computes, cached on the server beside the lock of its name."""
from __future__ import annotations

from typing import Any, Callable, Optional

from ._client import Client, default_client
from ._errors import Busy, Error, TimedOut
from ._lib import Bytes, Duration, Name, check, ffi, lib, milliseconds, new_error
from ._lock import Lock


class Value(bytes):
    """The value: bytes, and what is known of them."""

    #: seconds since it was computed
    age: float = 0.0
    #: seconds for which it is still fresh; negative: for which it has not been
    fresh: float = 0.0
    #: by this very call
    computed: bool = False
    #: others get it too
    cached: bool = True


def value_of(v: Any) -> Optional[Value]:
    """The Value of an hf_value, which is freed; None for NULL."""
    if v == ffi.NULL:
        return None
    ret = Value(ffi.buffer(v.data, v.len)[:])
    ret.age, ret.fresh, ret.cached = v.age_ms / 1000, v.fresh_ms / 1000, bool(v.cached)
    lib.hf_value_free(v)
    return ret


def computed_value(data: Name, ttl_ms: int) -> Value:
    ret = Value(data.encode() if isinstance(data, str) else data)
    ret.fresh, ret.computed = ttl_ms / 1000, True
    return ret


def old_will_do(old: Optional[Value], stale_ms: int) -> bool:
    return old is not None and stale_ms > 0 and -old.fresh * 1000 < stale_ms


def get(client: Client, name: Bytes) -> Optional[Value]:
    ret, err = ffi.new("hf_value **"), new_error()
    check(lib.hf_once_get(client.ptr, name.c, ret, err), err)
    return value_of(ret[0])


def once(name: Name, compute: Callable[[], Name], *, ttl: Duration, stale: Duration = 0,
         wait: Optional[Duration] = None, refresh: bool = False, lease: Optional[Duration] = None,
         grace: Optional[Duration] = None, client: Optional[Client] = None) -> Value:
    """The cached value of this name, or what compute() returns, which is then cached for ttl.

    Callers that come together cause one computation. What compute() raises is raised here, nothing
    is cached, and the next caller computes. stale: for so long after the ttl callers may get the
    old value while somebody computes a new one. refresh: compute even if there is a fresh one.
    lease and grace are the ttl and the grace of the lock.
    """
    c, n = client or default_client(), Bytes(name)
    ttl_ms, stale_ms = milliseconds(ttl), milliseconds(stale)
    old = None if refresh else get(c, n)
    if old is not None and old.fresh > 0:
        return old
    lock = Lock(name, ttl=lease, grace=grace, client=c)
    if old is not None and old_will_do(old, stale_ms):
        if lock.try_acquire() is None:
            return old
    else:
        try:
            lock.acquire(wait)
        except (Busy, TimedOut):  # done just now, while others still stand before us?
            found = None if refresh else get(c, n)
            if found is None or found.fresh <= 0:
                raise
            return found
    try:
        if not refresh:  # somebody was quicker
            found = get(c, n)
            if found is not None and found.fresh > 0:
                return found
        value = computed_value(compute(), ttl_ms)
        _keep(c, n, lock, value, ttl_ms, stale_ms)
        return value
    finally:
        try:
            lock.release()
        except Error:
            pass  # lost or not: the value matters, and _keep() has told


def _keep(c: Client, n: Bytes, lock: Lock, value: Value, ttl_ms: int, stale_ms: int) -> None:
    """Only a lost lock takes the value from its own caller."""
    v, err = Bytes(value), new_error()
    result = lib.hf_once_put(c.ptr, n.c, lock._held_handle().lock, v.c, ttl_ms, stale_ms, err)
    value.cached = result == lib.HF_OK
    if result == lib.HF_ELOST:
        check(result, err)


def once_drop(name: Name, *, client: Optional[Client] = None) -> None:
    """Forget the cached value."""
    n, err = Bytes(name), new_error()
    check(lib.hf_once_drop((client or default_client()).ptr, n.c, err), err)
