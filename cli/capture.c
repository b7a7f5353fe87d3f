/* SPDX-License-Identifier: MIT
 * capture.c - CMD's output, passed on as it comes and kept.
 *
 * Part of the event loop of `once`: a reader of our output that is slow must not keep us from
 * watching over the lock. So nothing here waits: at most as many bytes are written as a pipe that
 * poll() calls writable takes, and nothing is read before they are gone. */
#include "capture.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

_Static_assert(sizeof((struct capture *)0)->part <= PIPE_BUF, "a write could block");

int capture_open(struct capture *c, size_t max)
{
    int fds[2];
    *c = (struct capture){ .in = -1, .out = -1, .max = max };
    if (pipe2(fds, O_CLOEXEC) != 0)
        return -1;
    c->in = fds[0];
    c->out = fds[1];
    c->kept = malloc(max ? max : 1);
    /* Ours alone: CMD must not find its own end non-blocking. */
    if (!c->kept || fcntl(c->in, F_SETFL, O_NONBLOCK) != 0) {
        capture_close(c);
        return -1;
    }
    return 0;
}

void capture_close(struct capture *c)
{
    int saved = errno;
    if (c->in >= 0)
        close(c->in);
    if (c->out >= 0)
        close(c->out);
    free(c->kept);
    c->in = c->out = -1;
    c->kept = NULL;
    errno = saved;
}

void capture_poll(const struct capture *c, struct pollfd p[2])
{
    int writing = c->sent < c->have;
    p[0] = (struct pollfd){ .fd = writing || c->ended ? -1 : c->in, .events = POLLIN };
    p[1] = (struct pollfd){ .fd = writing ? STDOUT_FILENO : -1, .events = POLLOUT };
}

static void keep(struct capture *c, size_t n)
{
    if (n > c->max - c->len)
        c->too_large = 1;
    if (c->too_large)
        return;
    memcpy(c->kept + c->len, c->part, n);
    c->len += n;
}

/* How much of the next part to read. What CMD left behind may write faster than we read, for
 * ever. */
static size_t part_size(struct capture *c, int gone)
{
    if (gone && !c->counted)
        c->counted = ioctl(c->in, FIONREAD, &c->rest) == 0;
    return c->counted && (size_t)c->rest < sizeof c->part ? (size_t)c->rest : sizeof c->part;
}

static void read_part(struct capture *c, int gone)
{
    size_t size = part_size(c, gone);
    ssize_t n = size ? read(c->in, c->part, size) : 0;
    c->rest -= c->counted && n > 0 ? (int)n : 0;
    if (n > 0) {
        keep(c, (size_t)n);
        c->have = c->broken ? 0 : (size_t)n; /* nobody reads it: but others wait for the value */
        c->sent = 0;
    } else if (n == 0 || gone || (errno != EAGAIN && errno != EINTR)) {
        c->ended = 1;
    }
}

static void write_part(struct capture *c)
{
    ssize_t n = write(STDOUT_FILENO, c->part + c->sent, c->have - c->sent);
    if (n >= 0) {
        c->sent += (size_t)n;
    } else if (errno != EAGAIN && errno != EINTR) {
        c->broken = errno;
        c->have = c->sent = 0;
    }
}

void capture_step(struct capture *c, const struct pollfd p[2], int gone)
{
    if (c->sent < c->have) {
        if (p[1].fd >= 0 && p[1].revents)
            write_part(c);
    } else if (!c->ended && (gone || (p[0].fd >= 0 && p[0].revents))) {
        read_part(c, gone);
    }
}

int capture_done(const struct capture *c)
{
    return c->ended && c->sent >= c->have;
}

void capture_abandon(struct capture *c)
{
    c->ended = 1;
    c->have = c->sent = 0;
}
