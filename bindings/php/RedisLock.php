<?php
// SPDX-License-Identifier: MIT
// RedisLock.php - the widespread PHP class of this name, on Holdfast: lock, expire, isLocking,
// unlock, unlockAll, with the same arguments, results and keys ("Lock:" and the name).
//
// What the class promises is kept as it is: a lock ends by itself after $expire seconds, unless
// expire() is called; so does that of a process that was killed, and no earlier. What is better:
// taking is one step, so no lock is left without an end; nobody takes a lock over that another has
// just released; waiting needs no interval, and is in order; unlock() never deletes another's lock;
// and what is held at the end of a script is released.
declare(strict_types=1);

require_once __DIR__ . '/Holdfast.php';

class RedisLock
{
    private static ?self $instance = null;
    private ?Holdfast\Client $client = null;
    /** @var array<string, Holdfast\Lock> what this process has taken and not given back */
    private array $locked = [];
    private int $manyLocked = Holdfast\Lock::MANY;

    public static function instance(): static
    {
        return self::$instance ??= new static();
    }

    /**
     * @param ?string $url      where the server is; null: $HOLDFAST_URL or the configuration file
     * @param array<string, string|int|float> $options  of Holdfast\Client
     */
    public function __construct(private ?string $url = null, private array $options = [])
    {
        $this->options += ['prefix' => 'Lock:'];
    }

    /** A child process begins anew: what it inherited is its parent's. */
    private function client(): Holdfast\Client
    {
        if (!$this->client?->isOpen()) {
            $this->locked = [];
            $this->client = new Holdfast\Client($this->url, $this->options);
        }
        return $this->client;
    }

    /**
     * Take a lock.
     *
     * @param int $timeout         how many seconds to wait for it; 0: do not wait
     * @param int $expire          after how many seconds it ends by itself; at least 5
     * @param int $waitIntervalUs  not used: who waits is woken when the turn has come
     */
    public function lock($name, $timeout = 0, $expire = 15, $waitIntervalUs = 100000): bool
    {
        if (empty($name))
            return false;
        // A handle of its own: whoever holds the lock already does not get it a second time.
        $lock = $this->client()->lock((string)$name, ['ttl' => max((int)$expire, 5),
                                                      'renew' => false]);
        try {
            $lock->acquire(max((int)$timeout, 0));
        } catch (Holdfast\Error $e) {
            return $e->isNotGiven() ? false : throw $e;
        }
        Holdfast\Lock::dropLost($this->locked, $this->manyLocked);
        $this->locked[$name] = $lock;
        return true;
    }

    /** Let it end $expire seconds from now, longer or shorter than before; at least 1. */
    public function expire($name, $expire): bool
    {
        return $this->ours($name, fn($lock) => $lock->extend(max((int)$expire, 1)));
    }

    /** Whether this process holds it; the server is asked. */
    public function isLocking($name): bool
    {
        return $this->ours($name, fn($lock) => $lock->verify());
    }

    /** Give it back; false: it was not ours any more. */
    public function unlock($name): bool
    {
        $released = $this->ours($name, fn($lock) => $lock->release());
        unset($this->locked[$name]);
        return $released;
    }

    /** All of them are tried; false if one was not ours any more. The first error is thrown then. */
    public function unlockAll(): bool
    {
        $all = true;
        $error = null;
        foreach (array_keys($this->locked) as $name) {
            try {
                $all = $this->unlock($name) && $all;
            } catch (\Throwable $e) {
                $error = $error ?? $e;
            }
        }
        if ($error)
            throw $error;
        return $all;
    }

    /** The fencing number, to be passed along with every write; 0: none. */
    public function fence($name): int
    {
        $this->client();
        return isset($this->locked[$name]) ? $this->locked[$name]->fence() : 0;
    }

    /** Do something with a lock of ours; false: it is not. */
    private function ours($name, callable $do): bool
    {
        $this->client();
        if (!isset($this->locked[$name]))
            return false;
        try {
            $do($this->locked[$name]);
            return true;
        } catch (Holdfast\Error $e) {
            return $e->isNotOurs() ? false : throw $e;
        }
    }
}
