/* SPDX-License-Identifier: MIT
 * fake.c - a server that says what the test wants it to say; see fake.h.
 */
#include "harness/fake.h"

#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "harness/keep.h"
#include "harness/t.h"

enum { CONNECTIONS = 256, PIECE = 1 << 18 };

struct service {
    fake_answer  *answer;
    void         *arg;
    atomic_long  *connections;
    nfds_t        n;
    struct pollfd p[CONNECTIONS]; /* the first one is the listener */
    char          buf[PIECE];
};

static bool begins(const char *buf, size_t n, const char *with)
{
    return n >= strlen(with) && memcmp(buf, with, strlen(with)) == 0;
}

/* A connection begins with its name and a look at the memory; no test is about them. They are
 * answered. How long they are; -1: nobody listens. */
static ssize_t begin(int fd, const char *buf, size_t n)
{
    static const char memory[] = "*2\r\n$4\r\nINFO\r\n$6\r\nmemory\r\n";
    size_t len = 0;
    if (begins(buf, n, "*3\r\n$6\r\nCLIENT\r\n$7\r\nSETNAME\r\n$")) {
        for (int lines = 0; lines < 7 && len < n; len++)
            lines += buf[len] == '\n';
        if (send(fd, "+OK\r\n", 5, MSG_NOSIGNAL) != 5)
            return -1;
    }
    if (begins(buf + len, n - len, memory)) {
        len += sizeof memory - 1;
        if (send(fd, "$0\r\n\r\n", 6, MSG_NOSIGNAL) != 6)
            return -1;
    }
    return (ssize_t)len;
}

static void answer_one(struct service *s, nfds_t i)
{
    int fd = s->p[i].fd;
    ssize_t got = recv(fd, s->buf, sizeof s->buf, 0);
    ssize_t begun = got > 0 ? begin(fd, s->buf, (size_t)got) : -1;
    if (begun >= 0 && begun == got)
        return;
    if (begun >= 0 && s->answer(s->arg, fd, s->buf + begun, (size_t)(got - begun)) == 0)
        return;
    close(fd);
    s->p[i] = s->p[--s->n];
}

static void *serve(void *arg)
{
    struct service *s = arg;
    for (;;) {
        if (poll(s->p, s->n, -1) < 0)
            continue;
        for (nfds_t i = s->n - 1; i >= 1; i--)
            if (s->p[i].revents)
                answer_one(s, i);
        if (!s->p[0].revents || s->n == CONNECTIONS)
            continue;
        int fd = accept(s->p[0].fd, NULL, NULL);
        if (fd >= 0) {
            atomic_fetch_add(s->connections, 1);
            s->p[s->n++] = (struct pollfd){ .fd = fd, .events = POLLIN };
        }
    }
    return NULL;
}

void fake_serve(int listener, fake_answer *answer, void *arg, atomic_long *connections)
{
    struct service *s = keep_block(calloc(1, sizeof *s));
    pthread_t thread;
    s->answer = answer;
    s->arg = arg;
    s->connections = connections;
    s->p[s->n++] = (struct pollfd){ .fd = listener, .events = POLLIN };
    CHECK_INT(pthread_create(&thread, NULL, serve, s), 0);
}
