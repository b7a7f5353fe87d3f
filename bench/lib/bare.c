/* SPDX-License-Identifier: MIT
 * bare.c - a bare socket to a server; see bare.h.
 */
#include "lib/bare.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#include "harness/t.h"

int bare_dial(const struct server *s)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)server_port(s)) };
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK_INT(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

void bare_send(int fd, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = send(fd, data, len, MSG_NOSIGNAL);
        CHECK(n > 0);
        data += n;
        len -= (size_t)n;
    }
}

void bare_exchange(int fd, const char *ask, const char *want)
{
    char in[128];
    size_t have = 0, n = strlen(want);
    bare_send(fd, ask, strlen(ask));
    while (have < n) {
        ssize_t got = recv(fd, in + have, sizeof in - have, 0);
        CHECK(got > 0);
        have += (size_t)got;
    }
    CHECK_MEM(in, have, want, n);
}
