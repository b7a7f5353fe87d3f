/* SPDX-License-Identifier: MIT
 * versions.c - a Valkey beside the tests' usual server, in few words; `make test-valkey` runs all
 * tests with it. What only newer servers can do is in fsync.c.
 */
#include "harness/quorum.h"
#include "harness/waiting.h"

static const char *valkey(void)
{
    const char *program = server_program("valkey-server");
    if (!program)
        LEFT_OUT("no valkey-server here: see make test-valkey");
    return program;
}

TEST(P1_a_valkey_grants_hands_over_and_counts_on)
{
    struct server *s = server_start_opts(&(struct server_opts){ .aof = 1, .program = valkey() });
    t_note("valkey %s, which calls itself redis %s", server_info(s, "valkey_version"),
           server_info(s, "redis_version"));
    hf_client *c = client_at(server_url(s), 0), *d = client_at(server_url(s), 0);
    hf_lock *m = lock_of(c, "a", 4000);
    struct locker w = { .m = lock_of(d, "a", 30000), .wait_ms = 20000 };
    uint64_t first = lock_now(m);
    locker_start(&w);
    CHECK_QUEUE(s, "a", 1);
    CHECK_EVENTUALLY(server_int(s, "PTTL lock:a") < 3300, 5000);
    CHECK_EVENTUALLY(server_int(s, "PTTL lock:a") > 3600, 5000); /* it is renewed */
    CHECK_INT(hf_lock_state(m), HF_STATE_SAFE);
    CHECK_INT(atomic_load(&w.done), 0);
    unlock_now(m);
    locker_join(&w, HF_OK);
    CHECK(w.fence > first);
    server_restart(s); /* the lock outlives it, by its append-only file */
    CHECK_HF(hf_lock_verify(w.m, &err), HF_OK);
    unlock_now(w.m);
    hf_lock_free(m);
    hf_lock_free(w.m);
    hf_client_free(c);
    hf_client_free(d);
    CHECK_STR(server_keys(s), ONLY_OURS);
}

TEST(a_quorum_of_both_kinds_decides)
{
    struct members q = { .n = 3 };
    for (int i = 0; i < q.n; i++)
        q.s[i] = server_start_opts(&(struct server_opts){ .aof = 1, .tcp = 1,
                                                          .program = i % 2 ? NULL : valkey() });
    members_url(&q, "");
    hf_client *c = client_at(q.url, 0);
    hf_lock *m = lock_of(c, "a", 5000);
    uint64_t first = lock_now(m);
    CHECK_INT(members_with(&q, "lock:a", "", ALL_MEMBERS), 3);
    unlock_now(m);
    server_kill(q.s[0]); /* one of each is left */
    CHECK(lock_now(m) > first);
    CHECK_INT(members_with(&q, "lock:a", "", 6), 2);
    unlock_now(m);
    hf_lock_free(m);
    hf_client_free(c);
}
