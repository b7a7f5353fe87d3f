/* SPDX-License-Identifier: MIT
 * fake.c - a server that says what the test wants it to say; see fake.h.
 */
#include "harness/fake.h"

#include <poll.h>
#include <pthread.h>
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

/* How long the CLIENT SETNAME is with which it begins: no test is about that. */
static size_t naming(const char *buf, size_t n)
{
    static const char begin[] = "*3\r\n$6\r\nCLIENT\r\n$7\r\nSETNAME\r\n$";
    size_t len = sizeof begin - 1;
    if (n < len || memcmp(buf, begin, len) != 0)
        return 0;
    for (int lines = 0; lines < 2 && len < n; len++)
        lines += buf[len] == '\n';
    return len;
}

static void answer_one(struct service *s, nfds_t i)
{
    ssize_t got = recv(s->p[i].fd, s->buf, sizeof s->buf, 0);
    size_t name = got > 0 ? naming(s->buf, (size_t)got) : 0;
    if (name && send(s->p[i].fd, "+OK\r\n", 5, MSG_NOSIGNAL) != 5)
        got = 0;
    else if (got > 0 && name == (size_t)got)
        return;
    if (got > 0 && s->answer(s->arg, s->p[i].fd, s->buf + name, (size_t)got - name) == 0)
        return;
    close(s->p[i].fd);
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
