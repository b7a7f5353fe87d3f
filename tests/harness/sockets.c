/* SPDX-License-Identifier: MIT
 * sockets.c - sockets of the tests' own; see sockets.h.
 */
#include "harness/sockets.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "harness/t.h"

int socket_bind(int *port)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)*port) };
    socklen_t len = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(fd >= 0);
    if (bind(fd, (struct sockaddr *)&a, sizeof a) != 0) {
        close(fd);
        return -1;
    }
    CHECK(getsockname(fd, (struct sockaddr *)&a, &len) == 0);
    *port = ntohs(a.sin_port);
    return fd;
}

int socket_port_is_free(int port)
{
    int fd = socket_bind(&port);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

int socket_free_port(void)
{
    int port = 0;
    CHECK(close(socket_bind(&port)) == 0);
    return port;
}

int socket_listen(int backlog, int *ret_port)
{
    *ret_port = 0;
    int fd = socket_bind(ret_port);
    CHECK(fd >= 0 && listen(fd, backlog) == 0);
    return fd;
}

int socket_listen_unix(int backlog, const char *path)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK((size_t)snprintf(a.sun_path, sizeof a.sun_path, "%s", path) < sizeof a.sun_path);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&a, sizeof a) == 0 && listen(fd, backlog) == 0);
    return fd;
}

void socket_crowd(int listener, int n)
{
    struct sockaddr_storage a = { 0 };
    socklen_t len = sizeof a;
    CHECK(getsockname(listener, (struct sockaddr *)&a, &len) == 0);
    for (int i = 0; i < n; i++) {
        int fd = socket(a.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        CHECK(fd >= 0);
        (void)!connect(fd, (struct sockaddr *)&a, len);
    }
}
