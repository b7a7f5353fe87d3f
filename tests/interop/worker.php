<?php
// SPDX-License-Identifier: MIT
// worker.php - well-known ways to lock by hand with phpredis, as a neighbour. See common.sh.
//
//   worker.php WAY try|hold|count SOCKET KEY ROUNDS FILE
//
//   setnx        SETNX a unique id, EXPIRE; a lock without a ttl gets one; release by WATCH
//   timestamp    SETNX the time of expiry; an expired one is taken over by GETSET
//   transaction  WATCH, EXISTS, MULTI SETEX EXEC; release the same way
//   script       EXISTS and SETEX in Lua; GET and DEL in Lua
//   class        SETNX the time of expiry, EXPIRE; a lock without a ttl is taken over; release after a GET

const LEASE = 10; // seconds

abstract class Way
{
    public function __construct(protected Redis $r, protected string $key) {}
    abstract public function acquire(): bool;
    abstract public function release(): void;
}

class Setnx extends Way
{
    protected string $id;

    public function acquire(): bool
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

    public function release(): void
    {
        $this->r->watch($this->key);
        if ($this->r->get($this->key) === $this->id)
            $this->r->multi()->del($this->key)->exec();
        else
            $this->r->unwatch();
    }
}

class Timestamp extends Way
{
    public function acquire(): bool
    {
        $value = time() + LEASE;
        if ($this->r->setnx($this->key, $value)
            || ($this->r->get($this->key) < time() && $this->r->getSet($this->key, $value) < time())) {
            $this->r->expire($this->key, LEASE);
            return true;
        }
        return false;
    }

    public function release(): void
    {
        if ($this->r->ttl($this->key) > 0) // expired ones are another's, or nobody's
            $this->r->del($this->key);
    }
}

class Transaction extends Setnx
{
    public function acquire(): bool
    {
        $this->id = bin2hex(random_bytes(16));
        $this->r->watch($this->key);
        if ($this->r->exists($this->key)) {
            $this->r->unwatch();
            return false;
        }
        return (bool)$this->r->multi()->setex($this->key, LEASE, $this->id)->exec();
    }
}

class Script extends Way
{
    private string $id;

    public function acquire(): bool
    {
        $this->id = bin2hex(random_bytes(16));
        return (bool)$this->r->eval("if redis.call('exists', KEYS[1]) == 0 then"
            . " return redis.call('setex', KEYS[1], ARGV[1], ARGV[2]) end",
            [$this->key, LEASE, $this->id], 1);
    }

    public function release(): void
    {
        $this->r->eval("if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end",
            [$this->key, $this->id], 1);
    }
}

class AsClass extends Way
{
    private string $until;

    public function acquire(): bool
    {
        $this->until = (string)(microtime(true) + LEASE);
        if ($this->r->setnx($this->key, $this->until)) {
            $this->r->expire($this->key, LEASE);
            return true;
        }
        // Not < 0, as it is often written: -2 is a lock that has just been given back, and taking that
        // without SETNX makes two holders.
        if ($this->r->ttl($this->key) === -1) {
            $this->r->set($this->key, $this->until, LEASE);
            return true;
        }
        return false;
    }

    public function release(): void
    {
        if ($this->r->get($this->key) === $this->until)
            $this->r->del($this->key);
    }
}

// The section that the lock protects.
function section(string $file): void
{
    $in = @fopen("$file.in", 'x');
    if (!$in) {
        echo "OVERLAP\n";
        exit(1);
    }
    fclose($in);
    $n = (int)file_get_contents($file);
    usleep(2000);
    file_put_contents($file, ($n + 1) . "\n");
    file_put_contents("$file.log", "theirs\n", FILE_APPEND);
    unlink("$file.in");
}

[, $name, $what, $socket, $key, $rounds, $file] = $argv;
$r = new Redis();
$r->connect($socket);
$ways = ['setnx' => 'Setnx', 'timestamp' => 'Timestamp', 'transaction' => 'Transaction',
         'script' => 'Script', 'class' => 'AsClass'];
$way = new $ways[$name]($r, $key);
for ($i = 0; $i < ($what === 'count' ? (int)$rounds : 1); $i++) {
    while (!$way->acquire()) {
        if ($what === 'try')
            exit(3);
        usleep(5000);
    }
    if ($what === 'hold') {
        touch("$file.held");
        while (!file_exists("$file.go")) {
            clearstatcache();
            usleep(10000);
        }
    } elseif ($what === 'count') {
        section($file);
    }
    $way->release();
    usleep(20000);
}
