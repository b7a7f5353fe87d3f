// SPDX-License-Identifier: MIT
// peer.js - the locks of redlock 4, redlock 5 and redis-semaphore, on one connection of ioredis. The
// protocol is in ../README.md.
'use strict';
const fs = require('fs');
// Installed in build/, not beside this file.
const need = require('module').createRequire(process.env.PEER_MODULES + '/');
const ioredis = need('ioredis');

const [kind, port, mode] = process.argv.slice(2, 5);
const [workers, warm, seconds, retry] = process.argv.slice(5, 9).map(Number);
const key = process.argv[9];
const lease = 10000;
const now = () => Number(process.hrtime.bigint());
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
// Not by process.stdout: exit() would cut what the pipe has not taken yet.
function say(what) {
    let text = Buffer.from(JSON.stringify(what) + '\n');
    while (text.length) text = text.subarray(fs.writeSync(1, text));
}
const redis = new (ioredis.default || ioredis)({ port: Number(port), host: '127.0.0.1' });
const patient = retry ? { retryCount: -1, retryDelay: retry, retryJitter: retry / 2 } : { retryCount: -1 };

// Each gives a function that takes the lock of this name, and returns the one that gives it back.
const lockers = {
    redlock4() {
        const r = new (need('redlock4'))([redis], patient);
        return async (name) => {
            const lock = await r.lock(name, lease);
            return () => lock.unlock();
        };
    },
    redlock5() {
        const r = new (need('redlock5').default)([redis], patient);
        return async (name) => {
            const lock = await r.acquire([name], lease);
            return () => lock.release();
        };
    },
    'redis-semaphore'() {
        const { Mutex } = need('redis-semaphore');
        const options = { lockTimeout: lease, acquireTimeout: 600000,
                          onLockLost: () => say({ lost: 1 }) };
        if (retry) options.retryInterval = retry;
        return async (name) => {
            const lock = new Mutex(redis, name, options);
            await lock.acquire();
            return () => lock.release();
        };
    },
};
const take = lockers[kind]();
const each = (n, work) => Promise.all(Array.from({ length: n }, (_, i) => work(i)));

const modes = {
    async pairs() {
        const begin = now() + warm * 1e9, end = begin + seconds * 1e9;
        const us = [];
        let done = 0;
        await each(workers, async (i) => {
            for (let t = now(); t < end;) {
                const give = await take(key + ':' + i);
                await give();
                const before = t;
                t = now();
                if (before < begin || t > end) continue;
                done++;
                if (workers === 1) us.push((t - before) / 1000);
            }
        });
        say({ pairs: done, seconds, us });
    },
    async contended() {
        const begin = now() + warm * 1e9, end = begin + seconds * 1e9;
        const events = [];
        each(workers, async (i) => {
            while (now() < end) {
                const event = [i, now(), 0, 0];
                events.push(event);
                const give = await take(key);
                event[2] = now();
                if (Math.random() < 0.5) await sleep(1); // its timers know whole milliseconds only
                event[3] = now();
                await give();
                await sleep(workers * 0.25);
            }
        });
        await sleep((warm + seconds) * 1000);
        say({ begin, end: now(), events });
    },
    async idle() {
        await take(key);
        say({ held: 1 });
        each(workers, () => take(key));
        say({ waiting: workers });
        await sleep(600000);
    },
    // redlock 5 renews, and tells of a loss, in what it calls using().
    async hold() {
        const stay = async (signal) => {
            say({ held: 1 });
            if (signal) signal.onabort = () => say({ lost: 1 });
            await sleep(600000);
        };
        if (kind !== 'redlock5') { await take(key); return stay(null); }
        const r = new (need('redlock5').default)([redis], patient);
        r.on('error', () => {});
        await r.using([key], lease, stay);
    },
    async wait() {
        say({ waiting: 1 });
        const give = await take(key);
        say({ got: 1 });
        await give();
    },
};

modes[mode]().then(() => process.exit(0), (e) => {
    console.error('peer:', e);
    process.exit(1);
});
