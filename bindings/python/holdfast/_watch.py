# SPDX-License-Identifier: MIT
"""Handles, the losses of what they hold, and calls that wait without making Ctrl-C wait.

One thread of Python (`holdfast-watch`) hears of losses: it is told by hf_lock_fd(), whose
descriptors it watches edge-triggered, so that it never has to read them and needs only calls that
any thread may make. No thread of the library ever waits for Python's interpreter lock.

A block is what stands under a `with`. If its lock is lost, an exception is raised in its thread,
by the means that CPython has for it: it arrives between two instructions of Python, never inside of
a call of C. What waits for another lock of ours is ended at once.
"""
from __future__ import annotations

import ctypes
import os
import select
import sys
import threading
import time
import weakref
from typing import Any, Callable, Dict, List, Optional, Set, Union

from ._errors import Cancelled, Error, LockLost
from ._lib import check, ffi, lib, new_error

OnLost = Union[str, Callable[[LockLost], object]]

#: Guards all below. A finalizer may run anywhere, so it must be possible to take it twice.
_mutex = threading.RLock()
_watched: Dict[int, "weakref.ref[Handle]"] = {}
_waiting: Dict[int, "Wait"] = {}  # by thread: the call that it waits in
_active: Dict[int, List["Block"]] = {}  # by thread: its blocks that have not ended
_masked: Set[int] = set()  # threads that are not to be interrupted now
_epoll: Optional[select.epoll] = None
_LOST: int = lib.HF_STATE_LOST


class ClientBase:
    """What a handle needs to know of its client."""

    closed = False
    pid = 0


class Handle:
    """A handle of the library: an hf_lock, what has one, or one without. Freed with this
    object."""

    def __init__(self, client: ClientBase, label: str, what: Any, lock: Any,
                 free: Callable[[Any], Any]) -> None:
        self.client = client
        self.label = label
        self.what = what
        self.lock = lock
        self.fd = -1
        self.blocks: List[Block] = []
        self._free = free

    def usable(self) -> bool:
        return not self.client.closed and self.client.pid == os.getpid() and self.what != ffi.NULL

    def held(self) -> bool:
        return self.usable() and bool(lib.hf_lock_is_held(self.lock))

    def lost(self) -> bool:
        return self.usable() and lib.hf_lock_state(self.lock) == _LOST

    def abandoned(self) -> bool:
        """It is lost, its blocks were told, and yet somebody wants to take it again. Python may
        raise what it was told in the first instruction of __exit__(), which then did nothing."""
        return self.lost() and bool(self.blocks) and all(b.told for b in self.blocks)

    def fence(self) -> int:
        return int(lib.hf_lock_fence(self.lock)) if self.usable() else 0

    def loss(self) -> LockLost:
        """The error that says why."""
        text = ffi.new("char[]", 512)
        lib.hf_lock_loss_text(self.lock, text, 512)
        why = ffi.string(text).decode(errors="replace")
        e = LockLost(f'the lock "{self.label}" was lost: {why or "it is no longer held"}')
        e.code, e.name = int(lib.HF_ELOST), "HF_ELOST"
        return e

    def descriptor(self) -> int:
        """Becomes readable at each change of the lock's state."""
        ret, err = ffi.new("int *"), new_error()
        check(lib.hf_lock_fd(self.lock, ret, err), err)
        return int(ret[0])

    def free(self) -> None:
        """What it holds is released. A child process frees what it inherited, and touches nothing
        of its parent's."""
        with _mutex:
            what, self.what = self.what, ffi.NULL
            if self.fd >= 0:
                _forget(self.fd)
            self.fd, self.lock = -1, ffi.NULL
        if what != ffi.NULL:
            self._free(what)

    def __del__(self) -> None:
        if sys is not None and not sys.is_finalizing():
            self.free()


class Block:
    """The locks of one `with`, and what happens when one of them is lost."""

    def __init__(self, handles: List[Handle], on_lost: OnLost,
                 release: Callable[[], None]) -> None:
        self.handles = handles
        self.on_lost = on_lost
        self.release = release  # in any thread
        self.thread = threading.get_ident()
        self.told = False
        self.deferred = False  # it is still to be raised in its thread
        self.over = False

    def begin(self) -> None:
        """Masked."""
        with _mutex:
            _active.setdefault(self.thread, []).append(self)
            if self.on_lost != "ignore":
                for h in self.handles:
                    h.blocks.append(self)
                    _watch(h)
        for h in self.handles:  # lost before anybody looked?
            _look(h)

    def end(self) -> None:
        """Masked. From here on nothing arrives for this block."""
        with _mutex:
            self.over = True
            mine = _active.get(self.thread, [])
            if self in mine:
                mine.remove(self)
            if not mine:
                _active.pop(self.thread, None)
            for h in self.handles:
                if self in h.blocks:
                    h.blocks.remove(self)

    def lost(self) -> Optional[Handle]:
        for h in self.handles:
            if h.lost():
                return h
        return None

    def leave(self, exc: Optional[BaseException]) -> None:
        """End the block and release its locks. A loss is always told; another exception of the
        block goes before what goes wrong here."""
        arrived = mask()
        error: Optional[Error] = None
        try:
            self.end()
            lost = self.lost()
            error = lost.loss() if lost else None
            try:
                self.release()
            except Error as e:
                error = error or e
        finally:
            unmask(exc is None and error is None and arrived is None)
        if exc is None and (error or arrived):
            raise error or arrived  # type: ignore[misc]
        if isinstance(exc, LockLost) and exc.code is None and isinstance(error, LockLost):
            # As it was raised in the middle of the block: now it says why.
            exc.args, exc.code, exc.name = error.args, error.code, error.name

    def abandon(self) -> None:
        """The `with` is gone, and did not come to its end."""
        arrived = mask()
        try:
            self.end()
            self.release()
        except Error:
            pass  # lost, or the client is closed
        finally:
            unmask()
        if arrived:  # not for us
            _raise_in(threading.get_ident(), LockLost)


def checked_on_lost(on_lost: OnLost) -> OnLost:
    if not callable(on_lost) and on_lost not in ("interrupt", "ignore"):
        raise ValueError(f'on_lost is {on_lost!r}: give "interrupt", "ignore" or a function')
    return on_lost


# ---- interrupts --------------------------------------------------------------------------------
# An exception from outside may arrive at any instruction, and so between the grant of a lock and
# the note that it is held. So our own calls are masked: what would be raised meanwhile is raised at
# their end. What is under way when the mask is set arrives while it is being set, since Python
# looks for it at each call.


def mask() -> Optional[LockLost]:
    """From here on nothing arrives in this thread, until unmask(). What arrived meanwhile."""
    arrived: Optional[LockLost] = None
    while True:
        try:
            with _mutex:
                _masked.add(threading.get_ident())
            return arrived
        except LockLost as e:
            arrived = e


def enter_masked() -> None:
    """mask(), and raise what arrived."""
    arrived = mask()
    if arrived:
        unmask(False)
        raise arrived


def unmask(send: bool = True) -> None:
    """send: what was deferred is raised now, else at the end of the next call."""
    me = threading.get_ident()
    with _mutex:
        _masked.discard(me)
        deferred = [b for b in _active.get(me, ()) if b.deferred] if send else []
        for b in deferred:
            b.deferred = False
        if deferred:
            _raise_in(me, LockLost)


def interrupted() -> bool:
    """Masked. Whether something is deferred in this thread."""
    with _mutex:
        return any(b.deferred for b in _active.get(threading.get_ident(), ()))


def _raise_in(thread: int, error: type) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(error))


# ---- losses ------------------------------------------------------------------------------------


def _look(h: Handle) -> None:
    """Tell the blocks of a handle, if its lock is lost."""
    call: List[Callable[[LockLost], object]] = []
    with _mutex:
        if not h.lost():
            return
        error = h.loss()
        for block in h.blocks:
            if block.told:
                continue
            block.told = True
            if callable(block.on_lost):
                call.append(block.on_lost)
            else:
                _interrupt(block)
    for each in call:
        _call_beside(each, error)


def _call_beside(function: Callable[[LockLost], object], error: LockLost) -> None:
    """In a thread of its own: one that hangs or raises keeps no other loss from being told."""
    try:
        threading.Thread(target=function, args=(error,), name="holdfast-lost", daemon=True).start()
    except RuntimeError:  # no thread can be had: rather here than not at all
        function(error)


def _interrupt(block: Block) -> None:
    """Holds: _mutex."""
    wait = _waiting.get(block.thread)
    if wait:
        wait.cancelled = True
        wait.cancel()
    if block.thread in _masked:
        block.deferred = True
    else:
        _raise_in(block.thread, LockLost)


def _watch(h: Handle) -> None:
    """Holds: _mutex."""
    global _epoll
    if h.fd >= 0:
        return
    fd = h.descriptor()
    if _epoll is None:
        _epoll = select.epoll()
        threading.Thread(target=_run, args=(_epoll,), name="holdfast-watch", daemon=True).start()
    _watched[fd] = weakref.ref(h)
    _epoll.register(fd, select.EPOLLIN | select.EPOLLET)
    h.fd = fd


def _forget(fd: int) -> None:
    """Holds: _mutex."""
    _watched.pop(fd, None)
    if _epoll is not None:
        try:
            _epoll.unregister(fd)
        except (OSError, ValueError):
            pass


def _run(epoll: select.epoll) -> None:
    while True:
        for fd, _ in epoll.poll():
            with _mutex:
                found = _watched.get(fd)
                h = found() if found else None
            if h is None:
                continue
            try:
                _look(h)
            except Exception:
                sys.excepthook(*sys.exc_info())
            h = None  # it may be freed while we sleep


def _in_child() -> None:
    """Threads and waits stay behind in the parent."""
    global _epoll, _mutex
    _mutex = threading.RLock()
    _watched.clear()
    _waiting.clear()
    _active.clear()
    _masked.clear()
    if _epoll is not None:
        _epoll.close()
        _epoll = None


os.register_at_fork(after_in_child=_in_child)


# ---- waiting -----------------------------------------------------------------------------------


class Wait:
    """A call that may wait; cancel() ends it."""

    def __init__(self, cancel: Callable[[], object]) -> None:
        self.cancel = cancel
        self.cancelled = False


def wait_for(call: Callable[[int], int], wait_ms: int, cancel: Callable[[], object]) -> int:
    """call(wait_ms), which may wait; cancel() ends it. Cancelled: its handle is to be freed, since
    the cancel may have come too late, and then is for its next call.

    Python runs the handlers of signals in its main thread, between its own instructions, and so
    never while that thread is in a call of C. So there a call that has to wait is made by a thread
    of its own, and Ctrl-C ends it.
    """
    if wait_ms == 0:
        return call(0)
    me = threading.get_ident()
    wait = Wait(cancel)
    with _mutex:
        _waiting[me] = wait
    try:
        result = _in_this_thread(call, wait_ms, cancel)
    finally:
        with _mutex:
            _waiting.pop(me, None)
    if wait.cancelled:
        raise Cancelled("the wait was cancelled, since another lock of this thread was lost")
    return result


def _in_this_thread(call: Callable[[int], int], wait_ms: int,
                    cancel: Callable[[], object]) -> int:
    if threading.current_thread() is not threading.main_thread():
        return call(wait_ms)
    start = time.monotonic()
    result = call(0)
    if result != lib.HF_EBUSY:
        return result
    if wait_ms > 0:
        wait_ms = max(1, wait_ms - int((time.monotonic() - start) * 1000))
    return _beside(lambda: call(wait_ms), cancel)


def _sit_out(done: threading.Event) -> None:
    """However often somebody presses Ctrl-C."""
    while True:
        try:
            while not done.is_set():
                done.wait()
            return
        except BaseException:
            pass


def _beside(call: Callable[[], int], cancel: Callable[[], object]) -> int:
    result: List[int] = []
    done = threading.Event()

    def work() -> None:
        try:
            result.append(call())
        finally:
            done.set()

    threading.Thread(target=work, name="holdfast-wait", daemon=True).start()
    try:
        done.wait()
    except BaseException:
        cancel()
        _sit_out(done)  # the handle is in use until then; half a second at most
        raise
    if not result:
        raise Error("the wait ended without a result")
    return result[0]
