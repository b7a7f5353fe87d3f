/* SPDX-License-Identifier: MIT
 * crowd.c - eight processes that contend for three locks, and how the driver catches them.
 *
 * Everything that a process does is in its seat, in shared memory: a process that was stopped or
 * killed is where its seat says, because it cannot move on.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "faults/lib/matrix.h"

enum {
    WAIT_MS = 60000, EXCHANGE_MS = 5000, UNDO_MS = 500, LATE_MS = 3000, KEEP_MS = 40000,
    STALL_MS = 60000, EARLY_MS = 300,
};

void (*crowd_enters)(struct run *r, int index);

/* ---- the resource and the witness ---- */

/* The highest number wins; older ones are refused. */
static void write_resource(struct board *b, int lock, uint64_t fence)
{
    uint64_t seen = atomic_load(&b->newest[lock]);
    while (seen < fence && !atomic_compare_exchange_weak(&b->newest[lock], &seen, fence))
        ;
    atomic_fetch_add(seen > fence ? &b->refused : &b->written, 1);
}

/* Locks on files, opened once: there may be no descriptor later. They end with the process. */
static int witness_file[LOCKS];

static void open_witnesses(void)
{
    for (int i = 0; i < LOCKS; i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/witness%d", t_dir(), i);
        witness_file[i] = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        CHECK(witness_file[i] >= 0);
    }
}

/* It is free if nobody else is in the section; 0: somebody is. */
static int take_witness(struct run *r, int lock, unsigned client)
{
    if (flock(witness_file[lock], LOCK_EX | LOCK_NB) == 0)
        return 1;
    int n = atomic_fetch_add(&r->b->witnesses, 1);
    if (n < WITNESSES) {
        r->b->witness[n].lock = lock;
        r->b->witness[n].client = client;
        r->b->witness[n].at = t_now_ns();
    }
    return 0;
}

/* ---- one process ---- */

static void note_loss(struct board *b, struct grant *g, hf_lock *m)
{
    int cause = hf_lock_loss(m);
    g->lost_at = t_now_ns();
    g->lost = cause;
    atomic_fetch_add(&b->lost[cause % LOSSES], 1);
    if (cause == HF_LOSS_TAKEN && !g->stopped && g->lost_at < g->deadline)
        atomic_fetch_add(&b->taken_early, 1);
}

/* It believes at least until then. The clock is read first: a pause in between makes it earlier. */
static int look(struct seat *st, struct grant *g, hf_lock *m)
{
    int64_t now = t_now_ns(), until = now;
    if (!hf_lock_is_held(m))
        return 0;
    until += hf_lock_time_left_ms(m) * 1000000;
    if (until > g->deadline)
        history_deadline(g, until);
    atomic_store(&st->beat_ns, now);
    return 1;
}

static void hold(struct run *r, struct seat *st, int lock, struct grant *g, hf_lock *m)
{
    int64_t begun = t_now_ns(), until = begun + (int64_t)t_random(20000001);
    int alone = take_witness(r, lock, g->client);
    for (;;) {
        if (!look(st, g, m)) {
            if (hf_lock_state(m) == HF_STATE_LOST) {
                note_loss(r->b, g, m);
                break;
            }
        } else {
            write_resource(r->b, lock, g->fence);
        }
        int64_t now = t_now_ns();
        if (now >= until && !(atomic_load(&r->b->keep[lock]) && now < begun + KEEP_MS * 1000000LL))
            break;
        t_sleep_ms(2);
    }
    if (alone)
        flock(witness_file[lock], LOCK_UN);
}

/* Most wait for as long as it takes; some give up soon, or only try. */
static int64_t choose_wait(void)
{
    uint64_t x = t_random(16);
    return x == 0 ? 0 : x < 3 ? 50 + (int64_t)t_random(1000) : WAIT_MS;
}

/* A wait has its own limit; a mere try has that of any exchange. */
static int64_t limit_ms(const struct run *r, int64_t wait_ms)
{
    int64_t exchange_ms = r->want.timeout_ms ? r->want.timeout_ms : EXCHANGE_MS;
    return wait_ms ? wait_ms : exchange_ms;
}

static void note_late(struct board *b, int64_t late)
{
    int64_t most = atomic_load(&b->latest_ns);
    while (late > most && !atomic_compare_exchange_weak(&b->latest_ns, &most, late))
        ;
    if (late > (int64_t)(UNDO_MS + LATE_MS) * 1000000)
        atomic_fetch_add(&b->late, 1);
}

/* What may come of a wait that was over before anybody could answer. */
static int gave_up(hf_err e)
{
    return e == HF_EBUSY || e == HF_ETIMEDOUT || e == HF_EUNSURE || e == HF_ECONN
           || e == HF_ENOQUORUM || e == HF_EREPLICAS || e == HF_ESERVER;
}

/* Before its time was over nobody gives up, but for who learns that it is another's; and who was
 * refused does not wait for another try if its time ends before. */
static void note_failure(struct run *r, hf_err e, int64_t wait_ms, int64_t took_ms)
{
    int over = took_ms + EARLY_MS >= limit_ms(r, wait_ms) || (e == HF_EBUSY && wait_ms == 0);
    if (wait_ms < WAIT_MS && gave_up(e) && over) {
        atomic_fetch_add(&r->b->given_up, 1);
        return;
    }
    if (atomic_fetch_add(&r->b->failed[-e % ERRORS], 1) == 0 && !r->b->first_error[0])
        snprintf(r->b->first_error, sizeof r->b->first_error, "%s after %lld ms of %lld: %s",
                 hf_err_name(e), (long long)took_ms, (long long)wait_ms, err.message);
    t_sleep_ms(5 + (int64_t)t_random(20));
}

static struct seat *own_seat;
static FILE *own_log; /* DIR/wN/log is printed if the cell fails */

static void write_log(void *arg, hf_log level, const char *message)
{
    (void)arg;
    fprintf(own_log, "%lld.%03lld %d %s\n", (long long)(t_now_ms() / 1000),
            (long long)(t_now_ms() % 1000), (int)level, message);
}

static void open_log(int index)
{
    const char *all = getenv("HF_FAULTS_LOGS"); /* a folder: they are kept there */
    char *dir = t_path("w%d", index), *path = NULL;
    mkdir(dir, 0700);
    CHECK((all ? asprintf(&path, "%s/w%d.log", all, index) : asprintf(&path, "%s/log", dir)) > 0);
    own_log = fopen(path, "a");
    CHECK(own_log);
    setvbuf(own_log, NULL, _IOLBF, 0);
    free(dir);
    free(path);
}

__attribute__((format(printf, 1, 2))) static void trace(const char *fmt, ...)
{
    char text[200];
    va_list ap;
    if (!getenv("HF_FAULTS_LOGS"))
        return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    write_log(NULL, HF_LOG_DEBUG, text);
}

/* Who believes that it has the lock is told by the release, too, if it was taken. */
static void let_go(struct run *r, struct seat *st, int lock, struct grant *g, hf_lock *m)
{
    int believed = look(st, g, m);
    history_release(g);
    int64_t begun = t_now_ns();
    hf_err e = hf_lock_release(m, &err);
    int64_t now = t_now_ns();
    trace("%s released: %s", r->name[lock], hf_err_name(e));
    note_late(r->b, now - begun - limit_ms(r, 0) * 1000000);
    if (e == HF_ELOST && !g->lost_at) {
        g->lost_at = now;
        g->lost = HF_LOSS_TAKEN; /* for the count alone: why is not known any more */
        atomic_fetch_add(&r->b->lost[0], 1);
        if (believed && !g->stopped && now < g->deadline)
            atomic_fetch_add(&r->b->taken_early, 1);
    } else if (e && e != HF_ELOST) {
        note_failure(r, e, 0, (now - begun) / 1000000);
    }
}

static void turn(struct run *r, int index, hf_lock *const *handles)
{
    struct seat *st = &r->b->seat[index];
    int lock = (int)t_random(LOCKS);
    hf_lock *m = handles[lock];
    int64_t wait_ms = choose_wait(), begun = t_now_ns();
    uint64_t fence;
    atomic_store(&st->lock, lock);
    atomic_store(&st->since_ns, begun);
    atomic_store(&st->phase, ASKING);
    trace("asks for %s, %lld ms", r->name[lock], (long long)wait_ms);
    hf_err e = hf_lock_acquire(m, wait_ms, &fence, &err);
    trace("%s: %s", r->name[lock], hf_err_name(e));
    atomic_fetch_add(&r->b->calls, 1);
    note_late(r->b, t_now_ns() - begun - limit_ms(r, wait_ms) * 1000000);
    if (e) {
        atomic_store(&st->phase, IDLE);
        note_failure(r, e, wait_ms, (t_now_ns() - begun) / 1000000);
        return;
    }
    int64_t until = t_now_ns();
    until += hf_lock_time_left_ms(m) * 1000000;
    struct grant *g = history_grant(r->h, (uint32_t)lock, (uint32_t)index, fence, begun, until);
    atomic_store(&st->grant, g);
    atomic_fetch_add(&r->b->got[lock], 1);
    atomic_store(&st->phase, HOLDING);
    hold(r, st, lock, g, m);
    atomic_store(&st->phase, RELEASING);
    let_go(r, st, lock, g, m);
    atomic_store(&st->phase, IDLE);
}

static void count_signal(int sig)
{
    (void)sig;
    atomic_fetch_add(&own_seat->signals, 1);
}

static int count_fds(void)
{
    int n = 0;
    for (int fd = 0; fd < 256; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

/* With the library. */
static void take_turns(struct run *r, int index)
{
    hf_client *c = client_with(r->url, (hf_client_opts){ .timeout_ms = r->want.timeout_ms,
                                                         .wait_ms = WAIT_MS, .log = write_log });
    hf_lock *m[LOCKS];
    for (int i = 0; i < LOCKS; i++)
        m[i] = lock_with(c, r->name[i], (hf_lock_opts){ .ttl_ms = r->want.ttl_ms,
                                                        .grace_ms = r->want.grace_ms });
    atomic_store(&r->b->seat[index].opened, 1);
    while (!atomic_load(&r->b->stop))
        turn(r, index, m);
    for (int i = 0; i < LOCKS; i++)
        hf_lock_free(m[i]);
    hf_client_free(c);
}

static void crowd_main(int index, void *arg)
{
    struct run *r = arg;
    struct seat *st = &r->b->seat[index];
    open_witnesses();
    open_log(index);
    int fds = count_fds();
    alarm(0); /* the driver's */
    own_seat = st;
    while (!atomic_load(&r->b->go))
        t_sleep_ms(1);
    sigaction(SIGUSR1, &(struct sigaction){ .sa_handler = count_signal }, NULL);
    if (r->net)
        net_enter(r->net, CLIENTS_AT + index % 2);
    if (crowd_enters)
        crowd_enters(r, index);
    if (!r->row->turn)
        take_turns(r, index);
    atomic_store(&st->opened, 1);
    while (r->row->turn && !atomic_load(&r->b->stop))
        r->row->turn(r, index);
    fflush(own_log);
    if (count_fds() > fds)
        atomic_fetch_add(&r->b->leaks, 1);
}

/* ---- the driver's side ---- */

void crowd_start(struct run *r)
{
    r->w = workers_start(CROWD, crowd_main, r);
    /* Only now: while a proxy's thread has work, it may be in an allocation when we fork. */
    atomic_store(&r->b->go, 1);
    for (int i = 0; i < CROWD; i++)
        CHECK_EVENTUALLY(atomic_load(&r->b->seat[i].opened), STALL_MS);
    crowd_go_on(r, 2);
}

void crowd_end(struct run *r)
{
    crowd_let_go(r);
    atomic_store(&r->b->stop, 1);
    workers_join(r->w, 2 * STALL_MS);
}

int until_granted(struct run *r, int lock, long more, int64_t ms)
{
    int64_t until = t_now_ms() + ms;
    long before = atomic_load(&r->b->got[lock]);
    while (atomic_load(&r->b->got[lock]) < before + more) {
        if (t_now_ms() > until)
            return 0;
        t_sleep_ms(2);
    }
    return 1;
}

void crowd_go_on(struct run *r, int grants)
{
    long before[LOCKS];
    int64_t until = t_now_ms() + STALL_MS;
    for (int i = 0; i < LOCKS; i++)
        before[i] = atomic_load(&r->b->got[i]);
    for (int i = 0; i < LOCKS; i++)
        while (atomic_load(&r->b->got[i]) < before[i] + grants) {
            if (t_now_ms() > until)
                FAIL("I4: no grant of %s for %d ms (%s)", r->name[i], STALL_MS,
                     r->b->first_error);
            t_sleep_ms(2);
        }
}

int crowd_phase(const struct run *r, int i)
{
    return atomic_load(&r->b->seat[i].phase);
}

int crowd_lock(const struct run *r, int i)
{
    return atomic_load(&r->b->seat[i].lock);
}

static int who(struct run *r, int phase, int lock)
{
    int first = (int)t_random(CROWD);
    for (int k = 0; k < CROWD; k++) {
        int i = (first + k) % CROWD;
        if (crowd_phase(r, i) == phase && crowd_lock(r, i) == lock)
            return i;
    }
    return -1;
}

int crowd_hold(struct run *r, int lock)
{
    int64_t until = t_now_ms() + 20000;
    atomic_store(&r->b->keep[lock], 1);
    while (t_now_ms() < until) {
        int i = who(r, HOLDING, lock);
        if (i >= 0)
            return i;
        t_sleep_ms(1);
    }
    return -1;
}

void crowd_let_go(struct run *r)
{
    for (int i = 0; i < LOCKS; i++)
        atomic_store(&r->b->keep[i], 0);
}

int crowd_waiter(struct run *r, int lock)
{
    return who(r, ASKING, lock);
}

int crowd_waiters(struct run *r, int lock)
{
    int n = 0;
    for (int i = 0; i < CROWD; i++)
        n += crowd_phase(r, i) == ASKING && crowd_lock(r, i) == lock;
    return n;
}

static int stands_still(int pid)
{
    char path[64], line[256] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *f = fopen(path, "r");
    CHECK(f && fgets(line, sizeof line, f));
    fclose(f);
    return strncmp(strrchr(line, ')'), ") T", 3) == 0;
}

void crowd_freeze(struct run *r, int i)
{
    workers_signal(r->w, i, SIGSTOP);
    CHECK_EVENTUALLY(stands_still(workers_pid(r->w, i)), 20000);
    struct grant *g = atomic_load(&r->b->seat[i].grant);
    int phase = crowd_phase(r, i);
    if (g && (phase == HOLDING || phase == RELEASING))
        g->stopped = 1;
}

void crowd_thaw(struct run *r, int i)
{
    workers_signal(r->w, i, SIGCONT);
}

/* What it believed ends with it. */
void crowd_kill(struct run *r, int i)
{
    struct seat *st = &r->b->seat[i];
    struct grant *g = atomic_load(&st->grant);
    int phase = crowd_phase(r, i);
    workers_signal(r->w, i, SIGKILL);
    if (phase == HOLDING && g && !g->release)
        history_release(g);
    atomic_store(&st->phase, IDLE);
    atomic_store(&st->opened, 0);
}

void crowd_replace(struct run *r, int i)
{
    atomic_store(&r->b->seat[i].grant, NULL);
    workers_again(r->w, i);
}
