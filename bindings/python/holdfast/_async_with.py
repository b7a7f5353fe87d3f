# SPDX-License-Identifier: MIT
"""The `async with` statement for locks.

A block may end in another task than it has begun in: asyncio closes an asynchronous generator that
was left in the middle in a task of its own, and an AsyncExitStack may be handed on. So __aexit__ is
an object of its own for each `async with`, which knows its block. AsyncExitStack looks for it in
the class; there, too, it is a new one.
"""
from __future__ import annotations

import asyncio
import threading
import weakref
from contextlib import suppress
from typing import Any, Awaitable, Callable, List, Optional

from ._errors import Error, NotHeld
from ._loop import Block, client_of
from ._watch import Handle


class Blocks:
    """The `async with` blocks of one object that have not ended."""

    def __init__(self) -> None:
        self.list: List[Block] = []

    def last(self) -> Block:
        """For one who calls __aexit__() by hand: that of this task, or of one that is gone."""
        me = asyncio.current_task()
        for ours in (lambda b: b.task is me, lambda b: b.task is None or b.task.done()):
            found = [b for b in self.list if ours(b)]
            if found:
                return found[-1]
        raise NotHeld("this task is in no `async with` of this object")


class Exit:
    """The __aexit__ of one `async with`."""

    def __init__(self, owner: Any) -> None:
        self.owner = owner  # None: found in the class, and given when it is called
        self.block: Optional[Block] = None

    def __call__(self, *args: Any) -> Awaitable[None]:
        _begins.exit = None  # this one ends: whoever begins by hand next is somebody else
        return self._end(*args)

    async def _end(self, *args: Any) -> None:
        owner = args[0] if self.owner is None else self.owner
        await _leave(self.block or owner._blocks.last(), args[-2])

    def __del__(self) -> None:
        if self.block is not None and not self.block.over:
            self.block.stop()  # its `async with` is gone: what the task holds goes with the task


class _Begins(threading.local):
    """The `async with` of this thread that begins. Nothing runs between the look for its __aexit__
    and the first step of its __aenter__()."""

    exit: Optional["weakref.ref[Exit]"] = None


_begins = _Begins()


class ExitMethod:
    """What is found as __aexit__: a new Exit."""

    def __get__(self, owner: Any, kind: Any = None) -> Exit:
        e = Exit(owner)
        _begins.exit = weakref.ref(e)
        return e


def begins(owner: Any) -> Optional[Exit]:
    """The Exit of the `async with` that begins; None: __aenter__() was called by hand."""
    found, _begins.exit = _begins.exit, None
    e = found() if found is not None else None
    return e if e is not None and e.block is None and e.owner in (None, owner) else None


async def begin(owner: Any, exit: Optional[Exit], handles: List[Handle],
                release: Callable[[], Awaitable[None]]) -> None:
    """A block of this owner begins. If it cannot, what was granted is given back."""
    block = Block(client_of(handles[0]), handles, owner.on_lost, release, owner._blocks.list)
    if exit is not None:
        exit.block = block
    try:
        block.begin()
    except BaseException:
        block.stop()
        with suppress(Error):
            await release()
        raise


async def _leave(block: Block, exc: Optional[BaseException]) -> None:
    if block.over:
        return
    error: Optional[Error] = block.end(exc)
    try:
        await block.release()
    except asyncio.CancelledError:
        # Ours, if the block had no await in which it could arrive.
        here = block.task is asyncio.current_task()
        if error is None or exc is not None or not block.cancelled or not here:
            raise
    except Error as e:
        if exc is None:
            error = error or e
    if error is not None:
        raise error from exc
