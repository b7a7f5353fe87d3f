# SPDX-License-Identifier: MIT
"""Who holds a lock, and who waits for it."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, List, Optional

from ._lib import ffi, text_of


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
