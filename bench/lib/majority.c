/* SPDX-License-Identifier: MIT
 * majority.c - several servers asked at once from bare sockets; see majority.h.
 */
#include "lib/majority.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "harness/keep.h"
#include "harness/t.h"
#include "lib/bare.h"

enum { SERVERS_MAX = 9, WARM = 200 };

struct server **majority_servers(int n)
{
    struct server **s = keep_block(calloc((size_t)n, sizeof(*s)));
    for (int i = 0; i < n; i++)
        s[i] = server_start_opts(&(struct server_opts){ .aof = 1, .tcp = 1 });
    return s;
}

void majority_url(struct server *const *s, int n, char *ret, size_t size)
{
    int used = snprintf(ret, size, "redis+quorum://");
    for (int i = 0; i < n; i++)
        used += snprintf(ret + used, size - (size_t)used, "%s127.0.0.1:%d", i ? "," : "",
                         server_port(s[i]));
}

/* A small script to all, and the answers of a majority; the others' are read with the next. */
static void one_round(struct pollfd *p, size_t *owed, int n)
{
    static const char ask[] = "*4\r\n$4\r\nEVAL\r\n$34\r\nreturn redis.call('INCR', KEYS[1])\r\n"
                              "$1\r\n1\r\n$1\r\nx\r\n";
    char buf[256];
    int answered = 0;
    for (int i = 0; i < n; i++) {
        bare_send(p[i].fd, ask, sizeof ask - 1);
        owed[i]++;
    }
    while (answered < n / 2 + 1) {
        CHECK(poll(p, (nfds_t)n, -1) > 0);
        for (int i = 0; i < n; i++) {
            if (!p[i].revents)
                continue;
            ssize_t got = recv(p[i].fd, buf, sizeof buf, 0);
            CHECK(got > 0);
            for (ssize_t k = 0; k < got; k++)
                owed[i] -= buf[k] == ':';
            answered += owed[i] == 0;
        }
    }
}

void majority_rounds(struct server *const *s, int n, int rounds, struct samples *lock,
                     struct samples *pair)
{
    struct pollfd p[SERVERS_MAX] = { 0 };
    size_t owed[SERVERS_MAX] = { 0 };
    CHECK(n <= SERVERS_MAX);
    for (int i = 0; i < n; i++)
        p[i] = (struct pollfd){ .fd = bare_dial(s[i]), .events = POLLIN };
    for (int i = -WARM; i < rounds; i++) {
        int64_t begun = t_now_ns();
        one_round(p, owed, n);
        int64_t locked = t_now_ns();
        one_round(p, owed, n);
        if (i >= 0 && lock)
            samples_add(lock, (double)(locked - begun) / 1000);
        if (i >= 0 && pair)
            samples_add(pair, (double)(t_now_ns() - begun) / 1000);
    }
    for (int i = 0; i < n; i++)
        close(p[i].fd);
}
