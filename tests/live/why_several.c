/* SPDX-License-Identifier: MIT
 * why_several.c - hf_why() where several servers decide, each cause brought about for real.
 */
#include "harness/cluster.h"
#include "harness/fleet.h"
#include "harness/quorum.h"
#include "harness/why.h"

TEST(a_quorum_in_quarantine_and_without_a_majority)
{
    struct members q = members_start(3, (struct server_opts){ 0 });
    hf_client *c = client_at(q.url, 1000);
    hf_why_info *why = why_of(c, "a");
    CHECK_STR(why->cause, "quarantine");
    CHECK(strstr(why->text, "0 of 3 servers may vote"));
    CHECK_RANGE(why->free_ms, 30000, 60000);
    hf_why_free(why);
    hf_client_free(c);

    q = members_start(3, (struct server_opts){ .aof = 1 });
    c = client_at(q.url, 1000);
    check_why(c, "a", "free", "free now");
    hf_lock *m = lock_of(c, "a", 20000);
    lock_now(m);
    check_why(c, "a", "held", "held by ");
    server_kill(q.s[0]);
    check_why(c, "a", "held", "held by ");
    server_kill(q.s[1]);
    check_why(c, "a", "no-quorum", "1 of 3");
    hf_lock_free(m);
    hf_client_free(c);
}

/* A server that is slow to tell its state is passed over: then the lock seems to be free. */
static int says(hf_client *c, const char *cause, const char *text)
{
    hf_why_info *why = why_of(c, "a");
    int is = strcmp(why->cause, cause) == 0 && strstr(why->text, text);
    hf_why_free(why);
    return is;
}

/* One of three does not matter; two are the cause. */
TEST(a_quorum_of_servers_that_take_no_writes)
{
    struct members q = members_start(3, kept);
    hf_client *c = client_at(q.url, 0);
    const char *const harm[][4] = {
        { "CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0", "out-of-memory", "is used up" },
        { "CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0", "read-only",
          "too few replicas" },
    };
    for (size_t i = 0; i < 2; i++) {
        CHECK_STR(server_ask(q.s[0], harm[i][0]), "OK");
        check_why(c, "a", "free", "free now");
        CHECK_STR(server_ask(q.s[1], harm[i][0]), "OK");
        CHECK_EVENTUALLY(says(c, harm[i][2], harm[i][3]), 10000);
        for (int k = 0; k < 2; k++)
            CHECK_STR(server_ask(q.s[k], harm[i][1]), "OK");
    }
    const char *follow = keep_text("REPLICAOF 127.0.0.1 %d", server_port(q.s[2]));
    CHECK_STR(server_ask(q.s[0], follow), "OK");
    CHECK_EVENTUALLY(says(c, "free", "free now"), 10000);
    CHECK_STR(server_ask(q.s[1], follow), "OK");
    CHECK_EVENTUALLY(says(c, "read-only", "it is a replica"), 20000);
    hf_client_free(c);
}

TEST(a_master_in_quarantine)
{
    struct fleet *f = fleet_start(&(struct fleet_opts){ .memory_only = 1 });
    hf_client *c = NULL;
    CHECK_HF(hf_client_open(f->url, NULL, &c, &err), HF_ECONN);
    CHECK_STR(hf_why_error(&err, NULL), "quarantine");
}

TEST(a_slot_that_is_being_moved)
{
    struct cluster *k = cluster_start(&(struct cluster_opts){ .no_replicas = 1 });
    hf_client *c = client_at(k->url, 4000); /* which it takes to say that one is being moved */
    hf_lock *m = lock_of(c, "held", 60000);
    lock_now(m);
    check_why(c, "held", "held", "held by ");
    check_why(c, "new", "free", "free now");
    for (int i = 0; i < 2; i++) {
        const char *name = i ? "new" : "held";
        int slot = cluster_slot_of(k, name);
        struct server *from = cluster_owner(k, slot);
        struct cluster_move move = cluster_move_begin(k, slot, k->node[from == k->node[0]]);
        check_why(c, name, "moving", "a slot is being moved");
        cluster_move_finish(&move);
        CHECK_EVENTUALLY(is_cause(c, name, i ? "free" : "held"), 10000);
    }
    unlock_now(m);
    hf_lock_free(m);
    hf_client_free(c);
}
