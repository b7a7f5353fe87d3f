# SPDX-License-Identifier: MIT
"""The `with` statement for locks.

An exception that is raised in a thread from outside, be it LockLost or KeyboardInterrupt, may
arrive in the first instruction of __exit__(), which has then done nothing. So __exit__ is an object
of its own for each `with` statement, which keeps it until its end. If it goes without having been
called, it releases what the block held.
"""
from __future__ import annotations

import threading
import weakref
from typing import Any, Callable, List, Optional

from ._watch import Block, Handle, OnLost


class Blocks(threading.local):
    """The `with` blocks of one object in one thread that have not ended."""

    def __init__(self) -> None:
        self.list: List[Block] = []
        self.exit: Optional["weakref.ref[Exit]"] = None  # of the `with` that begins


class Exit:
    """The __exit__ of one `with`."""

    def __init__(self, owner: Any) -> None:
        self.owner = owner
        self.block: Optional[Block] = None

    def __call__(self, kind: Any, exc: Optional[BaseException], trace: Any) -> None:
        leave(self.owner, self.block, exc)

    def __del__(self) -> None:
        if self.block is not None and not self.block.over:
            self.block.abandon()


class ExitMethod:
    """What is found as __exit__: of an object a new Exit, of a class a function, as usual."""

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        if owner is None:
            return exit_of
        e = Exit(owner)
        owner._blocks.exit = weakref.ref(e)
        return e


def exit_of(owner: Any, kind: Any, exc: Optional[BaseException], trace: Any) -> None:
    leave(owner, None, exc)


def begin(owner: Any, handles: List[Handle], on_lost: OnLost,
          release: Callable[[], None]) -> None:
    """Masked. A block of this owner begins."""
    block = Block(handles, on_lost, release)
    blocks: Blocks = owner._blocks
    blocks.list = [b for b in blocks.list if not b.left()] + [block]
    e = blocks.exit() if blocks.exit else None
    if e is not None and e.block is None:
        e.block = block
    blocks.exit = None
    block.begin()


def leave(owner: Any, block: Optional[Block], exc: Optional[BaseException]) -> None:
    """End this block, or the last one of its thread."""
    blocks: Blocks = owner._blocks
    if block is None:
        left = [b for b in blocks.list if not b.left()]
        block = left[-1] if left else None
    if block is not None and not block.left():
        block.leave(exc)
