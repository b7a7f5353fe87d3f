# SPDX-License-Identifier: MIT
"""What can go wrong. Each error says what is known about the lock afterwards: .known."""
from __future__ import annotations

from typing import Optional, Type


class Error(Exception):
    """An error of Holdfast: str() says what went wrong, with what, and what to do next."""

    #: the number of the error in holdfast.h
    code: Optional[int] = None
    #: its name there, such as "HF_EBUSY"
    name: Optional[str] = None
    #: what is known about the lock now: "unchanged", "not held", or "nothing"
    known: str = "nothing"


class Busy(Error):
    """Another owner holds it, and wait was 0."""


class TimedOut(Error, TimeoutError):
    """Not obtained within the time limit."""


class LockLost(Error):
    """The lock is no longer held, and was not released: another may hold it by now."""

    known = "not held"

    def __str__(self) -> str:
        return super().__str__() or "a lock of this thread was lost"


class NotHeld(Error):
    """Nothing is held here that could be released or extended."""


class Unsure(Error):
    """A request was sent, and no reply came."""


class Unreachable(Error, ConnectionError):
    """The server cannot be reached; or, with a quorum, too few of them."""


class Denied(Error, PermissionError):
    """The server refused the login or the permission."""


class Invalid(Error, ValueError):
    """An argument is wrong."""


class BadConfiguration(Error, ValueError):
    """The URL, one of its options or the configuration file is wrong."""


class Forked(Error):
    """The client belongs to the parent process: open another one after os.fork()."""


class Cancelled(Error):
    """The wait was cancelled."""


class NotOwner(Error):
    """Held by another owner id, or by nobody."""


class Stale(Error):
    """A larger fencing number has been seen: this holder is too late."""


class Deadlock(Error):
    """Waiting would never end."""


class NotSupported(Error):
    """The protocol or the kind of server cannot do it."""


class Broken(Error):
    """A meeting at a barrier was broken, or a latch was reset, while this one waited."""


class NotSet(Error):
    """There is no latch of this name."""


class Conflict(Error):
    """Others changed it at every try; nothing was written."""


class WrongType(Error, TypeError):
    """The key holds data of another kind; nothing was changed."""


_CLASSES = {
    "HF_EBUSY": Busy,
    "HF_ETIMEDOUT": TimedOut,
    "HF_ELOST": LockLost,
    "HF_ENOTHELD": NotHeld,
    "HF_EUNSURE": Unsure,
    "HF_ECONN": Unreachable,
    "HF_ENOQUORUM": Unreachable,
    "HF_EAUTH": Denied,
    "HF_EINVAL": Invalid,
    "HF_ECONFIG": BadConfiguration,
    "HF_EFORK": Forked,
    "HF_ECANCELED": Cancelled,
    "HF_ENOTOWNER": NotOwner,
    "HF_ESTALE": Stale,
    "HF_EDEADLK": Deadlock,
    "HF_ENOTSUP": NotSupported,
    "HF_EBROKEN": Broken,
    "HF_ENOTSET": NotSet,
    "HF_ECONFLICT": Conflict,
    "HF_ETYPE": WrongType,
}


def error_of(code: int, name: str, known: str, message: str) -> Exception:
    """The exception for what a call has said; those without a class of their own are an Error."""
    if name == "HF_ENOMEM":
        return MemoryError(message)
    kind: Type[Error] = _CLASSES.get(name, Error)
    e = kind(message)
    e.code, e.name, e.known = code, name, known
    return e
