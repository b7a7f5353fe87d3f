# SPDX-License-Identifier: MIT
# peer.py - the Lock of redis-py, with threads. The protocol is in ../README.md.
import json
import random
import sys
import threading
import time

import redis

_, _, port, mode, workers, warm, seconds, retry, key = sys.argv
workers, warm, seconds, retry = int(workers), float(warm), float(seconds), int(retry)
client = redis.Redis(host="127.0.0.1", port=int(port), protocol=2)
now = time.monotonic_ns


def lock_of(name):
    more = {"sleep": retry / 1000} if retry else {}
    return client.lock(name, timeout=10, **more)


def say(**what):
    print(json.dumps(what), flush=True)


def start(target, *args):
    thread = threading.Thread(target=target, args=args, daemon=True)
    thread.start()
    return thread


def pairs():
    begin = now() + int(warm * 1e9)
    end = begin + int(seconds * 1e9)
    took = [[] for _ in range(workers)]

    def work(i):
        lock = lock_of("%s:%d" % (key, i))
        t = now()
        while t < end:
            lock.acquire()
            lock.release()
            before, t = t, now()
            if begin <= before and t <= end:
                took[i].append((t - before) / 1000)

    for thread in [start(work, i) for i in range(workers)]:
        thread.join()
    say(pairs=sum(map(len, took)), seconds=seconds, us=took[0] if workers == 1 else [])


def contended():
    begin = now() + int(warm * 1e9)
    end = begin + int(seconds * 1e9)
    events = [[] for _ in range(workers)]

    def work(i):
        lock = lock_of(key)
        while now() < end:
            event = [i, now(), 0, 0]
            events[i].append(event)
            lock.acquire()
            event[2] = now()
            time.sleep(random.random() / 1000)
            event[3] = now()
            lock.release()
            time.sleep(workers * 0.00025)

    for i in range(workers):
        start(work, i)
    time.sleep(warm + seconds)
    say(begin=begin, end=now(), events=sum(events, []))


def idle():
    lock_of(key).acquire()
    say(held=1)
    for _ in range(workers):
        start(lambda: lock_of(key).acquire())
    say(waiting=workers)
    time.sleep(600)


def hold():
    lock_of(key).acquire()
    say(held=1)
    time.sleep(600)


def wait():
    say(waiting=1)
    lock = lock_of(key)
    lock.acquire()
    say(got=1)
    lock.release()


globals()[mode]()
