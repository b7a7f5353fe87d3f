/* SPDX-License-Identifier: MIT
 * sockopt.c - what each system asks of a socket in its own way.
 */
#include "base/sockopt.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

int sockopt_peer(int fd, uid_t *ret_uid, int64_t *ret_pid)
{
    struct ucred peer;
    socklen_t len = sizeof peer, domain_len = sizeof(int);
    int domain;

    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &domain_len) < 0)
        return -1;
    if (domain != AF_UNIX) {
        errno = ENOTSUP;
        return -1;
    }
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0)
        return -1;
    *ret_uid = peer.uid;
    if (ret_pid)
        *ret_pid = peer.pid;
    return 0;
}

static int set_int(int fd, int level, int name, int value)
{
    return setsockopt(fd, level, name, &value, sizeof value);
}

int sockopt_tcp(int fd, int unacknowledged_ms)
{
    if (set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1) < 0 || set_int(fd, SOL_SOCKET, SO_KEEPALIVE, 1) < 0
        || set_int(fd, IPPROTO_TCP, TCP_KEEPIDLE, 5) < 0
        || set_int(fd, IPPROTO_TCP, TCP_KEEPINTVL, 2) < 0
        || set_int(fd, IPPROTO_TCP, TCP_KEEPCNT, 3) < 0)
        return -1;
    return set_int(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, unacknowledged_ms);
}
