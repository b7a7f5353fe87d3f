# SPDX-License-Identifier: MIT
# worker.py - the Lock of redis-py, as a neighbour. See common.sh.
#
#   worker.py redis-py try|hold|count SOCKET KEY ROUNDS FILE
import os
import sys
import time

import redis


def section(file):
    """The section that the lock protects."""
    try:
        os.close(os.open(file + ".in", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        print("OVERLAP")
        sys.exit(1)
    with open(file) as f:
        n = int(f.read())
    time.sleep(0.002)
    with open(file, "w") as f:
        f.write("%d\n" % (n + 1))
    with open(file + ".log", "a") as f:
        f.write("theirs\n")
    os.unlink(file + ".in")


def main(_client, what, socket, key, rounds, file):
    r = redis.Redis(unix_socket_path=socket)
    for _ in range(int(rounds) if what == "count" else 1):
        lock = r.lock(key, timeout=10, sleep=0.005)
        if not lock.acquire(blocking=what != "try"):
            sys.exit(3)
        if what == "hold":
            open(file + ".held", "w").close()
            while not os.path.exists(file + ".go"):
                time.sleep(0.01)
        elif what == "count":
            section(file)
        lock.release()
        time.sleep(0.02)


main(*sys.argv[1:])
