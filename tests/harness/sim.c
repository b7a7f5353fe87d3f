/* SPDX-License-Identifier: MIT
 * sim.c - a simulated world: virtual time, threads of which one runs at a time, connections to a
 * server in memory.
 */
#include "harness/sim.h"

#include <errno.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/seam.h"
#include "harness/t.h"

#define BEGINNING_MS 1000000
#define REPLY_MAX    4096
#define LINGER_MS    20000
#define AT_ONCE_MAX  100000 /* events in one millisecond: it does not come to an end */

struct sim_faults sim_faults;
struct sim_counts sim_counts;

struct thread {
    pthread_t      id;
    sem_t          go;
    int64_t        wake_ms;
    const void    *on; /* it wakes up before that when this happens */
    bool           done;
    void        *(*main_fn)(void *);
    void          *arg;
    struct thread *next;
};

/* Bytes on their way: a request to the server, or a reply to the client. */
struct packet {
    int64_t        at_ms;
    bool           told; /* a reply: whoever reads was called */
    bool           ends; /* a reply: there is no more, the connection is over */
    size_t         len, read;
    struct packet *next;
    char           bytes[];
};

struct packets {
    struct packet *head, **tail;
    int64_t        last_ms; /* they do not overtake each other */
};

struct pipe {
    struct stream  s;
    int            port;
    struct packets requests, replies;
    struct thread *reader;
    bool           silent; /* nothing is answered any more */
    bool           over;   /* nor can anything be sent; what is under way may still arrive */
    bool           closed; /* by the client */
    struct pipe   *next;
};

static struct {
    int64_t             now_ms, down_until_ms;
    uint64_t            chance;
    unsigned            at_once;
    bool                inside; /* a program, the server or the watch runs: nobody may sleep */
    struct thread      *threads, *turn;
    struct thread       first;
    struct sim_program *programs;
    struct pipe        *pipes;
    sim_server          server;
    void              (*watch)(void);
} sim;

static _Thread_local struct thread *self;

/* ---- chance and time ----------------------------------------------------------------------- */

static uint64_t chance(void)
{
    uint64_t z = sim.chance += 0x9e3779b97f4a7c15u; /* splitmix64 */
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

uint64_t sim_random(uint64_t n)
{
    return chance() % n;
}

int64_t sim_between(int64_t low, int64_t high)
{
    return low + (int64_t)sim_random((uint64_t)(high - low) + 1);
}

static bool happens(unsigned one_in)
{
    return one_in && sim_random(one_in) == 0;
}

static int seam_random(void *buf, size_t n)
{
    for (unsigned char *p = buf; n-- > 0; p++)
        *p = (unsigned char)chance();
    return 0;
}

int64_t sim_now(void)
{
    return sim.now_ms;
}

/* ---- packets ------------------------------------------------------------------------------- */

static int64_t travel_ms(void)
{
    return happens(sim_faults.slow) ? sim_between(200, 3000) : sim_between(0, 6);
}

static struct packet *put(struct packets *q, const void *bytes, size_t len)
{
    struct packet *p = malloc(sizeof *p + len);
    *p = (struct packet){ .at_ms = sim.now_ms + travel_ms(), .len = len };
    if (len)
        memcpy(p->bytes, bytes, len);
    if (p->at_ms < q->last_ms)
        p->at_ms = q->last_ms;
    q->last_ms = p->at_ms;
    *q->tail = p;
    q->tail = &p->next;
    return p;
}

static void drop(struct packets *q)
{
    struct packet *p = q->head;
    if (!(q->head = p->next))
        q->tail = &q->head;
    free(p);
}

static void clear(struct packets *q)
{
    while (q->head)
        drop(q);
}

/* Of what is under way nothing arrives any more, or all of it, perhaps much later. */
static void leave_behind(struct pipe *pi)
{
    int64_t later = sim_random(2) ? 0 : sim_between(0, LINGER_MS);
    if (sim_random(2))
        clear(&pi->requests);
    for (struct packet *p = pi->requests.head; p; p = p->next)
        p->at_ms += later;
}

static void end_pipe(struct pipe *pi)
{
    if (pi->over)
        return;
    pi->over = true;
    leave_behind(pi);
    if (!pi->closed)
        put(&pi->replies, NULL, 0)->ends = true;
}

static void free_pipe(struct pipe *pi)
{
    struct pipe **p = &sim.pipes;
    while (*p != pi)
        p = &(*p)->next;
    *p = pi->next;
    clear(&pi->requests);
    clear(&pi->replies);
    free(pi);
}

/* ---- the server's side --------------------------------------------------------------------- */

static void begin_outage(void)
{
    sim_counts.outages++;
    sim.down_until_ms = sim.now_ms + sim_between(50, 6000);
    for (struct pipe *pi = sim.pipes; pi; pi = pi->next)
        end_pipe(pi);
}

/* Cut the next line, a number behind its first character, off *p. */
static long number(char **p)
{
    long n = strtol(*p + 1, p, 10);
    *p += 2;
    return n;
}

/* False: it was cut off before. */
static bool execute(struct pipe *pi, int argc, const hf_bytes *argv)
{
    char text[REPLY_MAX];
    bool speaks = !pi->silent && !pi->over && !pi->closed;
    if (speaks && happens(sim_faults.cut)) {
        sim_counts.cuts++;
        end_pipe(pi);
        return false;
    }
    size_t n = sim.server(argc, argv, text, sizeof text);
    sim_counts.commands++;
    sim_counts.late_copies += pi->over || pi->closed;
    if (speaks && happens(sim_faults.silence)) {
        sim_counts.silences++;
        pi->silent = true;
    } else if (speaks && happens(sim_faults.lose)) {
        sim_counts.lost++;
        end_pipe(pi);
    } else if (speaks) {
        put(&pi->replies, text, n);
    }
    return true;
}

/* All commands of one packet; the client never sends a part of one. */
static void arrive(struct pipe *pi)
{
    struct packet *packet = pi->requests.head;
    size_t len = packet->len;
    char *bytes = malloc(len + 1), *p = bytes;
    memcpy(bytes, packet->bytes, len);
    bytes[len] = '\0';
    drop(&pi->requests);
    if (happens(sim_faults.outage))
        begin_outage();
    for (bool well = true; well && p < bytes + len;) {
        hf_bytes argv[64];
        long argc = number(&p);
        CHECK_RANGE(argc, 1, 64);
        for (long i = 0; i < argc; i++) {
            long n = number(&p);
            argv[i] = (hf_bytes){ p, (size_t)n };
            p += n + 2;
        }
        well = execute(pi, (int)argc, argv);
    }
    free(bytes);
    for (struct pipe *one = sim.pipes, *next; one; one = next) {
        next = one->next;
        if (one->closed && !one->requests.head)
            free_pipe(one);
    }
}

/* ---- the client's side --------------------------------------------------------------------- */

static ssize_t pipe_read_now(struct stream *s, void *buf, size_t n)
{
    struct packets *q = &((struct pipe *)s)->replies;
    struct packet *p = q->head;
    if (!p || p->at_ms > sim.now_ms)
        return 0;
    if (p->ends) {
        errno = ECONNRESET;
        return -1;
    }
    n = n < p->len - p->read ? n : p->len - p->read;
    memcpy(buf, p->bytes + p->read, n);
    if ((p->read += n) == p->len)
        drop(q);
    return (ssize_t)n;
}

static void sleep_until(int64_t at_ms, const void *on);

static ssize_t pipe_read(struct stream *s, void *buf, size_t n)
{
    struct pipe *pi = (struct pipe *)s;
    ssize_t got = pipe_read_now(s, buf, n);
    if (got)
        return got;
    pi->reader = self;
    sleep_until(sim.now_ms + STREAM_TICK_MS, NULL);
    pi->reader = NULL;
    return pipe_read_now(s, buf, n);
}

static ssize_t pipe_writev(struct stream *s, const struct iovec *iov, int n)
{
    struct pipe *pi = (struct pipe *)s;
    size_t len = 0, at = 0;
    for (int i = 0; i < n; i++)
        len += iov[i].iov_len;
    char *bytes = malloc(len + 1);
    for (int i = 0; i < n; at += iov[i++].iov_len)
        memcpy(bytes + at, iov[i].iov_base, iov[i].iov_len);
    if (!pi->over)
        put(&pi->requests, bytes, len);
    free(bytes);
    return (ssize_t)len;
}

static void pipe_close(struct stream *s, int reset)
{
    struct pipe *pi = (struct pipe *)s;
    (void)reset;
    pi->closed = true;
    clear(&pi->replies);
    if (!pi->over)
        leave_behind(pi);
    if (!pi->requests.head)
        free_pipe(pi);
}

static const struct stream_ops pipe_ops = {
    .read = pipe_read, .read_now = pipe_read_now, .writev = pipe_writev, .close = pipe_close,
};

static hf_err pipe_open(const struct url *u, const struct url_host *host, const struct limit *lim,
                        struct stream **ret, hf_error *reterr)
{
    (void)u;
    int64_t there = sim.now_ms + travel_ms();
    clock_sleep_until(clock_earlier(there, lim->at_ms));
    if (sim.now_ms < there || sim.now_ms < sim.down_until_ms) {
        sim_counts.refused++;
        return err_set(reterr, HF_ECONN, "nobody answers at port %d", host->port);
    }
    struct pipe *pi = calloc(1, sizeof *pi);
    pi->s = (struct stream){ .ops = &pipe_ops, .fd = -1 };
    pi->port = host->port;
    pi->requests.tail = &pi->requests.head;
    pi->replies.tail = &pi->replies.head;
    pi->next = sim.pipes;
    sim.pipes = pi;
    sim_counts.connections++;
    *ret = &pi->s;
    return HF_OK;
}

/* There is something to read. */
static void tell(struct pipe *pi, struct packet *p)
{
    p->told = true;
    if (pi->reader)
        pi->reader->wake_ms = sim.now_ms;
    for (struct sim_program *pr = sim.programs; pr; pr = pr->next)
        if (pr->port == pi->port)
            pr->called = true;
}

/* ---- what comes first ---------------------------------------------------------------------- */

struct event {
    int64_t             at_ms;
    unsigned            rivals; /* at the same time */
    struct thread      *thread;
    struct sim_program *program;
    struct pipe        *pipe;
    struct packet      *reply; /* of the pipe; NULL: a request of it */
};

static void consider(struct event *best, const struct event *e)
{
    int64_t at = e->at_ms > sim.now_ms ? e->at_ms : sim.now_ms;
    if (at > best->at_ms || e->at_ms == SIM_NEVER)
        return;
    unsigned rivals = at == best->at_ms ? best->rivals + 1 : 1;
    if (rivals == 1 || sim_random(rivals) == 0)
        *best = *e;
    best->at_ms = at;
    best->rivals = rivals;
}

static void consider_pipe(struct event *best, struct pipe *pi)
{
    struct packet *untold = pi->replies.head;
    while (untold && untold->told)
        untold = untold->next;
    if (pi->requests.head)
        consider(best, &(struct event){ .at_ms = pi->requests.head->at_ms, .pipe = pi });
    if (untold)
        consider(best, &(struct event){ .at_ms = untold->at_ms, .pipe = pi, .reply = untold });
}

static struct event next_event(void)
{
    struct event best = { .at_ms = SIM_NEVER };
    for (struct thread *t = sim.threads; t; t = t->next)
        if (!t->done)
            consider(&best, &(struct event){ .at_ms = t->wake_ms, .thread = t });
    for (struct sim_program *p = sim.programs; p; p = p->next)
        consider(&best, &(struct event){ .at_ms = p->called ? 0 : p->due(p), .program = p });
    for (struct pipe *pi = sim.pipes; pi; pi = pi->next)
        consider_pipe(&best, pi);
    return best;
}

static void note(const struct event *e)
{
    uint64_t what = e->thread ? 1 : e->program ? 2 + (uint64_t)e->program->port : e->reply ? 3 : 4;
    sim_counts.events++;
    sim_counts.trace = (sim_counts.trace ^ (uint64_t)e->at_ms ^ what << 48) * 1099511628211u;
    if (e->at_ms > sim.now_ms)
        sim.at_once = 0;
    else if (++sim.at_once > AT_ONCE_MAX)
        FAIL("no end of it at %lld ms", (long long)sim.now_ms);
    sim.now_ms = e->at_ms;
}

/* What needs no thread of its own. */
static void happen(const struct event *e)
{
    sim.inside = true;
    if (e->program) {
        e->program->called = false;
        e->program->run(e->program);
    } else if (e->reply) {
        tell(e->pipe, e->reply);
    } else {
        arrive(e->pipe);
    }
    if (sim.watch)
        sim.watch();
    sim.inside = false;
}

/* Whoever runs next that has a thread. */
static struct thread *next_thread(void)
{
    for (;;) {
        struct event e = next_event();
        if (e.at_ms == SIM_NEVER)
            FAIL("all sleep, and nothing will ever happen");
        note(&e);
        if (e.thread)
            return e.thread;
        happen(&e);
    }
}

/* The running thread sleeps: what happens meanwhile happens in it, until a thread wakes up. */
static void sleep_until(int64_t at_ms, const void *on)
{
    struct thread *me = self;
    CHECK(!sim.inside);
    me->wake_ms = at_ms;
    me->on = on;
    if (sim.watch)
        sim.watch();
    sim.turn = NULL;
    while (sim.turn != me) {
        if (!sim.turn)
            sim.turn = next_thread();
        if (sim.turn == me)
            break;
        sem_post(&sim.turn->go);
        sem_wait(&me->go);
    }
}

void sim_sleep(int64_t ms)
{
    clock_sleep_until(sim.now_ms + ms);
}

/* ---- threads and programs ------------------------------------------------------------------ */

static void wake(const void *on)
{
    for (struct thread *t = sim.threads; t; t = t->next)
        if (t->on == on)
            t->wake_ms = sim.now_ms;
}

static void *thread_main(void *arg)
{
    self = arg;
    sem_wait(&self->go);
    self->main_fn(self->arg);
    self->done = true;
    wake(self); /* whoever wants to join it */
    sim.turn = NULL;
    sem_post(&sim.first.go); /* which is never joined: what happens next happens there */
    return NULL;
}

int sim_start(pthread_t *ret, void *(*main_fn)(void *), void *arg)
{
    struct thread *t = calloc(1, sizeof *t);
    t->main_fn = main_fn;
    t->arg = arg;
    t->wake_ms = sim.now_ms;
    sem_init(&t->go, 0, 0);
    CHECK_INT(pthread_create(&t->id, NULL, thread_main, t), 0);
    t->next = sim.threads;
    sim.threads = t;
    *ret = t->id;
    return 0;
}

void sim_join(pthread_t thread)
{
    struct thread **p = &sim.threads;
    while (*p && !pthread_equal((*p)->id, thread))
        p = &(*p)->next;
    struct thread *t = *p;
    CHECK(t != NULL);
    while (!t->done)
        sleep_until(SIM_NEVER, t);
    pthread_join(thread, NULL);
    for (p = &sim.threads; *p != t;)
        p = &(*p)->next;
    *p = t->next;
    sem_destroy(&t->go);
    free(t);
}

void sim_add(struct sim_program *p)
{
    p->next = sim.programs;
    sim.programs = p;
}

void sim_remove(struct sim_program *p)
{
    struct sim_program **at = &sim.programs;
    while (*at != p)
        at = &(*at)->next;
    *at = p->next;
}

/* ---- begin and end ------------------------------------------------------------------------- */

static const struct seam simulated = {
    .now_ms = sim_now, .sleep_until = sleep_until, .random = seam_random,
    .wake = wake, .start = sim_start, .join = sim_join,
};

/* They take turns: on another core each would only be further away. */
static void stay_on_one_core(void)
{
    cpu_set_t here;
    int cpu = sched_getcpu();
    CPU_ZERO(&here);
    if (cpu < 0)
        return;
    CPU_SET(cpu, &here);
    (void)!sched_setaffinity(0, sizeof here, &here);
}

void sim_begin(uint64_t seed)
{
    stay_on_one_core();
    memset(&sim, 0, sizeof sim);
    sim_faults = (struct sim_faults){ 0 };
    sim_counts = (struct sim_counts){ 0 };
    sim.now_ms = BEGINNING_MS;
    sim.chance = seed;
    sem_init(&sim.first.go, 0, 0);
    sim.threads = self = &sim.first;
    seam_set(&simulated);
    stream_set_opener(pipe_open);
}

void sim_end(void)
{
    CHECK(sim.threads == &sim.first && !sim.first.next);
    CHECK(!sim.programs);
    while (sim.pipes)
        free_pipe(sim.pipes);
    seam_set(NULL);
    stream_set_opener(NULL);
}

void sim_serve(sim_server server)
{
    sim.server = server;
}

void sim_watch(void (*fn)(void))
{
    sim.watch = fn;
}
