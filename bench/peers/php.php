<?php
// SPDX-License-Identifier: MIT
// php.php - the lock by hand that many documents show for phpredis, with processes: SETNX of a unique
// id and EXPIRE; a lock without a ttl gets one; release by WATCH, GET, MULTI, DEL, EXEC; a look every
// 200 ms. The protocol is in README.md.

const LEASE = 10; // seconds

[, , $port, $mode, $workers, $warm, $seconds, $retry, $key] = $argv;
$retry = $retry ?: 200;

class Lock
{
    private Redis $r;
    private string $id;

    public function __construct(private string $key)
    {
        $this->r = new Redis();
        $this->r->connect('127.0.0.1', (int)$GLOBALS['port']);
    }

    private function attempt(): bool
    {
        $this->id = bin2hex(random_bytes(16));
        if ($this->r->setnx($this->key, $this->id)) {
            $this->r->expire($this->key, LEASE);
            return true;
        }
        if ($this->r->ttl($this->key) === -1) // died between SETNX and EXPIRE
            $this->r->expire($this->key, LEASE);
        return false;
    }

    public function take(): void
    {
        while (!$this->attempt())
            usleep((int)$GLOBALS['retry'] * 1000);
    }

    public function give(): void
    {
        $this->r->watch($this->key);
        if ($this->r->get($this->key) === $this->id)
            $this->r->multi()->del($this->key)->exec();
        else
            $this->r->unwatch();
    }
}

function say(array $what): void
{
    echo json_encode($what), "\n";
    flush();
}

// $work(index) in a process each; what they print, line by line.
function each_process(int $n, callable $work): array
{
    $files = [];
    for ($i = 0; $i < $n; $i++) {
        $files[$i] = tmpfile();
        if (pcntl_fork() === 0) {
            foreach ($work($i) as $line)
                fwrite($files[$i], json_encode($line) . "\n");
            fflush($files[$i]);
            exit(0);
        }
    }
    while (pcntl_wait($status) > 0);
    $lines = [];
    foreach ($files as $f) {
        rewind($f);
        while (($line = fgets($f)) !== false)
            $lines[] = json_decode($line);
    }
    return $lines;
}

function pairs(): void
{
    global $workers, $warm, $seconds, $key;
    $begin = hrtime(true) + (int)($warm * 1e9);
    $end = $begin + (int)($seconds * 1e9);
    $us = each_process((int)$workers, function (int $i) use ($begin, $end, $key) {
        $lock = new Lock("$key:$i");
        $took = [];
        for ($t = hrtime(true); $t < $end; ) {
            $lock->take();
            $lock->give();
            $before = $t;
            $t = hrtime(true);
            if ($before >= $begin && $t <= $end)
                $took[] = ($t - $before) / 1000;
        }
        return $took;
    });
    say(['pairs' => count($us), 'seconds' => (float)$seconds, 'us' => $workers == 1 ? $us : []]);
}

function contended(): void
{
    global $workers, $warm, $seconds, $key;
    $begin = hrtime(true) + (int)($warm * 1e9);
    $end = $begin + (int)($seconds * 1e9);
    $events = each_process((int)$workers, function (int $i) use ($end, $key, $workers) {
        $lock = new Lock($key);
        $events = [];
        while (($asked = hrtime(true)) < $end) {
            $lock->take(); // those who wait at the end get it yet: their wait counts in full
            $got = hrtime(true);
            usleep(random_int(0, 1000));
            $events[] = [$i, $asked, $got, hrtime(true)];
            $lock->give();
            usleep((int)$workers * 250);
        }
        return $events;
    });
    say(['begin' => $begin, 'end' => $end, 'events' => $events]);
}

function idle(): void
{
    global $workers, $key;
    $lock = new Lock($key);
    $lock->take();
    say(['held' => 1]);
    for ($i = 0; $i < (int)$workers; $i++) {
        if (pcntl_fork() === 0) {
            (new Lock($key))->take();
            exit(0);
        }
    }
    say(['waiting' => (int)$workers]);
    sleep(600);
}

function hold(): void
{
    global $key;
    $lock = new Lock($key);
    $lock->take();
    say(['held' => 1]);
    sleep(600);
}

function wait(): void
{
    global $key;
    say(['waiting' => 1]);
    $lock = new Lock($key);
    $lock->take();
    say(['got' => 1]);
    $lock->give();
}

$mode();
