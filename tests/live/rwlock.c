/* SPDX-License-Identifier: MIT
 * rwlock.c - R1 to R7 of src/lock/rwlock.c: many readers, or one writer.
 */
#include "harness/waiting.h"

static uint64_t share_now(hf_mutex *m)
{
    uint64_t fence = 0;
    CHECK_HF(hf_mutex_lock_shared(m, 10000, &fence, &err), HF_OK);
    CHECK(fence > 0);
    return fence;
}

TEST(R1_R2_readers_hold_it_together_and_nobody_has_it_alone_meanwhile)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0), *d = client_at(server_url(s), 0);
    hf_mutex *a = mutex_of(c, "a", 30000), *b = mutex_of(d, "a", 30000), *w = mutex_of(d, "a", 30000);
    uint64_t first = share_now(a), second = share_now(b);
    CHECK(second > first);
    CHECK_HF(hf_mutex_trylock(w, NULL, &err), HF_EBUSY);
    CHECK_STR(server_ask(s, "SET lock:a foreign NX PX 1000"), NULL); /* another library's client */
    CHECK_HF(hf_mutex_verify(a, &err), HF_OK);
    unlock_now(a);
    CHECK_HF(hf_mutex_trylock(w, NULL, &err), HF_EBUSY);
    CHECK_HF(hf_mutex_verify(b, &err), HF_OK);
    unlock_now(b);
    CHECK(lock_now(w) > second);
    CHECK_HF(hf_mutex_lock_shared(a, 0, NULL, &err), HF_EBUSY);
    unlock_now(w);
    hf_mutex_free(a);
    hf_mutex_free(b);
    hf_mutex_free(w);
    hf_client_free(c);
    hf_client_free(d);
    CHECK_STR(server_keys(s), ONLY_OURS);
}

TEST(R3_a_waiting_writer_stops_later_readers_who_then_go_together)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_mutex *first = mutex_of(c, "a", 30000);
    struct locker writer = { .m = mutex_of(c, "a", 30000), .wait_ms = 20000 };
    struct locker reader[3];
    share_now(first);
    locker_start(&writer);
    CHECK_QUEUE(s, "a", 1);
    hf_mutex *late = mutex_of(c, "a", 30000);
    CHECK_HF(hf_mutex_lock_shared(late, 0, NULL, &err), HF_EBUSY); /* it would fit, but not overtake */
    for (int i = 0; i < 3; i++) {
        reader[i] = (struct locker){ .m = mutex_with(c, "a", (hf_mutex_opts){ .shared = 1 }),
                                     .wait_ms = 20000 };
        locker_start(&reader[i]);
        CHECK_QUEUE(s, "a", 2 + i);
    }
    unlock_now(first);
    locker_join(&writer, HF_OK);
    CHECK_INT(queue_of(s, "a"), 3);
    unlock_now(writer.m);
    for (int i = 0; i < 3; i++)
        locker_join(&reader[i], HF_OK);
    CHECK_INT(queue_of(s, "a"), 0);
    for (int i = 0; i < 3; i++) {
        CHECK(reader[i].fence > writer.fence);
        unlock_now(reader[i].m);
        hf_mutex_free(reader[i].m);
    }
    hf_mutex_free(writer.m);
    hf_mutex_free(first);
    hf_mutex_free(late);
    hf_client_free(c);
    CHECK_STR(server_keys(s), ONLY_OURS);
}

TEST(R4_downgrade_lets_waiting_readers_in_and_no_writer_between)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_mutex *m = mutex_of(c, "a", 30000), *other = mutex_of(c, "a", 30000);
    struct locker reader = { .m = mutex_with(c, "a", (hf_mutex_opts){ .shared = 1 }), .wait_ms = 20000 };
    struct locker writer = { .m = mutex_of(c, "a", 30000), .wait_ms = 20000 };
    uint64_t fence = lock_now(m);
    locker_start(&reader);
    CHECK_QUEUE(s, "a", 1);
    locker_start(&writer);
    CHECK_QUEUE(s, "a", 2);
    CHECK_HF(hf_mutex_downgrade(m, &err), HF_OK);
    CHECK_HF(hf_mutex_downgrade(m, &err), HF_OK); /* once more changes nothing */
    CHECK_INT((long long)hf_mutex_fence(m), (long long)fence);
    locker_join(&reader, HF_OK);
    CHECK_HF(hf_mutex_verify(m, &err), HF_OK);
    CHECK_INT(atomic_load(&writer.done), 0);
    CHECK_HF(hf_mutex_lock(m, 0, NULL, &err), HF_EDEADLK);
    CHECK_CONTAINS(err.message, "unlock it first");
    CHECK_INT(hf_mutex_is_held(m), 1);
    unlock_now(reader.m);
    unlock_now(m);
    locker_join(&writer, HF_OK);
    unlock_now(writer.m);
    CHECK_HF(hf_mutex_downgrade(m, &err), HF_ENOTHELD);
    hf_mutex_free(other);
    hf_mutex_free(m);
    hf_mutex_free(reader.m);
    hf_mutex_free(writer.m);
    hf_client_free(c);
    CHECK_STR(server_keys(s), ONLY_OURS);
}
