// SPDX-License-Identifier: MIT
// worker.js - the locks of redlock 4, redlock 5 and redis-semaphore, as a neighbour. See ../common.sh.
'use strict';
const fs = require('fs');
// Installed in build/, not beside this file.
const need = require('module').createRequire(process.env.INTEROP_MODULES + '/');
const Redis = need('ioredis');

const [client, what, socket, key, rounds, file] = process.argv.slice(2);
const lease = 10000;
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const busy = Symbol('busy');

// Each gives a function that takes the lock, once or for as long as it takes, and returns the function
// that gives it back, or busy.
const lockers = {
    redlock4(redis) {
        const Redlock = need('redlock4');
        const once = new Redlock([redis], { retryCount: 0 });
        const often = new Redlock([redis], { retryCount: -1, retryDelay: 5, retryJitter: 5 });
        return async (wait) => {
            try {
                const lock = await (wait ? often : once).lock(key, lease);
                return () => lock.unlock();
            } catch (e) {
                if (!wait && e.name === 'LockError') return busy;
                throw e;
            }
        };
    },
    redlock5(redis) {
        const Redlock = need('redlock5').default;
        const once = new Redlock([redis], { retryCount: 0 });
        const often = new Redlock([redis], { retryCount: -1, retryDelay: 5, retryJitter: 5 });
        return async (wait) => {
            try {
                const lock = await (wait ? often : once).acquire([key], lease);
                return () => lock.release();
            } catch (e) {
                if (!wait && e.name === 'ExecutionError') return busy;
                throw e;
            }
        };
    },
    'redis-semaphore'(redis) {
        const { Mutex } = need('redis-semaphore');
        if (!key.startsWith('mutex:')) throw new Error('its keys begin with mutex:');
        return async (wait) => {
            const lock = new Mutex(redis, key.slice('mutex:'.length), {
                lockTimeout: lease, acquireTimeout: wait ? 50000 : 1, retryInterval: 5,
            });
            if (wait) await lock.acquire();
            else if (!(await lock.tryAcquire())) return busy;
            return () => lock.release();
        };
    },
};

// The section that the lock protects.
async function section() {
    try {
        fs.closeSync(fs.openSync(file + '.in', 'wx'));
    } catch (e) {
        console.log('OVERLAP');
        process.exit(1);
    }
    const n = Number(fs.readFileSync(file, 'utf8'));
    await sleep(2);
    fs.writeFileSync(file, n + 1 + '\n');
    fs.appendFileSync(file + '.log', 'theirs\n');
    fs.unlinkSync(file + '.in');
}

async function main() {
    const redis = new Redis({ path: socket });
    const take = lockers[client](redis);
    for (let i = 0; i < (what === 'count' ? Number(rounds) : 1); i++) {
        const release = await take(what !== 'try');
        if (release === busy) process.exit(3);
        if (what === 'hold') {
            fs.writeFileSync(file + '.held', '');
            while (!fs.existsSync(file + '.go')) await sleep(10);
        } else if (what === 'count') {
            await section();
        }
        await release();
        await sleep(20);
    }
    redis.disconnect();
}

// worker.js CLIENT try|hold|count SOCKET KEY ROUNDS FILE
main().catch((e) => {
    console.error('worker:', e);
    process.exit(1);
});
