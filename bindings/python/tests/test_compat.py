# SPDX-License-Identifier: MIT
"""test_compat.py - holdfast.compat.Lock where redis-py's Lock was, and beside it."""
import os
import threading
import time
import unittest
from unittest import mock

import redis
from redis.exceptions import LockError, LockNotOwnedError
from redis.lock import Lock as RedisPyLock

import holdfast
from holdfast.compat import Lock, url_of
from base import ServerCase


class Compat(ServerCase):
    def setUp(self):
        super().setUp()
        self.r = redis.Redis(unix_socket_path=self.socket)

    def tearDown(self):
        self.r.close()
        self.r.connection_pool.disconnect()

    def lock(self, *args, **options):
        return self.r.lock(*args, lock_class=Lock, **options)

    # ---- redis-py's own tests, one by one; redis_py.sh runs the originals ----

    def test_lock_and_token(self):
        lock = self.lock("foo")
        self.assertTrue(lock.acquire(blocking=False))
        self.assertEqual(self.r.get("foo"), lock.local.token)
        self.assertGreater(lock.fence, 0)
        lock.release()
        self.assertIsNone(self.r.get("foo"))
        self.assertTrue(lock.acquire(blocking=False, token="test"))
        self.assertEqual(self.r.get("foo"), b"test")
        self.assertEqual(lock.local.token, b"test")
        lock.release()

    def test_without_a_timeout_it_is_renewed(self):
        """The one that differs: redis-py's stays for ever when its process dies."""
        lock = self.lock("foo")
        lock.acquire()
        self.assertTrue(0 < self.r.ttl("foo") <= 30)
        lock.release()

    def test_locked_and_owned(self):
        lock = self.lock("foo")
        self.assertFalse(lock.locked())
        self.assertFalse(lock.owned())
        lock.acquire(blocking=False)
        self.assertTrue(lock.locked())
        self.assertTrue(lock.owned())
        other = self.lock("foo")
        self.assertTrue(other.locked())
        self.assertFalse(other.owned())
        lock.release()
        self.assertFalse(lock.locked())
        self.assertFalse(lock.owned())

    def test_competing_locks(self):
        one, two = self.lock("foo"), self.lock("foo")
        self.assertTrue(one.acquire(blocking=False))
        self.assertFalse(two.acquire(blocking=False))
        self.assertFalse(one.acquire(blocking=False))  # not again, either
        one.release()
        self.assertTrue(two.acquire(blocking=False))
        self.assertFalse(one.acquire(blocking=False))
        two.release()

    def test_timeout(self):
        for timeout in (10, 9.5):
            lock = self.lock("foo", timeout=timeout)
            self.assertTrue(lock.acquire(blocking=False))
            self.assertTrue(8000 < self.r.pttl("foo") <= timeout * 1000)
            lock.release()

    def test_blocking(self):
        lock = self.lock("foo", blocking=False)
        self.assertTrue(lock.acquire())
        self.assertFalse(self.lock("foo", blocking=False).acquire())
        start = time.monotonic()
        self.assertFalse(self.lock("foo", sleep=60, blocking_timeout=0.2).acquire())
        self.assertFalse(self.lock("foo", sleep=60).acquire(blocking_timeout=0.2))
        self.assertLess(time.monotonic() - start, 10)
        lock.release()

    def test_context_manager(self):
        with self.lock("foo") as lock:
            self.assertEqual(self.r.get("foo"), lock.local.token)
            with self.assertRaises(LockError):
                with self.lock("foo", blocking_timeout=0.1):
                    self.fail("it is held")
            with self.assertRaises(LockError):
                with self.lock("foo", blocking=False):
                    self.fail("it is held")
        self.assertIsNone(self.r.get("foo"))

    def test_releasing(self):
        with self.assertRaises(LockError):
            self.lock("foo").release()
        lock = self.lock("foo")
        lock.acquire(blocking=False)
        self.r.set("foo", "a")
        with self.assertRaises(LockNotOwnedError):
            lock.release()
        self.assertIsNone(lock.local.token)
        self.assertEqual(self.r.get("foo"), b"a")

    def test_a_release_that_may_fail(self):
        with self.assertRaises(LockError):
            with Lock(self.r, "foo", timeout=0.1):
                time.sleep(0.3)
        with Lock(self.r, "foo", timeout=0.1, raise_on_release_error=False):
            time.sleep(0.3)

    def test_the_loss_of_another_lock_is_told_as_it_is(self):
        """That of a block around ours may arrive in any call."""
        for call in ("lock_release", "lock_extend"):
            lock = self.lock("foo", timeout=10)
            lock.acquire(blocking=False)
            with mock.patch("holdfast.compat.run", side_effect=holdfast.LockLost):
                with self.assertRaises(holdfast.LockLost):
                    lock.release() if call == "lock_release" else lock.extend(1)
            self.r.delete("foo")

    def test_extend(self):
        lock = self.lock("foo", timeout=10)
        lock.acquire(blocking=False)
        self.assertTrue(8000 < self.r.pttl("foo") <= 10000)
        self.assertTrue(lock.extend(10))
        self.assertTrue(16000 < self.r.pttl("foo") <= 20000)
        self.assertTrue(lock.extend(10.5, replace_ttl=True))  # shorter than it was
        self.assertTrue(8000 < self.r.pttl("foo") <= 10500)
        self.assertTrue(lock.reacquire())
        self.assertTrue(8000 < self.r.pttl("foo") <= 10000)
        lock.release()

    def test_extending_what_is_not_held(self):
        for what in (lambda x: x.extend(10), lambda x: x.reacquire()):
            with self.assertRaises(LockError):
                what(self.lock("foo", timeout=10))
            lock = self.lock("foo")
            lock.acquire(blocking=False)
            with self.assertRaises(LockError):  # no timeout
                what(lock)
            lock.release()
            lock = self.lock("foo", timeout=10)
            lock.acquire(blocking=False)
            self.r.set("foo", "a")
            with self.assertRaises(LockNotOwnedError):
                what(lock)
            self.assertEqual(self.r.get("foo"), b"a")
            self.r.delete("foo")

    # ---- what else programs rely on ----

    def test_beside_redis_py(self):
        """A fleet that is moved over one program at a time."""
        inside, most, kinds = [], [], []

        def work(kind):
            r = redis.Redis(unix_socket_path=self.socket)
            for _ in range(10):
                with r.lock("foo", timeout=20, sleep=0.002, lock_class=kind):
                    inside.append(1)
                    most.append(len(inside))
                    kinds.append(kind)
                    time.sleep(0.001)
                    inside.pop()
                time.sleep(0.003)
            r.close()
            r.connection_pool.disconnect()

        threads = [threading.Thread(target=work, args=(k,)) for k in (Lock, RedisPyLock) * 2]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual((max(most), len(most)), (1, 40))
        self.assertEqual(kinds.count(Lock), 20)

    def test_threads(self):
        lock = self.lock("foo", timeout=20)
        lock.acquire()
        got = []
        t = threading.Thread(target=lambda: got.append(lock.owned()))
        t.start()
        t.join()
        self.assertEqual(got, [False])
        lock.release()
        lock = self.lock("foo", timeout=20, thread_local=False)
        lock.acquire()
        t = threading.Thread(target=lock.release)
        t.start()
        t.join()
        self.assertIsNone(self.r.get("foo"))

    def test_with_a_timeout_it_outlives_object_and_program(self):
        """"At most once in ten seconds": taken and never released."""
        self.assertTrue(self.lock("foo", timeout=10).acquire(blocking=False))
        self.assertGreater(self.r.pttl("foo"), 8000)
        p = self.python("""
            import redis, holdfast.compat
            lock = holdfast.compat.Lock(redis.Redis(unix_socket_path=%r), "bar", timeout=10)
            lock.acquire()
            """ % self.socket)
        _, err = p.communicate(timeout=20)
        self.assertEqual(p.returncode, 0, err)
        self.assertGreater(self.r.pttl("bar"), 5000)

    def test_without_a_timeout_it_ends_with_the_program(self):
        p = self.python("""
            import redis, holdfast.compat
            lock = holdfast.compat.Lock(redis.Redis(unix_socket_path=%r), "bar")
            lock.acquire()
            """ % self.socket)
        p.communicate(timeout=20)
        self.assertIsNone(self.r.get("bar"))

    def test_the_token_is_enough_to_release(self):
        one = self.lock("foo", timeout=10)
        one.acquire()
        two = self.lock("foo", timeout=10)
        two.local.token = one.local.token
        two.extend(20)
        two.release()
        self.assertIsNone(self.r.get("foo"))
        with self.assertRaises(LockNotOwnedError):
            one.release()

    def test_where_the_server_is(self):
        for client, want in (
                (redis.Redis(), "redis://localhost:6379/0"),
                (redis.Redis(host="::1", port=7, db=3, username="a@b", password="p"),
                 "redis://a%40b@[::1]:7/3"),
                (redis.Redis(ssl=True, ssl_ca_certs="/ca file"),
                 "rediss://localhost:6379/0?cacert=%2Fca%20file"),
                (redis.Redis(unix_socket_path="/a b", db=2), "unix:///a%20b?db=2")):
            self.assertEqual(url_of(client)[0], want)
        with Lock(os.environ["HOLDFAST_URL"] + "?prefix=", "foo", timeout=10):
            self.assertTrue(self.r.get("foo"))
        with holdfast.Client(prefix="") as client, Lock(client, "foo"):
            self.assertTrue(self.r.get("foo"))
        with self.assertRaises(TypeError):
            Lock(object(), "foo").acquire()


if __name__ == "__main__":
    unittest.main()
