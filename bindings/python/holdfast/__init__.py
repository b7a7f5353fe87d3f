# SPDX-License-Identifier: MIT
"""Distributed locks on Redis and Valkey: the Python face of libholdfast.

    import holdfast

    with holdfast.Lock("report", wait=10) as fence:
        ...                        # yours alone; pass fence along with every write

holdfast.aio has the same for asyncio, holdfast.compat a replacement for redis-py's Lock.
"""
from ._calls import Count, Place
from ._client import Client, default_client
from ._election import Election, leader, observe
from ._errors import (BadConfiguration, Broken, Busy, Cancelled, Conflict, Deadlock, Denied, Error,
                      Forked, Invalid, LockLost, NotHeld, NotOwner, NotSet, NotSupported, Stale,
                      TimedOut, Unreachable, Unsure, WrongType)
from ._inspect import Info, Leader, Party, Value
from ._lib import version
from ._lock import Lock, Multi, Semaphore, Shared
from ._meet import Barrier, Latch
from ._once import once, once_drop
from ._sequence import Sequence
from ._update import DELETE, update
from ._version import VERSION as __version__

__all__ = [
    "BadConfiguration", "Barrier", "Broken", "Busy", "Cancelled", "Client", "Conflict", "Count",
    "DELETE", "Deadlock", "Denied", "Election", "Error", "Forked", "Info", "Invalid", "Latch",
    "Leader", "Lock", "LockLost", "Multi", "NotHeld", "NotOwner", "NotSet", "NotSupported",
    "Party", "Place", "Semaphore", "Sequence", "Shared", "Stale", "TimedOut", "Unreachable",
    "Unsure", "Value", "WrongType", "__version__", "default_client", "leader", "observe", "once",
    "once_drop", "update", "version",
]
