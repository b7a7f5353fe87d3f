<?php
// SPDX-License-Identifier: MIT
// worker.php - the drop-in replacements as workers. See tests/interop/common.sh, and worker.php
// there, whose ways they replace.
//
//   worker.php WAY try|hold|count SOCKET KEY ROUNDS FILE
//
//   class      RedisLock->lock(), unlock(); the key is "Lock:" and the rest
//   lock       lock(), releaseLock()
//   acquire    acquire(), release() by an id of ours

require getenv('HOLDFAST_PHP') . '/RedisLock.php';
require getenv('HOLDFAST_PHP') . '/functions.php';

const LEASE = 10; // seconds

[, $way, $what, $socket, $key, $rounds, $file] = $argv;
putenv("HOLDFAST_URL=unix://$socket");
$id = false;

function take(bool $wait): bool
{
    global $way, $key, $id;
    switch ($way) {
        case 'class':
            $name = substr($key, strlen('Lock:'));
            return RedisLock::instance()->lock($name, $wait ? 50 : 0, LEASE);
        case 'lock':
            $id = $wait ? lock($key, 50) : lock($key, 2);
            return $id !== false;
        default:
            $id = bin2hex(random_bytes(8));
            while (!acquire($key, LEASE, $id)) {
                if (!$wait)
                    return false;
                usleep(5000);
            }
            return true;
    }
}

function give(): void
{
    global $way, $key, $id;
    $done = match ($way) {
        'class' => RedisLock::instance()->unlock(substr($key, strlen('Lock:'))),
        'lock' => releaseLock($key, $id),
        default => release($key, $id),
    };
    if (!$done) {
        echo "NOT RELEASED\n";
        exit(1);
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
    file_put_contents("$file.log", (getenv('WORKER') ?: 'theirs') . "\n", FILE_APPEND);
    unlink("$file.in");
}

for ($i = 0; $i < ($what === 'count' ? (int)$rounds : 1); $i++) {
    if (!take($what !== 'try'))
        exit(3);
    if ($what === 'hold') {
        touch("$file.held");
        while (!file_exists("$file.go")) {
            clearstatcache();
            usleep(10000);
        }
    } elseif ($what === 'count') {
        section($file);
    }
    give();
    usleep(20000);
}
