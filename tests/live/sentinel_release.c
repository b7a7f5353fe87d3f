/* SPDX-License-Identifier: MIT
 * sentinel_release.c - P3: a release that only the old master knew of is repeated on the new one,
 * however long the Sentinels took to replace it; and so is the undoing of a grant.
 */
#include <stdlib.h>

#include "harness/fleet.h"
#include "harness/keep.h"
#include "harness/waiting.h"

/* Longer than a release was remembered once: 3 s. */
enum { DOWN_AFTER_MS = 4500, TTL_MS = 300000 };

/* The replica follows a port where nobody is: the Sentinels mend that after eight seconds. */
static void cut_replica(struct fleet *f, int i)
{
    int n = atoi(server_info(f->node[0], "connected_slaves"));
    CHECK_STR(server_ask(f->node[i], "REPLICAOF 127.0.0.1 1"), "OK");
    CHECK_EVENTUALLY(atoi(server_info(f->node[0], "connected_slaves")) == n - 1, 10000);
}

static const char *value_of_a(struct server *s)
{
    const char *value = server_ask(s, "GET lock:a");
    return value ? value : "";
}

/* One client goes on holding another lock; the other has nothing more to do. */
TEST(P3_a_release_that_the_new_master_did_not_get_is_repeated)
{
    struct fleet *f = fleet_start(&(struct fleet_opts){ .down_after_ms = DOWN_AFTER_MS });
    hf_client *busy = client_at(f->url, 0), *idle = client_at(f->url, 0);
    hf_lock *kept = lock_with(busy, "kept", (hf_lock_opts){ .ttl_ms = TTL_MS });
    hf_lock *a = lock_with(busy, "a", (hf_lock_opts){ .ttl_ms = TTL_MS });
    hf_lock *b = lock_with(idle, "b", (hf_lock_opts){ .ttl_ms = TTL_MS });
    lock_now(kept);
    lock_now(a);
    lock_now(b);
    CHECK_INT(server_int(f->node[0], "WAIT 2 20000"), 2);
    for (int i = 1; i < FLEET; i++)
        cut_replica(f, i);
    unlock_now(a);
    unlock_now(b);
    CHECK_INT(server_int(f->node[0], "EXISTS lock:a lock:b"), 0);
    server_kill(f->node[0]);
    struct server *now = fleet_wait_switch(f, f->node[0]);
    CHECK_EVENTUALLY(server_int(now, "EXISTS lock:a lock:b") == 0, 40000);
    CHECK_INT(server_int(now, "EXISTS lock:kept"), 1);
    hf_lock_free(kept);
    hf_lock_free(a);
    hf_lock_free(b);
    hf_client_free(busy);
    hf_client_free(idle);
}

/* The last replica heard nothing of it, neither from the first master nor from the second. */
TEST(P3_and_once_more_on_the_one_after_that)
{
    struct fleet *f = fleet_start(&(struct fleet_opts){ .down_after_ms = 1500 });
    hf_client *c = client_at(f->url, 0);
    hf_lock *a = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = TTL_MS });
    lock_now(a);
    CHECK_INT(server_int(f->node[0], "WAIT 2 20000"), 2);
    cut_replica(f, 1);
    cut_replica(f, 2);
    server_freeze(f->node[2]);
    unlock_now(a);
    CHECK_INT(server_int(f->node[1], "EXISTS lock:a"), 1);
    server_kill(f->node[0]);
    CHECK(fleet_wait_switch(f, f->node[0]) == f->node[1]);
    CHECK_EVENTUALLY(server_int(f->node[1], "EXISTS lock:a") == 0, 40000);
    server_kill(f->node[1]);
    server_thaw(f->node[2]);
    CHECK_INT(server_int(f->node[2], "EXISTS lock:a"), 1);
    CHECK(fleet_wait_switch(f, f->node[1]) == f->node[2]);
    CHECK_EVENTUALLY(server_int(f->node[2], "EXISTS lock:a") == 0, 40000);
    hf_lock_free(a);
    hf_client_free(c);
}

/* One replica has it, and two were asked for: it is undone, and only the master hears of that. */
TEST(P3_a_grant_that_was_undone_is_undone_on_the_new_master)
{
    struct fleet *f = fleet_start(&(struct fleet_opts){ .down_after_ms = DOWN_AFTER_MS });
    hf_client *c = client_at(keep_text("%s?replicas=2", f->url), 6000);
    fleet_wait_replicas(f, 2);
    cut_replica(f, 2);
    struct locker l = { .m = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = TTL_MS }) };
    locker_start(&l);
    CHECK_EVENTUALLY(server_int(f->node[1], "EXISTS lock:a") == 1, 10000);
    cut_replica(f, 1);
    locker_join(&l, HF_EREPLICAS);
    CHECK_INT(server_int(f->node[0], "EXISTS lock:a"), 0);
    CHECK_INT(server_int(f->node[1], "EXISTS lock:a"), 1);
    server_kill(f->node[0]);
    struct server *now = fleet_wait_switch(f, f->node[0]);
    CHECK(now == f->node[1]); /* which has it */
    CHECK_EVENTUALLY(server_int(now, "EXISTS lock:a") == 0, 40000);
    hf_lock_free(l.m);
    hf_client_free(c);
}

/* The same for what was handed over: its claim got to one replica, and too few. */
TEST(P3_a_claim_that_was_undone_is_undone_on_the_new_master)
{
    struct fleet *f = fleet_start(&(struct fleet_opts){ .down_after_ms = DOWN_AFTER_MS });
    hf_client *h = client_at(f->url, 0), *c = client_at(keep_text("%s?replicas=2", f->url), 6000);
    hf_lock *held = lock_with(h, "a", (hf_lock_opts){ .ttl_ms = TTL_MS });
    fleet_wait_replicas(f, 2);
    lock_now(held);
    struct locker l = { .m = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = TTL_MS }),
                        .wait_ms = HF_WAIT_FOREVER };
    locker_start(&l);
    CHECK_QUEUE(f->node[0], "a", 1);
    CHECK_INT(server_int(f->node[0], "WAIT 2 20000"), 2);
    const char *before = keep_text("%s", value_of_a(f->node[1]));
    cut_replica(f, 2);
    unlock_now(held);
    CHECK_EVENTUALLY(strcmp(value_of_a(f->node[1]), before) != 0
                     && server_int(f->node[1], "PTTL lock:a") > 60000, 10000);
    cut_replica(f, 1);
    const char *claimed = keep_text("%s", value_of_a(f->node[1]));
    CHECK_EVENTUALLY(strcmp(value_of_a(f->node[0]), claimed) != 0, 20000);
    server_kill(f->node[0]);
    struct server *now = fleet_wait_switch(f, f->node[0]);
    CHECK(now == f->node[1]); /* which has it */
    CHECK_EVENTUALLY(strcmp(value_of_a(now), claimed) != 0, 40000);
    hf_lock_cancel(l.m);
    CHECK_INT(pthread_join(l.thread, NULL), 0);
    hf_lock_free(l.m);
    hf_lock_free(held);
    hf_client_free(c);
    hf_client_free(h);
}
