/* SPDX-License-Identifier: MIT
 * quorum.c - Redlock over independent servers: what a majority promises, and what each fault costs.
 */
#include "harness/history.h"
#include "harness/proc.h"
#include "harness/quorum.h"
#include "harness/waiting.h"

static const struct server_opts kept = { .aof = 1 };

/* Nothing of the lock a, nor of others, is left on any of those in mask. */
static int all_clean(struct members *q, unsigned mask)
{
    for (int i = 0; i < q->n; i++)
        if (mask >> i & 1 && server_int(q->s[i], "EXISTS lock:a {lock:a}:own") > 0)
            return 0;
    return 1;
}

/* ---- taking and giving back ---- */

TEST(P1_a_majority_decides)
{
    struct members q = members_start(5, kept);
    hf_client *a = client_at(q.url, 0), *b = client_at(q.url, 0);
    hf_mutex *ma = mutex_of(a, "a", 5000), *mb = mutex_of(b, "a", 5000);
    uint64_t first = lock_now(ma), second = 0;
    CHECK(hf_mutex_is_held(ma));
    CHECK_EVENTUALLY(members_with(&q, "lock:a", hf_mutex_owner(ma), ALL_MEMBERS) == 5, 1000);
    CHECK_HF(hf_mutex_trylock(mb, NULL, &err), HF_EBUSY);
    CHECK_CONTAINS(err.message, "held by another owner");
    CHECK_HF(hf_mutex_verify(ma, &err), HF_OK);
    CHECK_HF(hf_mutex_extend(ma, 8000, &err), HF_OK);
    CHECK_RANGE(hf_mutex_time_left_ms(ma), 7000, 8000);
    unlock_now(ma);
    CHECK_EVENTUALLY(all_clean(&q, ALL_MEMBERS), 1000);
    second = lock_now(mb);
    CHECK(second > first);
    hf_mutex_free(mb);
    hf_mutex_free(ma);
    hf_client_free(a);
    hf_client_free(b);
    CHECK(all_clean(&q, ALL_MEMBERS));
    for (int i = 0; i < q.n; i++)
        CHECK_STR(server_keys(q.s[i]), ONLY_OURS);
}
