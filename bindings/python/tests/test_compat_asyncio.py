# SPDX-License-Identifier: MIT
"""test_compat_asyncio.py - holdfast.compat_asyncio.Lock where redis.asyncio's Lock was, and beside
it. Named after redis-py's own tests where it has one; redis_py.sh runs the originals."""
import asyncio
import functools
import unittest

import redis
import redis.asyncio
from redis.asyncio.lock import Lock as RedisPyLock
from redis.exceptions import LockError, LockNotOwnedError

from holdfast import aio, compat
from holdfast.compat_asyncio import Lock
from base import ServerCase


def in_a_loop(test):
    @functools.wraps(test)
    def run(self):
        async def main():
            self.r = redis.asyncio.Redis(unix_socket_path=self.socket)
            try:
                await test(self)
            finally:
                await self.r.close()
                await self.r.connection_pool.disconnect()

        asyncio.run(main())

    return run


class Compat(ServerCase):
    def lock(self, *args, **options):
        return Lock(self.r, *args, **options)

    @in_a_loop
    async def test_lock_and_token(self):
        for options in ({}, {"thread_local": False}):
            lock = self.lock("foo", **options)
            self.assertTrue(await lock.acquire(blocking=False))
            self.assertEqual(await self.r.get("foo"), lock.local.token)
            self.assertGreater(lock.fence, 0)
            await lock.release()
            self.assertIsNone(await self.r.get("foo"))
            self.assertTrue(await lock.acquire(blocking=False, token="test"))
            self.assertEqual(await self.r.get("foo"), b"test")
            self.assertEqual(lock.local.token, b"test")
            await lock.release()
            self.assertIsNone(lock.local.token)

    @in_a_loop
    async def test_without_a_timeout_it_is_renewed(self):
        """The one that differs: redis-py's stays for ever when its process dies."""
        lock = self.lock("foo")
        await lock.acquire()
        self.assertTrue(0 < await self.r.ttl("foo") <= 30)
        await lock.release()

    @in_a_loop
    async def test_locked_and_owned(self):
        lock, other = self.lock("foo"), self.lock("foo")
        self.assertFalse(await lock.locked())
        self.assertFalse(await lock.owned())
        await lock.acquire(blocking=False)
        self.assertTrue(await other.locked())
        self.assertTrue(await lock.owned())
        self.assertFalse(await other.owned())
        await lock.release()
        self.assertFalse(await lock.locked())
        self.assertFalse(await lock.owned())

    @in_a_loop
    async def test_competing_locks(self):
        one, two = self.lock("foo"), self.lock("foo")
        self.assertTrue(await one.acquire(blocking=False))
        self.assertFalse(await two.acquire(blocking=False))
        self.assertFalse(await one.acquire(blocking=False))  # not again, either
        await one.release()
        self.assertTrue(await two.acquire(blocking=False))
        await two.release()

    @in_a_loop
    async def test_timeout(self):
        for timeout in (100, 99.5):
            lock = self.lock("foo", timeout=timeout)
            self.assertTrue(await lock.acquire(blocking=False))
            self.assertTrue(50000 < await self.r.pttl("foo") <= timeout * 1000)
            await lock.release()

    @in_a_loop
    async def test_blocking_timeout(self):
        lock = self.lock("foo", blocking=False)
        self.assertTrue(await lock.acquire())
        self.assertFalse(await self.lock("foo", blocking=False).acquire())
        self.assertFalse(await self.lock("foo", sleep=600, blocking_timeout=0.2).acquire())
        self.assertFalse(await self.lock("foo", sleep=600).acquire(blocking_timeout=0.2))
        await lock.release()

    @in_a_loop
    async def test_context_manager(self):
        async with self.lock("foo", blocking_timeout=60) as lock:
            self.assertEqual(await self.r.get("foo"), lock.local.token)
            for options in ({"blocking_timeout": 0.1}, {"blocking": False}):
                with self.assertRaises(LockError):
                    async with self.lock("foo", **options):
                        self.fail("it is held")
        self.assertIsNone(await self.r.get("foo"))

    @in_a_loop
    async def test_releasing(self):
        with self.assertRaises(LockError):
            await self.lock("foo").release()
        for options in ({}, {"timeout": 100}):
            lock = self.lock("foo", **options)
            await lock.acquire(blocking=False)
            await self.r.set("foo", "a")
            with self.assertRaises(LockNotOwnedError):
                await lock.release()
            self.assertIsNone(lock.local.token)
            self.assertEqual(await self.r.get("foo"), b"a")
            await self.r.delete("foo")
        async with Lock(self.r, "foo", timeout=100, raise_on_release_error=False):
            await self.r.delete("foo")

    @in_a_loop
    async def test_extend_and_reacquire(self):
        lock = self.lock("foo", timeout=100)
        await lock.acquire(blocking=False)
        self.assertTrue(await lock.extend(100))
        self.assertTrue(150000 < await self.r.pttl("foo") <= 200000)
        self.assertTrue(await lock.extend(100.5, replace_ttl=True))  # shorter than it was
        self.assertTrue(50000 < await self.r.pttl("foo") <= 100500)
        await self.r.pexpire("foo", 40000)
        self.assertTrue(await lock.reacquire())
        self.assertTrue(50000 < await self.r.pttl("foo") <= 100000)
        await lock.release()

    @in_a_loop
    async def test_extending_what_is_not_held(self):
        for what in (lambda x: x.extend(10), lambda x: x.reacquire()):
            with self.assertRaises(LockError):
                await what(self.lock("foo", timeout=100))
            lock = self.lock("foo")
            await lock.acquire(blocking=False)
            with self.assertRaises(LockError):  # no timeout
                await what(lock)
            await lock.release()
            lock = self.lock("foo", timeout=100)
            await lock.acquire(blocking=False)
            await self.r.set("foo", "a")
            with self.assertRaises(LockNotOwnedError):
                await what(lock)
            self.assertEqual(await self.r.get("foo"), b"a")
            await self.r.delete("foo")

    # ---- what else programs rely on ----

    @in_a_loop
    async def test_beside_redis_py_and_threads(self):
        """A fleet that is moved over one program at a time."""
        inside, most, kinds = [], [], []

        async def work(kind):
            for _ in range(10):
                async with self.r.lock("foo", timeout=100, sleep=0.002, lock_class=kind):
                    inside.append(1)
                    most.append(len(inside))
                    kinds.append(kind)
                    await asyncio.sleep(0.001)
                    inside.pop()
                await asyncio.sleep(0.003)

        await asyncio.gather(*(work(k) for k in (Lock, RedisPyLock) * 2))
        self.assertEqual((max(most), len(most)), (1, 40))
        self.assertEqual(kinds.count(Lock), 20)
        with compat.Lock("unix://" + self.socket, "foo", timeout=100):
            self.assertFalse(await self.lock("foo").acquire(blocking=False))

    @in_a_loop
    async def test_any_task_may_release_it(self):
        lock = self.lock("foo", timeout=100)
        await asyncio.ensure_future(lock.acquire())
        await asyncio.ensure_future(lock.release())
        self.assertIsNone(await self.r.get("foo"))

    @in_a_loop
    async def test_the_token_is_enough_to_release(self):
        one, two = self.lock("foo", timeout=100), self.lock("foo", timeout=100)
        await one.acquire()
        two.local.token = one.local.token
        await two.extend(100)
        self.assertGreater(await self.r.pttl("foo"), 150000)
        await two.release()
        self.assertIsNone(await self.r.get("foo"))
        with self.assertRaises(LockNotOwnedError):
            await one.release()

    @in_a_loop
    async def test_a_cancelled_task_has_nothing(self):
        async with self.lock("foo"):
            task = asyncio.ensure_future(self.lock("foo").acquire())
            client = aio.Client("unix://" + self.socket, prefix="")
            while not (await (await client.open()).inspect("foo")).waiters:
                await asyncio.sleep(0.01)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            await client.close()
        self.assertIsNone(await self.r.get("foo"))

    def test_with_a_timeout_it_outlives_object_loop_and_program(self):
        """"At most once in a while": taken and never released."""
        taken = 'await Lock(%r, "%%s"%%s).acquire()' % ("unix://" + self.socket)
        p = self.python("""
            import asyncio
            from holdfast.compat_asyncio import Lock
            async def main():
                %s
                %s
            asyncio.run(main())
            loop = asyncio.new_event_loop()
            async def other():
                %s
            loop.run_until_complete(other())     # nobody ends this loop
            """ % (taken % ("a", ", timeout=100"), taken % ("b", ""),
                   taken % ("c", ", timeout=100")))
        _, err = p.communicate(timeout=50)
        self.assertEqual(p.returncode, 0, err)
        self.assertGreater(int(self.ask("PTTL", "a")), 20000)
        self.assertEqual(self.ask("EXISTS", "b"), "0")
        self.assertGreater(int(self.ask("PTTL", "c")), 20000)

    @in_a_loop
    async def test_what_ended_is_forgotten(self):
        for i in range(5):
            await Lock(self.r, "foo%d" % i, timeout=0.1).acquire()
        lock = Lock(self.r, "bar", timeout=100)
        while True:
            await lock.acquire()
            outliving = lock.local.taken[1].outliving
            await lock.release()
            if not outliving:
                break
            await asyncio.sleep(0.05)

    @in_a_loop
    async def test_where_the_server_is(self):
        async with Lock("unix://" + self.socket, "foo", timeout=100):
            self.assertTrue(await self.r.get("foo"))
        async with aio.Client(prefix="") as client:
            async with Lock(client, "foo"):
                self.assertTrue(await self.r.get("foo"))
        with self.assertRaises(TypeError):
            await Lock(object(), "foo").acquire()


if __name__ == "__main__":
    unittest.main()
