# SPDX-License-Identifier: MIT
"""Distributed locks on Redis and Valkey: the Python face of libholdfast.

    import holdfast

    with holdfast.Lock("report", wait=10) as fence:
        ...                        # yours alone; pass fence along with every write

holdfast.aio has the same for asyncio, holdfast.compat a replacement for redis-py's Lock.
"""
from ._client import Client, default_client
from ._election import Election, Leader, leader, observe
from ._errors import (BadConfiguration, Busy, Cancelled, Deadlock, Denied, Error, Forked, Invalid,
                      LockLost, NotHeld, NotOwner, NotSupported, Stale, TimedOut, Unreachable,
                      Unsure)
from ._inspect import Info, Party
from ._lib import version
from ._lock import Lock, Multi, Semaphore, Shared
from ._once import Value, once, once_drop
from ._version import VERSION as __version__

__all__ = [
    "BadConfiguration", "Busy", "Cancelled", "Client", "Deadlock", "Denied", "Election", "Error",
    "Forked", "Info", "Invalid", "Leader", "Lock", "LockLost", "Multi", "NotHeld", "NotOwner",
    "NotSupported", "Party", "Semaphore", "Shared", "Stale", "TimedOut", "Unreachable", "Unsure",
    "Value", "__version__", "default_client", "leader", "observe", "once", "once_drop", "version",
]
