/* SPDX-License-Identifier: MIT
 * harness_net.c - the network of tests/harness/net.h tested by itself.
 */
#include <errno.h>
#include <hiredis/hiredis.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>

#include "harness/net.h"
#include "harness/proc.h"
#include "harness/server.h"
#include "harness/t.h"
#include "harness/waiting.h"

enum { CLIENT_AT = 12, SIZE = 4000 };

struct seen {
    struct net    *n;
    struct server *s;
    struct {
        atomic_int up, go;
        atomic_int got, error, after; /* bytes, errno, and whether the next connection works */
    } *shared;
};

static int ping(struct server *s)
{
    redisContext *c = redisConnect(server_host(s), server_port(s));
    redisReply *r = c && !c->err ? redisCommand(c, "PING") : NULL;
    int works = r && r->type == REDIS_REPLY_STATUS;
    freeReplyObject(r);
    redisFree(c);
    return works;
}

/* Read a long answer, byte for byte as it comes. */
static void client_main(int index, void *arg)
{
    struct seen *seen = arg;
    char buf[SIZE + 100];
    (void)index;
    net_enter(seen->n, CLIENT_AT);
    redisContext *c = redisConnect(server_host(seen->s), server_port(seen->s));
    CHECK(c && !c->err);
    seen->shared->up = 1;
    while (!seen->shared->go)
        t_sleep_ms(1);
    CHECK_INT(redisAppendCommand(c, "GET long"), REDIS_OK);
    for (int done = 0; !done;)
        CHECK_INT(redisBufferWrite(c, &done), REDIS_OK);
    for (;;) {
        ssize_t n = recv(c->fd, buf, sizeof buf, 0);
        if (n <= 0) {
            seen->shared->error = n < 0 ? errno : 0;
            break;
        }
        seen->shared->got += (int)n;
    }
    redisFree(c);
    seen->shared->after = ping(seen->s);
}

TEST(net_resets_a_connection_after_so_many_bytes)
{
    static const int cut[] = { 1, 7, 1447, 1448, 1449, 2900, SIZE };
    if (net_missing())
        LEFT_OUT(net_missing());
    struct seen seen = { .n = net_start(), .shared = shared_memory(sizeof *seen.shared) };
    struct server_opts o = { .tcp = 1, .place = &net_places(seen.n)[0] };
    char text[SIZE + 1];
    memset(text, 'x', SIZE);
    text[SIZE] = '\0';
    seen.s = server_start_opts(&o);
    CHECK_STR(server_ask(seen.s, "SET long %s", text), "OK");
    for (size_t i = 0; i < sizeof cut / sizeof cut[0]; i++) {
        memset(seen.shared, 0, sizeof *seen.shared);
        long before = net_resets(seen.n);
        struct workers *w = workers_start(1, client_main, &seen);
        CHECK_EVENTUALLY(seen.shared->up, 10000);
        net_reset_after(seen.n, 0, CLIENT_AT, cut[i]);
        seen.shared->go = 1;
        workers_join(w, 30000);
        CHECK_INT(net_resets(seen.n) - before, 1);
        CHECK_INT(seen.shared->error, ECONNRESET);
        CHECK_INT(seen.shared->got, cut[i]);
        CHECK(seen.shared->after);
        /* Its own end of it is gone as well: nobody is connected but us. */
        CHECK_EVENTUALLY(server_int(seen.s, "CLIENT KILL TYPE normal SKIPME yes") == 0, 5000);
    }
}
