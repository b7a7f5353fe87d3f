# SPDX-License-Identifier: MIT
"""test_asyncio.py - the package as programs with an event loop use it."""
import asyncio
import contextlib
import os
import threading
import time
import unittest
from unittest import mock

import holdfast
from holdfast import _calls, aio
from base import ServerCase


def threads():
    """Those of Python and of the library."""
    return len(os.listdir("/proc/self/task"))


class AsyncCase(ServerCase):
    async def deleted(self, name):
        """Somebody deletes the key: the lock is lost within about a second."""
        self.assertEqual(self.ask("DEL", "lock:" + name), "1")


class Taking(AsyncCase):
    def test_a_thousand_tasks_wait_without_a_thread(self):
        async def main():
            lock, inside, most, order = aio.Lock("a", wait=120), [], [], []

            async def work(i):
                async with lock as fence:
                    inside.append(i)
                    most.append(len(inside))
                    await asyncio.sleep(0)
                    order.append(fence)
                    inside.pop()

            first = aio.Lock("a")
            async with first:
                before = threads()
                tasks = [asyncio.ensure_future(work(i)) for i in range(1000)]
                client = await aio.default_client()
                while (await client.inspect("a")).waiters_total < 1000:
                    await asyncio.sleep(0.02)
                self.assertEqual(threads(), before)
                self.assertLess(len(os.listdir("/proc/self/fd")), 100)
            await asyncio.gather(*tasks)
            self.assertEqual(max(most), 1)
            self.assertEqual(len(order), 1000)
            self.assertEqual(order, sorted(order))
            self.assertEqual(threads(), before)

        asyncio.run(main())

    def test_the_loop_goes_on_while_a_task_waits(self):
        async def main():
            with holdfast.Lock("a"):  # a thread's, of another client
                task = asyncio.ensure_future(aio.Lock("a", wait=0.5).acquire())
                ticks = 0
                while not task.done():
                    await asyncio.sleep(0.01)
                    ticks += 1
                with self.assertRaises(holdfast.TimedOut):
                    await task
                self.assertGreater(ticks, 5)

        asyncio.run(main())

    def test_a_task_may_take_what_it_holds_again_and_others_may_not(self):
        async def main():
            lock = aio.Lock("a")
            async with lock as first:
                async with lock as second:
                    self.assertEqual(first, second)
                self.assertTrue(lock.held)
                self.assertIsNone(await asyncio.ensure_future(lock.try_acquire()))
                with self.assertRaises(holdfast.NotHeld):
                    await asyncio.ensure_future(lock.release())
            self.assertFalse(lock.held)
            self.assertEqual(self.ask("EXISTS", "lock:a"), "0")

        asyncio.run(main())

    def test_a_cancelled_task_waits_no_longer(self):
        async def main():
            client = await aio.default_client()
            lock = aio.Lock("a")
            async with lock:
                task = asyncio.ensure_future(lock.acquire())
                while (await client.inspect("a")).waiters_total < 1:
                    await asyncio.sleep(0.01)
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task
                while (await client.inspect("a")).waiters_total:
                    await asyncio.sleep(0.01)
            with self.assertRaises(asyncio.TimeoutError):
                async with lock:
                    await asyncio.wait_for(aio.Lock("a").acquire(), 0.2)

        asyncio.run(main())

    def test_a_lock_that_is_granted_while_its_task_is_cancelled_is_given_back(self):
        async def main():
            for i in range(60):
                task = asyncio.ensure_future(aio.Lock("a").acquire())
                for _ in range(i % 6):
                    await asyncio.sleep(0)
                if i % 2:
                    await asyncio.sleep(i / 50000)
                task.cancel()
                try:
                    await task
                except asyncio.CancelledError:
                    pass
                else:
                    del task
                    continue
                self.assertEqual(self.ask("EXISTS", "lock:a"), "0")

        asyncio.run(main())
        self.assertEqual(self.ask("EXISTS", "lock:a"), "0")

    async def cancelled_in(self, call):
        """A task that is cancelled while it makes this call, which succeeds all the same."""
        task = asyncio.current_task()
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await call
        if hasattr(task, "uncancel"):
            task.uncancel()

    def test_cancelling_an_acquire_leaves_what_was_held_before(self):
        async def main():
            lock = aio.Lock("a")
            await lock.acquire()
            await self.cancelled_in(lock.acquire())
            self.assertTrue(lock.held)
            await lock.release()
            self.assertEqual(self.ask("EXISTS", "lock:a"), "0")

        asyncio.run(main())

    def test_a_leader_that_is_cancelled_stays_leader(self):
        async def main():
            candidate = aio.Election("e", "v1")
            term = await candidate.campaign()
            await self.cancelled_in(candidate.campaign("v2"))
            self.assertTrue(candidate.leads)
            self.assertEqual((await aio.leader("e")).term, term)
            await candidate.resign()
            self.assertGreater(await candidate.campaign("v3"), term)
            await candidate.resign()

        asyncio.run(main())

    def test_what_a_cancelled_task_was_granted_is_given_back_without_a_word(self):
        calls = {"lock": lambda: aio.Lock("a").acquire(), "multi": aio.Multi("a", "b").acquire,
                 "election": aio.Election("a").campaign}
        granted = {"lock": "lock_acquire", "multi": "multi_acquire",
                   "election": "election_campaign"}
        back = {"lock": "lock_release", "multi": "multi_release", "election": "election_resign"}

        async def main(kind, fails):
            await aio.default_client()
            made = getattr(_calls, granted[kind])

            def in_the_same_moment(*args):
                call = made(*args)
                call.cancel = None
                return call

            with mock.patch.object(_calls, granted[kind], in_the_same_moment):
                if fails:
                    with mock.patch.object(_calls, back[kind], side_effect=holdfast.Unreachable):
                        await self.cancelled_in(calls[kind]())
                else:
                    await self.cancelled_in(calls[kind]())
                    self.assertEqual(self.ask("EXISTS", "lock:a", "lock:b"), "0")

        for kind in calls:
            for fails in (False, True):
                asyncio.run(main(kind, fails))
                self.assertEqual(self.ask("EXISTS", "lock:a", "lock:b"), "0")

    def test_the_end_of_the_loop_releases(self):
        lock = aio.Lock("a")

        async def main():
            await lock.acquire()
            self.assertEqual(self.ask("EXISTS", "lock:a"), "1")

        asyncio.run(main())
        self.assertEqual(self.ask("EXISTS", "lock:a"), "0")
        self.until(lambda: threads() == threading.active_count() or "hf-" not in names())

    def test_a_loop_that_nobody_ends(self):
        p = self.python("""
            import asyncio, holdfast.aio
            loop = asyncio.new_event_loop()
            lock = holdfast.aio.Lock("a")
            loop.run_until_complete(lock.acquire())
            """)
        out, err = p.communicate(timeout=20)
        self.assertEqual((p.returncode, out), (0, ""), err)
        self.assertEqual(self.ask("EXISTS", "lock:a"), "0")

    def test_each_loop_has_its_client(self):
        got = []

        def run():
            async def main():
                async with aio.Lock("a", wait=20):
                    got.append(await aio.default_client())
                    await asyncio.sleep(0.05)

            asyncio.run(main())

        both = [threading.Thread(target=run) for _ in range(2)]
        for t in both:
            t.start()
        for t in both:
            t.join()
        self.assertEqual(len(set(map(id, got))), 2)

    def test_a_client_of_ones_own(self):
        async def main():
            async with aio.Client(os.environ["HOLDFAST_URL"], prefix="my:") as client:
                self.assertIn(self.socket, client.url)
                lock = client.lock("a")  # one that is dropped releases
                await lock.acquire()
                self.assertEqual(self.ask("EXISTS", "my:a"), "1")
            self.assertEqual(self.ask("EXISTS", "my:a"), "0")
            with self.assertRaises(holdfast.Unreachable):
                await aio.Client("unix:///nowhere/sock")
            with self.assertRaises(holdfast.BadConfiguration):
                await aio.Client("http://x")

        asyncio.run(main())


async def held_while_it_yields(lock):
    async with lock as fence:
        yield fence


class Blocks(AsyncCase):
    """That end in another task than they have begun in."""

    def free(self):
        return self.ask("EXISTS", "lock:a", "lock:b") == "0"

    def run_without_errors(self, main):
        failed = []

        async def run():
            asyncio.get_running_loop().set_exception_handler(lambda loop, what: failed.append(what))
            await asyncio.wait_for(main(), 20)

        asyncio.run(run())
        self.assertEqual(failed, [])

    def test_a_generator_that_asyncio_closes(self):
        async def main():
            for lock in aio.Lock("a"), aio.Multi("a", "b"), aio.Election("a"):
                generator = held_while_it_yields(lock)
                async for _ in generator:
                    self.assertFalse(self.free())
                    break
                del generator  # asyncio closes it, in a task of its own
                while not self.free():
                    await asyncio.sleep(0.01)

        self.run_without_errors(main)

    def test_by_hand_while_another_one_ends(self):
        class ByHand:
            def __init__(self, lock):
                self.lock = lock

            async def __aenter__(self):
                return await self.lock.__aenter__()

            async def __aexit__(self, *what):
                return await self.lock.__aexit__(*what)

        async def main():
            lock = ByHand(aio.Lock("a"))

            async def turn():
                for _ in range(20):
                    async with lock:
                        await asyncio.sleep(0.005)

            await asyncio.gather(turn(), turn(), turn())

        self.run_without_errors(main)
        self.assertTrue(self.free())

    def test_a_generator_that_is_left_when_the_loop_ends(self):
        left = []

        async def main():
            left.append(held_while_it_yields(aio.Lock("a")))
            await left[0].__anext__()

        self.run_without_errors(main)
        self.assertTrue(self.free())

    def test_a_stack_that_is_handed_on(self):
        async def main():
            for lock in aio.Lock("a"), aio.Multi("a", "b"), aio.Election("a"):
                stack = contextlib.AsyncExitStack()
                await stack.enter_async_context(lock)
                self.assertFalse(self.free())
                await asyncio.ensure_future(stack.aclose())
                self.assertTrue(self.free())
                async with lock:
                    pass

        self.run_without_errors(main)

    def test_each_block_ends_itself(self):
        async def main():
            both = aio.Semaphore("a", 2, wait=0)

            async def enter():
                stack = contextlib.AsyncExitStack()
                await stack.enter_async_context(both)
                return stack

            first, second = [await asyncio.ensure_future(enter()) for _ in range(2)]
            client = await aio.default_client()
            before = [h.fence for h in (await client.inspect("a")).holders]
            await first.aclose()
            after = [h.fence for h in (await client.inspect("a")).holders]
            self.assertEqual(after, [max(before)])
            await second.aclose()
            self.assertTrue(self.free())

        self.run_without_errors(main)

    def test_by_hand(self):
        async def main():
            lock = aio.Lock("a")
            await lock.__aenter__()
            with self.assertRaises(holdfast.NotHeld):  # of another task, which is alive
                await asyncio.ensure_future(lock.__aexit__(None, None, None))
            await lock.__aexit__(None, None, None)
            self.assertTrue(self.free())
            await asyncio.ensure_future(lock.__aenter__())
            await lock.__aexit__(None, None, None)
            self.assertTrue(self.free())

        self.run_without_errors(main)

    def test_a_block_that_cannot_begin_holds_nothing(self):
        async def main():
            for lock in aio.Lock("a"), aio.Multi("a", "b"), aio.Election("a"):
                with mock.patch("holdfast._watch.Handle.descriptor", side_effect=OSError):
                    with self.assertRaises(OSError):
                        async with lock:
                            self.fail("it began")
                self.assertTrue(self.free())
                async with lock:
                    pass

        self.run_without_errors(main)


def names():
    found = []
    for t in os.listdir("/proc/self/task"):
        with open("/proc/self/task/%s/comm" % t) as f:
            found.append(f.read())
    return "".join(found)


class Losing(AsyncCase):
    def test_the_block_is_cancelled(self):
        async def main():
            lock = aio.Lock("a")
            start = time.monotonic()
            with self.assertRaises(holdfast.LockLost) as e:
                async with lock:
                    await self.deleted("a")
                    await asyncio.sleep(30)
            self.assertLess(time.monotonic() - start, 20)
            self.assertIn('"a"', str(e.exception))
            await asyncio.sleep(0)  # the task itself is not cancelled
            async with lock:
                self.assertTrue(lock.held)

        asyncio.run(main())

    def test_a_block_that_never_awaits_is_told_at_its_end(self):
        async def main():
            with self.assertRaises(holdfast.LockLost):
                async with aio.Lock("a"):
                    self.assertEqual(self.ask("DEL", "lock:a"), "1")
                    time.sleep(1.5)
            await asyncio.sleep(0)

        asyncio.run(main())

    def test_who_else_cancels_the_task_is_obeyed(self):
        async def work():
            try:
                async with aio.Lock("a"):
                    await self.deleted("a")
                    try:
                        await asyncio.sleep(30)
                    except asyncio.CancelledError:
                        asyncio.current_task().cancel()  # somebody else, at the same time
                        raise
            except holdfast.LockLost:
                return "lost"

        async def main():
            task = asyncio.ensure_future(work())
            if not hasattr(task, "uncancel"):
                return  # Python 3.10 and older cannot tell
            with self.assertRaises(asyncio.CancelledError):
                await task

        asyncio.run(main())

    def test_functions_and_ignoring(self):
        async def main():
            told = []
            with self.assertRaises(holdfast.LockLost):
                async with aio.Lock("a", on_lost=told.append):
                    await self.deleted("a")
                    while not told:
                        await asyncio.sleep(0.01)
            self.assertIsInstance(told[0], holdfast.LockLost)
            with self.assertRaises(holdfast.LockLost):
                async with aio.Lock("a", on_lost="ignore"):
                    await self.deleted("a")
                    await asyncio.sleep(1.5)
            with self.assertRaises(KeyError):
                async with aio.Lock("a", on_lost="ignore"):
                    await self.deleted("a")
                    raise KeyError("mine")

        asyncio.run(main())


    def test_a_function_that_raises_silences_no_other(self):
        async def main():
            told, failed = [], []
            asyncio.get_running_loop().set_exception_handler(lambda loop, what: failed.append(what))

            def fail(e):
                told.append(1)
                raise KeyError("mine")

            fails = aio.Lock("a", on_lost=fail)
            with self.assertRaises(holdfast.LockLost):
                async with fails, fails, aio.Lock("b", on_lost=fail):
                    async with aio.Lock("c", on_lost=told.append):
                        for name in "abc":
                            await self.deleted(name)
                        time.sleep(1.5)  # so that the loop hears of all of them at once
                        while len(told) < 4:
                            await asyncio.sleep(0.01)
            self.assertEqual([type(f["exception"]) for f in failed], [KeyError] * 3)

        asyncio.run(asyncio.wait_for(main(), 20))


class Others(AsyncCase):
    def test_shared_semaphore_multi(self):
        async def main():
            reader = aio.Shared("a", wait=0)
            async with reader:
                self.assertTrue(await asyncio.ensure_future(reader.try_acquire()))
                with self.assertRaises(holdfast.Busy):
                    await aio.Lock("a").acquire(0)
            async with aio.Semaphore("s", 2, wait=0) as _, aio.Semaphore("s", 2, wait=0):
                with self.assertRaises(holdfast.Busy):
                    await aio.Semaphore("s", 2).acquire(0)
            m = aio.Multi("x", "y", wait=0)
            async with m as fences:
                self.assertEqual(fences, [lock.fence for lock in m.locks])
                self.assertTrue(m.held)
                with self.assertRaises(holdfast.Busy):
                    await aio.Multi("z", "y").acquire(0)
            self.assertEqual(self.ask("EXISTS", "lock:x", "lock:y", "lock:z"), "0")

        asyncio.run(main())

    def test_multi_takes_each_lock_where_it_belongs(self):
        async def main():
            async with aio.Client(prefix="my:") as client:
                for m in (aio.Multi(client.lock("x"), client.lock("y")), client.multi("x", "y")):
                    async with m:
                        self.assertEqual(self.ask("EXISTS", "my:x", "my:y"), "2")
                async with aio.Multi(aio.Lock("x"), client=client):  # as for threads
                    self.assertEqual(self.ask("KEYS", "*:x"), "lock:x")
                for given in (None, client):
                    with self.assertRaises(holdfast.Invalid):
                        await aio.Multi(client.lock("x"), aio.Lock("y"), client=given).acquire()
                with self.assertRaises(holdfast.Invalid):
                    await aio.Multi().acquire()
                self.assertEqual(self.ask("EXISTS", "my:x", "my:y", "lock:x", "lock:y"), "0")

        asyncio.run(main())

    def test_extend_verify_detach(self):
        async def main():
            lock = aio.Lock("a", renew=False, ttl=10)
            await lock.acquire()
            await lock.extend("1m")
            self.assertGreater(int(self.ask("PTTL", "lock:a")), 50000)
            await lock.verify()
            await lock.detach(5)
            self.assertFalse(lock.held)
            self.assertTrue(0 < int(self.ask("PTTL", "lock:a")) <= 5000)

        asyncio.run(main())

    def test_election(self):
        async def main():
            candidate = aio.Election("e", "host:1")
            async with candidate as term:
                seen = await aio.leader("e")
                self.assertEqual((seen.term, seen.value), (term, b"host:1"))
                await candidate.set_value("host:2")
                self.assertEqual((await aio.observe("e", seen, wait=10)).value, b"host:2")
                with self.assertRaises(holdfast.TimedOut):
                    await aio.observe("e", await aio.leader("e"), wait=0.1)
                waits = aio.Election("e", "host:3")
                task = asyncio.ensure_future(waits.campaign())
                await asyncio.sleep(0.1)
            self.assertGreater(await task, term)
            await waits.resign()
            self.assertIsNone(await aio.leader("e"))

        asyncio.run(main())

    def test_once(self):
        async def main():
            computed = []

            async def compute():
                computed.append(1)
                await asyncio.sleep(0.2)
                return "value"

            got = await asyncio.gather(*(aio.once("o", compute, ttl=60) for _ in range(50)))
            self.assertEqual(set(got), {b"value"})
            self.assertEqual(len(computed), 1)
            big = await aio.once("big", lambda: asyncio.sleep(0, b"x" * 2000000), ttl=60)
            self.assertEqual((len(big), big.cached), (2000000, False))

        asyncio.run(main())

    def test_guard(self):
        async def main():
            client = await aio.default_client()
            fences = []
            for _ in range(2):
                async with aio.Lock("a") as fence:
                    fences.append(fence)
            await client.guard_set("data", "new", fences[1])
            with self.assertRaises(holdfast.Stale):
                await client.guard_set("data", "late", fences[0])
            await client.guard_check("x", fences[1])
            with self.assertRaises(holdfast.Stale):
                await client.guard_check("x", fences[0])

        asyncio.run(main())


if __name__ == "__main__":
    unittest.main()
