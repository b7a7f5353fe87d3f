# SPDX-License-Identifier: MIT
"""test_meet.py - latches, barriers, sequences and updates, for threads and for tasks."""
import asyncio
import signal
import threading
import unittest

import holdfast
from holdfast import aio
from base import ServerCase


def together(n, work):
    """work(i) in n threads; what they returned or raised."""
    results = [None] * n

    def run(i):
        try:
            results[i] = work(i)
        except BaseException as e:
            results[i] = e

    threads = [threading.Thread(target=run, args=(i,)) for i in range(n)]
    for t in threads:
        t.start()
    return threads, results


class Latches(ServerCase):
    def test_it_counts_to_zero(self):
        latch = holdfast.Latch("loads")
        with self.assertRaises(holdfast.NotSet):
            latch.count()
        with self.assertRaises(holdfast.NotSet):
            latch.count_down()
        latch.set(3)
        self.assertEqual(latch.count(), (3, 3))
        with self.assertRaises(holdfast.Busy):
            latch.set(2)
        threads, got = together(4, lambda i: holdfast.Latch("loads", wait=60).wait())
        self.assertEqual([latch.count_down(), latch.count_down(2), latch.count_down()], [2, 0, 0])
        for t in threads:
            t.join()
        self.assertEqual(got, [None] * 4)
        self.assertEqual(latch.count(), (0, 3))
        latch.wait(0)
        latch.set(1)  # again
        with self.assertRaises(holdfast.Busy):
            latch.wait(0)
        with self.assertRaises(holdfast.TimedOut):
            latch.wait(0.1)

    def test_a_reset_breaks_the_wait(self):
        latch = holdfast.Latch("loads")
        latch.set(3)
        threads, got = together(1, lambda i: latch.wait(60))  # the object is shared
        while threads[0].is_alive():  # it may not have looked at the first one yet
            latch.reset(2)
            threads[0].join(0.5)
        self.assertIsInstance(got[0], holdfast.Broken)

    def test_a_lock_of_that_name_is_left_alone(self):
        with holdfast.Lock("loads"):
            with self.assertRaises(holdfast.WrongType):
                holdfast.Latch("loads").set(1)

    def test_ttl(self):
        holdfast.Latch("loads", ttl="1m").set(1)
        self.assertTrue(0 < int(self.ask("PTTL", "lock:loads")) <= 60000)

    def test_ctrl_c_ends_a_wait(self):
        p = self.python("""
            import holdfast
            holdfast.Latch("here").set(1)
            try:
                print("waits", flush=True)
                holdfast.Latch("loads").wait()
            except KeyboardInterrupt:
                print("ended", flush=True)
            """)
        self.assertEqual(p.stdout.readline(), "waits\n")
        ended = threading.Event()

        def press():
            while not ended.wait(1):  # until it has arrived in the wait
                p.send_signal(signal.SIGINT)

        t = threading.Thread(target=press)
        t.start()
        out = p.stdout.readline()
        ended.set()
        t.join()
        p.communicate(timeout=30)
        self.assertEqual(out, "ended\n")

    def test_a_lost_lock_ends_the_wait(self):
        lock = holdfast.Lock("job")
        with self.assertRaises(holdfast.LockLost):
            with lock:
                holdfast.default_client().owner_release("job", lock.owner)
                holdfast.Latch("loads").wait(60)

    def test_tasks(self):
        async def main():
            latch = aio.Latch("loads", wait=60)
            waiting = [asyncio.ensure_future(latch.wait()) for _ in range(50)]
            await latch.set(2)
            with self.assertRaises(holdfast.Busy):
                await latch.set(2)
            self.assertEqual(await latch.count_down(), 1)
            self.assertEqual(await latch.count(), (1, 2))
            gone = asyncio.ensure_future(latch.wait())
            await asyncio.sleep(0.05)
            gone.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await gone
            self.assertFalse(any(t.done() for t in waiting))
            self.assertEqual(await latch.count_down(), 0)
            await asyncio.gather(*waiting)
            await latch.reset(1)
            with self.assertRaises(holdfast.TimedOut):
                await latch.wait(0.1)

        asyncio.run(main())


class Barriers(ServerCase):
    def test_threads_meet_again_and_again(self):
        barrier = holdfast.Barrier("start", 3, wait=60)  # one object, three parties
        threads, got = together(3, lambda i: [barrier.wait() for _ in range(4)])
        for t in threads:
            t.join()
        for places in zip(*got):
            self.assertEqual(sorted(p.index for p in places), [0, 1, 2])
            self.assertEqual(len({p.generation for p in places}), 1)
        numbers = [p.generation for p in got[0]]
        self.assertEqual(numbers, sorted(set(numbers)))

    def test_who_gives_up_breaks_it(self):
        with self.assertRaises(holdfast.Busy):
            holdfast.Barrier("start", 2).wait(0)
        threads, got = together(1, lambda i: holdfast.Barrier("start", 3, wait=60).wait())
        # Too early is a meeting of its own, which only times out.
        while threads[0].is_alive():
            with self.assertRaises((holdfast.TimedOut, holdfast.Unsure)):
                holdfast.Barrier("start", 3).wait(1)
            threads[0].join(0.05)
        self.assertIsInstance(got[0], holdfast.Broken)

    def test_they_leave_together(self):
        inside, left = [], []

        def work(i):
            with holdfast.Barrier("job", 3, leave=True, wait=60) as place:
                inside.append(place.index)
            left.append(len(inside))

        threads, got = together(3, work)
        for t in threads:
            t.join()
        self.assertEqual(got, [None] * 3)
        self.assertEqual(left, [3, 3, 3])
        with self.assertRaises(holdfast.Invalid):
            with holdfast.Barrier("job", 3):
                pass

    def test_an_exception_inside_breaks_the_leaving(self):
        def work(i):
            with holdfast.Barrier("job", 2, leave=True, wait=60):
                if i == 0:
                    raise KeyError("mine")

        threads, got = together(2, work)
        for t in threads:
            t.join()
        self.assertIsInstance(got[0], KeyError)
        self.assertIsInstance(got[1], holdfast.Broken)

    def test_tasks(self):
        async def main():
            barrier = aio.Barrier("start", 20, wait=60)
            places = await asyncio.gather(*(barrier.wait() for _ in range(20)))
            self.assertEqual(sorted(p.index for p in places), list(range(20)))
            inside, left = [], []

            async def work():
                async with aio.Barrier("job", 5, leave=True, wait=60):
                    inside.append(1)
                    await asyncio.sleep(0)
                left.append(len(inside))

            await asyncio.gather(*(work() for _ in range(5)))
            self.assertEqual(left, [5] * 5)

        asyncio.run(main())

    def test_a_cancelled_task_breaks_it(self):
        async def main():
            barrier = aio.Barrier("start", 3, wait=60)
            one = asyncio.ensure_future(barrier.wait())
            while not one.done():
                two = asyncio.ensure_future(barrier.wait())
                await asyncio.sleep(0.3)
                two.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await two
                await asyncio.wait([one], timeout=0.5)
            with self.assertRaises(holdfast.Broken):
                await one

        asyncio.run(main())


class Sequences(ServerCase):
    def test_ids(self):
        orders = holdfast.Sequence("orders")
        self.assertEqual([orders.next(), next(orders)], [1, 2])
        self.assertEqual(holdfast.Sequence("orders", block=1).next(), 1001)
        self.assertEqual([i for i, _ in zip(orders, range(3))], [3, 4, 5])
        self.assertEqual(holdfast.Sequence("bills", start=500).next(), 500)
        self.assertGreater(holdfast.Sequence("files", from_time=True).next(), 10 ** 15)

    def test_threads_and_processes_never_get_the_same(self):
        orders = holdfast.Sequence("orders", block=7)
        threads, got = together(5, lambda i: [next(orders) for _ in range(100)])
        p = self.python("""
            import holdfast
            orders = holdfast.Sequence("orders", block=3)
            print(*[next(orders) for _ in range(100)])
            """)
        theirs = [int(x) for x in p.communicate(timeout=60)[0].split()]
        for t in threads:
            t.join()
        for ids in got + [theirs]:
            self.assertEqual(ids, sorted(ids))
        every = theirs + [i for ids in got for i in ids]
        self.assertEqual(len(set(every)), 600)

    def test_tasks(self):
        async def main():
            orders = aio.Sequence("orders")
            ids = await asyncio.gather(*(orders.next() for _ in range(100)))
            self.assertEqual(sorted(ids), list(range(1, 101)))
            async for i in orders:
                self.assertEqual(i, 101)
                break

        asyncio.run(main())


def add_one(old):
    return str(int(old or 0) + 1)


class Updates(ServerCase):
    def test_set_leave_delete(self):
        self.assertEqual(holdfast.update("n", add_one), b"1")
        self.assertEqual(holdfast.update("n", add_one, ttl="1m"), b"2")
        self.assertTrue(0 < int(self.ask("PTTL", "n")) <= 60000)
        self.assertEqual(holdfast.update("n", lambda old: None), b"2")
        self.assertEqual(holdfast.update("n", lambda old: b"\x00", ttl=0), b"\x00")
        self.assertEqual(self.ask("PTTL", "n"), "-1")
        self.assertIsNone(holdfast.update("n", lambda old: holdfast.DELETE))
        self.assertEqual(self.ask("EXISTS", "n"), "0")
        self.assertIsNone(holdfast.update("n", lambda old: None))
        self.assertEqual(holdfast.update("h", add_one, field="a"), b"1")
        self.assertEqual(self.ask("HGET", "h", "a"), "1")

    def test_what_it_raises(self):
        self.ask("SET", "n", "1")
        with self.assertRaises(ZeroDivisionError):
            holdfast.update("n", lambda old: str(1 // 0))
        with self.assertRaises(KeyboardInterrupt):
            def press(old):
                raise KeyboardInterrupt
            holdfast.update("n", press)
        with self.assertRaises(TypeError):
            holdfast.update("n", lambda old: object())
        self.assertEqual(self.ask("GET", "n"), "1")
        self.ask("RPUSH", "list", "a")
        with self.assertRaises(holdfast.WrongType):
            holdfast.update("list", add_one)
        with self.assertRaises(holdfast.Invalid):
            holdfast.update("n", lambda old: "much too long", max_size=4)

    def test_a_number_is_no_value(self):
        self.ask("SET", "n", "1")
        for wrong in (5, 0, True, [1]):
            with self.assertRaises(TypeError):
                holdfast.update("n", lambda old: wrong)
            with self.assertRaises(TypeError):
                asyncio.run(aio.update("n", lambda old: wrong))
        self.assertEqual(self.ask("GET", "n"), "1")
        for right in ("2", b"2", bytearray(b"2"), memoryview(b"2")):
            self.assertEqual(holdfast.update("n", lambda old: right), b"2")

    def test_others_write_meanwhile(self):
        seen = []

        def change(old):
            seen.append(old)
            if len(seen) < 3:
                self.ask("SET", "n", str(len(seen) * 10))
            return add_one(old)

        self.assertEqual(holdfast.update("n", change), b"21")
        self.assertEqual(seen, [None, b"10", b"20"])

        def busy(old):
            self.ask("INCR", "n")
            return "0"

        with self.assertRaises(holdfast.Conflict):
            holdfast.update("n", busy, tries=2)
        self.assertEqual(self.ask("GET", "n"), "23")

    def test_threads_and_tasks_lose_nothing(self):
        threads, got = together(
            4, lambda i: [holdfast.update("n", add_one, tries=10000) for _ in range(10)])
        for t in threads:
            t.join()

        async def main():
            await asyncio.gather(*(aio.update("n", add_one, tries=10000) for _ in range(20)))
            with self.assertRaises(ZeroDivisionError):
                await aio.update("n", lambda old: str(1 // 0))

        asyncio.run(main())
        self.assertEqual(self.ask("GET", "n"), "60", got)

    def test_a_cancelled_task_tries_no_more(self):
        async def main():
            begun = asyncio.Event()
            loop = asyncio.get_running_loop()

            def busy(old):
                self.ask("INCR", "n")  # always a conflict
                loop.call_soon_threadsafe(begun.set)
                return "0"

            task = asyncio.ensure_future(aio.update("n", busy, tries=1000000))
            await begun.wait()
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task

        asyncio.run(main())


if __name__ == "__main__":
    unittest.main()
