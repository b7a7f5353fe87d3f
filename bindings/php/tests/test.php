<?php
// SPDX-License-Identifier: MIT
// test.php - the PHP binding, one test after the other; the first that fails ends it.
//
//   test.php SOCKET
declare(strict_types=1);

require getenv('HOLDFAST_PHP') . '/RedisLock.php';
require getenv('HOLDFAST_PHP') . '/functions.php';

$socket = $argv[1];
putenv("HOLDFAST_URL=unix://$socket");
$redis = new Redis();
$redis->connect($socket);

function expect(mixed $got, mixed $want, string $what): void
{
    if ($got === $want)
        return;
    $line = debug_backtrace()[0]['line'];
    fwrite(STDERR, "line $line: $what: got " . var_export($got, true) . ', want '
           . var_export($want, true) . "\n");
    exit(1);
}

/** The name of the error that $do throws. */
function error_of(callable $do): string
{
    try {
        $do();
    } catch (Holdfast\Error $e) {
        return $e->name;
    }
    return 'none';
}

// ---- the client and its locks ----

$c = new Holdfast\Client(null, ['info' => 'a test', 'timeout' => 2]);
$lock = $c->lock('a', ['ttl' => 20]);
$first = $lock->acquire(10);
expect($lock->isHeld(), true, 'held');
expect($lock->fence(), $first, 'its number');
expect($c->lock('a')->tryAcquire(), null, 'by another handle');
expect(error_of(fn() => $c->lock('a')->acquire(0.2)), 'HF_ETIMEDOUT', 'a wait that passed');
$lock->extend(60);
expect($redis->pttl('lock:a') > 50000, true, 'extended');
$lock->verify();
$lock->release();
expect($redis->exists('lock:a'), 0, 'released');
expect(error_of(fn() => $lock->release()), 'HF_ENOTHELD', 'released twice');
expect($c->run('a', fn(int $fence) => $fence > $first, 10), true, 'run()');
try {
    $c->run('a', fn() => throw new DomainException('mine'), 10);
    expect(false, true, 'what the work throws');
} catch (DomainException) {
    expect($redis->exists('lock:a'), 0, 'released after an exception');
}
expect(error_of(fn() => $c->lock('')), 'HF_EINVAL', 'an empty name');
expect(error_of(fn() => $c->lock('a', ['tll' => 3])), 'HF_EINVAL', 'a wrong option');
expect(error_of(fn() => new Holdfast\Client('unix:///nowhere/sock')), 'HF_ECONN', 'no server');
$c->lock("bytes\0\xff")->acquire(0); // dropped, and so released
expect($redis->exists("lock:bytes\0\xff"), 0, 'a dropped lock');
[$r1, $r2] = [$c->lock('s', ['shared' => true]), $c->lock('s', ['shared' => true])];
expect([$r1->tryAcquire() > 0, $r2->tryAcquire() > 0], [true, true], 'two readers');
$slots = array_map(fn() => $c->lock('n', ['slots' => 2]), [1, 2, 3]);
expect(array_map(fn($l) => $l->tryAcquire() !== null, $slots), [true, true, false], 'two slots');
$c->guardSet('data', 'new', $first + 1);
expect(error_of(fn() => $c->guardSet('data', 'late', $first)), 'HF_ESTALE', 'a late writer');
expect($redis->get('data'), 'new', 'the data');

// What is not meant for an option is refused: PHP would make a 0 of it, and C a weaker lock.
foreach ([['slots' => ''], ['slots' => null], ['slots' => 0], ['slots' => -1], ['slots' => '2x'],
          ['slots' => 1 << 32], ['permits' => 0.5], ['ttl' => '30'], ['grace' => 'none'],
          ['grace' => -1], ['max_hold' => true], ['renew' => 'no'], ['shared' => 'yes'],
          ['owner' => ''], ['owner' => false], ['timeout' => NAN]] as $options)
    expect(error_of(fn() => $c->lock('a', $options)), 'HF_EINVAL', var_export($options, true));
foreach ([['replicas' => 'most'], ['replicas' => null], ['replicas' => -1], ['replicas' => 1 << 32],
          ['prefix' => "a:\0b:"], ['prefix' => false], ['info' => ['x']], ['program' => "p\0q"],
          ['timeout' => '5'], ['wait' => 'long']] as $options)
    expect(error_of(fn() => new Holdfast\Client(null, $options)), 'HF_EINVAL',
           var_export($options, true));
expect(error_of(fn() => new Holdfast\Client("unix://$socket\0?prefix=x")), 'HF_EINVAL', 'a URL');
// A server alone has none, and says so: 'majority' is not 0.
expect(error_of(fn() => new Holdfast\Client(null, ['replicas' => 'majority'])),
       error_of(fn() => new Holdfast\Client("unix://$socket?replicas=majority")), 'a majority');
$default = $c->lock('opt', ['ttl' => null, 'grace' => null, 'max_hold' => null, 'timeout' => null,
                            'renew' => null, 'shared' => null, 'owner' => null]);
$default->acquire(0);
expect($redis->pttl('lock:opt') > 29000, true, 'a ttl of null is that of the library');
$default->release();
$none = new Holdfast\Client(null, ['prefix' => null, 'info' => null, 'timeout' => null]);
$same = $none->lock('a');
$same->acquire(0);
expect($redis->exists('lock:a'), 1, 'a prefix of null is the default one');
$same->release();
expect($c->lock('n', ['slots' => '2'])->tryAcquire(), null, 'two slots, read from a file');

foreach ([0, -1, PHP_INT_MIN] as $wrong) {
    expect(error_of(fn() => $c->guardCheck('r', $wrong)), 'HF_EINVAL', 'no fencing number');
    expect(error_of(fn() => $c->guardSet('data', 'x', $wrong)), 'HF_EINVAL', 'no fencing number');
}
$c->guardCheck('r', 5);
$c->guardSet('data', 'next', $first + 2);
expect($redis->get('data'), 'next', 'the guard still takes a number');

// A copy would free the handle a second time.
foreach ([$c, $lock] as $handle) {
    try {
        $copy = clone $handle;
        expect(true, false, 'a copy of a ' . $handle::class);
    } catch (Holdfast\Error $e) {
        throw $e;
    } catch (Error $e) {
        expect(str_contains($e->getMessage(), '__clone'), true, $e->getMessage());
    }
}

// A lost lock is told, and nobody else's is touched.
$lock->acquire(0);
$redis->set('lock:a', 'another', 10);
expect(error_of(fn() => $lock->release()), 'HF_ELOST', 'a lost lock');
expect($redis->get('lock:a'), 'another', 'the lock of another');

// ---- the class: lock, expire, isLocking, unlock, unlockAll ----

$a = RedisLock::instance();
expect($a, RedisLock::instance(), 'one instance');
$b = new RedisLock();
expect($a->lock(''), false, 'an empty name');
expect($a->lock('job'), true, 'lock');
expect($redis->ttl('Lock:job') > 10 && $redis->ttl('Lock:job') <= 15, true, '15 s');
expect($a->isLocking('job'), true, 'isLocking');
expect($b->isLocking('job'), false, 'isLocking of another');
expect($b->lock('job'), false, 'lock by another');
expect($a->lock('job'), false, 'lock again');
expect($b->unlock('job'), false, 'unlock by another');
$start = microtime(true);
expect($b->lock('job', 1), false, 'lock with a wait');
expect(microtime(true) - $start >= 0.9, true, 'it waited');
expect($a->expire('job', 60), true, 'expire, longer');
expect($redis->ttl('Lock:job') > 50, true, '60 s');
expect($a->expire('job', 20), true, 'expire, shorter');
expect($redis->ttl('Lock:job') <= 20, true, '20 s');
expect($b->expire('job', 60), false, 'expire by another');
expect($a->fence('job') > 0, true, 'its number');
expect($a->unlock('job'), true, 'unlock');
expect($a->unlock('job'), false, 'unlock again');
expect($a->isLocking('job'), false, 'isLocking after that');
expect($a->lock('short', 0, 1), true, 'lock for 1 s');
expect($redis->ttl('Lock:short') > 3, true, 'at least 5 s');
expect($a->lock('two') && $a->lock('three'), true, 'three locks');
$redis->set('Lock:two', 'another', 10);
expect($a->isLocking('two'), false, 'one that was lost');
expect($a->unlockAll(), false, 'unlockAll, one of them lost');
expect($redis->exists('Lock:short', 'Lock:three'), 0, 'the others are free');
expect($redis->get('Lock:two'), 'another', 'the lock of another');
expect($a->unlockAll(), true, 'unlockAll of nothing');
expect($a->lock('ends', 0, 5) && $a->expire('ends', 1), true, 'a lock for 1 s');
expect($b->lock('ends', 5), true, 'the next one, when it ended');
expect($a->isLocking('ends') || $a->unlock('ends'), false, 'the one before');
expect($b->isLocking('ends') && $b->unlock('ends'), true, 'and the next one still has it');

// ---- lock(), releaseLock(): a uuid ----

$uuid = lock('key', 10);
expect(is_string($uuid) && $redis->get('key') === $uuid, true, 'the uuid is the value');
expect($redis->ttl('key') > 0, true, 'it ends by itself');
expect(lock('key', 0.3), false, 'another');
expect(releaseLock('key', 'wrong'), false, 'a wrong uuid');
expect(releaseLock('key', $uuid), true, 'the right one');
expect(releaseLock('key', $uuid), false, 'twice');
$redis->set('key', 'old program', ['nx', 'ex' => 10]);
expect(lock('key', 0.3), false, 'beside SET NX');
expect(releaseLock('key', 'old program'), true, 'by the id alone');

// A wait that would never end (HF_EDEADLK) is a wait in vain: false, and no exception.
$uuid = lock('circle', 30);
expect($a->lock('circle', 0, 30) && is_string($uuid), true, 'two that are held');
expect($a->lock('circle', 2), false, 'a wait for itself, of the class');
expect(lock('circle', 2), false, 'a wait for ourselves, of the function');
expect($a->unlock('circle') && releaseLock('circle', $uuid), true, 'they are still held');

// ---- acquire(), release(): an id of the caller's ----

expect(acquire('lock', 10086, 'moto'), true, 'moto');
expect($redis->ttl('lock') > 10000, true, 'for 10086 s');
expect(acquire('lock', 123, 'nokia'), false, 'nokia');
expect(release('lock', 'nokia'), false, 'nokia releases');
expect(release('lock', 'moto'), true, 'moto releases');
expect(release('lock', 'moto'), false, 'nothing is held');

// ---- a program that runs for long ----

$wait_until = function (callable $done): void {
    for ($end = microtime(true) + 20; !$done(); usleep(10000))
        expect(microtime(true) < $end, true, 'waited for too long');
};
(new Holdfast\Client())->close();
$before = memory_get_usage();
for ($i = 0; $i < 200; $i++)
    (new Holdfast\Client())->close();
expect(memory_get_usage() - $before < 20000, true, 'what 200 clients left behind');
$names = array_map(fn($i) => "end:$i", range(1, 80));
foreach ($names as $name)
    expect($b->lock($name) && $b->expire($name, 1), true, 'a lock that ends by itself');
$locked = (new ReflectionProperty(RedisLock::class, 'locked'))->getValue(...);
expect(count($locked($b)), 80, 'all of them are kept');
$wait_until(fn() => array_filter($locked($b), fn($l) => !$l->isLost()) === []);
expect($b->unlock('end:1'), false, 'one that has ended');
expect($b->lock('kept'), true, 'another');
$wait_until(fn() => $b->lock('more' . count($locked($b))) && count($locked($b)) < 64);
expect(count(array_filter($locked($b), fn($l) => $l->isLost())), 0, 'those that ended are dropped');
expect($b->isLocking('kept'), true, 'the others are not');
expect($b->unlockAll(), true, 'all that are left');
for ($i = 0; $i < 200; $i++)
    expect(is_string(lock("end:$i", 0.1)), true, 'for a tenth of a second');
$wait_until(fn() => array_filter(HoldfastFunctions::$held, fn($l) => !$l->isLost()) === []);
$wait_until(fn() => lock('more' . count(HoldfastFunctions::$held), 5)
                    && count(HoldfastFunctions::$held) < 64);

// ---- pcntl_fork() ----

expect($a->lock('parent', 0, 30), true, 'before fork');
$before = lock('mine', 30);
$pid = pcntl_fork();
if ($pid === 0) {
    $ok = !$a->isLocking('parent') && !$a->lock('parent') && !$a->unlock('parent')
        && lock('mine', 0.1) === false && !$c->isOpen() && !$lock->isHeld();
    exit($ok ? 0 : 1);
}
pcntl_waitpid($pid, $status);
expect($status, 0, 'what the child saw');
expect($a->isLocking('parent'), true, "the parent's lock after the child's end");
expect($a->unlock('parent'), true, 'and it is released');
expect(releaseLock('mine', $before), true, 'and the other');
echo "done\n";
