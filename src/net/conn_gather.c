/* SPDX-License-Identifier: MIT
 * conn_gather.c - one request to each of several connections, all at the same moment.
 *
 * The caller leads every connection that nobody leads, in one poll(2) over all of them; where
 * another thread leads, that thread reads our reply too and rings a bell. A request that is not
 * waited for any more is an orphan: its reply is swallowed, and the connection stays.
 */
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/forkguard.h"
#include "base/mem.h"
#include "net/conn_impl.h"

/* It never left. */
static void forget_request(struct request *r)
{
    if (r->keepsake)
        r->keepsake->over(r->keepsake, true);
    resp_format_free(r->bytes);
    mem_free(r);
}

hf_err conn_begin(struct conn *cn, int argc, const hf_bytes *argv, struct conn_keepsake *keepsake,
                  struct request **ret)
{
    struct request *r = mem_zalloc(sizeof *r);
    hf_err e = r ? resp_format(argc, argv, &r->bytes, &r->len) : HF_ENOMEM;
    if (e) {
        if (keepsake)
            keepsake->over(keepsake, true);
        mem_free(r);
        return e;
    }
    r->keepsake = keepsake;
    pthread_mutex_lock(&cn->mu);
    if (cn->up && !cn->broken) {
        queue_add(&cn->unsent, r);
        conn_flush_locked(cn);
        /* What was not written must not wait for the next connection: it would come late. */
        if (!cn->up && !request_done(r) && queue_unlink(&cn->unsent, r))
            e = HF_ECONN;
    } else {
        e = HF_ECONN;
    }
    pthread_mutex_unlock(&cn->mu);
    if (e)
        forget_request(r);
    else
        *ret = r;
    return e;
}

void conn_abandon(struct conn *cn, struct request *r)
{
    pthread_mutex_lock(&cn->mu);
    bool over = request_done(r), unsent = !over && r->written == 0 && queue_unlink(&cn->unsent, r);
    r->orphan = !over && !unsent;
    conn_pass_lead_locked(cn);
    pthread_mutex_unlock(&cn->mu);
    if (unsent) {
        forget_request(r);
    } else if (over) {
        reply_free(r->reply);
        resp_format_free(r->bytes);
        mem_free(r);
    }
}

/* Take what became of a request that is done. */
static void collect(struct conn_ask *a)
{
    struct request *r = a->request;
    a->request = NULL;
    a->result = r->result;
    a->reply = r->reply;
    resp_format_free(r->bytes);
    mem_free(r);
}

static void stop_leading(struct conn_ask *a)
{
    if (!a->leads)
        return;
    a->leads = false;
    pthread_mutex_lock(&a->conn->mu);
    if (a->conn->broken)
        conn_fail_locked(a->conn);
    a->conn->led = false;
    conn_pass_lead_locked(a->conn);
    pthread_mutex_unlock(&a->conn->mu);
}

/* Lead if nobody else does; *ret is then what to wait for. The stream stays while we lead: only a
 * leader takes it down. */
static void try_to_lead(struct conn_ask *a, struct pollfd *ret)
{
    struct conn *cn = a->conn;
    pthread_mutex_lock(&cn->mu);
    if (!a->leads)
        a->leads = !cn->led;
    cn->led = true;
    if (a->leads && cn->up)
        *ret = (struct pollfd){ cn->link.stream->fd, cn->unsent.head ? POLLIN | POLLOUT : POLLIN, 0 };
    else
        *ret = (struct pollfd){ .fd = -1 };
    pthread_mutex_unlock(&cn->mu);
}

/* Thread: the leader. There is something to read, or nothing has come. */
static void serve(struct conn_ask *a, bool readable)
{
    struct conn *cn = a->conn;
    pthread_mutex_lock(&cn->mu);
    if (cn->broken)
        conn_fail_locked(cn);
    if (cn->up) {
        conn_flush_locked(cn);
        if (readable && !cn->broken)
            conn_read_locked(cn);
        else if (!cn->broken && cn->sent.head
                 && clock_now_ms() - cn->sent.head->sent_ms > cn->silence_ms)
            conn_break_locked(cn, "the server does not answer");
    }
    if (cn->broken)
        conn_fail_locked(cn);
    if (!cn->up && !request_done(a->request) && queue_unlink(&cn->unsent, a->request))
        request_finish(a->request, HF_ECONN, NULL);
    pthread_mutex_unlock(&cn->mu);
}

void conn_bells_init(struct conn_bells *bells)
{
    pthread_mutex_init(&bells->mu, NULL);
    bells->made = bells->idle = 0;
}

void conn_bells_clear(struct conn_bells *bells)
{
    while (bells->idle)
        forkguard_close(bells->fd[--bells->idle]);
    pthread_mutex_destroy(&bells->mu);
}

/* For replies that another thread reads; -1: without, looking more often. */
static int take_bell(struct conn_bells *bells)
{
    int fd = -1;
    pthread_mutex_lock(&bells->mu);
    if (bells->idle) {
        fd = bells->fd[--bells->idle];
    } else if (bells->made < CONN_BELLS_MAX && (fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) >= 0) {
        if (forkguard_add(fd) < 0) {
            close(fd);
            fd = -1;
        } else {
            bells->made++;
        }
    }
    pthread_mutex_unlock(&bells->mu);
    return fd;
}

/* Whoever was about to ring it may still do so: it is kept, and the next one wakes up once too
 * often. */
static void return_bell(struct conn_bells *bells, int fd)
{
    if (fd < 0)
        return;
    pthread_mutex_lock(&bells->mu);
    bells->fd[bells->idle++] = fd;
    pthread_mutex_unlock(&bells->mu);
}

/* Sleep until one of the connections that we lead has something, a bell rings, or the time has
 * come; then read. */
static void attend(struct conn_ask *ask, size_t n, struct conn_bells *bells, int *bell,
                   int64_t until_ms)
{
    struct pollfd fds[CONN_ASKS_MAX + 1];
    size_t at[CONN_ASKS_MAX], led = 0;
    bool others = false, news = false;
    for (size_t i = 0; i < n; i++) {
        if (!ask[i].request)
            continue;
        try_to_lead(&ask[i], &fds[led]);
        if (ask[i].leads) {
            news = news || fds[led].fd < 0; /* it is down */
            at[led++] = i;
        } else {
            if (*bell < 0)
                *bell = take_bell(bells);
            others = true;
            if (*bell >= 0)
                news = !park_listen(&ask[i].request->park, *bell) || news;
        }
    }
    fds[led] = (struct pollfd){ .fd = others ? *bell : -1, .events = POLLIN };
    int64_t left = until_ms - clock_now_ms();
    left = news || left < 0 ? 0 : others && *bell < 0 && left > 1 ? 1 : left;
    int ready = poll(fds, led + 1, (int)left);
    uint64_t drained;
    if (ready > 0 && fds[led].revents)
        (void)!read(*bell, &drained, sizeof drained);
    for (size_t i = 0; i < n; i++)
        if (ask[i].request && !ask[i].leads)
            park_unlisten(&ask[i].request->park);
    for (size_t i = 0; i < led; i++)
        serve(&ask[at[i]], ready > 0 && fds[i].revents & (POLLIN | POLLERR | POLLHUP));
}

/* Hand on what is done; true: it is enough. */
static bool hand_on(struct conn_ask *ask, size_t n, bool (*got)(void *arg, size_t i), void *arg,
                    bool *ret_pending)
{
    bool enough = false;
    *ret_pending = false;
    for (size_t i = 0; i < n; i++) {
        while (ask[i].request && request_done(ask[i].request) && !enough) {
            stop_leading(&ask[i]);
            collect(&ask[i]);
            enough = got(arg, i);
        }
        *ret_pending = *ret_pending || ask[i].request;
    }
    return enough;
}

bool conn_gather(struct conn_ask *ask, size_t n, struct conn_bells *bells, int64_t deadline_ms,
                 const atomic_int *stop, bool (*got)(void *arg, size_t i), void *arg)
{
    int bell = -1;
    bool pending, enough;
    while (!(enough = hand_on(ask, n, got, arg, &pending)) && pending) {
        int64_t now = clock_now_ms();
        if (now >= deadline_ms || (stop && atomic_load(stop)))
            break;
        attend(ask, n, bells, &bell, clock_earlier(deadline_ms, now + STREAM_TICK_MS));
    }
    for (size_t i = 0; i < n; i++)
        stop_leading(&ask[i]);
    return_bell(bells, bell);
    return enough;
}
