<?php
// SPDX-License-Identifier: MIT
// Holdfast.php - distributed locks on Redis and Valkey, by libholdfast through FFI.
//
//   $client = new Holdfast\Client();
//   $lock = $client->lock('report');   // keep it: when $lock goes, the lock is released
//   $fence = $lock->acquire(10);
//
// What is held is released at the end of the request or script, also after exit() and after a fatal
// error. README.md says what FFI needs in a web server.
declare(strict_types=1);

namespace Holdfast;

/** The library, and what each call of it needs. */
final class Library
{
    private static ?\FFI $ffi = null;

    /** Where FFI was preloaded (ffi.preload) that one; else the header beside this file, or the one
     *  that $HOLDFAST_PHP_HEADER names; and $HOLDFAST_LIBRARY, or the library that it names. */
    public static function ffi(): \FFI
    {
        return self::$ffi ??= self::preloaded() ?? self::load();
    }

    private static function preloaded(): ?\FFI
    {
        try {
            return ini_get('ffi.preload') ? \FFI::scope('HOLDFAST') : null;
        } catch (\FFI\Exception $e) {
            return null;
        }
    }

    private static function load(): \FFI
    {
        $path = getenv('HOLDFAST_PHP_HEADER') ?: __DIR__ . '/holdfast.h';
        $header = @file_get_contents($path);
        if ($header === false)
            throw new Error("the declarations $path are missing: `make php` makes them");
        preg_match('/^#define FFI_LIB "(.*)"$/m', $header, $found);
        return \FFI::cdef(preg_replace('/^#define.*$/m', '', $header),
                          getenv('HOLDFAST_LIBRARY') ?: $found[1]);
    }

    /** @return array{\FFI\CData, \FFI\CData} an hf_bytes, and the bytes that must live as long */
    public static function bytes(string $s): array
    {
        $ffi = self::ffi();
        $n = strlen($s);
        $data = $ffi->new('char[' . max($n, 1) . ']');
        \FFI::memcpy($data, $s, $n);
        $b = $ffi->new('hf_bytes');
        $b->data = $ffi->cast('void *', \FFI::addr($data));
        $b->len = $n;
        return [$b, $data];
    }

    /** @return array{\FFI\CData, \FFI\CData} a char *, and the bytes that must live as long. C
     *  would read no further than a NUL: two texts that differ after it would be one. */
    public static function text(string $s): array
    {
        if (str_contains($s, "\0"))
            throw self::wrong('a text with a NUL byte: leave it out');
        $ffi = self::ffi();
        $data = $ffi->new('char[' . (strlen($s) + 1) . ']');
        \FFI::memcpy($data, $s . "\0", strlen($s) + 1);
        return [$ffi->cast('char *', \FFI::addr($data)), $data];
    }

    public static function newError(): \FFI\CData
    {
        return self::ffi()->new('hf_error');
    }

    /** Throw what a call has said, unless it is HF_OK. */
    public static function check(int $result, \FFI\CData $err): void
    {
        if ($result !== 0)
            throw new Error(\FFI::string($err->message), $result,
                            (string)self::ffi()->hf_err_name($result));
    }

    /** Seconds, rounded up: a little is not nothing. null: without a limit. */
    public static function milliseconds(int|float|null $seconds): int
    {
        if ($seconds === null)
            return self::ffi()->HF_WAIT_FOREVER;
        if (!($seconds >= 0 && $seconds < 1e11))
            throw self::wrong("a duration of $seconds: give 0 seconds or more");
        return (int)ceil(round($seconds * 1000, 6));
    }

    // ---- options: what is not meant for one is refused, since PHP would make a 0 of it, and the
    // library the weaker lock ----

    /** A time, in milliseconds. */
    public static function time(string $option, mixed $value): int
    {
        return is_int($value) || is_float($value)
            ? self::milliseconds($value) : throw self::wrongOption($option, $value, 'seconds');
    }

    /** A whole number, also one that was read from a file ('3'). */
    public static function number(string $option, mixed $value, int $min, int $max): int
    {
        $n = is_string($value) && preg_match('/^\d{1,15}$/D', $value) ? (int)$value : $value;
        return is_int($n) && $n >= $min && $n <= $max
            ? $n : throw self::wrongOption($option, $value, "a number from $min to $max");
    }

    public static function flag(string $option, mixed $value): int
    {
        return in_array($value, [true, false, 1, 0], true)
            ? (int)$value : throw self::wrongOption($option, $value, 'true or false');
    }

    public static function string(string $option, mixed $value): string
    {
        return is_string($value) || is_int($value) || $value instanceof \Stringable
            ? (string)$value
            : throw self::wrong("the option '$option' is no text: " . get_debug_type($value));
    }

    private static function wrongOption(string $option, mixed $value, string $wanted): Error
    {
        $got = is_scalar($value) ? var_export($value, true) : get_debug_type($value);
        return self::wrong("the option '$option' is $got: give $wanted");
    }

    public static function wrong(string $message): Error
    {
        return new Error($message, self::ffi()->HF_EINVAL, 'HF_EINVAL');
    }
}

/** What went wrong, with what, and what to do next. getCode() is the number in holdfast.h. */
class Error extends \RuntimeException
{
    public function __construct(string $message, int $code = 0, public readonly string $name = '')
    {
        parent::__construct($message, $code);
    }

    /** Another holds it: the wait was 0, or has passed. */
    public function isBusy(): bool
    {
        return in_array($this->name, ['HF_EBUSY', 'HF_ETIMEDOUT'], true);
    }

    /** It was not given: isBusy(), or the wait would never have ended (a deadlock). */
    public function isNotGiven(): bool
    {
        return $this->isBusy() || $this->name === 'HF_EDEADLK';
    }

    /** It is not ours any more, or never was. */
    public function isNotOurs(): bool
    {
        return in_array($this->name, ['HF_ELOST', 'HF_ENOTHELD', 'HF_ENOTOWNER'], true);
    }
}

/**
 * Closes what is open when a request ends, whatever ends it. Destructors are not called after a
 * fatal error, and a shutdown function is not if one before it calls exit(). But the arguments of
 * shutdown functions are always let go, and to close a stream means to tell its filters.
 */
final class RequestEnd extends \php_user_filter
{
    private static ?\WeakMap $clients = null;

    /** @return \WeakMap<Client, true> that is closed at the end */
    public static function clients(): \WeakMap
    {
        self::$clients = new \WeakMap();
        $stream = @fopen('php://memory', 'r'); // false: somebody has unregistered php://
        if ($stream && stream_filter_register('holdfast.end', self::class))
            stream_filter_append($stream, 'holdfast.end', STREAM_FILTER_READ);
        register_shutdown_function(static fn($kept) => self::closeAll(), $stream);
        return self::$clients;
    }

    private static function closeAll(): void
    {
        foreach (self::$clients as $client => $_)
            $client->close();
    }

    public function onClose(): void
    {
        self::closeAll();
    }
}

/** A client: one connection. A child of pcntl_fork() opens its own. */
final class Client
{
    private const TEXTS = ['prefix', 'password', 'program', 'info', 'protocol'];

    /** @var ?\WeakMap<Client, true> those of this request */
    private static ?\WeakMap $open = null;

    private ?\FFI\CData $c = null;
    private int $pid;

    /**
     * @param ?string $url  where the server is; null: $HOLDFAST_URL, /etc/holdfast.conf, or, on the
     *                      command line alone, a private server
     * @param array<string, string|int|float|null> $options  prefix, password, program, info,
     *                      protocol; timeout and wait, in seconds; replicas, a number or
     *                      'majority'. null: as if it was not given; wait: without a limit
     */
    public function __construct(?string $url = null, array $options = [])
    {
        $ffi = Library::ffi();
        $o = $ffi->new('hf_client_opts');
        $o->size = \FFI::sizeof($o);
        $keep = [];
        $options += ['program' => basename($_SERVER['SCRIPT_FILENAME'] ?? '') ?: 'php'];
        foreach ($options as $name => $value) {
            if ($name === 'replicas') {
                $o->replicas = $value === 'majority' || $value === $ffi->HF_MAJORITY
                    ? $ffi->HF_MAJORITY : Library::number($name, $value, 0, 100);
            } elseif ($name === 'wait') {
                $o->wait_ms = $value === null ? $ffi->HF_WAIT_FOREVER
                                              : Library::time($name, $value);
            } elseif ($name === 'timeout') {
                $o->timeout_ms = $value === null ? 0 : Library::time($name, $value);
            } elseif (!in_array($name, self::TEXTS, true)) {
                throw Library::wrong("a client has no option '$name'");
            } elseif ($value !== null) {
                [$o->$name, $keep[]] = Library::text(Library::string($name, $value));
            }
        }
        $url ??= self::defaultUrl();
        $text = $url === null ? null : Library::text($url);
        $ret = $ffi->new('hf_client *');
        $err = Library::newError();
        Library::check($ffi->hf_client_open($text ? $text[0] : null, \FFI::addr($o),
                                            \FFI::addr($ret), \FFI::addr($err)), $err);
        $this->c = $ret;
        $this->pid = getmypid();
        self::$open ??= RequestEnd::clients();
        self::$open[$this] = true;
    }

    /** $HOLDFAST_URL as PHP sees it: what a web server sets for a request (SetEnv, fastcgi_param)
     *  never gets to the environment of the process, where the library looks. null: it may look. */
    private static function defaultUrl(): ?string
    {
        $ffi = Library::ffi();
        $url = getenv('HOLDFAST_URL');
        if ($url !== false || in_array(PHP_SAPI, ['cli', 'phpdbg'], true))
            return $url === false ? null : $url;
        // A private server would be one for each host and each user: both would hold the lock.
        $named = $ffi->new('char[4096]');
        if ($ffi->hf_url_default($named, 4096, null) === $ffi->HF_OK && $named[0] === "\0")
            throw new Error('no server is named, and a web server gets no private one by default: '
                            . 'set env[HOLDFAST_URL] in the FPM pool, or the url of '
                            . '/etc/holdfast.conf, or give a URL ("embedded:" for locks of this '
                            . 'machine and user alone)', $ffi->HF_ECONFIG, 'HF_ECONFIG');
        return null;
    }

    /** The hf_client, for calls of the library. */
    public function pointer(): \FFI\CData
    {
        return $this->c ?? throw new Error('the client is closed');
    }

    /** Whether it can be used: not closed, and not the parent's. */
    public function isOpen(): bool
    {
        return $this->c !== null && $this->pid === getmypid();
    }

    /** @param array<string, mixed> $options  see Lock */
    public function lock(string $name, array $options = []): Lock
    {
        return new Lock($this, $name, $options);
    }

    /** Do it under the lock: $work($fence, $lock). $wait: seconds; null: without a limit. */
    public function run(string $name, callable $work, int|float|null $wait = null,
                        array $options = []): mixed
    {
        $lock = $this->lock($name, $options);
        $fence = $lock->acquire($wait);
        try {
            $result = $work($fence, $lock);
        } catch (\Throwable $e) {
            try {
                $lock->release();
            } catch (Error) {
                // what went wrong first is what is told
            }
            throw $e;
        }
        $lock->release(); // an error if it was lost meanwhile
        return $result;
    }

    // ---- by owner id: nothing is renewed, and any process that knows the id can release ----

    /** The fencing number. */
    public function ownerAcquire(string $name, int|float $ttl, string $owner): int
    {
        $fence = Library::ffi()->new('uint64_t');
        $this->call('hf_owner_acquire', [$name, Library::milliseconds($ttl), [$owner],
                                         \FFI::addr($fence)]);
        return $fence->cdata;
    }

    public function ownerRelease(string $name, string $owner): void
    {
        $this->call('hf_owner_release', [$name, [$owner]]);
    }

    public function ownerExtend(string $name, string $owner, int|float $ttl): void
    {
        $this->call('hf_owner_extend', [$name, [$owner], Library::milliseconds($ttl)]);
    }

    /** What is left of the lease, in seconds. */
    public function ownerCheck(string $name, string $owner): float
    {
        $left = Library::ffi()->new('int64_t');
        $this->call('hf_owner_check', [$name, [$owner], \FFI::addr($left)]);
        return $left->cdata / 1000;
    }

    // ---- the side of the resource ----

    /** Remember the fencing number; an error (HF_ESTALE) if a larger one has been seen. */
    public function guardCheck(string $resource, int $fence): void
    {
        $this->call('hf_guard_check', [$resource, self::fencing($fence)]);
    }

    /** SET key value, only if the fencing number is not older than the newest one seen. */
    public function guardSet(string $key, string $value, int $fence): void
    {
        $this->call('hf_guard_set', [$key, [$value], self::fencing($fence)]);
    }

    /** -1 would be the largest number of all to the library, and no later one would be accepted. */
    private static function fencing(int $fence): int
    {
        return $fence > 0 ? $fence : throw Library::wrong("$fence is not a fencing number");
    }

    /** A call of the library with this client; strings become hf_bytes. */
    private function call(string $function, array $arguments): void
    {
        $keep = [];
        foreach ($arguments as &$a)
            if (is_string($a) || is_array($a))
                [$a, $keep[]] = Library::bytes(is_array($a) ? $a[0] : $a);
        unset($a);
        $err = Library::newError();
        $arguments[] = \FFI::addr($err);
        Library::check(Library::ffi()->$function($this->pointer(), ...$arguments), $err);
    }

    /** Release what it holds, and disconnect. */
    public function close(): void
    {
        $c = $this->c;
        $this->c = null;
        if ($c !== null)
            Library::ffi()->hf_client_free($c);
    }

    /** The handle is freed once. */
    private function __clone()
    {
    }

    public function __destruct()
    {
        $this->close();
    }
}

/**
 * A lock of one client. Options: ttl (30), grace, max_hold, timeout, in seconds; renew (true);
 * owner, an id of your own; shared (false); slots, permits. They are those of hf_lock_opts in
 * holdfast.h. null: as if it was not given. Keep the object: when it goes, the lock is released.
 */
final class Lock
{
    /** @internal see dropLost() */
    public const MANY = 64;
    private const MAY_BE_NULL = ['ttl', 'grace', 'max_hold', 'timeout', 'renew', 'shared', 'owner'];

    private ?\FFI\CData $l = null;

    /** @param array<string, mixed> $options */
    public function __construct(private Client $client, public readonly string $name,
                                array $options = [])
    {
        $ffi = Library::ffi();
        $o = $ffi->new('hf_lock_opts');
        $o->size = \FFI::sizeof($o);
        $keep = [];
        foreach ($options as $option => $value) {
            // Of 'slots' it would make a mutex, so it is refused there.
            if ($value === null && in_array($option, self::MAY_BE_NULL, true))
                continue;
            match ($option) {
                'ttl', 'max_hold', 'timeout' =>
                    $o->{$option . '_ms'} = Library::time($option, $value),
                'grace' => $o->grace_ms = Library::time($option, $value) ?: $ffi->HF_NO_TAKEOVER,
                'renew' => $o->no_renew = 1 - Library::flag($option, $value),
                'shared' => $o->shared = Library::flag($option, $value),
                'slots', 'permits' =>
                    $o->$option = Library::number($option, $value, 1, 0x7fffffff),
                'owner' => [$o->owner, $keep[]] = Library::bytes(Library::string($option, $value)),
                default => throw Library::wrong("a lock has no option '$option'"),
            };
        }
        [$bytes, $data] = Library::bytes($name);
        $ret = $ffi->new('hf_lock *');
        $err = Library::newError();
        Library::check($ffi->hf_lock_open($client->pointer(), $bytes, \FFI::addr($o),
                                          \FFI::addr($ret), \FFI::addr($err)), $err);
        $this->l = $ret;
    }

    /** Take it; the fencing number. $wait: seconds; 0: try once; null: without a limit. */
    public function acquire(int|float|null $wait = null): int
    {
        $fence = Library::ffi()->new('uint64_t');
        $this->call('hf_lock_acquire', Library::milliseconds($wait), \FFI::addr($fence));
        return $fence->cdata;
    }

    /** The fencing number, or null if another holds it now. */
    public function tryAcquire(): ?int
    {
        try {
            return $this->acquire(0);
        } catch (Error $e) {
            return $e->isBusy() ? null : throw $e;
        }
    }

    /** An error (HF_ELOST) if it was lost before; nobody else's lock is touched. */
    public function release(): void
    {
        $this->call('hf_lock_release');
    }

    /** Set the lease to $ttl seconds from now, longer or shorter. */
    public function extend(int|float $ttl): void
    {
        $this->call('hf_lock_extend', Library::milliseconds($ttl));
    }

    /** Ask the server whether it is still ours; an error if not. */
    public function verify(): void
    {
        $this->call('hf_lock_verify');
    }

    /** True while it is certainly ours, by our own clock; asks nobody. */
    public function isHeld(): bool
    {
        return $this->client->isOpen() && Library::ffi()->hf_lock_is_held($this->l) === 1;
    }

    /** It was held, and is not any more, though this handle has not released it; asks nobody. */
    public function isLost(): bool
    {
        $ffi = Library::ffi();
        return $this->client->isOpen() && $ffi->hf_lock_state($this->l) === $ffi->HF_STATE_LOST;
    }

    /**
     * @internal For a program that runs for long, and lets locks end by themselves: drop those handles. Only
     * when there are $many of them, which is then twice as many as are left: so it costs next to
     * nothing, and who has few locks is still told of each that was lost.
     *
     * @param array<string, Lock> $locks
     */
    public static function dropLost(array &$locks, int &$many): void
    {
        if (count($locks) < $many)
            return;
        $locks = array_filter($locks, fn($lock) => !$lock->isLost());
        $many = max(self::MANY, 2 * count($locks));
    }

    /** The fencing number of the present or lost grant; 0: none. */
    public function fence(): int
    {
        return $this->client->isOpen() ? Library::ffi()->hf_lock_fence($this->l) : 0;
    }

    /** The owner id of the grant: whoever knows it can release the lock. '': none. */
    public function owner(): string
    {
        return $this->client->isOpen() ? (string)Library::ffi()->hf_lock_owner($this->l) : '';
    }

    private function call(string $function, mixed ...$arguments): void
    {
        $this->client->pointer(); // not closed
        $err = Library::newError();
        Library::check(Library::ffi()->$function($this->l, ...[...$arguments, \FFI::addr($err)]),
                       $err);
    }

    /** The handle is freed once. */
    private function __clone()
    {
    }

    public function __destruct()
    {
        if ($this->l !== null)
            Library::ffi()->hf_lock_free($this->l);
    }
}
