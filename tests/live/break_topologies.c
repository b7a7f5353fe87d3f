/* SPDX-License-Identifier: MIT
 * break_topologies.c - BR1 with Sentinel, on a Cluster and on a quorum.
 */
#include "harness/believer.h"
#include "harness/cluster.h"
#include "harness/fleet.h"
#include "harness/quorum.h"

/* Break it, and be the next who has it. */
static void break_and_take(struct believer *b, int64_t wait_ms, hf_broken how)
{
    hf_client *c = client_at(b->url, 0), *d = client_at(b->url, 0);
    struct locker next = { .m = lock_with(d, b->name, KEPT), .wait_ms = 60000 };
    locker_start(&next);
    hf_break_info got;
    hf_break_opts o = { .size = sizeof o, .reason = "moved", .wait_ms = wait_ms };
    CHECK_HF(hf_break(c, hf_str(b->name), atomic_load(&b->fence) - 1, &o, &got, &err),
             HF_ENOTOWNER);
    CHECK_HF(hf_break(c, hf_str(b->name), atomic_load(&b->fence), &o, &got, &err), HF_OK);
    CHECK_INT(got.how, how);
    locker_join(&next, HF_OK);
    believer_check(b, next.done_ns);
    believer_end(b);
    CHECK_INT(atomic_load(&b->loss), HF_LOSS_BROKEN);
    CHECK_CONTAINS(b->text, ": moved");
    CHECK_HF(hf_lock_verify(next.m, &err), HF_OK);
    hf_lock_free(next.m);
    hf_client_free(c);
    hf_client_free(d);
}

TEST(BR1_with_sentinels)
{
    struct fleet *f = fleet_start(NULL);
    break_and_take(believer_start(f->url, "a", (hf_lock_opts){ .ttl_ms = 60000 }), 15000,
                   HF_BROKEN_RELEASED);
}

TEST(BR1_on_a_cluster)
{
    struct cluster *cl = cluster_start(&(struct cluster_opts){ .no_replicas = 1 });
    for (int i = 0; i < 2; i++) {
        const char *name = cluster_name(cl, cl->node[i], 0);
        struct believer *b = believer_start(cl->url, name, (hf_lock_opts){ .ttl_ms = 60000 });
        break_and_take(b, 15000, HF_BROKEN_RELEASED);
        CHECK_INT(server_int(cl->node[i], "EXISTS {lock:%s}:x", name), 1); /* where the lock is */
    }
}

/* There is no session on a quorum: the holder hears of it at its next renewal. */
TEST(BR1_on_a_quorum)
{
    struct members q = members_start(3, kept);
    struct believer *b = believer_start(q.url, "a", (hf_lock_opts){ .ttl_ms = 6000 });
    break_and_take(b, 30000, HF_BROKEN_RELEASED);
}

TEST(BR1_on_a_quorum_a_minority_breaks_nothing)
{
    struct members q = members_start(3, kept);
    hf_client *c = client_at(q.url, 1000), *one = client_at(
        keep_text("redis://127.0.0.1:%d", server_port(q.s[0])), 1000);
    hf_lock *m = lock_of(c, "a", 4000);
    uint64_t fence = lock_now(m);
    hf_break_info got;
    hf_break_opts o = { .size = sizeof o, .reason = "one of three" };
    hf_err e = hf_break(one, hf_str("a"), fence, &o, &got, &err);
    CHECK(e == HF_ETIMEDOUT || e == HF_ENOTOWNER); /* there it may have another number */
    t_sleep_ms(4500); /* it has been renewed since, by the others */
    CHECK_HF(hf_lock_verify(m, &err), HF_OK);
    CHECK_INT(hf_lock_loss(m), HF_LOSS_NONE);
    hf_lock *other = lock_of(c, "b", 4000);
    CHECK_HF(hf_ask(c, hf_str("b"), lock_now(other), "please", NULL, NULL, &err), HF_OK);
    CHECK_EVENTUALLY(hf_lock_asked(other, NULL, 0) == 1, 20000);
    hf_lock_free(other);
    o.now = 1;
    CHECK_HF(hf_break(c, hf_str("a"), fence, &o, &got, &err), HF_OK);
    CHECK_INT(got.how, HF_BROKEN_AT_ONCE);
    CHECK_EVENTUALLY(hf_lock_loss(m) == HF_LOSS_BROKEN, 20000);
    hf_lock_free(m);
}
