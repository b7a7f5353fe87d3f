// SPDX-License-Identifier: MIT
// Peer.java - RLock and RFairLock of Redisson, with threads. The protocol is in ../README.md.
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.locks.LockSupport;
import java.util.function.IntConsumer;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

public class Peer {
    static boolean fair;
    static int workers;
    static long warm, seconds; // ns
    static String key;
    static RedissonClient client;

    static RLock lock(String name) {
        return fair ? client.getFairLock(name) : client.getLock(name);
    }

    static void say(String text) {
        System.out.println(text);
        System.out.flush();
    }

    static void sleep(long ns) {
        try {
            Thread.sleep(ns / 1000000, (int) (ns % 1000000));
        } catch (InterruptedException e) {
            throw new RuntimeException(e);
        }
    }

    static List<Thread> each(IntConsumer work) {
        List<Thread> all = new ArrayList<>();
        for (int i = 0; i < workers; i++) {
            int index = i;
            Thread t = new Thread(() -> work.accept(index));
            t.setDaemon(true);
            t.start();
            all.add(t);
        }
        return all;
    }

    static void pairs() throws Exception {
        long begin = System.nanoTime() + warm, end = begin + seconds;
        long[] done = new long[workers];
        List<Double> us = new ArrayList<>();
        List<Thread> all = each(i -> {
            RLock lock = lock(key + ":" + i);
            long t = System.nanoTime();
            while (t < end) {
                lock.lock();
                lock.unlock();
                long before = t;
                t = System.nanoTime();
                if (before < begin || t > end)
                    continue;
                done[i]++;
                if (workers == 1)
                    us.add((t - before) / 1000.0);
            }
        });
        for (Thread t : all)
            t.join();
        say("{\"pairs\": " + Arrays.stream(done).sum() + ", \"seconds\": " + seconds / 1e9 + ", \"us\": " + us + "}");
    }

    static void contended() {
        long begin = System.nanoTime() + warm, end = begin + seconds;
        List<long[]> events = new ArrayList<>();
        each(i -> {
            RLock lock = lock(key);
            while (System.nanoTime() < end) {
                long[] e = { i, System.nanoTime(), 0, 0 };
                synchronized (events) {
                    events.add(e);
                }
                lock.lock();
                long got = System.nanoTime();
                // Not sleep(), which rounds up to whole milliseconds.
                LockSupport.parkNanos(ThreadLocalRandom.current().nextInt(1000000));
                synchronized (events) {
                    e[2] = got;
                    e[3] = System.nanoTime();
                }
                lock.unlock();
                sleep(workers * 250000L);
            }
        });
        sleep(warm + seconds);
        StringBuilder out = new StringBuilder();
        synchronized (events) {
            for (long[] e : events)
                out.append(out.length() > 0 ? ", " : "").append(Arrays.toString(e));
        }
        say("{\"begin\": " + begin + ", \"end\": " + System.nanoTime() + ", \"events\": [" + out + "]}");
    }

    static void idle() {
        lock(key).lock();
        say("{\"held\": 1}");
        each(i -> lock(key).lock());
        say("{\"waiting\": " + workers + "}");
        sleep(600000000000L);
    }

    static void hold() {
        lock(key).lock();
        say("{\"held\": 1}");
        sleep(600000000000L);
    }

    static void waitForIt() {
        RLock lock = lock(key);
        say("{\"waiting\": 1}");
        lock.lock();
        say("{\"got\": 1}");
        lock.unlock();
    }

    public static void main(String[] a) throws Exception {
        fair = a[0].equals("fair");
        workers = Integer.parseInt(a[3]);
        warm = (long) (Double.parseDouble(a[4]) * 1e9);
        seconds = (long) (Double.parseDouble(a[5]) * 1e9);
        key = a[7];
        Config config = new Config();
        config.setLockWatchdogTimeout(10000); // the lease, which it renews
        config.useSingleServer().setAddress("redis://127.0.0.1:" + a[1]);
        client = Redisson.create(config);
        switch (a[2]) {
            case "pairs" -> pairs();
            case "contended" -> contended();
            case "idle" -> idle();
            case "hold" -> hold();
            default -> waitForIt();
        }
        Runtime.getRuntime().halt(0);
    }
}
