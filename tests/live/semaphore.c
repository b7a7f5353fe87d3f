/* SPDX-License-Identifier: MIT
 * semaphore.c - S1 to S7 of src/lock/semaphore.c: so many at once.
 */
#include "harness/waiting.h"

static hf_mutex *permit_of(hf_client *c, unsigned slots, unsigned permits)
{
    return mutex_with(c, "a", (hf_mutex_opts){ .ttl_ms = 30000, .grace_ms = HF_NO_TAKEOVER,
                                               .slots = slots, .permits = permits });
}

TEST(S1_no_more_permits_than_slots)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_mutex *m[4];
    uint64_t last = 0;
    for (int i = 0; i < 4; i++)
        m[i] = permit_of(c, 3, 1);
    for (int i = 0; i < 3; i++) {
        uint64_t fence = lock_now(m[i]);
        CHECK(fence > last);
        last = fence;
    }
    CHECK_HF(hf_mutex_trylock(m[3], NULL, &err), HF_EBUSY);
    CHECK_CONTAINS(err.message, "permits");
    unlock_now(m[1]);
    lock_now(m[3]);
    CHECK_HF(hf_mutex_trylock(m[1], NULL, &err), HF_EBUSY);
    for (int i = 0; i < 4; i++)
        hf_mutex_free(m[i]);
    hf_client_free(c);
    CHECK_STR(server_keys(s), ONLY_OURS);
}

TEST(S2_who_wants_many_is_not_starved_by_those_who_want_few)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_mutex *one = permit_of(c, 3, 1);
    struct locker many = { .m = permit_of(c, 3, 3), .wait_ms = 20000 };
    struct locker few[2];
    lock_now(one);
    locker_start(&many);
    CHECK_QUEUE(s, "a", 1);
    for (int i = 0; i < 2; i++) {
        few[i] = (struct locker){ .m = permit_of(c, 3, 1), .wait_ms = 20000 };
        locker_start(&few[i]);
        CHECK_QUEUE(s, "a", 2 + i);
    }
    unlock_now(one);
    locker_join(&many, HF_OK);
    CHECK_INT(queue_of(s, "a"), 2);
    unlock_now(many.m);
    for (int i = 0; i < 2; i++) {
        locker_join(&few[i], HF_OK);
        CHECK(few[i].fence > many.fence);
    }
    for (int i = 0; i < 2; i++)
        hf_mutex_free(few[i].m);
    hf_mutex_free(many.m);
    hf_mutex_free(one);
    hf_client_free(c);
    CHECK_STR(server_keys(s), ONLY_OURS);
}

TEST(S3_another_number_of_slots_is_told_so)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_mutex *five = permit_of(c, 5, 1), *four = permit_of(c, 4, 1), *reader = mutex_of(c, "a", 30000);
    lock_now(five);
    CHECK_HF(hf_mutex_lock(four, 5000, NULL, &err), HF_ELIMIT);
    CHECK_CONTAINS(err.message, "semaphore of 5");
    CHECK_CONTAINS(err.message, "4 was asked for");
    CHECK_HF(hf_mutex_lock_shared(reader, 5000, NULL, &err), HF_ELIMIT);
    CHECK_HF(hf_mutex_trylock(reader, NULL, &err), HF_EBUSY);
    unlock_now(five);
    lock_now(four); /* free: who comes first decides */
    CHECK_HF(hf_mutex_trylock(five, NULL, &err), HF_ELIMIT);
    hf_mutex_free(four);
    hf_mutex_free(five);
    hf_mutex_free(reader);
    hf_client_free(c);
    CHECK_STR(server_keys(s), ONLY_OURS);
}

TEST(S4_a_resize_is_for_all_and_tears_nothing_away)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_mutex *m[3];
    unsigned old = 99;
    for (int i = 0; i < 3; i++)
        m[i] = permit_of(c, 3, 1);
    for (int i = 0; i < 3; i++)
        lock_now(m[i]);
    CHECK_HF(hf_semaphore_resize(c, hf_str("a"), 1, &old, &err), HF_OK);
    CHECK_INT(old, 3);
    for (int i = 0; i < 3; i++)
        CHECK_HF(hf_mutex_verify(m[i], &err), HF_OK);
    unlock_now(m[0]);
    unlock_now(m[1]);
    CHECK_HF(hf_mutex_trylock(m[0], NULL, &err), HF_EBUSY);
    struct locker l = { .m = m[1], .wait_ms = 20000 };
    locker_start(&l);
    CHECK_QUEUE(s, "a", 1);
    CHECK_HF(hf_semaphore_resize(c, hf_str("a"), 2, &old, &err), HF_OK);
    CHECK_INT(old, 1);
    locker_join(&l, HF_OK); /* a wider one lets in who waits */
    unlock_now(m[1]);
    unlock_now(m[2]);
    lock_now(m[0]); /* remembered while nobody used it, for those who name the old number too */
    lock_now(m[1]);
    CHECK_HF(hf_mutex_trylock(m[2], NULL, &err), HF_EBUSY);
    hf_mutex *two = permit_of(c, 2, 1), *four = permit_of(c, 4, 1);
    CHECK_HF(hf_mutex_trylock(two, NULL, &err), HF_EBUSY);
    CHECK_HF(hf_mutex_trylock(four, NULL, &err), HF_ELIMIT);
    CHECK_HF(hf_semaphore_resize(c, hf_str("a"), 3, &old, &err), HF_OK);
    lock_now(m[2]);
    CHECK_INT(server_int(s, "EXISTS {lock:a}:s"), 0);
    for (int i = 0; i < 3; i++)
        hf_mutex_free(m[i]);
    hf_mutex_free(two);
    hf_mutex_free(four);
    hf_client_free(c);
    CHECK_STR(server_keys(s), ONLY_OURS);
}
