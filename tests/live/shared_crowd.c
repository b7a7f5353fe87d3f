/* SPDX-License-Identifier: MIT
 * shared_crowd.c - read-write locks and semaphores among processes that are killed and paused at
 * any moment: nobody stalls, and their history is judged afterwards.
 */
#include <signal.h>

#include "harness/history.h"
#include "harness/proc.h"
#include "harness/sharing.h"

static int soak(int normal, int long_one)
{
    return getenv("HF_SOAK") ? long_one : normal;
}

/* ---- processes that are killed ---- */

#define PROCESSES 32
#define ALIVE     10
#define STALL_MS  15000

struct crowd {
    struct server  *s;
    struct history *h;
    unsigned        slots; /* 0: readers and writers */
    int64_t         ttl_ms;
    int             paused; /* now and then: then a lock may be lost */
    struct bell     bell[PROCESSES];
    struct {
        atomic_int got, stop, lost;
        char       session[PROCESSES][33];
    } *mem;
};

#define ALL 1000 /* more readers than there are */

/* Hold for a while, writing down until when we believe it. */
static void hold(hf_lock *m, struct grant *g)
{
    for (int64_t until = t_now_ms() + (int64_t)t_random(20); t_now_ms() < until; t_sleep_ms(1)) {
        int64_t now = t_now_ns(), left = hf_lock_time_left_ms(m);
        if (left > 0) /* what is over stays over */
            history_deadline(g, now + left * 1000000);
    }
}

/* 1: done. 0: it had been lost while we were paused. */
static int still_ours(struct crowd *cr, hf_err e)
{
    if (e == HF_OK)
        return 1;
    if (!cr->paused || e != HF_ELOST)
        FAIL("%s: %s", hf_err_name(e), err.message);
    atomic_fetch_add(&cr->mem->lost, 1);
    return 0;
}

static void one_turn(struct crowd *cr, int index, hf_lock *m[3])
{
    uint64_t fence;
    unsigned weight = cr->slots ? 1 + (unsigned)t_random(3) : t_random(3) ? 1 : 0;
    hf_lock *one = m[cr->slots ? weight - 1 : weight];
    int64_t invoke = t_now_ns();
    CHECK_HF(hf_lock_acquire(one, 40000, &fence, &err), HF_OK);
    struct grant *g = history_share(cr->h, 0, (uint32_t)index, fence, invoke,
                                    BELIEVED_UNTIL(one), weight);
    atomic_fetch_add(&cr->mem->got, 1);
    hold(one, g);
    history_release(g);
    if (!cr->slots && !weight && t_random(2) && still_ours(cr, hf_lock_downgrade(one, &err))) {
        g = history_share(cr->h, 0, (uint32_t)index, fence, invoke, BELIEVED_UNTIL(one), 1);
        hold(one, g);
        history_release(g);
    }
    still_ours(cr, hf_lock_release(one, &err));
}

static void lives_until_killed(int index, void *arg)
{
    struct crowd *cr = arg;
    bell_wait(cr->bell[index]);
    if (atomic_load(&cr->mem->stop))
        return;
    hf_client *c = client_at(server_url(cr->s), 20000);
    hf_lock *m[3], *own = lock_of(c, "own", 30000);
    lock_now(own);
    snprintf(cr->mem->session[index], 33, "%.32s", hf_lock_owner(own));
    unlock_now(own);
    for (unsigned i = 0; i < 3; i++)
        m[i] = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = cr->ttl_ms,
                                                   .grace_ms = cr->paused ? 1000 : 2000,
                                                   .slots = cr->slots,
                                                   .permits = cr->slots ? i + 1 : 0,
                                                   .shared = !cr->slots && i == 1 });
    while (!atomic_load(&cr->mem->stop))
        one_turn(cr, index, m);
    for (int i = 0; i < 3; i++)
        hf_lock_free(m[i]);
    hf_lock_free(own);
    hf_client_free(c);
}

static int of_session(struct crowd *cr, const char *text)
{
    for (int i = 0; text && i < PROCESSES; i++)
        if (cr->mem->session[i][0] && strncmp(cr->mem->session[i], text, 32) == 0)
            return i;
    return -1;
}

/* Somebody of this kind: the head of the queue, a holder, anybody. */
static int pick(struct crowd *cr, int how, int started)
{
    if (how < 2)
        return of_session(cr, server_ask(cr->s, "ZRANGE {lock:a}:q 0 0"));
    if (how < 5) {
        int v = of_session(cr, server_ask(cr->s, "GET lock:a"));
        return v >= 0 ? v : of_session(cr, server_ask(cr->s, "ZRANGE {lock:a}:h 0 0"));
    }
    return (int)t_random((uint64_t)started);
}

static void kill_at_random(unsigned slots)
{
    struct crowd cr = { .s = server_start(NULL), .h = history_new(400000), .slots = slots,
                        .ttl_ms = 30000 };
    struct history_report r;
    int started = 0, dead[PROCESSES] = { 0 }, kind[3] = { 0 }, killed = 0;
    int64_t worst = 0;
    cr.mem = shared_memory(sizeof *cr.mem);
    for (int i = 0; i < PROCESSES; i++)
        cr.bell[i] = bell_new();
    t_note("seed %llu", (unsigned long long)t_seed());
    struct workers *w = workers_start(PROCESSES, lives_until_killed, &cr);
    for (; started < ALIVE; started++)
        bell_ring(cr.bell[started]);
    CHECK_EVENTUALLY(atomic_load(&cr.mem->got) > ALIVE, 30000);
    while (started < PROCESSES) {
        int before = atomic_load(&cr.mem->got), how = (int)t_random(7);
        if (started == PROCESSES - 1 && !kind[1])
            how = 2; /* a holder at least once */
        int v = pick(&cr, how, started);
        if (v >= 0 && !dead[v]) {
            workers_signal(w, v, SIGKILL);
            dead[v] = 1;
            killed++;
            kind[how < 2 ? 0 : how < 5 ? 1 : 2]++;
            bell_ring(cr.bell[started++]);
        }
        int64_t start = t_now_ms();
        while (atomic_load(&cr.mem->got) < before + 3) {
            if (t_calm_ms(start) > STALL_MS)
                FAIL("no grant for %d ms after a kill of kind %d", STALL_MS, how);
            t_sleep_ms(2);
        }
        if (t_now_ms() - start > worst)
            worst = t_now_ms() - start;
    }
    atomic_store(&cr.mem->stop, 1);
    workers_join(w, 30000);
    t_note("%d killed: %d the head, %d a holder, %d anybody; %d grants, worst wait for the next "
           "three %lld ms", killed, kind[0], kind[1], kind[2], atomic_load(&cr.mem->got),
           (long long)worst);
    CHECK(killed == PROCESSES - ALIVE && kind[1] > 0);
    CHECK_INT((long long)history_check_shared(cr.h, slots ? slots : ALL, &r), 0);
    CHECK_INT(queue_of(cr.s, "a"), 0);
    CHECK_EVENTUALLY(server_int(cr.s, "EXISTS lock:a {lock:a}:h {lock:a}:d") == 0, 1000 + 30000);
    check_only_ttls(cr.s);
}

TEST_TIMEOUT(SEM1_SEM5_kill_9_of_holders_and_waiters_never_gives_too_many_and_stalls_nobody, 120)
{
    kill_at_random(4);
}

TEST_TIMEOUT(R1_R5_kill_9_of_readers_and_writers_lets_nobody_overlap_and_stalls_nobody, 120)
{
    kill_at_random(0);
}

/* ---- processes that are paused, and believe nothing when they wake up ---- */

static void pause_at_random(unsigned slots)
{
    struct crowd cr = { .s = server_start(NULL), .h = history_new(400000), .slots = slots,
                        .ttl_ms = 1200, .paused = 1 };
    struct history_report r;
    cr.mem = shared_memory(sizeof *cr.mem);
    for (int i = 0; i < ALIVE; i++)
        cr.bell[i] = bell_new();
    t_note("seed %llu", (unsigned long long)t_seed());
    struct workers *w = workers_start(ALIVE, lives_until_killed, &cr);
    for (int i = 0; i < ALIVE; i++)
        bell_ring(cr.bell[i]);
    CHECK_EVENTUALLY(atomic_load(&cr.mem->got) > ALIVE, 30000);
    for (int i = 0; i < soak(5, 200); i++) {
        int v = -1, before = atomic_load(&cr.mem->got);
        while (v < 0)
            v = pick(&cr, (int)t_random(6), ALIVE);
        workers_signal(w, v, SIGSTOP);
        t_sleep_ms((int64_t)t_random(2500));
        workers_signal(w, v, SIGCONT);
        CHECK_EVENTUALLY(atomic_load(&cr.mem->got) >= before + 3, STALL_MS);
    }
    atomic_store(&cr.mem->stop, 1);
    workers_join(w, 30000);
    t_note("%d grants, %d lost in a pause", atomic_load(&cr.mem->got), atomic_load(&cr.mem->lost));
    CHECK_INT((long long)history_check_shared(cr.h, slots ? slots : ALL, &r), 0);
    CHECK_EVENTUALLY(server_int(cr.s, "EXISTS lock:a {lock:a}:h {lock:a}:d {lock:a}:q") == 0, 5000);
    check_only_ttls(cr.s);
}

TEST_TIMEOUT(SEM1_SEM5_pauses_of_holders_and_waiters_never_give_too_many, 900)
{
    pause_at_random(4);
}

TEST_TIMEOUT(R1_R5_pauses_of_readers_and_writers_let_nobody_overlap, 900)
{
    pause_at_random(0);
}
