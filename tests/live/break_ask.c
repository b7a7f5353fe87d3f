/* SPDX-License-Identifier: MIT
 * break_ask.c - asking for a lock; breaking without blocking, and holders that cannot be told.
 */
#include "harness/breaking.h"

/* A holder that renews without asking for marks: an older version, or one without scripts. */
TEST(BR2_a_holder_that_goes_on_renewing_is_reported)
{
    begin();
    hf_break_info got;
    hf_client *tx = client_at(url_with(server_url(s), "protocol=transaction"), 0);
    hf_lock *m = lock_of(tx, "a", 4000);
    uint64_t fence = lock_now(m);
    CHECK_HF(broken(c, "a", fence, 30000, &got), HF_ENOTSUP);
    CHECK_CONTAINS(err.message, "goes on renewing");
    CHECK(hf_lock_is_held(m));
    CHECK_HF(broken(tx, "a", fence, 0, &got), HF_ENOTSUP);
    CHECK_CONTAINS(err.message, "script");
    hf_lock_free(m);
}

/* ---- asking ---- */

static void count_ask(hf_lock *m, void *arg)
{
    char text[400];
    if (hf_lock_asked(m, text, sizeof text) > 0 && strchr(text, '@'))
        atomic_fetch_add((atomic_int *)arg, 1);
}

TEST(ask_reaches_the_holder_and_takes_nothing)
{
    begin();
    atomic_int asked = 0;
    char text[400];
    size_t n, heard;
    hf_client *holder = client_at(server_url(s), 0);
    hf_lock *m = lock_with(holder, "a", (hf_lock_opts){ .ttl_ms = 60000, .on_ask = count_ask,
                                                        .event_arg = &asked });
    int fd;
    CHECK_HF(hf_ask(c, hf_str("a"), 0, "please", &n, &heard, &err), HF_ENOTSET);
    uint64_t fence = lock_now(m);
    CHECK_HF(hf_lock_fd(m, &fd, &err), HF_OK);
    CHECK_INT(hf_lock_asked(m, text, sizeof text), 0);
    CHECK_HF(hf_ask(c, hf_str("a"), 0, "please", &n, &heard, &err), HF_OK);
    CHECK_INT((int)n, 1);
    CHECK_INT((int)heard, 1);
    CHECK_EVENTUALLY(atomic_load(&asked) == 1, 20000);
    struct pollfd p = { .fd = fd, .events = POLLIN };
    CHECK_INT(poll(&p, 1, 20000), 1);
    CHECK_INT(hf_lock_poll(m), HF_STATE_SAFE);
    CHECK_INT(hf_lock_asked(m, text, sizeof text), 1);
    CHECK_CONTAINS(text, ": please");
    CHECK_HF(hf_lock_extend(m, 50000, &err), HF_OK); /* the same question is told once */
    CHECK_HF(hf_ask(c, hf_str("a"), fence, NULL, NULL, NULL, &err), HF_OK);
    CHECK_EVENTUALLY(atomic_load(&asked) == 2, 20000);
    CHECK_HF(hf_ask(c, hf_str("a"), fence + 1, NULL, NULL, NULL, &err), HF_ENOTOWNER);
    CHECK(hf_lock_is_held(m));
    unlock_now(m);
    CHECK_INT(hf_lock_asked(m, text, sizeof text), 0);
    lock_now(m); /* another grant: nobody has asked for it */
    CHECK_HF(hf_lock_verify(m, &err), HF_OK);
    CHECK_INT(hf_lock_asked(m, text, sizeof text), 0);
    hf_lock_free(m);
    hf_client_free(holder);
}

TEST(ask_reaches_all_who_share_and_who_has_no_session_later)
{
    begin();
    size_t n, heard;
    struct believer *b = believer_start(server_url(s), "a",
                                        (hf_lock_opts){ .ttl_ms = 6000, .shared = 1,
                                                        .grace_ms = HF_NO_TAKEOVER });
    struct believer *other = believer_start(server_url(s), "a",
                                            (hf_lock_opts){ .ttl_ms = 60000, .shared = 1 });
    CHECK_HF(hf_ask(c, hf_str("a"), 0, "all of you", &n, &heard, &err), HF_OK);
    CHECK_INT((int)n, 2);
    CHECK_INT((int)heard, 1);
    CHECK_EVENTUALLY(atomic_load(&b->asks) == 1 && atomic_load(&other->asks) == 1, 20000);
    CHECK_CONTAINS(b->asked, "all of you");
    server_ask(s, "SET lock:f theirs PX 60000");
    CHECK_HF(hf_ask(c, hf_str("f"), 0, "x", &n, &heard, &err), HF_ENOTSUP);
    believer_end(b);
    believer_end(other);
}

/* ---- without blocking ---- */

struct told {
    hf_err   result;
    char     message[512];
    int      times;
};

static void on_done(hf_err result, const hf_error *e, void *arg)
{
    struct told *t = arg;
    t->result = result;
    t->times++;
    snprintf(t->message, sizeof t->message, "%s", e ? e->message : "");
}

TEST(BR1_the_same_without_blocking)
{
    begin();
    struct believer *b = believer_start(server_url(s), "a", (hf_lock_opts){ .ttl_ms = 60000 });
    struct told t = { 0 };
    size_t asked = 0, heard = 0;
    hf_break_info got = { .how = 77 };
    char text[] = "gone before it ends";
    CHECK_HF(hf_ask_async(c, hf_str("a"), 0, text, &asked, &heard, on_done, &t, &err), HF_OK);
    memset(text, 'x', sizeof text - 1);
    LOOP_EVENTUALLY(c, t.times == 1, 20000);
    CHECK_INT(t.result, HF_OK);
    CHECK_INT((int)(asked + heard), 2);
    CHECK_EVENTUALLY(atomic_load(&b->asks) == 1, 20000);
    CHECK_CONTAINS(b->asked, "gone before it ends");
    hf_break_opts o = { .size = sizeof o, .reason = text, .wait_ms = 30000 };
    CHECK_HF(hf_break_async(c, hf_str("a"), 1, &o, &got, on_done, &t, &err), HF_OK);
    LOOP_EVENTUALLY(c, t.times == 2, 20000);
    CHECK_INT(t.result, HF_ENOTOWNER);
    CHECK_HF(hf_break_async(c, hf_str("a"), 0, &o, &got, on_done, &t, &err), HF_EINVAL);
    CHECK_HF(hf_break_async(c, hf_str("a"), atomic_load(&b->fence), &o, &got, on_done, &t, &err),
             HF_OK);
    LOOP_EVENTUALLY(c, t.times == 3, 40000);
    CHECK_INT(t.result, HF_OK);
    CHECK_INT(got.how, HF_BROKEN_RELEASED);
    believer_end(b);
}
