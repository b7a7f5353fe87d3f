# SPDX-License-Identifier: MIT
"""What the library tells: who holds a lock and waits for it, who leads, what is cached."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, List, Optional

from ._lib import ffi, lib, text_of


@dataclass(frozen=True)
class Party:
    """A holder or a waiter. None: not known."""

    owner: Optional[str]
    host: Optional[str]
    user: Optional[str]
    program: Optional[str]
    info: Optional[str]
    pid: Optional[int]
    age: Optional[float]  # seconds
    fence: int
    permits: int


@dataclass(frozen=True)
class Info:
    """What is known of a lock."""

    name: bytes
    kind: str  # "mutex", "shared", "semaphore", ...
    ttl: Optional[float]  # seconds; None: for ever; 0: free
    holders: List[Party]
    waiters: List[Party]  # in order; at most 100
    waiters_total: int
    slots: int
    used: int


def party_of(p: Any) -> Party:
    return Party(text_of(p.owner), text_of(p.host), text_of(p.user), text_of(p.program),
                 text_of(p.info), int(p.pid) or None, p.age_ms / 1000 if p.age_ms >= 0 else None,
                 int(p.fence), int(p.permits))


def info_of(i: Any) -> Info:
    return Info(bytes(ffi.buffer(i.name, i.name_len)), text_of(i.kind) or "",
                i.ttl_ms / 1000 if i.ttl_ms >= 0 else None,
                [party_of(i.holder[k]) for k in range(i.holders)],
                [party_of(i.waiter[k]) for k in range(i.waiters)],
                int(i.waiters_total), int(i.slots), int(i.used))


class Leader:
    """Who leads, as it was when it was asked."""

    def __init__(self, ptr: Any) -> None:
        self.ptr = ffi.gc(ptr, lib.hf_leader_free)
        #: False: nobody leads, and the rest means nothing
        self.leads = bool(ptr.leads)
        #: the fencing number; 0: a foreign client holds the lock
        self.term = int(ptr.term)
        #: None: not known yet, or not a candidate
        self.value: Optional[bytes] = None
        if ptr.value != ffi.NULL:
            self.value = bytes(ffi.buffer(ptr.value, ptr.value_len))
        self.party: Party = party_of(ptr.party)

    def __repr__(self) -> str:
        if not self.leads:
            return "<holdfast.Leader nobody>"
        return f"<holdfast.Leader term {self.term} value {self.value!r}>"


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
