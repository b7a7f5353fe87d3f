# SPDX-License-Identifier: MIT
"""test_threads.py - the package as programs with threads and processes use it."""
import contextlib
import os
import random
import signal
import threading
import time
import unittest
from datetime import timedelta
from unittest import mock

import holdfast
from holdfast import _call, _errors, _lib, _lock, _watch
from base import ServerCase


def in_thread(work):
    """What work() returned or raised in a thread of its own."""
    got = []

    def run():
        try:
            got.append(work())
        except BaseException as e:
            got.append(e)

    t = threading.Thread(target=run)
    t.start()
    t.join()
    return got[0]


def busy(seconds):
    """A function of its own: where a loop ends is where Python 3.13 forgets about `with` and
    `except` of the function it is in (python/cpython#130279)."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def in_time(fn):
    """Run fn, which takes a lock with a short lease. On a machine that has too much to do, the
    grant may come when that is over: then again."""
    for _ in range(50):
        try:
            return fn()
        except holdfast.TimedOut:
            pass
    raise AssertionError("no grant came in time")


def work(seconds=20):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.01)


class Taking(ServerCase):
    def test_with_holds_it_and_numbers_rise(self):
        lock = holdfast.Lock("a", wait=10)
        fences = []
        for _ in range(3):
            with lock as fence:
                self.assertTrue(lock.held)
                self.assertEqual(fence, lock.fence)
                self.assertEqual(self.ask("EXISTS", "lock:a"), "1")
                self.assertEqual(lock.state, "held")
                self.assertGreater(lock.time_left, 0)
                fences.append(fence)
            self.assertFalse(lock.held)
            self.assertEqual(self.ask("EXISTS", "lock:a"), "0")
        self.assertEqual(fences, sorted(set(fences)))

    def test_threads_that_share_the_object_exclude_one_another(self):
        lock, inside, most = holdfast.Lock("a", wait=60), [], []

        def work():
            for _ in range(10):
                with lock:
                    inside.append(1)
                    most.append(len(inside))
                    time.sleep(0.001)
                    inside.pop()

        threads = [threading.Thread(target=work) for _ in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(len(most), 80)
        self.assertEqual(max(most), 1)

    def test_processes_exclude_one_another(self):
        count = self.dir + "/count"
        with open(count, "w") as f:
            f.write("0")
        children = []
        for _ in range(4):
            pid = os.fork()
            if pid == 0:
                for _ in range(10):
                    with holdfast.Lock("a", wait=60):
                        with open(count) as f:
                            n = int(f.read())
                        time.sleep(0.001)
                        with open(count, "w") as f:
                            f.write(str(n + 1))
                os._exit(0)
            children.append(pid)
        for pid in children:
            self.assertEqual(os.waitpid(pid, 0)[1], 0)
        with open(count) as f:
            self.assertEqual(f.read(), "40")

    def test_a_thread_may_take_what_it_holds_again(self):
        lock = holdfast.Lock("a")
        with lock as first:
            with lock as second:
                self.assertEqual(first, second)
            self.assertTrue(lock.held)
            self.assertIsNone(in_thread(lock.try_acquire))
        self.assertFalse(lock.held)

    def test_busy_and_timed_out(self):
        with holdfast.Lock("a"):
            other = holdfast.Lock("a", wait=0)
            with self.assertRaises(holdfast.Busy) as busy:
                other.acquire()
            self.assertEqual(busy.exception.name, "HF_EBUSY")
            self.assertEqual(busy.exception.known, "unchanged")
            self.assertIsNone(other.try_acquire())
            start = time.monotonic()
            with self.assertRaises(TimeoutError) as late:
                other.acquire(0.3)
            self.assertIsInstance(late.exception, holdfast.TimedOut)
            self.assertGreaterEqual(time.monotonic() - start, 0.29)
            with self.assertRaises(holdfast.TimedOut):
                raise in_thread(lambda: other.acquire("300ms"))

    def test_only_the_thread_that_holds_it_releases_it(self):
        lock = holdfast.Lock("a")
        with lock:
            self.assertIsInstance(in_thread(lock.release), holdfast.NotHeld)
            self.assertTrue(lock.held)
        with self.assertRaises(holdfast.NotHeld):
            lock.release()

    def test_what_the_block_raises_passes_and_the_lock_is_released(self):
        with self.assertRaises(KeyError):
            with holdfast.Lock("a"):
                raise KeyError("mine")
        self.assertEqual(self.ask("EXISTS", "lock:a"), "0")

    def test_names_are_bytes_too_and_durations_have_units(self):
        with holdfast.Lock(b"\x00\xff\n", ttl=timedelta(minutes=1)) as fence:
            self.assertTrue(fence)
            info = holdfast.default_client().inspect(b"\x00\xff\n")
            self.assertEqual(info.name, b"\x00\xff\n")
            self.assertTrue(50 < info.ttl <= 60)
            self.assertEqual(info.holders[0].fence, fence)
        with holdfast.Lock("数据", ttl="1h30m"):
            self.assertGreater(int(self.ask("PTTL", "lock:数据")), 5000000)
        for wrong in (-1, float("nan"), "soon"):
            with self.assertRaises(ValueError):
                holdfast.Lock("a", ttl=wrong)
        with self.assertRaises(holdfast.Invalid):
            holdfast.Lock("").acquire()
        with self.assertRaises(ValueError):
            holdfast.Lock("a", on_lost="explode")

    def test_extend_verify_detach(self):
        lock = holdfast.Lock("a", renew=False, ttl=10)
        lock.acquire()
        lock.extend(60)
        self.assertGreater(int(self.ask("PTTL", "lock:a")), 50000)
        lock.verify()
        lock.detach(5)
        self.assertFalse(lock.held)
        self.assertTrue(0 < int(self.ask("PTTL", "lock:a")) <= 5000)

    def test_a_client_of_ones_own(self):
        with holdfast.Client(os.environ["HOLDFAST_URL"], prefix="my:", info="a test") as client:
            self.assertIn(self.socket, client.url)
            lock = client.lock("a")
            lock.acquire()
            self.assertEqual(self.ask("EXISTS", "my:a"), "1")
            self.until(lambda: client.inspect("a").holders[0].info == "a test")
            self.assertEqual(client.inspect("a").holders[0].pid, os.getpid())
        self.assertEqual(self.ask("EXISTS", "my:a"), "0")  # released by closing
        self.assertFalse(lock.held)
        with self.assertRaises(holdfast.Error):
            lock.acquire()

    def test_a_client_that_is_closed_with_a_wrong_time_limit_stays_open(self):
        client = holdfast.Client()
        lock = client.lock("a")
        lock.acquire()
        for wrong in (-1, "soon", float("nan")):
            with self.assertRaises(ValueError):
                client.close(wrong)
            self.assertTrue(lock.held)
        client.close(5)
        self.assertEqual(self.ask("EXISTS", "lock:a"), "0")

    def test_a_server_that_is_not_there(self):
        with self.assertRaises(ConnectionError) as e:
            holdfast.Client("unix:///nowhere/sock")
        self.assertIsInstance(e.exception, holdfast.Unreachable)
        self.assertIn("/nowhere/sock", str(e.exception))
        with self.assertRaises(holdfast.BadConfiguration):
            holdfast.Client("http://x")

    def test_every_error_of_the_header_has_a_class(self):
        for name in _errors._CLASSES:
            self.assertLess(getattr(_lib.lib, name), 0)

    def test_a_log(self):
        said = []
        with holdfast.Client(log=lambda level, text: said.append((level, text))) as client:
            self.ask("CLIENT", "KILL", "TYPE", "normal")
            with client.lock("a", wait=10):
                pass
            self.until(lambda: said)
        self.assertIn(said[0][0], ("error", "warning", "info", "debug"))


class Losing(ServerCase):
    def deleted(self, name):
        """Somebody deletes the key: the lock is lost within about a second."""
        self.assertEqual(self.ask("DEL", "lock:" + name), "1")

    def work_until_lost(self, lock):
        with lock:
            self.deleted("a")
            work()
        return "not interrupted"

    def test_the_block_is_interrupted(self):
        lock = holdfast.Lock("a")
        for work in (lambda: self.work_until_lost(lock),
                     lambda: in_thread(lambda: self.work_until_lost(lock))):
            try:
                got = work()
            except holdfast.LockLost as e:
                got = e
            self.assertIsInstance(got, holdfast.LockLost)
            self.assertIn('"a"', str(got))
            self.assertEqual(got.name, "HF_ELOST")
            self.assertEqual(got.known, "not held")
        with lock:  # it can be taken again
            self.assertTrue(lock.held)

    def test_a_loss_is_told_at_the_end_if_it_may_not_interrupt(self):
        with self.assertRaises(holdfast.LockLost):
            with holdfast.Lock("a", on_lost="ignore") as _:
                self.deleted("a")
                time.sleep(1.5)  # a look once a second finds it
                reached = True
        self.assertTrue(reached)

    def test_a_function_is_told(self):
        told = []
        lock = holdfast.Lock("a", on_lost=told.append)
        with self.assertRaises(holdfast.LockLost):
            with lock:
                self.deleted("a")
                self.until(lambda: told)
        self.assertIsInstance(told[0], holdfast.LockLost)

    def test_a_function_that_hangs_or_raises_silences_no_other(self):
        told, stop = [], threading.Event()

        def hang(e):
            told.append(1)
            stop.wait()

        def fail(e):
            told.append(2)
            raise KeyError("mine")

        hangs, fails = holdfast.Lock("a", on_lost=hang), holdfast.Lock("b", on_lost=fail)
        with mock.patch("threading.excepthook") as hook:
            with self.assertRaises(holdfast.LockLost):
                with hangs, hangs, fails, fails, holdfast.Lock("c", on_lost=told.append):
                    for name in "abc":
                        self.deleted(name)
                    self.until(lambda: len(told) == 5)
            self.until(lambda: hook.call_count == 2)
        stop.set()

    def soon(self, block):
        """It is interrupted, and does not come to its end."""
        end = time.monotonic() + 20
        with self.assertRaises(holdfast.LockLost) as e:
            block()
        self.assertLess(time.monotonic(), end)
        return str(e.exception)

    def test_two_losses_at_once_interrupt_two_blocks(self):
        inner = []

        def block():
            with holdfast.Lock("a"):
                try:
                    with holdfast.Lock("b"):
                        self.ask("DEL", "lock:a", "lock:b")
                        time.sleep(2.5)  # nothing arrives in here, and then only one exception
                except holdfast.LockLost as e:
                    inner.append(str(e))
                work(40)

        self.assertIn('"a"', self.soon(block))
        self.assertIn('"b"', inner[0])

    def lost_while_it_releases(self):
        """What releases a lock then loses another, the outermost of the thread."""
        outer = _watch._active[threading.get_ident()][0]
        releases = _lock.release_handle

        def release(h):
            if not outer.told:
                self.deleted("a")
                self.until(lambda: outer.told)
            releases(h)

        return mock.patch("holdfast._lock.release_handle", release)

    def test_a_loss_beside_another_exception_interrupts_later(self):
        def block():
            with holdfast.Lock("a"):
                try:
                    with self.lost_while_it_releases(), holdfast.Lock("b"):
                        raise KeyError("mine")
                except KeyError:
                    work(40)

        self.assertIn('"a"', self.soon(block))

    def test_a_loss_beside_another_exception_ends_the_next_wait(self):
        def waits():
            with holdfast.Lock("a"):
                try:
                    with self.lost_while_it_releases(), holdfast.Lock("b"):
                        raise KeyError("mine")
                except KeyError:
                    holdfast.Lock("c").acquire(40)

        held, over = threading.Event(), threading.Event()

        def hold():
            with holdfast.Lock("c"):
                held.set()
                over.wait()

        other = threading.Thread(target=hold)
        other.start()
        held.wait()
        self.assertIn('"a"', self.soon(waits))
        over.set()
        other.join()

    def test_once_swallows_no_loss_of_another_lock(self):
        def block():
            with holdfast.Lock("a"):
                with self.lost_while_it_releases():
                    holdfast.once("o", lambda: "value", ttl=60)
                work(40)

        self.assertIn('"a"', self.soon(block))
        self.assertEqual(holdfast.once("o", lambda: "another", ttl=60), b"value")

    def test_a_loss_is_told_though_the_lock_was_taken_again_in_the_block(self):
        @contextlib.contextmanager
        def stack(lock):
            with contextlib.ExitStack() as s:
                yield s.enter_context(lock)

        for make in holdfast.Lock, holdfast.Election:
            for enter in (lambda lock: lock), stack:
                told, reached = [], []
                lock = make("a", on_lost=told.append)
                with self.assertRaises(holdfast.LockLost):
                    with enter(lock):
                        self.deleted("a")
                        self.until(lambda: told)
                        with lock:
                            self.assertEqual(self.ask("EXISTS", "lock:a"), "1")
                        reached.append(1)
                self.assertEqual(reached, [1])
                self.assertEqual(self.ask("EXISTS", "lock:a"), "0")
                with lock:
                    pass

    def test_a_loss_ends_the_wait_for_another_lock(self):
        release = threading.Event()
        held = threading.Event()

        def hold():
            with holdfast.Lock("b"):
                held.set()
                release.wait()

        other = threading.Thread(target=hold)
        other.start()
        held.wait()

        def work():
            with holdfast.Lock("a"):
                self.deleted("a")
                holdfast.Lock("b", wait=60).acquire()

        start = time.monotonic()
        for run in (lambda: in_thread(work), work):
            try:
                got = run()
            except holdfast.LockLost as e:
                got = e
            self.assertIsInstance(got, holdfast.LockLost)
        self.assertLess(time.monotonic() - start, 40)
        release.set()
        other.join()
        self.assertEqual(holdfast.default_client().inspect("b").waiters_total, 0)

    def test_losses_at_the_very_end_of_a_block_stay_in_it(self):
        """The exception never arrives behind the block, whenever the loss is found."""
        outside = 0
        for i in range(15):
            lock = holdfast.Lock("a", ttl=0.1, renew=False)
            try:
                with lock:
                    busy(0.1 + (i - 7) / 1000)
            except (holdfast.LockLost, holdfast.TimedOut):
                pass
            try:
                for _ in range(2000):
                    outside += 1
            except holdfast.LockLost:
                self.fail("it arrived behind the block")
        self.assertEqual(outside, 30000)

    def take_again_and_again(self, lock):
        while True:
            with lock:
                pass

    def test_a_loop_in_the_block_itself(self):
        """Python 3.13 may pass by the block's end, but its locks are released."""
        inner, outer = holdfast.Lock("inner"), holdfast.Lock("outer", ttl=0.1, renew=False)

        def both():
            with outer, inner:
                end = time.monotonic() + 20
                while time.monotonic() < end:
                    pass

        for _ in range(5):
            with self.assertRaises(holdfast.LockLost):
                in_time(both)
            self.assertFalse(inner.held)
            self.assertEqual(self.ask("EXISTS", "lock:inner"), "0")

    def test_an_inner_lock_is_released_wherever_the_loss_of_the_outer_one_arrives(self):
        """Also where it arrives in the first instruction of the inner __exit__()."""
        inner, leaked, lost = holdfast.Lock("inner"), 0, 0

        def both():
            with holdfast.Lock("outer", ttl=0.1, renew=False):
                self.take_again_and_again(inner)

        for _ in range(30):
            try:
                in_time(both)
            except holdfast.LockLost as e:
                lost += 1
                self.assertIn("outer", str(e))
            leaked += inner.held
            if inner.held:
                inner.release()
        self.assertEqual((lost, leaked), (30, 0))

    def test_the_exception_of_the_block_goes_before_its_loss(self):
        with self.assertRaises(KeyError):
            with holdfast.Lock("a", on_lost="ignore") as _:
                self.deleted("a")
                raise KeyError("mine")

    def test_one_of_several_is_enough(self):
        with self.assertRaises(holdfast.LockLost) as e:
            with holdfast.Multi("a", "b"):
                self.deleted("b")
                work()
        self.assertIn('"b"', str(e.exception))
        self.assertEqual(self.ask("EXISTS", "lock:a"), "0")


class Processes(ServerCase):
    def test_ctrl_c_ends_a_wait(self):
        with holdfast.Lock("a"):
            p = self.python("""
                import holdfast
                print("waiting", flush=True)
                try:
                    holdfast.Lock("a").acquire()
                except KeyboardInterrupt:
                    print("interrupted")
                """)
            self.assertEqual(p.stdout.readline(), "waiting\n")
            self.until(lambda: holdfast.default_client().inspect("a").waiters_total == 1)
            p.send_signal(signal.SIGINT)
            out, err = p.communicate(timeout=20)
            self.assertEqual((out, p.returncode), ("interrupted\n", 0), err)
            self.until(lambda: holdfast.default_client().inspect("a").waiters_total == 0)

    def test_ctrl_c_while_a_wait_begins(self):
        start = threading.Thread.start

        def press_before(thread):
            raise KeyboardInterrupt

        def press_behind(thread):
            start(thread)
            time.sleep(0.05)
            raise KeyboardInterrupt

        def press_at_once(thread):
            start(thread)
            raise KeyboardInterrupt

        inside, make = [], _call.Call.make

        def made(call, wait, err):
            inside.append(call)
            try:
                return make(call, wait, err)
            finally:
                inside.pop()

        with holdfast.Lock("a"):
            for press in press_before, press_behind, press_at_once:
                with mock.patch("threading.Thread.start", press), \
                     mock.patch.object(_call.Call, "make", made):
                    for _ in range(5):
                        with self.assertRaises(KeyboardInterrupt):
                            holdfast.Lock("a").acquire()
                        self.assertEqual(inside, [])  # nobody uses the handle, which is freed
            self.assertEqual(holdfast.default_client().inspect("a").waiters_total, 0)

    def test_the_end_of_a_program_releases(self):
        for end in ("", "raise SystemExit(3)", "1 / 0"):
            p = self.python("""
                import holdfast
                lock = holdfast.Lock("a")
                lock.acquire()
                """ + end)
            p.communicate(timeout=20)
            self.assertEqual(self.ask("EXISTS", "lock:a"), "0")

    def test_the_end_of_a_program_while_its_threads_wait(self):
        for name in "abcde":
            with holdfast.Lock(name):
                p = self.python("""
                    import sys, threading
                    import holdfast
                    name = sys.stdin.readline().strip()
                    lock = holdfast.Lock("mine", grace=0)
                    lock.acquire()

                    def wait():
                        holdfast.Lock(name).acquire()

                    def try_again():
                        while True:
                            holdfast.Lock(name).try_acquire()

                    for work in [wait] * 8 + [try_again]:
                        threading.Thread(target=work, daemon=True).start()
                    sys.stdin.readline()
                    """)
                p.stdin.write(name + "\n")
                p.stdin.flush()
                self.until(lambda: holdfast.default_client().inspect(name).waiters_total == 8)
                out, err = p.communicate("go\n", timeout=30)
                self.assertEqual((out, err, p.returncode), ("", "", 0))
                self.assertEqual(self.ask("EXISTS", "lock:mine"), "0")

    def test_programs_that_wait_for_each_other(self):
        """Each in its main thread, whose waits another one makes."""
        programs = [self.python("""
            import sys
            import holdfast
            first, second = sys.stdin.readline().split()
            with holdfast.Lock(first):
                print("ready", flush=True)
                sys.stdin.readline()
                try:
                    holdfast.Lock(second).acquire()
                    print("taken")
                except holdfast.Deadlock:
                    print("given up")
            """) for _ in range(2)]
        for p, order in zip(programs, ("a b", "b a")):
            p.stdin.write(order + "\n")
            p.stdin.flush()
            self.assertEqual(p.stdout.readline(), "ready\n")
        for p in programs:
            p.stdin.write("go\n")
            p.stdin.flush()
        said = [p.communicate(timeout=30)[0] for p in programs]
        self.assertEqual(sorted(said), ["given up\n", "taken\n"])

    def test_a_thread_that_waits_for_itself(self):
        with holdfast.Lock("a"):
            for run in (in_thread, lambda work: work()):
                def work():
                    with holdfast.Lock("b"), self.assertRaises(holdfast.Deadlock):
                        holdfast.Lock("b", wait=60).acquire()

                run(work)
        self.assertEqual(holdfast.default_client().inspect("b").waiters_total, 0)

    def test_threads_that_end_while_their_client_is_closed(self):
        """Their handles go with them."""
        for i in range(20):
            client = holdfast.Client()
            lock = client.lock("a")
            begun, go = threading.Barrier(17), threading.Event()

            def work():
                lock.try_acquire()
                begun.wait()
                go.wait()
                time.sleep(random.random() / 200)

            threads = [threading.Thread(target=work) for _ in range(16)]
            for t in threads:
                t.start()
            begun.wait()
            go.set()
            time.sleep(0.002)
            client.close()
            for t in threads:
                t.join()
            self.assertEqual(self.ask("EXISTS", "lock:a"), "0")

    def test_a_child_process_has_nothing_of_its_parents(self):
        lock = holdfast.Lock("a")
        client = holdfast.default_client()
        with lock:
            pid = os.fork()
            if pid == 0:
                ok = not lock.held and lock.try_acquire() is None  # its own client, and busy
                try:
                    client.inspect("a")
                    ok = False
                except holdfast.Forked:
                    pass
                os._exit(0 if ok else 1)
            self.assertEqual(os.waitpid(pid, 0)[1], 0)
            self.assertTrue(lock.held)
            lock.verify()


class Others(ServerCase):
    def test_shared(self):
        reader = holdfast.Shared("a", wait=0)
        with reader, holdfast.Lock("b"):
            self.assertTrue(in_thread(reader.try_acquire))
            self.assertIsNone(holdfast.Lock("a").try_acquire())
        writer = holdfast.Lock("a", wait=10)
        with writer:
            self.assertIsNone(in_thread(reader.try_acquire))
            writer.downgrade()
            self.assertTrue(in_thread(reader.try_acquire))

    def test_semaphore(self):
        s = holdfast.Semaphore("a", 2, wait=0)
        with s:
            other = holdfast.Semaphore("a", 2)
            self.assertTrue(other.try_acquire())
            self.assertIsInstance(in_thread(s.acquire), holdfast.Busy)
            other.release()
        with holdfast.Semaphore("a", 2, permits=2):
            self.assertIsNone(s.try_acquire())

    def test_multi(self):
        m = holdfast.Multi("a", holdfast.Shared("b"), wait=0)
        with m as fences:
            self.assertEqual(len(fences), 2)
            self.assertEqual(fences, [x.fence for x in m.locks])
            self.assertTrue(m.held)
            self.assertIsNone(holdfast.Lock("a").try_acquire())
        with holdfast.Lock("b"):
            with self.assertRaises(holdfast.Busy):
                m.acquire()
            self.assertEqual(self.ask("EXISTS", "lock:a"), "0")

    def test_election(self):
        self.assertIsNone(holdfast.leader("e"))
        candidate = holdfast.Election("e", "host:1")
        with candidate as term:
            self.assertTrue(candidate.leads)
            seen = holdfast.leader("e")
            self.assertEqual((seen.term, seen.value), (term, b"host:1"))
            with self.assertRaises(holdfast.Busy):
                holdfast.Election("e", "host:2", wait=0).campaign()
            with self.assertRaises(holdfast.TimedOut):
                holdfast.observe("e", seen, wait=0.2)
            candidate.set_value("host:3")
            self.assertEqual(holdfast.observe("e", seen, wait=10).value, b"host:3")
        self.assertFalse(candidate.leads)
        self.assertIsNone(holdfast.leader("e"))

    def test_a_leader_whose_call_is_broken_off_stays_leader(self):
        candidate = holdfast.Election("e", "v1")
        term = candidate.campaign()
        with mock.patch("holdfast._call.wait_for", side_effect=KeyboardInterrupt):
            with self.assertRaises(KeyboardInterrupt):
                candidate.campaign("v2")
        self.assertTrue(candidate.leads)
        with mock.patch("holdfast._election.interrupted", return_value=True):
            candidate.campaign("v2")
            self.assertTrue(candidate.leads)
            self.assertEqual(holdfast.leader("e").term, term)
            candidate.resign()
            candidate.campaign("v3")  # its caller would not learn of it
            self.assertFalse(candidate.leads)

    def test_once(self):
        computed = []

        def compute():
            computed.append(1)
            time.sleep(0.2)
            return b"value\x00"

        got = []
        threads = [threading.Thread(
            target=lambda: got.append(holdfast.once("o", compute, ttl=60, wait=30)))
            for _ in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(set(got), {b"value\x00"})
        self.assertEqual(len(got), 8)
        self.assertEqual(len(computed), 1)
        self.assertEqual([v.computed for v in got].count(True), 1)
        again = holdfast.once("o", compute, ttl=60)
        self.assertTrue(again.cached and not again.computed and again.fresh > 0)
        self.assertEqual(holdfast.once("o", lambda: "new", ttl=60, refresh=True), b"new")
        holdfast.once_drop("o")
        with self.assertRaises(ZeroDivisionError):
            holdfast.once("o", lambda: 1 / 0, ttl=60)
        self.assertEqual(self.ask("EXISTS", "lock:o"), "0")

    def test_once_gives_an_old_value_while_somebody_computes(self):
        holdfast.once("o", lambda: "old", ttl=0.05, stale=60)
        time.sleep(0.1)
        with holdfast.Lock("o"):
            old = in_thread(lambda: holdfast.once("o", lambda: "new", ttl=60, stale=60))
        self.assertEqual(old, b"old")
        self.assertLess(old.fresh, 0)
        self.assertEqual(holdfast.once("o", lambda: "new", ttl=60, stale=60), b"new")

    def test_guard(self):
        client = holdfast.default_client()
        lock = holdfast.Lock("a")
        fences = []
        for _ in range(2):
            with lock as fence:
                fences.append(fence)
        client.guard_set("data", "new", fences[1])
        with self.assertRaises(holdfast.Stale):
            client.guard_set("data", "late", fences[0])
        self.assertEqual(self.ask("GET", "data"), "new")
        client.guard_check("file", fences[1])
        with self.assertRaises(holdfast.Stale):
            client.guard_check("file", fences[0])

    def test_a_number_is_no_value_and_no_name(self):
        """bytes(5) would be five NULs."""
        client = holdfast.default_client()
        for wrong in (lambda: client.guard_set("x", 100, 1), lambda: client.guard_check(3, 1),
                      lambda: client.owner_acquire("a", 10, owner=True),
                      lambda: holdfast.once("a", lambda: 3, ttl=60),
                      lambda: holdfast.Lock(5), lambda: holdfast.Lock("a", owner=5)):
            with self.assertRaises(TypeError):
                wrong()
        self.assertEqual(self.ask("EXISTS", "lock:a", "x"), "0")
        name = memoryview(b"a")
        with holdfast.Lock(name, owner=bytearray(b"me")):
            self.assertEqual(self.ask("GET", "lock:a"), "me")

    def test_owner_id(self):
        client = holdfast.default_client()
        self.assertTrue(client.owner_acquire("a", 10, "moto"))
        self.assertEqual(self.ask("GET", "lock:a"), "moto")
        with self.assertRaises(holdfast.Busy):
            client.owner_acquire("a", 10, "nokia")
        with self.assertRaises(holdfast.NotOwner):
            client.owner_release("a", "nokia")
        client.owner_extend("a", "moto", 60)
        self.assertGreater(client.owner_check("a", "moto"), 50)
        client.owner_release("a", "moto")
        with holdfast.Lock("a", owner="samsung") as _:
            self.assertEqual(self.ask("GET", "lock:a"), "samsung")


if __name__ == "__main__":
    unittest.main()
