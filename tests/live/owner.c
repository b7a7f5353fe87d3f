/* SPDX-License-Identifier: MIT
 * owner.c - locks by owner id: acquire(key, timeout, uid) and release(key, uid) as the requirement
 * documents have them, and handles with a caller-chosen id.
 */
#include "harness/live.h"

/* Document 002: acquire(key, timeout, uid), release(key, uid): the value is the uid. */
TEST(spec_002_acquire_and_release_by_uid)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0), *c2 = client_at(server_url(s), 0);
    hf_bytes a = hf_str("key"), u1 = hf_str("uid-1"), u2 = hf_str("uid-2");
    uint64_t f1 = 0, f2 = 0, none = 5;
    int64_t left = 0;

    CHECK_HF(hf_owner_acquire(c, a, 10000, u1, &f1, &err), HF_OK);
    CHECK_STR(server_ask(s, "GET lock:key"), "uid-1"); /* exactly the id */
    CHECK_RANGE(server_int(s, "PTTL lock:key"), 1, 10000);
    CHECK_HF(hf_owner_acquire(c2, a, 10000, u2, &none, &err), HF_EBUSY);
    CHECK(none == 5);
    /* B3: the same id again is busy too: it is no repetition of the same request. */
    CHECK_HF(hf_owner_acquire(c2, a, 10000, u1, &none, &err), HF_EBUSY);
    CHECK_HF(hf_owner_release(c2, a, u2, &err), HF_ENOTOWNER);
    CHECK_STR(server_ask(s, "GET lock:key"), "uid-1");
    CHECK_HF(hf_owner_check(c2, a, u1, &left, &err), HF_OK);
    CHECK_RANGE(left, 1, 10000);
    CHECK_HF(hf_owner_check(c2, a, u2, NULL, &err), HF_ENOTOWNER);
    CHECK_HF(hf_owner_extend(c2, a, u2, 50000, &err), HF_ENOTOWNER);
    CHECK_RANGE(server_int(s, "PTTL lock:key"), 1, 10000);
    CHECK_HF(hf_owner_extend(c2, a, u1, 50000, &err), HF_OK);
    CHECK_RANGE(server_int(s, "PTTL lock:key"), 40000, 50000);
    CHECK_RANGE(server_int(s, "PTTL {lock:key}:own"), 40000, 50000);
    CHECK_HF(hf_owner_release(c2, a, u1, &err), HF_OK); /* from elsewhere: the id travels */
    CHECK_INT(server_int(s, "EXISTS lock:key {lock:key}:own"), 0);
    CHECK_HF(hf_owner_release(c, a, u1, &err), HF_ENOTOWNER);
    CHECK_INT(err.known, HF_KNOWN_NOT_HELD);
    CHECK_HF(hf_owner_acquire(c2, a, 10000, u2, &f2, &err), HF_OK);
    CHECK(f2 > f1);
    CHECK_HF(hf_owner_release(c, a, u1, &err), HF_ENOTOWNER); /* late: changes nothing */
    CHECK_HF(hf_owner_check(c, a, u2, NULL, &err), HF_OK);
    CHECK_HF(hf_owner_release(c, a, u2, &err), HF_OK);
    hf_client_free(c);
    hf_client_free(c2);
}

/* Document 000: the lock ends by itself, and a release that comes too late is harmless. */
TEST(spec_000_lock_with_timeout_expires_by_itself)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_bytes a = hf_str("key"), u1 = hf_str("u1"), u2 = hf_str("u2");
    CHECK_HF(hf_owner_acquire(c, a, 150, u1, NULL, &err), HF_OK);
    CHECK_EVENTUALLY(hf_owner_acquire(c, a, 30000, u2, NULL, &err) == HF_OK, 3000);
    CHECK_HF(hf_owner_release(c, a, u1, &err), HF_ENOTOWNER);
    CHECK_STR(server_ask(s, "GET lock:key"), "u2");
    CHECK_HF(hf_owner_extend(c, a, u1, 100, &err), HF_ENOTOWNER);
    CHECK_RANGE(server_int(s, "PTTL lock:key"), 20000, 30000);
    hf_client_free(c);
}

/* Document 003: lock / expire / isLocking / unlock / unlockAll. */
TEST(spec_003_unlock_all_of_one_owner)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    char name[32];
    size_t n = 99;
    for (int i = 0; i < 30; i++) {
        snprintf(name, sizeof name, "order:%d", i);
        CHECK_HF(hf_owner_acquire(c, hf_str(name), 60000, hf_str(i % 3 ? "me" : "you"), NULL, &err),
                 HF_OK);
    }
    server_ask(s, "SET lock:foreign x");
    server_ask(s, "LPUSH lock:list x");
    server_ask(s, "SET unrelated me");
    CHECK_HF(hf_owner_release_all(c, hf_str("me"), &n, &err), HF_OK);
    CHECK_INT((long long)n, 20);
    for (int i = 0; i < 30; i++) {
        snprintf(name, sizeof name, "lock:order:%d", i);
        CHECK_STR(server_ask(s, "GET %s", name), i % 3 ? NULL : "you");
    }
    CHECK_STR(server_ask(s, "GET unrelated"), "me");
    CHECK_STR(server_ask(s, "GET lock:foreign"), "x");
    CHECK_INT(server_int(s, "LLEN lock:list"), 1);
    CHECK_HF(hf_owner_release_all(c, hf_str("nobody"), &n, &err), HF_OK);
    CHECK_INT((long long)n, 0);
    hf_client_free(c);
}

TEST(P2_B3_a_handle_with_an_owner_id_is_not_confused_with_another_hold_of_it)
{
    struct server *s = server_start(NULL);
    hf_client *c1 = client_at(server_url(s), 0), *c2 = client_at(server_url(s), 0);
    hf_lock_opts o = { .ttl_ms = 800, .no_renew = 1, .owner = hf_str("worker") };
    hf_lock *late = lock_with(c1, "a", o);
    o.ttl_ms = 30000;
    hf_lock *now = lock_with(c2, "a", o);
    lock_now(late);
    CHECK_STR(hf_lock_owner(late), "worker");
    lock_now(now); /* after the first has expired: the same value, another hold */
    CHECK_STR(server_ask(s, "GET lock:a"), "worker");
    CHECK_HF(hf_lock_release(late, &err), HF_ELOST);
    t_sleep_ms(300); /* and what it leaves to the background */
    CHECK_HF(hf_lock_verify(now, &err), HF_OK);
    CHECK_RANGE(server_int(s, "PTTL lock:a"), 20000, 30000);
    /* A handle notices when its id was used for another hold under its hands. */
    hf_lock *m = lock_with(c1, "b", (hf_lock_opts){ .ttl_ms = 400, .owner = hf_str("worker") });
    lock_now(m);
    server_ask(s, "SET {lock:b}:own other.1:99 PX 60000");
    CHECK_EVENTUALLY(hf_lock_state(m) == HF_STATE_LOST, 2000);
    CHECK_HF(hf_lock_release(m, &err), HF_ELOST);
    unlock_now(now);
    CHECK_INT(server_int(s, "EXISTS lock:a {lock:a}:own"), 0);
    hf_lock_free(m);
    hf_lock_free(late);
    hf_lock_free(now);
    hf_client_free(c1);
    hf_client_free(c2);
}

TEST(the_id_of_a_random_owner_releases_checks_and_extends_too)
{
    struct server *s = server_start(NULL);
    hf_client *c1 = client_at(server_url(s), 0), *c2 = client_at(server_url(s), 0);
    hf_lock *m = lock_of(c1, "a", 30000);
    uint64_t f = lock_now(m);
    char id[64], almost[64];
    snprintf(id, sizeof id, "%s", hf_lock_owner(m));
    snprintf(almost, sizeof almost, "%s", id);
    almost[0] = almost[0] == '0' ? '1' : '0';
    CHECK_HF(hf_owner_check(c2, hf_str("a"), hf_str(id), NULL, &err), HF_OK);
    CHECK_HF(hf_owner_check(c2, hf_str("a"), hf_str(almost), NULL, &err), HF_ENOTOWNER);
    almost[strlen(id) - 1] = '\0'; /* a beginning is not enough */
    CHECK_HF(hf_owner_release(c2, hf_str("a"), hf_str(almost), &err), HF_ENOTOWNER);
    CHECK_HF(hf_owner_release(c2, hf_str("a"), (hf_bytes){ id, 32 }, &err), HF_ENOTOWNER);
    CHECK_HF(hf_owner_extend(c2, hf_str("a"), hf_str(id), 90000, &err), HF_OK);
    CHECK_HF(hf_owner_extend(c2, hf_str("a"), hf_str(id), 1000, &err), HF_EINVAL);
    CHECK_CONTAINS(err.message, "longer than the 1000 ms asked for");
    CHECK_RANGE(server_int(s, "PTTL lock:a"), 80000, 90000);
    CHECK_HF(hf_owner_release(c2, hf_str("a"), hf_str(id), &err), HF_OK);
    CHECK_INT(server_int(s, "EXISTS lock:a"), 0);
    CHECK_HF(hf_lock_verify(m, &err), HF_ELOST);
    CHECK_INT(hf_lock_loss(m), HF_LOSS_RELEASED);
    CHECK(hf_lock_fence(m) == f); /* until it is unlocked */
    hf_lock_free(m);
    hf_client_free(c1);
    hf_client_free(c2);
}

TEST(P10_owner_ids_of_any_bytes_and_every_length)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_bytes a = hf_str("a");
    char id[300];
    for (int round = 0; round < 60; round++) {
        size_t n = round < 4 ? (size_t[]){ 1, 2, 255, 256 }[round] : 1 + t_random(256);
        for (size_t i = 0; i < n; i++)
            id[i] = (char)t_random(256);
        hf_bytes owner = { id, n };
        uint64_t f = 0;
        size_t len;
        CHECK_HF(hf_owner_acquire(c, a, 5000, owner, &f, &err), HF_OK);
        const char *got = server_ask_bytes(s, &len, "GET lock:a");
        CHECK_MEM(got, len, id, n);
        CHECK_HF(hf_owner_check(c, a, owner, NULL, &err), HF_OK);
        id[n - 1] ^= 1;
        CHECK_HF(hf_owner_release(c, a, owner, &err), HF_ENOTOWNER);
        id[n - 1] ^= 1;
        CHECK_HF(hf_owner_release(c, a, owner, &err), HF_OK);
        hf_lock *m = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 5000, .owner = owner });
        lock_now(m);
        CHECK_HF(hf_lock_extend(m, 6000, &err), HF_OK);
        unlock_now(m);
        CHECK_INT(server_int(s, "EXISTS lock:a {lock:a}:own"), 0);
        hf_lock_free(m);
    }
    memset(id, 'x', sizeof id);
    CHECK_HF(hf_owner_acquire(c, a, 5000, (hf_bytes){ id, 257 }, NULL, &err), HF_EINVAL);
    CHECK_HF(hf_owner_acquire(c, a, 5000, (hf_bytes){ id, 0 }, NULL, &err), HF_EINVAL);
    CHECK_HF(hf_owner_acquire(c, a, 5000, (hf_bytes){ NULL, 3 }, NULL, &err), HF_EINVAL);
    CHECK_HF(hf_owner_release(c, a, (hf_bytes){ id, 0 }, &err), HF_EINVAL);
    CHECK_HF(hf_owner_release(c, a, (hf_bytes){ id, 257 }, &err), HF_EINVAL);
    CHECK_HF(hf_owner_check(c, a, (hf_bytes){ id, 257 }, NULL, &err), HF_EINVAL);
    CHECK_HF(hf_owner_acquire(c, a, 99, hf_str("id"), NULL, &err), HF_EINVAL);
    CHECK_HF(hf_owner_acquire(c, a, -1, hf_str("id"), NULL, &err), HF_EINVAL);
    CHECK_HF(hf_owner_acquire(c, a, 0, hf_str("id"), NULL, &err), HF_EINVAL);
    CHECK_HF(hf_owner_extend(c, a, hf_str("id"), 0, &err), HF_EINVAL);
    CHECK_HF(hf_owner_extend(c, a, hf_str("id"), INT64_MAX, &err), HF_EINVAL);
    /* It could be taken for a random owner's value. */
    CHECK_HF(hf_owner_acquire(c, a, 5000, hf_str("0123456789abcdef0123456789abcdef.1:2:0"), NULL,
                              &err),
             HF_EINVAL);
    hf_client_free(c);
}

/* hf_bytes has no NUL behind it: nothing may be read beyond its end. */
TEST(P10_an_owner_id_of_hex_digits_is_not_read_past_its_end)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    for (size_t n = 30; n <= 45; n++) {
        char *id = malloc(n); /* exactly: ASan watches the byte behind it */
        CHECK(id);
        memset(id, 'a', n);
        CHECK_HF(hf_owner_acquire(c, hf_str("a"), 5000, (hf_bytes){ id, n }, NULL, &err), HF_OK);
        CHECK_HF(hf_owner_release(c, hf_str("a"), (hf_bytes){ id, n }, &err), HF_OK);
        free(id);
    }
    hf_client_free(c);
}

TEST(release_all_finds_the_locks_of_a_random_owner_and_of_odd_names)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_with(server_url(s), (hf_client_opts){ .prefix = "a[b]*?\\:" });
    hf_bytes odd = { "x\0\r\n*", 5 };
    size_t n = 0;
    CHECK_HF(hf_owner_acquire(c, odd, 5000, hf_str("me"), NULL, &err), HF_OK);
    CHECK_HF(hf_owner_acquire(c, hf_str("y"), 5000, hf_str("me"), NULL, &err), HF_OK);
    server_ask(s, "SET ab:z me"); /* would match the prefix if it were a pattern */
    server_ask(s, "SET aXb me");
    CHECK_HF(hf_owner_release_all(c, hf_str("me"), &n, &err), HF_OK);
    CHECK_INT((long long)n, 2);
    CHECK_STR(server_ask(s, "GET ab:z"), "me");
    hf_client_free(c);
}
