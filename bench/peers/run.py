#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""run.py - the same work by Holdfast, by plain hiredis and by other lock libraries, in one run.

  run.py [--seconds S] [--rounds N] [--only TEXT[,TEXT...]] [--skip-crash] [--out PREFIX]
  run.py --readme [--out PREFIX]

Starts its own redis-server (or $HF_TEST_SERVER) and, if install.sh got one, its own etcd, on free
ports of the loopback interface. Prints a table; PREFIX.json, PREFIX.md and PREFIX.svg have it, too.
README.md beside this file says what the columns are, and the protocol between this and a peer.
"""
import argparse
import collections
import ctypes
import datetime
import glob
import json
import os
import platform
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
BUILD = os.path.join(ROOT, "build", "peers")
WORKERS = 64
IDLE_SETTLE, IDLE_COUNT = 1.5, 3.0


def at(*path):
    return os.path.join(BUILD, *path)


# ---- who takes part ---------------------------------------------------------------------------

Peer = collections.namedtuple("Peer", "name command needs version sends warm server retries lease")


def peer(name, command, version, sends="set evalsha eval", needs=None, warm=0.5, server="redis",
         retries=(), lease=True):
    """needs: what install.sh leaves when it is there. sends: the commands that clients send, and
    not scripts. retries: further rows with another time between two looks, in ms."""
    return Peer(name, command, needs, version, sends.split(), warm, server, retries, lease)


def read(pattern, *path):
    """The first match of pattern in a file of ours: versions stand in the manifests."""
    with open(os.path.join(ROOT, *path)) as f:
        return re.search(pattern, f.read()).group(1)


def npm(name):
    return read(r'"%s": "(?:npm:redlock@)?([^"]+)"' % name, "bench/peers/node/package.json")


def go(name):
    return read(name + r" v(\S+)", "bench/peers/go/go.mod")


def first_line(*command):
    try:
        out = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return out.stdout.splitlines()[0].strip()
    except (OSError, IndexError):
        return "?"


def peers():
    ours = [os.path.join(ROOT, "build/bench/peers/holdfast")]
    plain = [os.path.join(ROOT, "build/bench/peers/hiredis")]
    node = ["node", os.path.join(HERE, "node/peer.js")]
    java = ["java", "-cp", at("java/classes") + ":" + at("java/lib/*"), "Peer"]
    rust = [at("rust/target/release/rust-peer")]
    rslock = read(r'rslock = { version = "=([^"]+)"', "bench/peers/rust/Cargo.toml")
    holdfast = read(r'define HF_VERSION +"(.*)"', "include/holdfast.h")
    hiredis = first_line("pkg-config", "--modversion", "hiredis")
    ioredis = ", ioredis " + npm("ioredis")
    goredis = ", go-redis " + go("redis/go-redis/v9")
    redisson = read(r"<artifactId>redisson</artifactId>\s*<version>(.*)</version>",
                    "bench/peers/java/pom.xml")
    php = first_line("php", "-r", "echo PHP_VERSION, ', phpredis ', phpversion('redis');")
    sends = "eval evalsha subscribe unsubscribe ping psubscribe ssubscribe"
    return [
        peer("Holdfast, threads", ours + ["threads"], holdfast, sends),
        peer("Holdfast, async", ours + ["async"], holdfast, sends),
        peer("hiredis SET NX (C)", plain + ["set"], hiredis, retries=(10,)),
        peer("hiredis BLPOP (no lease)", plain + ["blpop"], hiredis, "blpop lpush",
             lease=False),
        peer("rslock (Rust)", rust + ["tasks"], rslock, needs="rust", retries=(10,)),
        peer("rslock, one thread (Rust)", rust + ["one-thread"], rslock, needs="rust"),
        peer("rueidislock (Go)", [at("go/peer"), "rueidislock"], go("redis/rueidis"),
             "set get mget evalsha eval del client|tracking client|caching ping", needs="go"),
        peer("redsync (Go)", [at("go/peer"), "redsync"], go("redsync/v4") + goredis, needs="go",
             retries=(10,)),
        peer("bsm/redislock (Go)", [at("go/peer"), "redislock"], go("bsm/redislock") + goredis,
             "evalsha eval", needs="go", retries=(10,)),
        peer("redlock 4 (Node)", node + ["redlock4"], npm("redlock4") + ioredis, "eval evalsha",
             needs="node", retries=(10,)),
        peer("redlock 5 (Node)", node + ["redlock5"], npm("redlock5") + ioredis, "eval evalsha",
             needs="node", retries=(10,)),
        peer("redis-semaphore (Node)", node + ["redis-semaphore"],
             npm("redis-semaphore") + ioredis, needs="node"),
        peer("Redisson RLock (Java)", java + ["lock"], redisson, sends, needs="java", warm=3),
        peer("Redisson RFairLock (Java)", java + ["fair"], redisson, sends, needs="java", warm=3),
        peer("redis-py (Python)", [at("python/bin/python3"), os.path.join(HERE, "python/peer.py"),
                                   "redis-py"],
             read(r"redis==(\S+)", "bench/peers/python/requirements.txt"), needs="python",
             retries=(10,)),
        peer("phpredis, by hand (PHP)", ["php", os.path.join(HERE, "php.php"), "setnx"], php,
             "setnx expire ttl watch unwatch get multi exec", needs="php"),
        peer("etcd concurrency.Mutex (Go)", [at("go/peer"), "etcd"],
             go("etcd/client/v3") + ", server " + etcd_version(), needs="etcd", server="etcd"),
    ]


def etcd_version():
    if not os.path.exists(at("etcd/usr/bin/etcd")):
        return "?"
    return first_line(at("etcd/usr/bin/etcd"), "--version").split()[-1]


def missing(p):
    """Why this peer cannot take part; None: it can."""
    if p.needs == "php":
        ok = first_line("php", "-r", "echo extension_loaded('redis') && "
                        "extension_loaded('pcntl') ? 'yes' : 'no';") == "yes"
        return None if ok else "no php with the extensions redis and pcntl"
    needed = [p.needs] if p.needs != "etcd" else ["etcd", "go"]
    for part in needed:
        if part and not os.path.exists(at(part, "installed")):
            return "%s is not installed: see bench/peers/install.sh" % part
    return None


# ---- servers ----------------------------------------------------------------------------------

def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for(condition, seconds, what):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(0.01)


def listens(port):
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0


class Redis:
    def __init__(self, folder):
        self.port = free_port()
        program = os.environ.get("HF_TEST_SERVER") or shutil.which("redis-server") \
            or shutil.which("valkey-server")
        if not program:
            sys.exit("run.py: there is no redis-server here")
        self.process = subprocess.Popen(
            [program, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "",
             "--appendonly", "no", "--dir", folder, "--maxclients", "5000"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(lambda: listens(self.port), 10, "redis-server does not start")
        self.socket = socket.create_connection(("127.0.0.1", self.port))
        self.file = self.socket.makefile("rb")
        info = self.ask("INFO server")
        name = "valkey" if "valkey_version" in info else "redis"
        self.version = name + " " + re.search(name + r"_version:(\S+)", info).group(1)

    def ask(self, command):
        self.socket.sendall(command.encode() + b"\r\n")
        line = self.file.readline().decode().strip()
        if line[0] == "$":
            return self.file.read(int(line[1:]) + 2).decode()
        return line[1:]

    def fresh(self):
        self.ask("FLUSHALL")

    def commands(self, names):
        """How many of these were called; scripts call others."""
        calls = dict(re.findall(r"cmdstat_(\S+?):calls=(\d+)", self.ask("INFO commandstats")))
        return sum(int(calls.get(n, 0)) for n in names)


class Etcd:
    """It waits for the disk, as it always does; the others keep their locks in memory."""

    def __init__(self, folder):
        self.port, peer_port = free_port(), free_port()
        urls = ["http://127.0.0.1:%d" % self.port, "http://127.0.0.1:%d" % peer_port]
        self.process = subprocess.Popen(
            [at("etcd/usr/bin/etcd"), "--data-dir", os.path.join(folder, "etcd"),
             "--listen-client-urls", urls[0], "--advertise-client-urls", urls[0],
             "--listen-peer-urls", urls[1], "--initial-advertise-peer-urls", urls[1],
             "--initial-cluster", "default=" + urls[1]],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(lambda: listens(self.port), 20, "etcd does not start")
        self.version = "etcd " + etcd_version()

    def fresh(self):
        pass

    def commands(self, _names):
        with urllib.request.urlopen("http://127.0.0.1:%d/metrics" % self.port) as f:
            text = f.read().decode()
        return sum(float(n) for n in re.findall(
            r"^grpc_server_msg_received_total\{.*\} (\S+)$", text, re.M))


# ---- a peer at work ---------------------------------------------------------------------------

class Failed(Exception):
    pass


class Run:
    """One process of a peer, in a group of its own: PHP has a process for each worker."""
    number = 0

    def __init__(self, p, server, mode, workers=1, seconds=1.0, retry=0):
        Run.number += 1
        key = "peers:%d" % Run.number if mode not in ("hold", "wait") else \
            "peers:crash:" + re.sub(r"\W", "", p.name)
        command = p.command + [str(server.port), mode, str(workers), str(p.warm), str(seconds),
                               str(retry), key]
        environment = dict(os.environ, PEER_MODULES=at("node/node_modules"))
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.errors,
                                        text=True, env=environment, start_new_session=True)
        self.limit = threading.Timer(60 + 2 * (p.warm + seconds), self.stop)
        self.limit.start()

    def line(self):
        text = self.process.stdout.readline()
        if not text:
            self.errors.seek(0)
            raise Failed(self.errors.read().strip()[-300:] or "no answer")
        return json.loads(text)

    def stop(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def kill(self):
        self.limit.cancel()
        self.stop()
        self.process.wait()
        self.process.stdout.close()
        self.errors.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def pids(self):
        """Its own and those of its children."""
        found = [self.process.pid]
        for path in glob.glob("/proc/[0-9]*/stat"):
            try:
                with open(path) as f:
                    fields = f.read().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == self.process.pid:
                found.append(int(path.split("/")[2]))
        return found

    def memory_mb(self):
        """What its processes have in memory; what they share counts once (Pss)."""
        total = 0
        for pid in self.pids():
            with open("/proc/%d/smaps_rollup" % pid) as f:
                total += int(re.search(r"^Pss: +(\d+)", f.read(), re.M).group(1))
        return total / 1024


def connections(port):
    """Connections to this port of the loopback interface, as the client sees them."""
    count = 0
    for name in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(name) as f:
            for row in f.read().splitlines()[1:]:
                fields = row.split()
                count += fields[3] == "01" and fields[2].endswith(":%04X" % port)
    return count


def percentile(values, percent):
    values = sorted(values)
    return values[min(len(values) - 1, len(values) * percent // 100)] if values else None


def pairs(p, server, workers, seconds):
    with Run(p, server, "pairs", workers, seconds) as run:
        r = run.line()
    result = {"pairs_%d" % workers: r["pairs"] / r["seconds"]}
    if workers == 1:
        result["p50_us"] = percentile(r["us"], 50)
    return result


def contended(p, server, seconds, retry):
    with Run(p, server, "contended", WORKERS, seconds, retry) as run:
        r = run.line()
    begin, end = r["begin"], r["end"]
    done = sorted((e for e in r["events"] if e[2] and e[2] <= end), key=lambda e: e[2])
    # Whoever waits at the end has waited until then at least.
    waits = [(e[2] or end) - e[1] for e in r["events"] if (e[2] or end) >= begin]
    passed, overlaps = [], 0
    for before, after in zip(done, done[1:]):
        overlaps += not before[3] or after[2] < before[3]
        if after[2] >= begin and after[0] != before[0]:
            passed.append((after[2] - before[3]) / 1000)
    if overlaps:
        raise Failed("%d times two held the lock at once" % overlaps)
    return {"handovers": len(passed) / ((end - begin) / 1e9), "handover_p50_us":
            percentile(passed, 50), "handover_p99_us": percentile(passed, 99),
            "longest_ms": max(waits) / 1e6 if waits else None,
            "held_ms": statistics.mean(e[3] - e[2] for e in done if e[3]) / 1e6 if done else None}


def idle(p, server, retry):
    before = connections(server.port)
    with Run(p, server, "idle", WORKERS, 1, retry) as run:
        run.line()
        run.line()
        time.sleep(IDLE_SETTLE)
        sent, start = server.commands(p.sends), time.monotonic()
        time.sleep(IDLE_COUNT)
        sent, took = server.commands(p.sends) - sent, time.monotonic() - start
        return {"idle": sent / took, "connections": connections(server.port) - before,
                "memory_mb": run.memory_mb()}


def crash_one(p, server):
    """Seconds from kill -9 of the holder, 2 s after it got the lock, until another has it."""
    with Run(p, server, "hold") as holder:
        holder.line()
        due = time.monotonic() + 2
        with Run(p, server, "wait") as waiter:
            waiter.line()
            time.sleep(max(due - time.monotonic(), 0.3))
            killed = time.monotonic()
            holder.stop()
            waiter.line()
            return {"crash_s": time.monotonic() - killed}


# ---- what comes out ---------------------------------------------------------------------------

COLUMNS = [
    ("pairs_1", "1 worker /s", "%.0f"), ("p50_us", "p50 us", "%.0f"),
    ("pairs_16", "16 /s", "%.0f"), ("pairs_64", "64 /s", "%.0f"),
    ("handovers", "contended 64: hand-overs/s", "%.0f"), ("handover_p50_us", "p50 us", "%.0f"),
    ("handover_p99_us", "p99 us", "%.0f"), ("longest_ms", "longest wait ms", "%.0f"),
    ("held_ms", "held ms (mean)", "%.2f"),
    ("idle", "commands/s while 64 wait", "%.1f"), ("connections", "connections", "%d"),
    ("memory_mb", "memory MB", "%.1f"), ("crash_s", "takeover s", "%.1f"),
]


def table(rows, columns):
    lines = [["lock"] + [title for _, title, _ in columns]]
    for row in rows:
        lines.append([row["name"]] + [form % row[k] if row.get(k) is not None else ""
                                      for k, _, form in columns])
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    lines.insert(1, ["-" * w for w in widths])
    return "\n".join("| " + " | ".join(
        c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths))) + " |"
        for line in lines)


def bars(rows, key, title, top, out):
    """One panel of the plot: a bar for each row that has this figure."""
    rows = [r for r in rows if r.get(key) is not None]
    largest = max((r[key] for r in rows), default=0) or 1
    out.append('<text x="10" y="%d" class="t">%s</text>' % (top + 16, title))
    y = top + 28
    for r in rows:
        width = 420 * r[key] / largest
        color = "#1f6fb4" if r["name"].startswith("Holdfast") else "#b9b9b9"
        number = format(round(r[key]), ",").replace(",", " ")
        out.append('<text x="252" y="%d" text-anchor="end">%s</text>' % (y + 11, r["name"]))
        out.append('<rect x="260" y="%d" width="%.1f" height="13" fill="%s"/>' % (y, width, color))
        out.append('<text x="%.1f" y="%d">%s</text>' % (264 + width, y + 11, number))
        y += 18
    return y + 14


def plot(rows, note):
    body = []
    y = bars(rows, "handovers", "64 workers want one lock: hand-overs per second", 4, body)
    y = bars(rows, "pairs_64", "64 workers, a lock each: acquire + release per second", y, body)
    body.append('<text x="10" y="%d" class="n">%s</text>' % (y + 4, note))
    head = ['<svg xmlns="http://www.w3.org/2000/svg" width="760" height="%d" '
            'font-family="sans-serif" font-size="11">' % (y + 14),
            '<style>.t{font-size:13px;font-weight:bold}.n{font-size:9px;fill:#666}</style>',
            '<rect width="100%" height="100%" fill="white"/>']
    return "\n".join(head + body + ["</svg>\n"])


def machine():
    with open("/proc/cpuinfo") as f:
        model = re.search(r"model name\s*: (.*)", f.read())
    return "%d cores, %s, Linux %s" % (os.cpu_count(), model.group(1) if model else
                                       platform.machine(), platform.release())


def load():
    return " ".join("%.1f" % n for n in os.getloadavg())


# ---- all of it --------------------------------------------------------------------------------

def options():
    a = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    a.add_argument("--seconds", type=float, default=2, help="of each measurement (2)")
    a.add_argument("--rounds", type=int, default=1, help="the median of so many (1)")
    a.add_argument("--only", default="", help="peers whose name contains one of these, by commas")
    a.add_argument("--skip-crash", action="store_true")
    a.add_argument("--readme", action="store_true",
                   help="measure nothing: put PREFIX.json into the README")
    a.add_argument("--out", default=os.path.join(ROOT, "bench/results/peers"),
                   help="PREFIX of .json, .md and .svg")
    return a.parse_args()


VARIANT = ", looks every "


def variant(p, retry):
    return p.name + (VARIANT + "%d ms" % retry if retry else "")


class Bench:
    def __init__(self, o):
        self.o = o
        self.rows, self.figures, self.failed = {}, {}, []

    def measure(self, row, work, *args):
        """A peer that fails is told of, and the others go on."""
        try:
            servers = [a for a in args if hasattr(a, "fresh")]
            servers[0].fresh()
            for key, value in work(*args).items():
                self.figures.setdefault(row, {}).setdefault(key, []).append(value)
        except (Failed, OSError, ValueError) as e:
            self.failed.append("%s, %s: %s" % (row, work.__name__, str(e) or type(e).__name__))
            print("run.py: " + self.failed[-1], file=sys.stderr)

    def choose(self):
        chosen = []
        for p in peers():
            why = missing(p)
            if self.o.only and not any(t in p.name for t in self.o.only.split(",")):
                continue
            if why:
                print("run.py: %s is left out: %s" % (p.name, why), file=sys.stderr)
                self.failed.append("%s is left out: %s" % (p.name, why))
                continue
            chosen.append(p)
            self.rows[p.name] = p
            for retry in p.retries:
                self.rows[variant(p, retry)] = p
        return chosen

    def round(self, chosen, servers):
        s = self.o.seconds
        for workers in (1, 16, WORKERS):
            for p in chosen:
                self.progress("%d workers" % workers, p)
                self.measure(p.name, pairs, p, servers[p.server], workers, s)
        for p in chosen:
            for retry in (0,) + p.retries:
                row = variant(p, retry)
                self.progress("contended", p)
                self.measure(row, contended, p, servers[p.server], 2 * s, retry)
                self.progress("idle", p)
                self.measure(row, idle, p, servers[p.server], retry)

    def progress(self, what, p):
        if sys.stderr.isatty():
            print("\033[K%s: %s" % (what, p.name), end="\r", file=sys.stderr, flush=True)

    def crashes(self, chosen, servers):
        """A few at once, each with a lock of its own: nearly all of it is waiting."""
        chosen = [p for p in chosen if p.lease]
        for i in range(0, len(chosen), 4):
            threads = [threading.Thread(target=self.crash, args=(p, servers))
                       for p in chosen[i:i + 4]]
            for t in threads:
                t.start()
            for t in threads:
                t.join()

    def crash(self, p, servers):
        try:
            self.figures.setdefault(p.name, {})["crash_s"] = [crash_one(p, servers[p.server])[
                "crash_s"]]
        except (Failed, OSError, ValueError) as e:
            self.failed.append("%s, crash: %s" % (p.name, e))
            print("run.py: " + self.failed[-1], file=sys.stderr)

    def result(self):
        rows = []
        for name, p in self.rows.items():
            figures = {k: statistics.median(v) for k, v in self.figures.get(name, {}).items()
                       if None not in v}
            if figures:
                rows.append(dict(name=name, version=p.version, **figures))
        return rows


def lead_panel(rows, key, title, left, out):
    """Each library once, by the better of its rows; the best comes first."""
    best = {}
    for r in rows:
        name, _, mode = r["name"].partition(",")
        if "(" in mode:  # "rslock, one thread (Rust)"
            name += " " + mode[mode.index("("):]
        if r.get(key) is not None and (name not in best or r[key] > best[name]):
            best[name] = r[key]
    ranked = sorted(best.items(), key=lambda item: -item[1])
    out.append('<text x="%d" y="26" class="t">%s</text>' % (left + 8, title))
    y = 40
    for name, value in ranked:
        width = 180 * value / ranked[0][1]
        kind = "us" if name.startswith("Holdfast") else "bar"
        out.append('<text x="%d" y="%d" text-anchor="end"%s>%s</text>' % (
            left + 182, y + 11, ' class="t"' if kind == "us" else "", name))
        out.append('<rect class="%s" x="%d" y="%d" width="%.1f" height="13"/>' % (
            kind, left + 190, y, width))
        out.append('<text x="%.1f" y="%d">%s</text>' % (
            left + 194 + width, y + 11, format(round(value), ",").replace(",", " ")))
        y += 18
    return y


def lead_plot(rows, note):
    """The short one, for the README."""
    body = []
    y = max(lead_panel(rows, "handovers", "64 workers want one lock: hand-overs/s", 0, body),
            lead_panel(rows, "pairs_64", "64 workers, a lock each: pairs/s", 440, body))
    body.append('<text x="8" y="%d" class="n">%s</text>' % (y + 18, note))
    return "\n".join([
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 880 %d" width="880" height="%d" '
        'font-family="sans-serif" font-size="11">' % (y + 30, y + 30),
        "<title>Hand-overs and pairs per second, by library</title>",
        "<style>.t{font-weight:bold}text{fill:#1f2328}.n{fill:#57606a;font-size:10px}"
        ".paper{fill:#fff;stroke:#d0d7de}.us{fill:#1f6fb4}.bar{fill:#b9b9b9}"
        "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.n{fill:#9aa4af}"
        ".paper{fill:#0d1117;stroke:#3d444d}.us{fill:#58a6ff}.bar{fill:#57606a}}</style>",
        '<rect class="paper" x="0.5" y="0.5" width="879" height="%d" rx="8"/>' % (y + 29),
    ] + body + ["</svg>\n"])


def report(o, bench, facts):
    rows = bench.result()
    versions = dict.fromkeys("%s: %s" % (p.name, p.version) for p in bench.rows.values())
    head = "%(date)s; %(machine)s; %(server)s; load %(load_before)s before, %(load_after)s " \
           "after; %(seconds)g s each, median of %(rounds)d; took %(took)d s" % facts
    lines = [head, "", table(rows, COLUMNS), "", "Versions: " + "; ".join(versions) + "."]
    if bench.failed:
        lines += ["", "Not measured: " + "; ".join(bench.failed) + "."]
    text = "\n".join(lines)
    print(text)
    os.makedirs(os.path.dirname(o.out), exist_ok=True)
    with open(o.out + ".md", "w") as f:
        f.write(text + "\n")
    with open(o.out + ".json", "w") as f:
        json.dump(dict(facts, failed=bench.failed, rows=rows), f, indent=1)
        f.write("\n")
    with open(o.out + ".svg", "w") as f:
        f.write(plot(rows, "%(date)s, %(machine)s, %(server)s, load %(load_before)s" % facts))
    print("\nwritten: %s.md, .json, .svg" % os.path.relpath(o.out), file=sys.stderr)


# ---- the README -------------------------------------------------------------------------------

SHORT = ["handovers", "handover_p50_us", "longest_ms", "idle", "pairs_64", "crash_s"]
BEGIN, END = "<!-- peers: by bench/peers/run.py --readme -->", "<!-- end of peers -->"


COMPARED = [  # key, more is better, what it is
    ("pairs_1", True, "1 worker, pairs/s"), ("pairs_16", True, "16 workers, pairs/s"),
    ("pairs_64", True, "64 workers, pairs/s"), ("handovers", True, "hand-overs/s"),
    ("handover_p50_us", False, "hand-over p50"), ("handover_p99_us", False, "hand-over p99"),
    ("longest_ms", False, "longest wait"), ("idle", False, "commands while 64 wait"),
    ("connections", False, "connections"), ("memory_mb", False, "memory"),
    ("crash_s", False, "takeover"),
]


def ahead(rows):
    """Who is ahead of the better of Holdfast's rows, column by column."""
    ours = [r for r in rows if r["name"].startswith("Holdfast")]
    others = [r for r in rows if r not in ours]
    lines = []
    for key, more, what in COMPARED:
        best = (max if more else min)(r[key] for r in ours if key in r)
        names = [r["name"] for r in others if key in r
                 and (r[key] > best if more else r[key] < best)
                 and not (key in ("connections", "memory_mb") and VARIANT in r["name"])]
        lines.append("- %s: %s" % (what, ", ".join(names) or "nobody"))
    return "\n".join(lines)


def put(page, text):
    """Replace what is between the two marks of a page."""
    path = os.path.join(ROOT, page)
    with open(path) as f:
        before, rest = f.read().split(BEGIN)
    with open(path, "w") as f:
        f.write(before + "\n".join([BEGIN, text, END]) + rest.split(END)[1])


def readme(o):
    with open(o.out + ".json") as f:
        facts = json.load(f)
    rows = facts["rows"]
    named = [dict(r, name=r["name"] if VARIANT in r["name"] else
                  "%s %s" % (r["name"], r["version"].split(",")[0])) for r in rows]
    picture = os.path.relpath(o.out + "-lead.svg", ROOT)
    how = "%(date)s, by `make bench-peers PEERS='--seconds %(seconds)g --rounds %(rounds)d'`; " \
          "%(machine)s; %(server)s, on loopback TCP; load %(load_before)s before, %(load_after)s " \
          "after." % facts
    if float(facts["load_before"].split()[0]) > int(facts["machine"].split()[0]):
        how += " The machine was busy with other work: only large differences mean something."
    with open(o.out + "-lead.svg", "w") as f:
        f.write(lead_plot(rows, "%(date)s, make bench-peers; %(machine)s; %(server)s" % facts))
    put("README.md", "![64 workers: hand-overs of one lock, and locks of their own](%s)\n\n%s"
        % (picture, how))
    put("README.zh.md", "![64 个工作者：争一把锁，以及各用各的锁](%s)\n\n%s" % (
        picture, how.split("; load")[0].replace(", by ", "，命令：") + "。"))
    put("bench/peers/README.md", "\n".join([
        "![64 workers: hand-overs of one lock, and locks of their own](%s)"
        % os.path.relpath(o.out + ".svg", HERE), "",
        table(named, [c for k in SHORT for c in COLUMNS if c[0] == k]), "", how, "",
        "Who was ahead of Holdfast, of the better of its two rows:", "", ahead(rows)]))


def main():
    o = options()
    if o.readme:
        return readme(o)
    # Sleeps end when they should: by default the kernel adds up to 50 us. Children inherit it.
    ctypes.CDLL(None).prctl(29, 1000, 0, 0, 0)  # PR_SET_TIMERSLACK, ns
    folder, servers, started = tempfile.mkdtemp(prefix="holdfast-peers-"), {}, time.monotonic()
    bench, before = Bench(o), load()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # and end what was started
    try:
        chosen = bench.choose()
        servers["redis"] = Redis(folder)
        if any(p.server == "etcd" for p in chosen):
            servers["etcd"] = Etcd(folder)
        for _ in range(o.rounds):
            bench.round(chosen, servers)
        if not o.skip_crash:
            bench.crashes(chosen, servers)
        report(o, bench, {
            "date": datetime.date.today().isoformat(), "machine": machine(),
            "server": ", ".join(s.version for s in servers.values()), "load_before": before,
            "load_after": load(), "seconds": o.seconds, "rounds": o.rounds,
            "took": time.monotonic() - started})
    finally:
        for server in servers.values():
            server.process.kill()
            server.process.wait()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
