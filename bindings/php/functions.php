<?php
// SPDX-License-Identifier: MIT
// functions.php - lock functions as many programs have written them themselves, on Holdfast.
//
//   $uuid = lock($key, $timeout);       releaseLock($key, $uuid);
//   acquire($key, $timeout, $uid);      release($key, $uid);
//
// The key is used as it is, and its value is the id, so these exclude programs that still use
// SET key id NX EX. A function that exists already is left alone.
declare(strict_types=1);

require_once __DIR__ . '/Holdfast.php';

/** The client of these functions, and what lock() holds. A child process begins anew. */
final class HoldfastFunctions
{
    private static ?Holdfast\Client $client = null;
    /** @var array<string, Holdfast\Lock> by id */
    public static array $held = [];
    public static int $many = Holdfast\Lock::MANY;

    public static function client(): Holdfast\Client
    {
        if (!self::$client?->isOpen()) {
            self::$held = [];
            self::$client = new Holdfast\Client(null, ['prefix' => '']);
        }
        return self::$client;
    }

    /** True, or false where $no says that it is not an error. */
    public static function done(callable $do, string $no): bool
    {
        try {
            $do();
            return true;
        } catch (Holdfast\Error $e) {
            return $e->$no() ? false : throw $e;
        }
    }
}

if (!function_exists('lock')) {
    /**
     * Take the lock; wait up to $timeout seconds for it, and hold it for as long at most. So long it
     * also stays if the process is killed: give a time. The default is that of the functions that
     * this one replaces.
     *
     * @return string|false the id for releaseLock(). At the end of the request or script it is
     *                      released; a lock that must outlive it is taken by acquire().
     */
    function lock(string $key, int|float $timeout = 50000): string|false
    {
        $uuid = bin2hex(random_bytes(16));
        $lock = HoldfastFunctions::client()->lock($key, ['ttl' => $timeout, 'renew' => false,
                                                         'owner' => $uuid]);
        if (!HoldfastFunctions::done(fn() => $lock->acquire($timeout), 'isNotGiven'))
            return false;
        Holdfast\Lock::dropLost(HoldfastFunctions::$held, HoldfastFunctions::$many);
        HoldfastFunctions::$held[$uuid] = $lock;
        return $uuid;
    }
}

if (!function_exists('releaseLock')) {
    /** False: it is not (any more) the lock of this id, and nothing was changed. */
    function releaseLock(string $key, string $uuid): bool
    {
        $client = HoldfastFunctions::client();
        $lock = HoldfastFunctions::$held[$uuid] ?? null;
        if ($lock?->name !== $key)
            return HoldfastFunctions::done(fn() => $client->ownerRelease($key, $uuid), 'isNotOurs');
        unset(HoldfastFunctions::$held[$uuid]);
        return HoldfastFunctions::done(fn() => $lock->release(), 'isNotOurs');
    }
}

if (!function_exists('acquire')) {
    /** Take the lock for $timeout seconds under your id, if it is free. It outlives the script. */
    function acquire(string $key, int|float $timeout, string $uid): bool
    {
        $client = HoldfastFunctions::client();
        return HoldfastFunctions::done(fn() => $client->ownerAcquire($key, $timeout, $uid),
                                       'isBusy');
    }
}

if (!function_exists('release')) {
    /** False: another id holds it, or nobody. */
    function release(string $key, string $uid): bool
    {
        $client = HoldfastFunctions::client();
        return HoldfastFunctions::done(fn() => $client->ownerRelease($key, $uid), 'isNotOurs');
    }
}
