/* SPDX-License-Identifier: MIT
 * replay.c - the very commands that the library sends, sent without it; see replay.h.
 */
#include "lib/replay.h"

#include <ctype.h>
#include <holdfast.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "harness/keep.h"
#include "harness/t.h"
#include "lib/bare.h"
#include "lib/locks.h"

#define NAME   "replayed-lock"
#define DIGITS 6  /* of a token's counter */
#define FENCE  16 /* digits of a fencing number */

enum { ARGS_MAX = 16, PLACES_MAX = 4, BYTES_MAX = 1024, WARM_MS = 200 };

/* ---- what the library sends ---- */

struct command {
    int   argc;
    char *argv[ARGS_MAX];
};

struct replay {
    struct command take, give;
    char           token[80], fence[32];
};

/* The last EVALSHA in the text that speaks of our lock. */
static struct command command_of(const char *text)
{
    struct command c = { 0 };
    const char *line = NULL;
    for (const char *p = text; (p = strstr(p, "\"EVALSHA\" ")); p++)
        if (strstr(p, NAME) && strstr(p, NAME) < p + strcspn(p, "\n"))
            line = p;
    if (!line)
        FAIL("no script was seen in %s", text);
    for (const char *p = line; *p == '"'; p += *p == ' ') {
        const char *end = strchr(p + 1, '"');
        CHECK(end && c.argc < ARGS_MAX);
        c.argv[c.argc++] = keep_text("%.*s", (int)(end - p - 1), p + 1);
        p = end + 1;
    }
    return c;
}

static int is_token(const char *arg)
{
    size_t n = strspn(arg, "0123456789abcdef");
    return n == 32 && arg[n] == '.' && isdigit((unsigned char)arg[n + 1])
           && strspn(arg + n + 1, "0123456789") == strlen(arg + n + 1);
}

struct replay *replay_learn(struct server *s)
{
    struct replay *r = keep_block(calloc(1, sizeof *r));
    hf_client *c = bench_client(server_tcp_url(s));
    hf_lock *m = bench_lock(c, NAME, NULL);
    bench_pair(m); /* the first time they are sent as text */
    server_monitor_start(s);
    bench_wait(m); /* as the others here do: a try sends less */
    snprintf(r->fence, sizeof r->fence, "%llu", (unsigned long long)hf_lock_fence(m));
    r->take = command_of(server_monitor_text(s));
    server_monitor_clear(s);
    bench_give(m);
    r->give = command_of(server_monitor_text(s));
    hf_lock_free(m);
    hf_client_free(c);
    for (int i = 0; i < r->take.argc; i++)
        if (is_token(r->take.argv[i]))
            snprintf(r->token, sizeof r->token, "%s", r->take.argv[i]);
    CHECK(r->token[0] && strlen(r->fence) == FENCE);
    server_restart(s);
    c = bench_client(server_tcp_url(s));
    m = bench_lock(c, NAME, NULL);
    bench_pair(m);
    hf_lock_free(m);
    hf_client_free(c);
    return r;
}

/* ---- the bytes of one lock ---- */

struct bytes {
    char  *at;
    size_t len;
    char  *counter[PLACES_MAX], *fence[PLACES_MAX]; /* where these digits are; NULL at the end */
};

struct replay_lock {
    struct bytes take, give;
    int          turn, holding;
    int64_t      begun_ns;
};

static void remember(char **places, char *at)
{
    int i = 0;
    while (places[i])
        i++;
    CHECK(i < PLACES_MAX - 1);
    places[i] = at;
}

/* One argument for this lock, and where in it what is found that changes. */
static size_t fill_in(const struct replay *r, const char *arg, int index, char *out,
                      char **counter, char **fence)
{
    size_t n = 0;
    *counter = *fence = NULL;
    while (*arg) {
        if (strncmp(arg, NAME, strlen(NAME)) == 0) {
            n += (size_t)sprintf(out + n, "async%05d", index);
            arg += strlen(NAME);
        } else if (strncmp(arg, r->token, strlen(r->token)) == 0) {
            n += (size_t)sprintf(out + n, "%.24s%08x.%0*d", r->token, (unsigned)index, DIGITS, 0);
            *counter = out + n - DIGITS;
            arg += strlen(r->token);
        } else if (strncmp(arg, r->fence, FENCE) == 0) {
            *fence = out + n;
            n += (size_t)sprintf(out + n, "%s", r->fence);
            arg += FENCE;
        } else {
            out[n++] = *arg++;
        }
    }
    return n;
}

static struct bytes bytes_of(const struct replay *r, const struct command *c, int index)
{
    struct bytes b = { .at = malloc(BYTES_MAX) };
    CHECK(b.at);
    b.len = (size_t)sprintf(b.at, "*%d\r\n", c->argc);
    for (int i = 0; i < c->argc; i++) {
        char arg[256], *counter, *fence;
        CHECK(strlen(c->argv[i]) < sizeof arg - 64 && b.len + strlen(c->argv[i]) + 96 < BYTES_MAX);
        size_t n = fill_in(r, c->argv[i], index, arg, &counter, &fence);
        b.len += (size_t)sprintf(b.at + b.len, "$%zu\r\n", n);
        memcpy(b.at + b.len, arg, n);
        if (counter)
            remember(b.counter, b.at + b.len + (counter - arg));
        if (fence)
            remember(b.fence, b.at + b.len + (fence - arg));
        memcpy(b.at + b.len + n, "\r\n", 2);
        b.len += n + 2;
    }
    return b;
}

struct replay_lock *replay_lock_new(const struct replay *r, int index)
{
    struct replay_lock *l = calloc(1, sizeof *l);
    CHECK(l);
    l->take = bytes_of(r, &r->take, index);
    l->give = bytes_of(r, &r->give, index);
    return l;
}

void replay_lock_free(struct replay_lock *l)
{
    free(l->take.at);
    free(l->give.at);
    free(l);
}

static const struct bytes *next_command(struct replay_lock *l)
{
    char digits[16];
    if (l->holding)
        return &l->give;
    int turn = ++l->turn;
    for (int i = DIGITS; i > 0; turn /= 10) /* after a million they are the first again: no harm */
        digits[--i] = (char)('0' + turn % 10);
    for (int i = 0; l->take.counter[i]; i++)
        memcpy(l->take.counter[i], digits, DIGITS);
    for (int i = 0; l->give.counter[i]; i++)
        memcpy(l->give.counter[i], digits, DIGITS);
    return &l->take;
}

/* reply is a line. */
static void got(struct replay_lock *l, const char *reply, size_t len)
{
    if (*reply != ':' || len != (l->holding ? 2 : FENCE + 1))
        FAIL("%.*s", (int)len, reply);
    for (int i = 0; !l->holding && l->give.fence[i]; i++)
        memcpy(l->give.fence[i], reply + 1, FENCE);
    l->holding = !l->holding;
}

void replay_pair(struct replay_lock *l, int fd)
{
    for (int k = 0; k < 2; k++) {
        char in[64];
        const struct bytes *b = next_command(l);
        bare_send(fd, b->at, b->len);
        ssize_t n = recv(fd, in, sizeof in, 0);
        CHECK(n > 2);
        got(l, in, (size_t)n - 2);
    }
}

/* ---- many under way ---- */

struct loop {
    struct replay_lock **l;
    struct cost          cost;
    struct samples       us;
    struct meter         meter;
    int                  n, fd, *queue; /* those that wait for a reply, in order */
    size_t               head, tail;
    char                *out, *in;
    size_t               used, have, in_room;
    int                  counting, stopping;
};

static void send_next(struct loop *p, int i)
{
    const struct bytes *b = next_command(p->l[i]);
    if (!p->l[i]->holding)
        p->l[i]->begun_ns = t_now_ns();
    memcpy(p->out + p->used, b->at, b->len);
    p->used += b->len;
    p->queue[p->tail++ % (size_t)p->n] = i;
}

static void answered(struct loop *p, const char *reply, size_t len)
{
    int i = p->queue[p->head++ % (size_t)p->n];
    int released = p->l[i]->holding;
    got(p->l[i], reply, len);
    if (released && p->counting)
        samples_add(&p->us, (double)(t_now_ns() - p->l[i]->begun_ns) / 1000);
    if (!released || !p->stopping)
        send_next(p, i);
}

static void read_some(struct loop *p)
{
    ssize_t n = recv(p->fd, p->in + p->have, p->in_room - p->have, 0);
    CHECK(n > 0);
    p->have += (size_t)n;
    char *at = p->in, *end;
    while ((end = memchr(at, '\n', (size_t)(p->in + p->have - at)))) {
        answered(p, at, (size_t)(end - at) - 1);
        at = end + 1;
    }
    p->have -= (size_t)(at - p->in);
    memmove(p->in, at, p->have);
}

static void go_through_times(struct loop *p, struct server *s, int64_t start_ns, int run_ms)
{
    int64_t ms = (t_now_ns() - start_ns) / 1000000;
    if (!p->counting && !p->stopping && ms >= WARM_MS) {
        meter_begin(&p->meter, s, SENT_BY_HOLDFAST);
        p->counting = 1;
    } else if (p->counting && ms >= WARM_MS + run_ms) {
        p->cost = meter_end(&p->meter, (double)p->us.n, &p->us);
        p->counting = 0;
        p->stopping = 1;
    }
}

struct cost replay_loop(const struct replay *r, struct server *s, int under_way, int run_ms)
{
    struct loop p = { .n = under_way, .fd = bare_dial(s), .in_room = 1 << 16 };
    p.l = calloc((size_t)under_way, sizeof *p.l);
    p.queue = calloc((size_t)under_way, sizeof *p.queue);
    p.out = malloc((size_t)under_way * BYTES_MAX);
    p.in = malloc(p.in_room);
    CHECK(p.l && p.queue && p.out && p.in);
    int64_t start_ns = t_now_ns();
    for (int i = 0; i < under_way; i++) {
        p.l[i] = replay_lock_new(r, i);
        send_next(&p, i);
    }
    while (p.head != p.tail || p.used) {
        bare_send(p.fd, p.out, p.used);
        p.used = 0;
        read_some(&p);
        go_through_times(&p, s, start_ns, run_ms);
    }
    for (int i = 0; i < under_way; i++)
        replay_lock_free(p.l[i]);
    close(p.fd);
    free(p.l);
    free(p.queue);
    free(p.out);
    free(p.in);
    samples_free(&p.us);
    return p.cost;
}
