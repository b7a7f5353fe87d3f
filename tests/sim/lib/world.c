/* SPDX-License-Identifier: MIT
 * world.c - a simulated world: time, threads, connections.
 */
#include "sim/lib/world.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/seam.h"
#include "harness/t.h"
#include "net/stream.h"
#include "session/record.h"
#include "sim/lib/fiber.h"
#include "sim/lib/model.h"
#include "sim/lib/pool.h"

#define BEGINNING_MS 1000000
#define EPOCH_MS     1700000000000 /* the server's clock at the beginning is about this */
#define PORT         7000
#define PORT_STEP    100 /* to the next server */
#define LINGER_MS    20000
#define SILENCE_MS   5000 /* by then a client has noticed that nobody answers */
#define AT_ONCE_MAX  20000 /* events in one millisecond: it does not come to an end */
#define ARGS_MAX     300

struct world_counts world_counts;
struct world_net world_net;
bool world_tells;

struct thread {
    struct fiber      *fiber;
    struct world_proc *proc;
    int64_t            wake_ms; /* true time */
    const void        *on;      /* it wakes up before that when this happens, */
    const void        *stream;  /* or when there is something to read here, */
    bool               any;     /* or anywhere in its process */
    int64_t          (*due)(void *arg);
    void              *due_arg;
    bool               done;
    void            *(*main_fn)(void *);
    void             (*fn)(void *);
    void              *arg;
    struct thread     *next;
};

/* Bytes on their way: a request to the server, or a reply to the client. */
struct packet {
    int64_t        at_ms;
    bool           told; /* a reply: whoever reads was woken */
    bool           ends; /* there is no more, the connection is over */
    size_t         len, read;
    struct packet *next;
    char           bytes[];
};

struct packets {
    struct packet *head, **tail;
    int64_t        last_ms; /* they do not overtake each other */
};

struct pipe {
    struct stream      s;
    struct world_proc *proc;
    int                server;
    bool               asking; /* the next command comes behind ASKING */
    uint64_t           chance;
    struct packets     requests, replies;
    bool               silent; /* nothing is answered any more */
    bool               deaf;   /* nor does anything arrive */
    bool               over;   /* nor can anything be sent; what is under way may still arrive */
    bool               closed; /* by the client */
    struct pipe       *next;
};

static struct {
    int64_t            now_ms, shift_ms;
    struct {
        int64_t down_until_ms, stalled_until_ms;
    } server[MODEL_NODES];
    uint64_t           seed, chance;
    unsigned           at_once;
    bool               inside; /* the server or the watch runs: nobody may sleep */
    bool               late;   /* the command that ran last is a late copy */
    struct thread     *threads, *self, first;
    struct world_proc  proc[WORLD_PROCS];
    int                nprocs;
    struct pipe       *pipes;
    void             (*after)(int proc), (*watch)(void);
    char               session[WORLD_PROCS][40];
} world;

/* ---- chance and time ------------------------------------------------------------------------- */

static uint64_t draw(uint64_t *chance)
{
    uint64_t z = *chance += 0x9e3779b97f4a7c15u; /* splitmix64 */
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

uint64_t world_random(uint64_t *chance, uint64_t n)
{
    return draw(chance) % n;
}

int64_t world_between(uint64_t *chance, int64_t low, int64_t high)
{
    return low + (int64_t)world_random(chance, (uint64_t)(high - low) + 1);
}

static bool happens(struct pipe *pi, unsigned one_in)
{
    return one_in && world_random(&pi->chance, one_in) == 0;
}

static int seam_random(void *buf, size_t n)
{
    struct world_proc *p = world.self->proc;
    for (unsigned char *b = buf; n-- > 0; b++)
        *b = (unsigned char)draw(p ? &p->chance : &world.chance);
    return 0;
}

int64_t world_now(void)
{
    return world.now_ms;
}

int64_t world_local(const struct world_proc *p, int64_t true_ms)
{
    int64_t passed = true_ms - BEGINNING_MS;
    return p ? true_ms + passed * p->ppm / 1000000 : true_ms;
}

/* The first moment at which its clock shows so much. */
static int64_t true_of(const struct world_proc *p, int64_t local_ms)
{
    if (!p || !p->ppm || local_ms == INT64_MAX)
        return local_ms;
    int64_t at = BEGINNING_MS + (int64_t)((double)(local_ms - BEGINNING_MS) * 1000000.0
                                          / (double)(1000000 + p->ppm)) - 2;
    while (world_local(p, at) < local_ms)
        at++;
    return at;
}

static int64_t seam_now(void)
{
    return world_local(world.self->proc, world.now_ms);
}

static void keep_clock(void)
{
    for (int i = 0; i < model_nodes; i++)
        model_node[i].now_us = (EPOCH_MS + world.now_ms + world.shift_ms) * 1000;
}

void world_shift_clock(int64_t ms)
{
    world.shift_ms += ms;
    keep_clock();
}

int64_t world_clock_shift(void)
{
    return world.shift_ms;
}

/* ---- in words -------------------------------------------------------------------------------- */

void world_name_session(int proc, const char *session)
{
    snprintf(world.session[proc], sizeof world.session[proc], "%s", session);
}

void world_tell(const char *fmt, ...)
{
    char text[2000], *at;
    va_list ap;
    if (!world_tells)
        return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    for (int i = 0; i < world.nprocs; i++)
        while (world.session[i][0] && (at = strstr(text, world.session[i]))) {
            at[0] = 'c';
            at[1] = (char)('0' + i);
            const char *rest = at + strlen(world.session[i]);
            memmove(at + 2, rest, strlen(rest) + 1);
        }
    t_note("%7lld ms  %s", (long long)(world.now_ms - BEGINNING_MS), text);
}

/* ---- packets --------------------------------------------------------------------------------- */

static void trouble(struct world_proc *p, int64_t ms)
{
    if (world.now_ms + ms > p->troubled_ms)
        p->troubled_ms = world.now_ms + ms;
}

static int64_t travel_ms(struct pipe *pi)
{
    if (happens(pi, world_net.slow)) {
        int64_t ms = world_between(&pi->chance, 1, world_net.slow_ms);
        world_counts.slow++;
        trouble(pi->proc, ms);
        return ms;
    }
    return world_between(&pi->chance, 0, world_net.usual_ms);
}

static struct packet *put(struct pipe *pi, struct packets *q, const void *bytes, size_t len)
{
    struct packet *p = pool_get(sizeof *p + len);
    *p = (struct packet){ .at_ms = world.now_ms + travel_ms(pi), .len = len };
    if (len && bytes)
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
    pool_free(p);
}

static void clear(struct packets *q)
{
    while (q->head)
        drop(q);
}

/* Of what is under way nothing arrives any more, or all of it, perhaps much later. */
static void leave_behind(struct pipe *pi)
{
    int64_t later = world_random(&pi->chance, 2) ? 0 : world_between(&pi->chance, 0, LINGER_MS);
    if (world_random(&pi->chance, 2))
        clear(&pi->requests);
    for (struct packet *p = pi->requests.head; p; p = p->next)
        p->at_ms += later;
    pi->requests.last_ms += later;
}

/* Both sides learn that it is over; the client when that arrives. */
static void end_pipe(struct pipe *pi)
{
    model_disconnected(pi);
    if (pi->over)
        return;
    pi->over = true;
    leave_behind(pi);
    if (!pi->closed)
        put(pi, &pi->replies, NULL, 0)->ends = true;
}

static void free_pipe(struct pipe *pi)
{
    struct pipe **p = &world.pipes;
    while (*p != pi)
        p = &(*p)->next;
    *p = pi->next;
    model_disconnected(pi);
    clear(&pi->requests);
    clear(&pi->replies);
    pool_free(pi);
}

/* ---- the server's side ----------------------------------------------------------------------- */

static void cut(int server) /* -1: all */
{
    for (struct pipe *pi = world.pipes; pi; pi = pi->next)
        if (server < 0 || pi->server == server)
            end_pipe(pi);
}

void world_cut_all(void)
{
    cut(-1);
}

static void sweep_pipes(void);

void world_replace_server(int server)
{
    cut(server);
    for (struct pipe *pi = world.pipes; pi; pi = pi->next)
        if (pi->server == server)
            clear(&pi->requests);
    sweep_pipes();
}

void world_outage(int server, int64_t ms)
{
    world_counts.outages++;
    world.server[server].down_until_ms = world.now_ms + ms;
    cut(server);
}

void world_stall(int server, int64_t ms)
{
    world_counts.stalls++;
    world.server[server].stalled_until_ms = world.now_ms + ms;
}

static void push(void *conn, const char *text, size_t len)
{
    struct pipe *pi = conn;
    world_counts.pushes++;
    if (!pi->silent && !pi->over && !pi->closed)
        put(pi, &pi->replies, text, len);
}

/* Cut the next line, a number behind its first character, off *p. */
static long number(char **p)
{
    long n = strtol(*p + 1, p, 10);
    *p += 2;
    return n;
}

static void tell_command(const struct pipe *pi, int argc, const hf_bytes *argv,
                         const struct reply_text *got)
{
    char text[1500];
    size_t n = 0;
    bool script = model->op >= 0;
    if (!script || model->op == OP_record) /* pings, greetings, scripts that are not known yet */
        return;
    for (int i = 3; i < argc && n < sizeof text - 60; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, " %.*s",
                              argv[i].len > 120 ? 120 : (int)argv[i].len,
                              (const char *)argv[i].data);
    n += (size_t)snprintf(text + n, sizeof text - n, "  ->");
    for (size_t i = 0; i < got->len && n < sizeof text - 3; i++)
        text[n++] = got->p[i] == '\r' || got->p[i] == '\n' ? ' ' : got->p[i];
    text[n] = '\0';
    world_tell("server%s: of client %d%s: %s%s", model_nodes == 1 ? "" : pi->server ? " B" : " A",
               pi->proc->id, pi->over || pi->closed ? ", a late copy" : "",
               op_name((enum op_id)model->op), text);
}

static const struct reply_text *run_command(struct pipe *pi, int argc, const hf_bytes *argv)
{
    struct model_way way = { .asking = pi->asking };
    for (int i = 0; i < MODEL_NODES; i++)
        way.port[i] = PORT + i * PORT_STEP + pi->proc->id;
    model = &model_node[pi->server];
    const struct reply_text *got = model_do(pi, &way, argc, argv);
    pi->asking = argc == 1 && memcmp(argv[0].data, "ASKING", 6) == 0;
    world_counts.commands++;
    world.late = pi->over || pi->closed;
    world_counts.late_copies += world.late;
    if (pi->over) /* it is not seen any more, whatever it asked for */
        model_disconnected(pi);
    if (world_tells)
        tell_command(pi, argc, argv, got);
    if (world.after)
        world.after(pi->proc->id);
    return got;
}

/* False: it was cut off before. */
static bool execute(struct pipe *pi, int argc, const hf_bytes *argv)
{
    bool speaks = !pi->silent && !pi->over && !pi->closed;
    if (speaks && happens(pi, world_net.cut)) {
        world_counts.cuts++;
        trouble(pi->proc, 0);
        world_tell("network: a connection of client %d is cut", pi->proc->id);
        end_pipe(pi);
        return false;
    }
    const struct reply_text *answer = run_command(pi, argc, argv);
    if (speaks && happens(pi, world_net.silence)) {
        world_counts.silences++;
        trouble(pi->proc, SILENCE_MS);
        pi->silent = true;
        pi->deaf = world_random(&pi->chance, 2);
        world_tell("network: silence on a connection of client %d", pi->proc->id);
    } else if (speaks && happens(pi, world_net.lose)) {
        world_counts.lost++;
        trouble(pi->proc, 0);
        world_tell("network: a connection of client %d is cut; the answer is lost", pi->proc->id);
        end_pipe(pi);
    } else if (speaks) {
        put(pi, &pi->replies, answer->p, answer->len);
    }
    return true;
}

static void execute_all(struct pipe *pi, char *bytes, size_t len)
{
    char *p = bytes;
    for (bool well = true; well && p < bytes + len;) {
        hf_bytes argv[ARGS_MAX];
        long argc = number(&p);
        CHECK_RANGE(argc, 1, ARGS_MAX);
        for (long i = 0; i < argc; i++) {
            long n = number(&p);
            argv[i] = (hf_bytes){ p, (size_t)n };
            p += n + 2;
        }
        well = execute(pi, (int)argc, argv);
    }
}

static void sweep_pipes(void)
{
    for (struct pipe *one = world.pipes, *next; one; one = next) {
        next = one->next;
        if (one->closed && !one->requests.head)
            free_pipe(one);
    }
}

/* All commands of one packet; the client never sends a part of one. */
static void arrive(struct pipe *pi)
{
    struct packet *packet = pi->requests.head;
    if (!(pi->requests.head = packet->next))
        pi->requests.tail = &pi->requests.head;
    if (packet->ends)
        model_disconnected(pi);
    else if (!pi->deaf)
        execute_all(pi, packet->bytes, packet->len - 1);
    pool_free(packet);
    sweep_pipes();
}

/* ---- the client's side ----------------------------------------------------------------------- */

static ssize_t pipe_read_now(struct stream *s, void *buf, size_t n)
{
    struct pipe *pi = (struct pipe *)s;
    struct packets *q = &pi->replies;
    struct packet *p = q->head;
    if (pi->proc->dead || (p && p->at_ms <= world.now_ms && p->ends)) {
        errno = ECONNRESET;
        return -1;
    }
    if (!p || p->at_ms > world.now_ms)
        return 0;
    n = n < p->len - p->read ? n : p->len - p->read;
    memcpy(buf, p->bytes + p->read, n);
    if ((p->read += n) == p->len)
        drop(q);
    return (ssize_t)n;
}

static bool readable(const struct pipe *pi)
{
    return pi->proc->dead || (pi->replies.head && pi->replies.head->at_ms <= world.now_ms);
}

static void sleep_until(int64_t true_ms, const void *on);

static bool pipe_wait(struct stream *s, int64_t until_ms, const void *on)
{
    const struct pipe *pi = (struct pipe *)s;
    if (pi && readable(pi))
        return true;
    if (until_ms <= seam_now()) /* who does not sleep needs time, too */
        until_ms = seam_now() + 1;
    world.self->stream = s;
    world.self->any = !s;
    sleep_until(true_of(world.self->proc, until_ms), on);
    world.self->stream = NULL;
    world.self->any = false;
    return pi && readable(pi);
}

static ssize_t pipe_read(struct stream *s, void *buf, size_t n)
{
    ssize_t got = pipe_read_now(s, buf, n);
    if (got)
        return got;
    pipe_wait(s, seam_now() + STREAM_TICK_MS, NULL);
    return pipe_read_now(s, buf, n);
}

static ssize_t pipe_writev(struct stream *s, const struct iovec *iov, int n)
{
    struct pipe *pi = (struct pipe *)s;
    size_t len = 0;
    for (int i = 0; i < n; i++)
        len += iov[i].iov_len;
    if (pi->proc->dead) {
        errno = EPIPE;
        return -1;
    }
    if (pi->over || len == 0)
        return (ssize_t)len;
    struct packet *p = put(pi, &pi->requests, NULL, len + 1);
    char *at = p->bytes;
    for (int i = 0; i < n; at += iov[i++].iov_len)
        memcpy(at, iov[i].iov_base, iov[i].iov_len);
    *at = '\0';
    return (ssize_t)len;
}

/* What was sent may be lost with it. The server learns of it, unless nothing arrives there. */
static void pipe_shut(struct pipe *pi)
{
    if (pi->closed)
        return;
    pi->closed = true;
    clear(&pi->replies);
    if (pi->over)
        return;
    leave_behind(pi);
    put(pi, &pi->requests, NULL, 0)->ends = true;
    if (pi->deaf) { /* half open: it is noticed when nobody cares any more */
        pi->requests.last_ms = world.now_ms + 10 * LINGER_MS;
        for (struct packet *p = pi->requests.head; p; p = p->next)
            p->at_ms = pi->requests.last_ms;
    }
}

static void pipe_close(struct stream *s, int reset)
{
    struct pipe *pi = (struct pipe *)s;
    (void)reset;
    if (!pi->closed)
        pipe_shut(pi);
    if (!pi->requests.head)
        free_pipe(pi);
}

static const struct stream_ops pipe_ops = {
    .read = pipe_read, .read_now = pipe_read_now, .writev = pipe_writev, .close = pipe_close,
};

static struct pipe *new_pipe(struct world_proc *proc, int server)
{
    struct pipe *pi = pool_zero(sizeof *pi);
    pi->s = (struct stream){ .ops = &pipe_ops, .fd = -1 };
    pi->proc = proc;
    pi->server = server;
    pi->chance = world.seed ^ (uint64_t)(proc->id + 1) << 48 ^ (uint64_t)++proc->connections << 32;
    pi->requests.tail = &pi->requests.head;
    pi->replies.tail = &pi->replies.head;
    pi->next = world.pipes;
    world.pipes = pi;
    return pi;
}

static hf_err pipe_open(const struct url *u, const struct url_host *host, const struct limit *lim,
                        struct stream **ret, hf_error *reterr)
{
    struct world_proc *proc = &world.proc[(host->port - PORT) % PORT_STEP];
    int server = (host->port - PORT) / PORT_STEP;
    (void)u;
    if (!proc->dead)
        clock_sleep_until(clock_earlier(seam_now() + world_between(&proc->chance, 0, 2),
                                        lim->at_ms));
    if (proc->dead || world.now_ms < world.server[server].down_until_ms) {
        world_counts.refused++;
        if (proc->dead) /* whoever tries again and again must not keep the time */
            clock_sleep_until(seam_now() + 1);
        return err_set(reterr, HF_ECONN, "nobody answers at port %d", host->port);
    }
    world_counts.connections++;
    *ret = &new_pipe(proc, server)->s;
    return HF_OK;
}

/* There is something to read. */
static void tell(const struct pipe *pi, struct packet *p)
{
    p->told = true;
    pi->proc->opened = true;
    for (struct thread *t = world.threads; t; t = t->next)
        if (t->stream == pi || (t->any && t->proc == pi->proc))
            t->wake_ms = world.now_ms;
}

/* ---- what comes first ------------------------------------------------------------------------ */

struct event {
    int64_t        at_ms;
    unsigned       rivals; /* at the same time */
    struct thread *thread;
    struct pipe   *pipe;
    struct packet *reply; /* of the pipe; NULL: a request of it */
};

static void consider(struct event *best, int64_t at, struct thread *t, struct pipe *pi,
                     struct packet *reply)
{
    if (at < world.now_ms)
        at = world.now_ms;
    if (at > best->at_ms || at == WORLD_NEVER)
        return;
    unsigned rivals = at == best->at_ms ? best->rivals + 1 : 1;
    if (rivals == 1 || world_random(&world.chance, rivals) == 0)
        *best = (struct event){ .at_ms = at, .thread = t, .pipe = pi, .reply = reply };
    best->rivals = rivals;
}

static int64_t wakes_at(struct thread *t)
{
    int64_t at = t->wake_ms;
    if (t->due) {
        struct thread *was = world.self;
        world.self = t;
        int64_t due = t->proc->opened ? 0 : true_of(t->proc, t->due(t->due_arg));
        world.self = was;
        at = due < at ? due : at;
    }
    return t->proc && t->proc->frozen_until > at ? t->proc->frozen_until : at;
}

static void consider_pipe(struct event *best, struct pipe *pi)
{
    struct packet *untold = pi->replies.head;
    while (untold && untold->told)
        untold = untold->next;
    if (pi->requests.head) {
        int64_t at = pi->requests.head->at_ms, free = world.server[pi->server].stalled_until_ms;
        consider(best, at < free ? free : at, NULL, pi, NULL);
    }
    if (untold)
        consider(best, untold->at_ms, NULL, pi, untold);
}

static struct event next_event(void)
{
    struct event best = { .at_ms = WORLD_NEVER };
    for (struct thread *t = world.threads; t; t = t->next)
        if (!t->done)
            consider(&best, wakes_at(t), t, NULL, NULL);
    for (struct pipe *pi = world.pipes; pi; pi = pi->next)
        consider_pipe(&best, pi);
    return best;
}

static void note(const struct event *e)
{
    uint64_t what = e->thread ? 1 : e->reply ? 3 : 4;
    world_counts.events++;
    world_counts.trace = (world_counts.trace ^ (uint64_t)e->at_ms ^ what << 48) * 1099511628211u;
    if (e->at_ms > world.now_ms)
        world.at_once = 0;
    else if (++world.at_once > AT_ONCE_MAX)
        FAIL("no end of it at %lld ms", (long long)(world.now_ms - BEGINNING_MS));
    world.now_ms = e->at_ms;
    keep_clock();
}

static struct thread *next_thread(void)
{
    for (;;) {
        struct event e = next_event();
        if (e.at_ms == WORLD_NEVER)
            FAIL("all sleep, and nothing will ever happen");
        note(&e);
        if (e.thread)
            return e.thread;
        world.inside = true;
        if (e.reply)
            tell(e.pipe, e.reply);
        else
            arrive(e.pipe);
        if (world.watch)
            world.watch();
        world.inside = false;
    }
}

/* ---- threads --------------------------------------------------------------------------------- */

/* What happens meanwhile happens in the fiber that sleeps, until a thread wakes up. */
static void sleep_until(int64_t true_ms, const void *on)
{
    struct thread *me = world.self;
    CHECK(!world.inside);
    me->wake_ms = true_ms;
    me->on = on;
    if (world.watch)
        world.watch();
    world.self = &world.first;
    struct thread *next = next_thread();
    world.self = next;
    if (next != me) {
        world_counts.switches++;
        fiber_switch(next->fiber);
    }
    me->on = NULL;
}

static void seam_sleep(int64_t at_ms, const void *on)
{
    sleep_until(true_of(world.self->proc, at_ms), on);
}

static void wake(const void *on)
{
    for (struct thread *t = world.threads; t; t = t->next)
        if (t->on == on && t->on)
            t->wake_ms = world.now_ms;
}

static void thread_main(void *arg)
{
    struct thread *me = arg;
    if (me->main_fn)
        me->main_fn(me->arg);
    else
        me->fn(me->arg);
    me->done = true;
    wake(me); /* whoever wants to join it */
    world.self = &world.first;
    struct thread *next = next_thread();
    world.self = next;
    fiber_leave(next->fiber);
}

static struct thread *start(struct world_proc *proc)
{
    struct thread *t = pool_zero(sizeof *t);
    t->proc = proc;
    t->wake_ms = world.now_ms;
    t->next = world.threads;
    world.threads = t;
    t->fiber = fiber_new(thread_main, t);
    return t;
}

void world_start(struct world_proc *p, void (*fn)(void *), void *arg)
{
    struct thread *t = start(p);
    t->fn = fn;
    t->arg = arg;
}

static int seam_start(pthread_t *ret, void *(*main_fn)(void *), void *arg)
{
    struct thread *t = start(world.self->proc);
    t->main_fn = main_fn;
    t->arg = arg;
    memcpy(ret, &t, sizeof t < sizeof *ret ? sizeof t : sizeof *ret);
    return 0;
}

static void forget(struct thread *t)
{
    struct thread **p = &world.threads;
    while (*p != t)
        p = &(*p)->next;
    *p = t->next;
    pool_free(t);
}

static void seam_join(pthread_t thread)
{
    struct thread *t;
    memcpy(&t, &thread, sizeof t);
    while (!t->done)
        sleep_until(WORLD_NEVER, t);
    forget(t);
}

void world_sleep(int64_t ms)
{
    clock_sleep_until(seam_now() + ms);
}

void world_sleep_due(int64_t (*due)(void *arg), void *arg)
{
    struct thread *me = world.self;
    me->due = due;
    me->due_arg = arg;
    sleep_until(WORLD_NEVER, NULL);
    me->due = NULL;
    me->proc->opened = false;
}

bool world_alone(void)
{
    for (struct thread *t = world.threads, *next; t; t = next) {
        next = t->next;
        if (t->done && t->fn)
            forget(t);
    }
    return world.threads == &world.first && !world.first.next;
}

/* ---- processes ------------------------------------------------------------------------------- */

struct world_proc *world_add_proc(int64_t ppm)
{
    CHECK(world.nprocs < WORLD_PROCS);
    struct world_proc *p = &world.proc[world.nprocs];
    *p = (struct world_proc){ .id = world.nprocs, .ppm = ppm };
    p->chance = world.seed ^ (uint64_t)(p->id + 1) << 56;
    world.nprocs++;
    return p;
}

const char *world_url(const struct world_proc *p, char ret[WORLD_URL_SIZE])
{
    int port = PORT + p->id;
    if (model_nodes == 1)
        snprintf(ret, WORLD_URL_SIZE, "redis://nowhere:%d", port);
    else
        snprintf(ret, WORLD_URL_SIZE, "redis+cluster://nowhere:%d,nowhere:%d", port,
                 port + PORT_STEP);
    return ret;
}

void world_freeze(struct world_proc *p, int64_t ms)
{
    if (p->dead)
        return;
    world_counts.pauses++;
    p->frozen_until = world.now_ms + ms;
}

void world_kill(struct world_proc *p)
{
    if (p->dead)
        return;
    world_counts.crashes++;
    p->dead = true;
    p->frozen_until = WORLD_NEVER;
    for (struct pipe *pi = world.pipes; pi; pi = pi->next)
        if (pi->proc == p && !pi->closed) {
            pipe_shut(pi);
            pi->closed = false; /* by close(2), that is: it is freed there */
            pi->over = true;
        }
}

void world_bury(struct world_proc *p)
{
    p->frozen_until = 0;
    p->opened = true;
}

/* ---- begin and end --------------------------------------------------------------------------- */

static uint64_t seam_self(void)
{
    return (uint64_t)(uintptr_t)fiber_self();
}

/* The linker gives it for the real one, which reads files of the system: for people, and a tenth of
 * the time of a schedule. */
void __wrap_identity_complete(struct identity *id);
void __wrap_identity_complete(struct identity *id)
{
    if (id->complete)
        return;
    snprintf(id->pid, sizeof id->pid, "1");
    snprintf(id->user, sizeof id->user, "somebody");
    snprintf(id->start, sizeof id->start, "1");
    snprintf(id->boot, sizeof id->boot, "1");
    id->complete = true;
}

static const struct seam simulated = {
    .now_ms = seam_now, .sleep_until = seam_sleep, .random = seam_random,
    .wake = wake, .start = seam_start, .join = seam_join, .self = seam_self,
};

void world_begin(uint64_t seed, int servers)
{
    memset(&world, 0, sizeof world);
    memset(&world_counts, 0, sizeof world_counts);
    world.now_ms = BEGINNING_MS;
    uint64_t mixed = seed;
    world.seed = draw(&mixed);
    world.chance = world.seed;
    world.first.fiber = fiber_self();
    world.threads = world.self = &world.first;
    seam_set(&simulated);
    stream_set_opener(pipe_open);
    stream_set_waiter(pipe_wait);
    model_reset(servers);
    model_on_push(push);
    keep_clock();
}

void world_end(void)
{
    CHECK(world_alone());
    while (world.pipes)
        free_pipe(world.pipes);
    seam_set(NULL);
    stream_set_opener(NULL);
    stream_set_waiter(NULL);
}

void world_on_command(void (*after)(int proc))
{
    world.after = after;
}

bool world_late(void)
{
    return world.late;
}

void world_watch(void (*fn)(void))
{
    world.watch = fn;
}
