/* SPDX-License-Identifier: MIT
 * sentinel_release.c - P3: a release that only the old master knew of is repeated on the new one,
 * however long the Sentinels took to replace it.
 */
#include "harness/fleet.h"
#include "harness/waiting.h"

/* Longer than a release was remembered once: 3 s. */
enum { DOWN_AFTER_MS = 4500, TTL_MS = 300000 };

/* The replicas follow a port where nobody is: the Sentinels mend that after eight seconds. */
static void cut_replicas(struct fleet *f)
{
    for (int i = 1; i < FLEET; i++)
        CHECK_STR(server_ask(f->node[i], "REPLICAOF 127.0.0.1 1"), "OK");
    CHECK_EVENTUALLY(strcmp(server_info(f->node[0], "connected_slaves"), "0") == 0, 10000);
}

static void lose_release(int busy)
{
    struct fleet *f = fleet_start(&(struct fleet_opts){ .down_after_ms = DOWN_AFTER_MS });
    hf_client *c = client_at(f->url, 0);
    hf_lock *a = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = TTL_MS });
    hf_lock *b = lock_with(c, "b", (hf_lock_opts){ .ttl_ms = TTL_MS });
    lock_now(a);
    if (busy)
        lock_now(b);
    CHECK_INT(server_int(f->node[0], "WAIT 2 20000"), 2);
    cut_replicas(f);
    unlock_now(a);
    CHECK_INT(server_int(f->node[0], "EXISTS lock:a"), 0);
    server_kill(f->node[0]);
    struct server *now = fleet_wait_switch(f, f->node[0]);
    CHECK_EVENTUALLY(server_int(now, "EXISTS lock:a") == 0, 30000);
    CHECK_INT(server_int(now, "EXISTS lock:b"), busy);
    hf_lock_free(a);
    hf_lock_free(b);
    hf_client_free(c);
}

TEST(P3_a_release_that_the_new_master_did_not_get_is_repeated)
{
    lose_release(1);
}

/* It holds nothing more, and waits for nothing. */
TEST(P3_also_by_a_client_that_has_nothing_to_do)
{
    lose_release(0);
}
