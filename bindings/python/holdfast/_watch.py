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
from typing import Any, Callable, Dict, List, Optional, Set, TypeVar, Union

from ._errors import Cancelled, Error, LockLost
from ._lib import check, ffi, lib, new_error

T = TypeVar("T")
OnLost = Union[str, Callable[[LockLost], object]]

#: Guards all below. A finalizer may run anywhere, so it must be possible to take it twice.
_mutex = threading.RLock()
_watched: Dict[int, "weakref.ref[Handle]"] = {}
_waiting: Dict[int, "Wait"] = {}  # by thread: the call that it waits in
_active: Dict[int, List["Block"]] = {}  # by thread: its blocks that have not ended
_masked: Set[int] = set()  # threads that are not to be interrupted now
_sent: Dict[int, object] = {}  # by thread: stands for what was raised in it since its last unmask()
_epoll: Optional[select.epoll] = None
_LOST: int = lib.HF_STATE_LOST
_MOMENT = 0.05  # in seconds: a while for an exception to come through
_FREES = 10.0  # in seconds: more than it takes to free a handle


class ClientBase:
    """What a handle needs to know of its client. Handles of threads that end are freed while another
    thread may be closing the client, which must not meet. What is shared here is a list, so that
    finalizers, which may run anywhere, need no lock."""

    closed = False
    pid = 0

    def __init__(self) -> None:
        self._frees: List[int] = []  # threads that free a handle now
        self._later: Optional[List[Callable[[], Any]]] = None  # when the client has been freed

    def free_handle(self, free: Callable[[], Any]) -> None:
        me = threading.get_ident()
        try:
            self._frees.append(me)
            later = self._later
            if later is None:
                free()
            else:
                later.append(free)
        finally:
            if me in self._frees:
                self._frees.remove(me)

    def free_client(self, free: Callable[[], T]) -> T:
        me, end = threading.get_ident(), time.monotonic() + _FREES
        later: List[Callable[[], Any]] = []
        self._later = later
        while (any(t != me for t in list(self._frees)) and self.pid == os.getpid()
               and time.monotonic() < end):
            time.sleep(0.001)
        try:
            return free()
        finally:
            self._later = None
            while later:
                later.pop()()


class _Mine(threading.local):
    """The handles that this thread has made."""

    def __init__(self) -> None:
        self.handles: "weakref.WeakSet[Handle]" = weakref.WeakSet()


_mine = _Mine()


def alone() -> bool:
    """No thread but this one can be in a call of the library; of those that Python knows."""
    return all(t is threading.current_thread() or t.name == "holdfast-watch"
               for t in threading.enumerate())


def my_handles() -> List["Handle"]:
    return list(_mine.handles)


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
        _mine.handles.add(self)

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

    def forsake(self) -> None:
        """Masked. It is taken again: end its blocks. Those that are still there tell their loss
        when they come to their end."""
        for block in list(self.blocks):
            block.end()
            block.forsaken = True

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
            self.client.free_handle(lambda: self._free(what))

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
        self.told: Optional[LockLost] = None
        self.deferred = False  # it is still to be raised in its thread
        self.sent: Optional[object] = None  # the same for all that one exception may have told
        self.over = False
        self.forsaken = False  # over, but its `with` does not know yet

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
            for b in mine:  # CPython keeps only one exception for a thread: it ends with this block
                b.deferred |= self.sent is not None and b.sent is self.sent

    def left(self) -> bool:
        return self.over and not self.forsaken

    def lost(self) -> Optional[Handle]:
        for h in self.handles:
            if h.lost():
                return h
        return None

    def leave(self, exc: Optional[BaseException]) -> None:
        """End the block and release its locks. A loss is always told; another exception of the
        block goes before what goes wrong here."""
        mask()
        error: Optional[Error] = None
        ours = isinstance(exc, LockLost) and exc.code is None
        try:
            error = self._close()
            if ours and isinstance(error, LockLost):
                self._take_over()
        finally:
            unmask(exc is None and error is None)
        if exc is None and error:
            raise error
        if isinstance(exc, LockLost) and ours and isinstance(error, LockLost):
            # As it was raised in the middle of the block: now it says why.
            exc.args, exc.code, exc.name = error.args, error.code, error.name

    def _take_over(self) -> None:
        """Masked. What arrived may have been meant for a block around this one: to that it is sent
        again, because it is told as the loss of this one."""
        with _mutex:
            for b in _active.get(self.thread, []):
                b.deferred |= b.sent is not None

    def _close(self) -> Optional[Error]:
        """Masked. What goes wrong, its loss before all else."""
        error: Optional[Error] = None
        if not self.over:
            self.end()
            lost = self.lost()
            error = lost.loss() if lost else None
            try:
                self.release()
            except Error as e:
                error = error or e
        self.forsaken = False
        return self.told or error

    def abandon(self) -> None:
        """The `with` is gone, and did not come to its end."""
        mask()
        try:
            self.end()
            self.release()
        except Error:
            pass  # lost, or the client is closed
        finally:
            unmask()


def checked_on_lost(on_lost: OnLost) -> OnLost:
    if not callable(on_lost) and on_lost not in ("interrupt", "ignore"):
        raise ValueError(f'on_lost is {on_lost!r}: give "interrupt", "ignore" or a function')
    return on_lost


# ---- interrupts --------------------------------------------------------------------------------
# An exception from outside may arrive at any instruction, and so between the grant of a lock and
# the note that it is held. So our own calls are masked: what would be raised meanwhile is raised at
# their end. What is under way when the mask is set arrives while it is being set, since Python
# looks for it at each call.


def mask() -> bool:
    """From here on nothing arrives in this thread, until unmask(). Whether something arrived
    meanwhile; it is deferred, too."""
    me, arrived = threading.get_ident(), False
    while True:
        try:
            with _mutex:
                _masked.add(me)
                for b in _active.get(me, ()):
                    b.deferred |= arrived and b.sent is not None and b.sent is _sent.get(me)
            return arrived
        except LockLost:
            arrived = True


def enter_masked() -> None:
    """mask(), and raise what arrived."""
    if mask():
        with _mutex:
            _tell_deferred(threading.get_ident())
        unmask(False)
        raise LockLost


def unmask(send: bool = True) -> None:
    """send: what was deferred is raised now, else at the end of the next call, or in a moment."""
    me = threading.get_ident()
    with _mutex:
        _masked.discard(me)
        _sent.pop(me, None)
        if send:
            _send_deferred(me)
        later = interrupted()
    if later:
        _send_later(me)


def _tell_deferred(thread: int) -> bool:
    """Holds: _mutex. All that is deferred in this thread is told by one exception."""
    found = [b for b in _active.get(thread, ()) if b.deferred]
    for b in found:
        b.deferred = False
        b.sent = _sent.setdefault(thread, object())
    return bool(found)


def _send_deferred(thread: int) -> None:
    """Holds: _mutex."""
    if thread not in _masked and _tell_deferred(thread):
        _raise_in(thread, LockLost)


def _send_later(thread: int) -> None:
    """Another exception is on its way through this thread, and may be caught in a block that is
    still to be interrupted, and that never calls us again."""

    def work() -> None:
        time.sleep(_MOMENT)
        with _mutex:
            _send_deferred(thread)

    try:
        threading.Thread(target=work, name="holdfast-later", daemon=True).start()
    except RuntimeError:  # no thread can be had: then at the end of the next call
        pass


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
            block.told = h.loss()
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
        block.sent = _sent.setdefault(block.thread, object())
        _raise_in(block.thread, LockLost)


def _watch(h: Handle) -> None:
    """Holds: _mutex."""
    global _epoll
    if h.fd >= 0:
        return
    fd = h.descriptor()
    if _epoll is None:
        epoll = select.epoll()
        threading.Thread(target=_run, args=(epoll,), name="holdfast-watch", daemon=True).start()
        _epoll = epoll  # not before: Ctrl-C may end the line above
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
    _sent.clear()
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
        wait.cancelled = interrupted()
    try:
        result = 0 if wait.cancelled else _in_this_thread(call, wait_ms, cancel)
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


class _Work:
    """A call that a thread of its own makes, unless it is called off before."""

    def __init__(self, call: Callable[[], int]) -> None:
        self.call = call
        self.thread = int(lib.hf_thread_number())  # for which it is made
        self.result: Optional[int] = None
        self.begun = False
        self.off = False
        self.done = threading.Event()

    def run(self) -> None:
        self.begun = True
        lib.hf_thread_act_for(self.thread)
        try:
            if not self.off:
                self.result = self.call()
        finally:
            self.done.set()

    def call_off(self, cancel: Callable[[], object]) -> None:
        """However often somebody presses Ctrl-C. Nobody knows whether its thread has started. Once
        the call has begun, the handle is in use until it is done: half a second at most."""
        while True:
            try:
                self.off = True
                if self.begun:
                    cancel()
                    self.done.wait()
                return
            except BaseException:
                pass


def _beside(call: Callable[[], int], cancel: Callable[[], object]) -> int:
    work = _Work(call)
    try:
        threading.Thread(target=work.run, name="holdfast-wait", daemon=True).start()
        work.done.wait()
    except BaseException:
        work.call_off(cancel)
        raise
    if work.result is None:
        raise Error("the wait ended without a result")
    return work.result
