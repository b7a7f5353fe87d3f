# SPDX-License-Identifier: MIT
"""The calls of the library: what each takes and what it gives, for threads and for event loops.

A function here asks nobody anything: it returns a Call, which run() makes in a thread and
aio.Client.run() in an event loop.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, List, NamedTuple, Optional, Sequence

from ._call import WAIT_MS, Call, nothing
from ._inspect import Info, Leader, Value, info_of, value_of
from ._lib import Bytes, Duration, Name, ffi, lib, milliseconds
from ._watch import Handle


def limit_of(timeout: Optional[Duration]) -> int:
    """None: the library's default."""
    return milliseconds(timeout) if timeout is not None else 0


# ---- locks -------------------------------------------------------------------------------------


def lock_acquire(h: Handle, wait: int) -> Call[int]:
    lock = h.lock
    return Call("hf_lock_acquire", lock, WAIT_MS, more=[ffi.NULL], read=h.fence, wait=wait,
                cancel=lambda: lib.hf_lock_cancel(lock), keep=h)


def lock_release(h: Handle) -> Call[None]:
    return Call("hf_lock_release", h.lock, read=nothing, keep=h)


def lock_extend(h: Handle, ttl: Duration) -> Call[None]:
    return Call("hf_lock_extend", h.lock, milliseconds(ttl), read=nothing, keep=h)


def lock_verify(h: Handle) -> Call[None]:
    return Call("hf_lock_verify", h.lock, read=nothing, keep=h)


def lock_downgrade(h: Handle) -> Call[None]:
    return Call("hf_lock_downgrade", h.lock, read=nothing, keep=h)


def lock_detach(h: Handle, ttl: Optional[Duration]) -> Call[None]:
    return Call("hf_lock_detach", h.lock, limit_of(ttl), read=nothing, keep=h)


def _array(handles: Sequence[Handle]) -> Any:
    return ffi.new("hf_lock *[]", [h.lock for h in handles])


def multi_acquire(handles: List[Handle], wait: int) -> Call[List[int]]:
    array, n = _array(handles), len(handles)
    return Call("hf_multi_acquire", array, n, WAIT_MS, read=lambda: [h.fence() for h in handles],
                wait=wait, cancel=lambda: lib.hf_multi_cancel(array, n), keep=handles)


def multi_release(handles: List[Handle]) -> Call[None]:
    return Call("hf_multi_release", _array(handles), len(handles), read=nothing, keep=handles)


# ---- elections ---------------------------------------------------------------------------------


def election_campaign(h: Handle, value: Name, wait: int) -> Call[int]:
    """A leader does not wait: to cancel that would be for its next campaign."""
    term, lock = ffi.new("uint64_t *"), h.lock
    return Call("hf_election_campaign", h.what, Bytes(value), WAIT_MS, term,
                read=lambda: int(term[0]), wait=wait,
                cancel=lambda: h.held() or lib.hf_lock_cancel(lock), keep=h)


def election_resign(h: Handle) -> Call[None]:
    return Call("hf_election_resign", h.what, read=nothing, keep=h)


def election_set_value(h: Handle, value: Name) -> Call[None]:
    return Call("hf_election_set_value", h.what, Bytes(value), read=nothing, keep=h)


def election_leader(client: Any, name: Name) -> Call[Leader]:
    ret = ffi.new("hf_leader **")
    return Call("hf_election_leader", client, Bytes(name), ret, read=lambda: Leader(ret[0]))


def election_observe(client: Any, name: Name, seen: Optional[Leader], wait: int) -> Call[Leader]:
    ret = ffi.new("hf_leader **")
    return Call("hf_election_observe", client, Bytes(name), seen.ptr if seen else ffi.NULL, wait,
                ret, read=lambda: Leader(ret[0]), keep=seen)


# ---- latches and barriers ----------------------------------------------------------------------


class Count(NamedTuple):
    """What a latch counts."""

    left: int
    total: int  # what it was set to


@dataclass(frozen=True)
class Place:
    """An arrival at a barrier."""

    index: int  # in the order of arrival, from 0
    generation: int  # the number of the meeting: the same for all parties, larger each time


def latch_set(h: Handle, count: int) -> Call[None]:
    return Call("hf_latch_set", h.what, count, read=nothing, keep=h)


def latch_reset(h: Handle, count: int) -> Call[None]:
    return Call("hf_latch_reset", h.what, count, read=nothing, keep=h)


def latch_count_down(h: Handle, n: int) -> Call[int]:
    left = ffi.new("uint32_t *")
    return Call("hf_latch_count_down", h.what, n, left, read=lambda: int(left[0]), keep=h)


def latch_count(h: Handle) -> Call[Count]:
    left, total = ffi.new("uint32_t *"), ffi.new("uint32_t *")
    return Call("hf_latch_count", h.what, left, total,
                read=lambda: Count(int(left[0]), int(total[0])), keep=h)


def latch_wait(h: Handle, wait: int) -> Call[None]:
    what = h.what
    return Call("hf_latch_wait", what, WAIT_MS, read=nothing, wait=wait,
                cancel=lambda: lib.hf_latch_cancel(what), keep=h)


def barrier_wait(h: Handle, wait: int) -> Call[Place]:
    what, index, number = h.what, ffi.new("uint32_t *"), ffi.new("uint64_t *")
    return Call("hf_barrier_wait", what, WAIT_MS, index, number,
                read=lambda: Place(int(index[0]), int(number[0])), wait=wait,
                cancel=lambda: lib.hf_barrier_cancel(what), keep=h)


def barrier_leave(h: Handle, wait: int) -> Call[None]:
    what = h.what
    return Call("hf_barrier_leave", what, WAIT_MS, read=nothing, wait=wait,
                cancel=lambda: lib.hf_barrier_cancel(what), keep=h)


# ---- values that are computed once -------------------------------------------------------------


def once_get(client: Any, name: Name) -> Call[Optional[Value]]:
    ret = ffi.new("hf_value **")
    return Call("hf_once_get", client, Bytes(name), ret, read=lambda: value_of(ret[0]))


def once_put(client: Any, name: Name, h: Handle, value: Name, ttl_ms: int,
             stale_ms: int) -> Call[None]:
    return Call("hf_once_put", client, Bytes(name), h.lock, Bytes(value), ttl_ms, stale_ms,
                read=nothing, keep=h)


def once_drop(client: Any, name: Name) -> Call[None]:
    return Call("hf_once_drop", client, Bytes(name), read=nothing)


# ---- by owner id; the side of the resource; looking --------------------------------------------


def owner_acquire(client: Any, name: Name, ttl: Duration, owner: Name) -> Call[int]:
    fence = ffi.new("uint64_t *")
    return Call("hf_owner_acquire", client, Bytes(name), milliseconds(ttl), Bytes(owner), fence,
                read=lambda: int(fence[0]))


def owner_release(client: Any, name: Name, owner: Name) -> Call[None]:
    return Call("hf_owner_release", client, Bytes(name), Bytes(owner), read=nothing)


def owner_extend(client: Any, name: Name, owner: Name, ttl: Duration) -> Call[None]:
    return Call("hf_owner_extend", client, Bytes(name), Bytes(owner), milliseconds(ttl),
                read=nothing)


def owner_check(client: Any, name: Name, owner: Name) -> Call[float]:
    left = ffi.new("int64_t *")
    return Call("hf_owner_check", client, Bytes(name), Bytes(owner), left,
                read=lambda: float(left[0]) / 1000)


def guard_check(client: Any, resource: Name, fence: int) -> Call[None]:
    return Call("hf_guard_check", client, Bytes(resource), fence, read=nothing)


def guard_set(client: Any, key: Name, value: Name, fence: int) -> Call[None]:
    return Call("hf_guard_set", client, Bytes(key), Bytes(value), fence, read=nothing)


def inspect(client: Any, name: Name, timeout: Optional[Duration]) -> Call[Info]:
    ret = ffi.new("hf_inspect_info **")

    def read() -> Info:
        try:
            return info_of(ret[0])
        finally:
            lib.hf_inspect_free(ret[0])

    return Call("hf_inspect_lock", client, Bytes(name), limit_of(timeout), ret, read=read)
