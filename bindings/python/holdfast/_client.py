# SPDX-License-Identifier: MIT
"""A connection to the server that keeps the locks."""
from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Tuple

from . import _calls as calls
from ._call import run
from ._errors import Error
from ._inspect import Info
from ._lib import (Duration, Name, c_text, check, ffi, lib, milliseconds, new_error, text_of)
from ._watch import ClientBase, alone, my_handles

if TYPE_CHECKING:
    from ._election import Election
    from ._inspect import Leader, Value
    from ._lock import Lock, Multi
    from ._meet import Barrier, Latch
    from ._sequence import Sequence
    from ._update import Change

Log = Callable[[str, str], object]
_LEVELS: Dict[int, str] = {lib.HF_LOG_ERROR: "error", lib.HF_LOG_WARNING: "warning",
                           lib.HF_LOG_INFO: "info", lib.HF_LOG_DEBUG: "debug"}


def _program() -> str:
    """What others see beside the lock: the script rather than the interpreter."""
    return os.path.basename(sys.argv[0] if sys.argv else "") or "python"


def client_options(prefix: Optional[str], password: Optional[str], program: Optional[str],
                   info: Optional[str], timeout: Optional[Duration], protocol: Optional[str],
                   replicas: int, wait: Optional[Duration], repair: bool, confirm: bool,
                   log: Optional[Log]) -> Tuple[Any, List[Any]]:
    """hf_client_opts, and what must live until the client is open or, the log, is closed."""
    o = ffi.new("hf_client_opts *")
    o.size = ffi.sizeof("hf_client_opts")
    keep: List[Any] = [o]
    texts = {"prefix": prefix, "password": password, "program": program or _program(),
             "info": info, "protocol": protocol}
    for name, text in texts.items():
        c = c_text(text)
        keep.append(c)
        setattr(o, name, c)
    o.timeout_ms = milliseconds(timeout) if timeout is not None else 0
    o.wait_ms = milliseconds(wait) if wait is not None else 0
    o.replicas = replicas
    o.no_repair = 0 if repair else 1
    o.confirm = 1 if confirm else 0
    if log:
        say = log

        def write(_arg: Any, level: int, message: Any) -> None:
            say(_LEVELS.get(level, "debug"), text_of(message) or "")

        written = ffi.callback("void(void *, hf_log, const char *)", write)
        keep.append(written)  # what is read from o would not keep it
        o.log = written
    return o, keep


class Client(ClientBase):
    """A client: one connection, shared by all threads. Most programs need none of their own:
    locks use default_client().

    url     where the server is; None: $HOLDFAST_URL, the configuration file, or a private server
    wait    how long to go on trying a server that cannot be reached; None: one attempt
    timeout the longest exchange with the server; None: 5 s
    log     log(level, message), called in threads of the library, which then wait for Python:
            keep it short
    The others are those of hf_client_opts in holdfast.h.
    """

    def __init__(self, url: Optional[str] = None, *, prefix: Optional[str] = None,
                 password: Optional[str] = None, program: Optional[str] = None,
                 info: Optional[str] = None, timeout: Optional[Duration] = None,
                 protocol: Optional[str] = None, replicas: int = 0,
                 wait: Optional[Duration] = None, repair: bool = True, confirm: bool = False,
                 log: Optional[Log] = None) -> None:
        super().__init__()
        self._ptr: Any = ffi.NULL
        self.closed = True
        self.pid = os.getpid()
        opts, self._keep = client_options(prefix, password, program, info, timeout, protocol,
                                          replicas, wait, repair, confirm, log)
        ret, err = ffi.new("hf_client **"), new_error()
        check(lib.hf_client_open(c_text(url), opts, ret, err), err)
        self._ptr = ret[0]
        self.closed = False
        _open_clients.add(self)

    @property
    def ptr(self) -> Any:
        """The hf_client, for calls of the library."""
        if self.closed:
            raise Error("the client is closed")
        return self._ptr

    @property
    def url(self) -> str:
        """Where it is connected, without the password."""
        return text_of(lib.hf_client_url(self.ptr)) or ""

    def close(self, timeout: Optional[Duration] = None) -> None:
        """Release what is still held, and disconnect. Its locks cannot be used after that. No other
        thread may be in a call of it or of them, or wait for one of them."""
        if self.closed:
            return
        limit, err = calls.limit_of(timeout), new_error()
        self.closed = True
        ptr, self._ptr = self._ptr, ffi.NULL
        check(self.free_client(lambda: int(lib.hf_client_close(ptr, limit, err))), err)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        if not self.closed and not sys.is_finalizing():
            self.closed = True
            self.free_client(lambda: lib.hf_client_free(self._ptr))

    # ---- what this client can make ----

    def lock(self, name: Name, **options: Any) -> "Lock":
        """Lock(name, client=this, ...)"""
        from ._lock import Lock

        return Lock(name, client=self, **options)

    def shared(self, name: Name, **options: Any) -> "Lock":
        from ._lock import Shared

        return Shared(name, client=self, **options)

    def semaphore(self, name: Name, slots: int, **options: Any) -> "Lock":
        from ._lock import Semaphore

        return Semaphore(name, slots, client=self, **options)

    def multi(self, *locks: Any, **options: Any) -> "Multi":
        from ._lock import Multi

        return Multi(*locks, client=self, **options)

    def election(self, name: Name, value: Name = b"", **options: Any) -> "Election":
        from ._election import Election

        return Election(name, value, client=self, **options)

    def leader(self, name: Name) -> Optional["Leader"]:
        from ._election import leader

        return leader(name, client=self)

    def once(self, name: Name, compute: Callable[[], Name], **options: Any) -> "Value":
        from ._once import once

        return once(name, compute, client=self, **options)

    def latch(self, name: Name, **options: Any) -> "Latch":
        from ._meet import Latch

        return Latch(name, client=self, **options)

    def barrier(self, name: Name, parties: int, **options: Any) -> "Barrier":
        from ._meet import Barrier

        return Barrier(name, parties, client=self, **options)

    def sequence(self, name: Name, **options: Any) -> "Sequence":
        from ._sequence import Sequence

        return Sequence(name, client=self, **options)

    def update(self, key: Name, change: "Change", **options: Any) -> Optional[bytes]:
        from ._update import update

        return update(key, change, client=self, **options)

    # ---- locks by owner id ----

    def owner_acquire(self, name: Name, ttl: Duration, owner: Name) -> int:
        """Take the lock for ttl, under an id of your own; the fencing number. Nothing is renewed,
        and any process that knows the id can release it. Busy: another holds it."""
        return run(calls.owner_acquire(self.ptr, name, ttl, owner))

    def owner_release(self, name: Name, owner: Name) -> None:
        run(calls.owner_release(self.ptr, name, owner))

    def owner_extend(self, name: Name, owner: Name, ttl: Duration) -> None:
        run(calls.owner_extend(self.ptr, name, owner, ttl))

    def owner_check(self, name: Name, owner: Name) -> float:
        """What is left of the lease, in seconds. NotOwner: it is not the owner."""
        return run(calls.owner_check(self.ptr, name, owner))

    # ---- the side of the resource ----

    def guard_check(self, resource: Name, fence: int) -> None:
        """Remember the fencing number; Stale if a larger one has been seen."""
        run(calls.guard_check(self.ptr, resource, fence))

    def guard_set(self, key: Name, value: Name, fence: int) -> None:
        """SET key value, only if the fencing number is not older than the newest one seen."""
        run(calls.guard_set(self.ptr, key, value, fence))

    # ---- looking ----

    def inspect(self, name: Name, timeout: Optional[Duration] = None) -> Info:
        """Who holds a lock, and who waits for it."""
        return run(calls.inspect(self.ptr, name, timeout))


# ---- the clients of this process --------------------------------------------------------------

_open_clients: "weakref.WeakSet[Client]" = weakref.WeakSet()
_default: Optional[Client] = None
_default_mutex = threading.Lock()


def default_client() -> Client:
    """The client that locks use if they are given none. Opened when it is first needed; a child
    process gets one of its own."""
    global _default
    with _default_mutex:
        if _default is None or _default.closed or _default.pid != os.getpid():
            _default = Client()
        return _default


def _in_child() -> None:
    global _default_mutex
    _default_mutex = threading.Lock()


def _at_exit() -> None:
    """What is still held is released here, while the interpreter can still do it. While other
    threads are there, which may be in a call, no client is freed: what they hold passes on after
    its grace."""
    if not alone():
        for h in my_handles():
            if isinstance(h.client, Client) and h.usable():
                h.free()
        return
    for c in list(_open_clients):
        if not c.closed and c.pid == os.getpid():
            c.closed = True
            lib.hf_client_free(c._ptr)


os.register_at_fork(after_in_child=_in_child)
atexit.register(_at_exit)
