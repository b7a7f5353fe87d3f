/* SPDX-License-Identifier: MIT
 * proxy.c - the faulty wire; see proxy.h.
 *
 * One thread polls everything. Bytes read become chunks with the time at which they may go on:
 * now, later (delay) or never (held). A queue is strictly first in, first out, as a stream is.
 */
#include "harness/proxy.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "harness/keep.h"
#include "harness/sockets.h"
#include "harness/t.h"

enum mode { PASS, HOLD, DROP, CUT, DELAY, REFUSE, DRIP };
enum { PAIRS_MAX = 256, DROPS = 4000 };
#define NEVER INT64_MAX

struct chunk {
    struct chunk *next;
    int64_t due_ms;
    size_t len, sent;
    char data[];
};

struct queue {
    struct chunk *first, **end;
};

struct pair {
    int client;     /* -1 once the client has gone: what it had sent may still be held */
    int server;
    int deaf;       /* a reply was dropped: a stream has no holes, so nothing comes after it */
    int drips;      /* instead of the reply this comes, drop by drop */
    struct queue up, down;
};

struct proxy {
    struct proxy *next;
    struct server *s;
    int running;
    char url[160];
    int listener, wake;
    pthread_t thread;
    pthread_mutex_t mu; /* all below */
    enum mode mode;
    enum mode armed_mode;
    char armed_text[128]; /* not empty: armed_mode begins with this text */
    int arming;           /* proxy_when() was called, the mode is still to come */
    size_t cut_left;
    int64_t delay_ms;
    long connections, dropped, cuts, delayed, refused, dripped, late;
    int pairs_changed; /* by a call, while the thread was in poll() */
    int npairs;
    struct pair pairs[PAIRS_MAX];
};

static struct proxy *all; /* so that nothing here counts as a leak */

/* ---- queues ---- */

static void queue_add(struct queue *q, const char *data, size_t len, int64_t due_ms)
{
    struct chunk *c = malloc(sizeof *c + len);
    CHECK(c);
    *c = (struct chunk){ .len = len, .due_ms = due_ms };
    memcpy(c->data, data, len);
    if (!q->first)
        q->end = &q->first;
    *q->end = c;
    q->end = &c->next;
}

static void queue_clear(struct queue *q)
{
    while (q->first) {
        struct chunk *c = q->first;
        q->first = c->next;
        free(c);
    }
}

/* Send what is due; how much was sent. -1 when the other side is gone. */
static ssize_t queue_send(struct queue *q, int fd, int64_t now)
{
    ssize_t total = 0;
    while (q->first && q->first->due_ms <= now) {
        struct chunk *c = q->first;
        ssize_t n = send(fd, c->data + c->sent, c->len - c->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0)
            return errno == EAGAIN ? total : -1;
        total += n;
        c->sent += (size_t)n;
        if (c->sent == c->len) {
            q->first = c->next;
            free(c);
        }
    }
    return total;
}

/* When to look again: 0 = as soon as the socket takes more. */
static int64_t queue_wait(const struct queue *q, int64_t now)
{
    return !q->first || q->first->due_ms == NEVER ? NEVER
           : q->first->due_ms > now               ? q->first->due_ms - now
                                                  : 0;
}

/* ---- pairs ---- */

/* A forked worker may have copies of these descriptors, so close() alone would not be seen. */
static void hang_up(int *fd)
{
    if (*fd >= 0) {
        shutdown(*fd, SHUT_RDWR);
        close(*fd);
    }
    *fd = -1;
}

static void pair_close(struct proxy *p, int i)
{
    struct pair *x = &p->pairs[i];
    hang_up(&x->client);
    hang_up(&x->server);
    queue_clear(&x->up);
    queue_clear(&x->down);
    p->pairs[i] = p->pairs[--p->npairs];
    /* The moved queues' ends are inside chunks, or are set anew when empty: nothing to mend. */
}

static void pair_accept(struct proxy *p)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    int client = accept4(p->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (client < 0)
        return;
    snprintf(a.sun_path, sizeof a.sun_path, "%s", server_socket(p->s));
    int server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    p->connections++;
    p->refused += p->mode == REFUSE;
    if (p->mode == REFUSE || p->npairs == PAIRS_MAX
        || connect(server, (struct sockaddr *)&a, sizeof a) != 0) {
        hang_up(&client);
        hang_up(&server);
        return;
    }
    p->pairs[p->npairs++] = (struct pair){ .client = client, .server = server };
}

/* 0, or -1: the pair is to be closed. */
static int from_client(struct proxy *p, struct pair *x)
{
    char buf[65536];
    ssize_t n = recv(x->client, buf, sizeof buf, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN)
        return 0;
    if (n <= 0) {
        if (!x->up.first)
            return -1;
        hang_up(&x->client); /* its last requests are still on the wire */
        return 0;
    }
    if (p->armed_text[0] && memmem(buf, (size_t)n, p->armed_text, strlen(p->armed_text))) {
        p->mode = p->armed_mode;
        p->armed_text[0] = 0;
    }
    int64_t due = p->mode == HOLD ? NEVER : p->mode == DELAY ? t_now_ms() + p->delay_ms : 0;
    p->delayed += p->mode == DELAY ? n : 0;
    queue_add(&x->up, buf, (size_t)n, due);
    return 0;
}

/* A reply that never ends, one byte at a time. */
static void drip(struct proxy *p, struct pair *x)
{
    const char *head = "$1000000\r\n";
    int64_t due = t_now_ms();
    x->deaf = x->drips = 1;
    for (int i = 0; i < DROPS; i++, due += p->delay_ms)
        queue_add(&x->down, *head ? head++ : "x", 1, due);
}

static int from_server(struct proxy *p, struct pair *x)
{
    char buf[65536];
    ssize_t n = recv(x->server, buf, sizeof buf, MSG_DONTWAIT);
    if (n <= 0)
        return n < 0 && errno == EAGAIN ? 0 : -1;
    if (p->mode == DRIP && x->client >= 0 && !x->deaf)
        drip(p, x);
    if (p->mode == DROP || x->client < 0 || x->deaf) {
        p->dropped += n;
        x->deaf = 1;
        return 0;
    }
    if (p->mode == CUT && (size_t)n >= p->cut_left) {
        queue_add(&x->down, buf, p->cut_left, 0);
        queue_send(&x->down, x->client, 0);
        p->dropped += n - (ssize_t)p->cut_left;
        p->cuts++;
        p->mode = PASS;
        return -1;
    }
    if (p->mode == CUT)
        p->cut_left -= (size_t)n;
    p->delayed += p->mode == DELAY ? n : 0;
    queue_add(&x->down, buf, (size_t)n, p->mode == DELAY ? t_now_ms() + p->delay_ms : 0);
    return 0;
}

static int pair_step(struct proxy *p, struct pair *x, short client_events, short server_events)
{
    int64_t now;
    if (client_events & (POLLIN | POLLHUP | POLLERR) && from_client(p, x) < 0)
        return -1;
    if (server_events & (POLLIN | POLLHUP | POLLERR) && from_server(p, x) < 0)
        return -1;
    now = t_now_ms();
    ssize_t up = queue_send(&x->up, x->server, now);
    if (up < 0)
        return -1;
    p->late += x->client < 0 ? up : 0;
    if (x->client < 0 && !x->up.first)
        shutdown(x->server, SHUT_WR); /* the client's end of stream comes after its last byte */
    ssize_t n = x->client >= 0 ? queue_send(&x->down, x->client, now) : 0;
    p->dripped += x->drips && n > 0 ? n : 0;
    return n < 0 ? -1 : 0;
}

/* ---- the thread ---- */

static void want(struct pollfd *f, int fd, const struct queue *out, int64_t now, int64_t *wait)
{
    int64_t w = queue_wait(out, now);
    *f = (struct pollfd){ .fd = fd, .events = POLLIN };
    if (fd >= 0 && w == 0)
        f->events |= POLLOUT;
    else if (fd >= 0 && w < *wait)
        *wait = w;
}

static void *run(void *arg)
{
    struct proxy *p = arg;
    static _Thread_local struct pollfd fds[2 + 2 * PAIRS_MAX];
    pthread_mutex_lock(&p->mu);
    p->running = 1;
    for (;;) {
        uint64_t woken;
        int64_t now = t_now_ms(), wait = 1000;
        int n = p->npairs;
        fds[0] = (struct pollfd){ .fd = p->wake, .events = POLLIN };
        fds[1] = (struct pollfd){ .fd = p->listener, .events = POLLIN };
        for (int i = 0; i < n; i++) {
            want(&fds[2 + 2 * i], p->pairs[i].client, &p->pairs[i].down, now, &wait);
            want(&fds[3 + 2 * i], p->pairs[i].server, &p->pairs[i].up, now, &wait);
        }
        pthread_mutex_unlock(&p->mu);
        poll(fds, 2 + 2 * (nfds_t)n, (int)wait);
        pthread_mutex_lock(&p->mu);
        if (fds[0].revents && read(p->wake, &woken, sizeof woken) < 0)
            CHECK(errno == EAGAIN);
        if (p->pairs_changed) { /* the events are of pairs that are no more */
            p->pairs_changed = 0;
            continue;
        }
        for (int i = n - 1; i >= 0; i--) /* from the end: closing moves the last one here */
            if (pair_step(p, &p->pairs[i], fds[2 + 2 * i].revents, fds[3 + 2 * i].revents) < 0)
                pair_close(p, i);
        if (fds[1].revents)
            pair_accept(p);
    }
    return NULL;
}

static struct proxy *start(struct server *s, int fd)
{
    struct proxy *p = calloc(1, sizeof *p);
    sigset_t every, old;
    CHECK(p && fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
    p->next = all;
    all = p;
    p->s = s;
    p->listener = fd;
    p->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    CHECK(p->wake >= 0);
    pthread_mutex_init(&p->mu, NULL);
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &old);
    CHECK(pthread_create(&p->thread, NULL, run, p) == 0);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    /* A thread that is just starting is inside ASan's allocator: a worker forked now would find it
     * locked for ever. */
    for (int running = 0; !running; t_sleep_ms(1)) {
        pthread_mutex_lock(&p->mu);
        running = p->running;
        pthread_mutex_unlock(&p->mu);
    }
    return p;
}

struct proxy *proxy_start(struct server *s)
{
    static int count;
    const char *path = keep_text("%s/x%d", t_dir(), ++count);
    struct proxy *p = start(s, socket_listen_unix(128, path));
    snprintf(p->url, sizeof p->url, "unix://%s", path);
    return p;
}

struct proxy *proxy_start_tcp(struct server *s)
{
    int port;
    struct proxy *p = start(s, socket_listen(128, &port));
    snprintf(p->url, sizeof p->url, "redis://127.0.0.1:%d", port);
    return p;
}

const char *proxy_url(const struct proxy *p)
{
    return p->url;
}

/* ---- calls: each changes the state under the mutex and wakes the thread ---- */

static void let_go(struct proxy *p)
{
    for (int i = 0; i < p->npairs; i++)
        for (struct chunk *c = p->pairs[i].up.first; c; c = c->next)
            if (c->due_ms == NEVER)
                c->due_ms = 0;
}

static void wake(struct proxy *p)
{
    uint64_t one = 1;
    CHECK(write(p->wake, &one, sizeof one) == sizeof one);
}

static void set_mode(struct proxy *p, enum mode mode, size_t cut_left, int64_t delay_ms)
{
    pthread_mutex_lock(&p->mu);
    p->cut_left = cut_left;
    p->delay_ms = delay_ms;
    if (p->arming) {
        p->armed_mode = mode;
        p->arming = 0;
    } else {
        p->mode = mode;
        p->armed_text[0] = 0;
        if (mode != HOLD)
            let_go(p);
    }
    pthread_mutex_unlock(&p->mu);
    wake(p);
}

void proxy_pass(struct proxy *p)
{
    set_mode(p, PASS, 0, 0);
}

void proxy_hold(struct proxy *p)
{
    set_mode(p, HOLD, 0, 0);
}

void proxy_drop_replies(struct proxy *p)
{
    set_mode(p, DROP, 0, 0);
}

void proxy_cut_after(struct proxy *p, size_t k)
{
    set_mode(p, CUT, k, 0);
}

void proxy_delay(struct proxy *p, int64_t ms)
{
    set_mode(p, DELAY, 0, ms);
}

void proxy_drip(struct proxy *p, int64_t ms)
{
    set_mode(p, DRIP, 0, ms);
}

void proxy_refuse(struct proxy *p)
{
    set_mode(p, REFUSE, 0, 0);
}

void proxy_let_go(struct proxy *p)
{
    pthread_mutex_lock(&p->mu);
    let_go(p);
    pthread_mutex_unlock(&p->mu);
    wake(p);
}

void proxy_when(struct proxy *p, const char *text)
{
    pthread_mutex_lock(&p->mu);
    snprintf(p->armed_text, sizeof p->armed_text, "%s", text);
    p->armed_mode = p->mode; /* until the mode is named */
    p->arming = 1;
    pthread_mutex_unlock(&p->mu);
}

void proxy_break(struct proxy *p)
{
    pthread_mutex_lock(&p->mu);
    while (p->npairs)
        pair_close(p, p->npairs - 1);
    p->pairs_changed = 1;
    pthread_mutex_unlock(&p->mu);
    wake(p);
}

void proxy_trouble(struct proxy *p)
{
    switch (t_random(5)) {
    case 0: proxy_cut_after(p, t_random(120)); break;
    case 1: proxy_drop_replies(p); break;
    case 2: proxy_hold(p); break;
    case 3: proxy_delay(p, (int64_t)t_random(30)); break;
    default: proxy_break(p);
    }
    t_sleep_ms((int64_t)t_random(80));
    proxy_pass(p);
    t_sleep_ms((int64_t)t_random(60));
}

static long get(struct proxy *p, const long *field)
{
    pthread_mutex_lock(&p->mu);
    long n = *field;
    pthread_mutex_unlock(&p->mu);
    return n;
}

long proxy_connections(struct proxy *p)
{
    return get(p, &p->connections);
}

long proxy_dropped(struct proxy *p)
{
    return get(p, &p->dropped);
}

long proxy_cuts(struct proxy *p)
{
    return get(p, &p->cuts);
}

long proxy_delayed(struct proxy *p)
{
    return get(p, &p->delayed);
}

long proxy_refused(struct proxy *p)
{
    return get(p, &p->refused);
}

long proxy_dripped(struct proxy *p)
{
    return get(p, &p->dripped);
}

long proxy_late(struct proxy *p)
{
    return get(p, &p->late);
}

long proxy_held(struct proxy *p)
{
    long n = 0;
    pthread_mutex_lock(&p->mu);
    for (int i = 0; i < p->npairs; i++)
        for (struct chunk *c = p->pairs[i].up.first; c; c = c->next)
            n += c->due_ms == NEVER ? (long)(c->len - c->sent) : 0;
    pthread_mutex_unlock(&p->mu);
    return n;
}
