#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""faults.py - what happens to the locks of other libraries, and to ours, when something fails.

  faults.py [--only TEXT[,TEXT...]] [--out PREFIX]

One process of each library holds a lock, another one waits for it; then the fault. Observed is when
the second one has the lock, and when the first one is told by its library that it is lost: if it is
not told before, two believe that they hold it. All libraries are tried at the same time, each with
a server of its own: nearly all of it is waiting. README.md beside this file has the programs.
"""
import argparse
import collections
import datetime
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import run as peers

LEASE = 10.0  # s, of all
LONG = 2.5 * LEASE  # how long is watched
SETTLE = 1.0


class Holder:
    """Who holds the lock, and when it was told that it is lost, or ended."""

    def __init__(self, p, server):
        self.run = peers.Run(p, server, "hold", seconds=120)
        self.told = None
        self.acts_since = 0.0
        self.run.line()
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        try:
            self.run.line()
        except (peers.Failed, ValueError):
            pass  # it ended: that is an answer, too
        self.told = time.monotonic()

    def signal(self, number):
        os.killpg(self.run.process.pid, number)

    def end(self):
        told = self.told  # not by what comes now
        self.run.stop()
        self.reader.join(5)
        self.run.kill()
        return told


class Waiter:
    """Who gets it next. A process that fails is started again, as an operator would."""

    def __init__(self, p, server):
        self.p, self.server = p, server
        self.got, self.failures, self.over = None, 0, False
        self.run = peers.Run(p, server, "wait", seconds=120)
        self.run.line()
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        while not self.over:
            try:
                if "got" in self.run.line():
                    self.got = time.monotonic()
                    return
            except (peers.Failed, ValueError):
                self.failures += 1
                time.sleep(0.5)
                self.run.kill()
                self.run = peers.Run(self.p, self.server, "wait", seconds=120)

    def end(self):
        self.over = True
        self.run.stop()
        self.reader.join(5)
        self.run.kill()
        return self.got


# ---- the faults: each returns when it began ---------------------------------------------------

def outlives(_holder, _server):
    """The work takes longer than the lease."""
    begun = time.monotonic()
    time.sleep(LONG)
    return begun


def frozen(holder, _server):
    """The holder stands still for 1.5 leases, and goes on. Until then it can do no harm."""
    begun = time.monotonic()
    holder.signal(signal.SIGSTOP)
    time.sleep(1.5 * LEASE)
    holder.acts_since = time.monotonic()
    holder.signal(signal.SIGCONT)
    time.sleep(LONG - 1.5 * LEASE)
    return begun


def killed(holder, _server):
    """kill -9 of the holder."""
    begun = time.monotonic()
    holder.signal(signal.SIGKILL)
    time.sleep(1.5 * LEASE)
    return begun


def emptied(_holder, server):
    """kill -9 of the server, which begins anew with nothing."""
    begun = time.monotonic()
    server.again()
    time.sleep(LONG)
    return begun


def stands_still(_holder, server):
    """The server stands still for 1.5 leases, and goes on."""
    begun = time.monotonic()
    os.kill(server.process.pid, signal.SIGSTOP)
    time.sleep(1.5 * LEASE)
    os.kill(server.process.pid, signal.SIGCONT)
    time.sleep(LONG - 1.5 * LEASE)
    return begun


Fault = collections.namedtuple("Fault", "key title cause alive")
FAULTS = [
    Fault("outlives", "the work takes longer than the lease", outlives, True),
    Fault("frozen", "holder frozen for 15 s", frozen, True),
    Fault("stands_still", "server frozen for 15 s", stands_still, True),
    Fault("emptied", "server lost its data", emptied, True),
    Fault("killed", "holder killed: the next one has it after", killed, False),
]


class Server(peers.Redis):
    def __init__(self, folder):
        self.folder = folder
        super().__init__(folder)

    def again(self):
        self.process.kill()
        self.process.wait()
        self.process = subprocess.Popen(
            [arg for arg in self.process.args], stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        peers.wait_for(lambda: peers.listens(self.port), 10, "the server does not start again")


def observe(p, fault, server):
    """Seconds until two may act, if the first one is not told, and until it is told; or None."""
    holder = Holder(p, server)
    waiter = None
    try:
        waiter = Waiter(p, server)
        time.sleep(SETTLE)
        begun = fault.cause(holder, server)
    finally:
        told, got = holder.end(), waiter.end() if waiter else None
    return [got and max(got, holder.acts_since) - begun, told and told - begun]


def short(seconds):
    return "%.1f s" % seconds if seconds >= 0.1 else "%.0f ms" % (seconds * 1000)


def words(fault, seen):
    """A cell of the table."""
    got, told = seen
    if not fault.alive:
        return "%.1f s" % got if got else "not within 15 s"
    if got is None and told is None:
        return "renewed" if fault.key == "outlives" else "not told; nobody else in 10 s"
    if got is None:
        return "told after %.1f s; nobody else" % told
    if told is None:
        return "**two believe**, never told"
    if fault.key == "frozen" and told - got < 0.1:
        return "told when it wakes (%s)" % short(max(told - got, 0))
    if told > got:
        return "**two believe** for %s" % short(told - got)
    return "told %s before" % short(got - told)


def try_one(p, folder, result):
    for fault in FAULTS:
        if p.server == "etcd" and fault.key == "emptied":
            continue  # it keeps its data on disk
        server = None
        try:
            place = tempfile.mkdtemp(dir=folder)
            server = peers.Etcd(place) if p.server == "etcd" else Server(place)
            result[fault.key] = observe(p, fault, server)
        except (peers.Failed, OSError, ValueError, TimeoutError) as e:
            result.setdefault("failed", {})[fault.key] = str(e)
        finally:
            if server:
                server.process.kill()
                server.process.wait()


def table(results):
    lines = [["library"] + [f.title for f in FAULTS]]
    for name, r in results.items():
        lines.append([name] + [words(f, r[f.key]) if f.key in r else
                               "(%s)" % r.get("failed", {}).get(f.key, "not tried") for f in FAULTS])
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main():
    a = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    a.add_argument("--only", default="", help="peers whose name contains one of these, by commas")
    a.add_argument("--out", default=os.path.join(peers.ROOT, "bench/results/faults"),
                   help="PREFIX of .json and .md")
    o = a.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    chosen = [p for p in peers.peers() if p.lease and not peers.missing(p)
              and p.name not in ("Holdfast, async", "rslock, one thread (Rust)")
              and (not o.only or any(t in p.name for t in o.only.split(",")))]
    results = {p.name: {} for p in chosen}
    folder = tempfile.mkdtemp(prefix="holdfast-peers-")
    threads = [threading.Thread(target=try_one, args=(p, folder, results[p.name])) for p in chosen]
    try:
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    head = "%s; %s; lease %g s; load %s" % (datetime.date.today().isoformat(), peers.machine(), LEASE,
                                           peers.load())
    text = "\n".join([head, "", table(results), "", "Versions: " + "; ".join(
        "%s: %s" % (p.name, p.version) for p in chosen) + "."])
    print(text)
    os.makedirs(os.path.dirname(o.out), exist_ok=True)
    with open(o.out + ".md", "w") as f:
        f.write(text + "\n")
    with open(o.out + ".json", "w") as f:
        json.dump({"head": head, "rows": results}, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    main()
