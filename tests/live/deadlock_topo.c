/* SPDX-License-Identifier: MIT
 * deadlock_topo.c - circles across a cluster, with Sentinel and on a quorum; switched off, and
 * refused.
 */
#include "harness/acl.h"
#include "harness/circle.h"
#include "harness/cluster.h"
#include "harness/fleet.h"
#include "harness/quorum.h"

TEST_TIMEOUT(across_the_slots_of_a_cluster, 60)
{
    struct cluster *cl = cluster_start(&(struct cluster_opts){ .no_replicas = 1 });
    struct party p[3];
    const char *name[3];
    for (int i = 0; i < 3; i++)
        name[i] = keep_text("%s", cluster_name(cl, cl->node[i], 0));
    for (int i = 0; i < 3; i++)
        p[i] = (struct party){ .has = { { .name = name[i] } },
                               .wants = { .name = name[(i + 1) % 3] } };
    play(cl->url, p, 3);
}

TEST(with_sentinel)
{
    const struct party p[] = { { .has = { { .name = "a" } }, .wants = { .name = "b" } },
                               { .has = { { .name = "b" } }, .wants = { .name = "a" } } };
    play(fleet_start(NULL)->url, p, 2);
}

/* On a quorum nobody can follow who waits for whom; but what this thread has itself it knows. */
TEST(on_a_quorum)
{
    struct members q = members_start(3, kept);
    hf_client *c = client_at(q.url, 0);
    hf_lock *a = lock_of(c, "a", 30000), *again = lock_of(c, "a", 30000);
    lock_now(a);
    CHECK_HF(hf_lock_acquire(again, WAIT_MS, NULL, &err), HF_EDEADLK);
    CHECK_STR(err.message, "a deadlock: this thread waits for \"a\", which it holds itself with "
                           "another handle");
    hf_lock_free(again);
    hf_lock_free(a);
    hf_client_free(c);
}

TEST(switched_off)
{
    struct server *s = server_start(NULL);
    const char *url = url_with(server_url(s), "deadlock=off");
    for (int i = 0; i < 2; i++) {
        hf_client *c = i ? client_with(server_url(s), (hf_client_opts){ .no_deadlock = 1 })
                         : client_at(url, 0);
        hf_lock *a = lock_of(c, "a", 30000), *again = lock_of(c, "a", 30000);
        lock_now(a);
        CHECK_HF(hf_lock_acquire(again, 1200, NULL, &err), HF_ETIMEDOUT);
        hf_lock_free(again);
        hf_lock_free(a);
        hf_client_free(c);
    }
}

/* TYPE is what only `edge` needs. It is asked once in each wait, and no more. */
TEST(a_user_that_may_not_say_for_what_it_waits)
{
    struct server *s = server_start(NULL);
    struct logbook log = LOGBOOK;
    acl_user(s, "acl");
    CHECK_STR(server_ask(s, "ACL SETUSER holdfast -type"), "OK");
    hf_client *c = client_with(keep_text("unix://holdfast:pw@%s", server_socket(s)),
                               (hf_client_opts){ .log = logbook_add, .log_arg = &log });
    hf_lock *a = lock_of(c, "a", 30000), *again = lock_of(c, "a", 30000);
    lock_now(a);
    CHECK_HF(hf_lock_acquire(again, 8000, NULL, &err), HF_ETIMEDOUT);
    CHECK_LOGGED(&log, "deadlocks are not found: ");
    CHECK(!strstr(strstr(log.text, "deadlocks are not found") + 1, "deadlocks are not found"));
    CHECK_STR(server_ask(s, "ACL SETUSER holdfast +type"), "OK");
    CHECK_HF(hf_lock_acquire(again, 60000, NULL, &err), HF_EDEADLK);
    unlock_now(a);
    hf_lock_free(again);
    hf_lock_free(a);
    hf_client_free(c);
}
