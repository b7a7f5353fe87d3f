# SPDX-License-Identifier: MIT
"""A call of the library, described once and made in two ways: by a thread, which waits for its
end, or by an event loop, which does not. _calls.py has the descriptions."""
from __future__ import annotations

from typing import Any, Callable, Generic, Optional, Sequence, TypeVar

from ._lib import Bytes, check, lib, new_error
from ._watch import enter_masked, unmask, wait_for

T = TypeVar("T")


class _WaitMs:
    """Stands among the arguments where the library wants to know how long it may wait."""


WAIT_MS = _WaitMs()


def nothing() -> None:
    """The result of a call that has none."""


class Call(Generic[T]):
    """name(*args, error), or name_async(*args, done, arg, error).

    read    makes the result, when the call has succeeded
    more    arguments that only the call that waits has, after the others
    wait    how long it may wait, in milliseconds, for a call with WAIT_MS among its arguments
    cancel  ends such a wait; any thread
    keep    what must live until the end, beside the arguments
    """

    def __init__(self, name: str, *args: Any, read: Callable[[], T], more: Sequence[Any] = (),
                 wait: int = 0, cancel: Optional[Callable[[], object]] = None,
                 keep: Any = None) -> None:
        self.name = name
        self.args = args
        self.read = read
        self.more = more
        self.wait = wait
        self.cancel = cancel
        self.keep = keep
        self.succeeded = False  # though its caller, who was cancelled, does not know

    def _c(self, wait: int) -> Any:
        return [wait if a is WAIT_MS else a.c if isinstance(a, Bytes) else a for a in self.args]

    def make(self, wait: int, err: Any) -> int:
        """In this thread, which waits."""
        return int(getattr(lib, self.name)(*self._c(wait), *self.more, err))

    def begin(self, done: Any, arg: Any, err: Any) -> int:
        """done(result, error, arg) is called at its end."""
        return int(getattr(lib, self.name + "_async")(*self._c(self.wait), done, arg, err))


def run_masked(call: Call[T], broken: Optional[Callable[[], None]] = None) -> T:
    """Masked. broken(): the wait was broken off, and its handle is to be freed."""
    err = new_error()
    if call.cancel is None:
        check(call.make(call.wait, err), err)
        return call.read()
    try:
        result = wait_for(lambda ms: call.make(ms, err), call.wait, call.cancel)
    except BaseException:
        if broken:
            broken()
        raise
    check(result, err)
    return call.read()


def run(call: Call[T], broken: Optional[Callable[[], None]] = None) -> T:
    """Make the call in this thread; a loss of another lock is raised at its end."""
    enter_masked()
    try:
        return run_masked(call, broken)
    finally:
        unmask()
