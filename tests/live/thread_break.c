/* SPDX-License-Identifier: MIT
 * thread_break.c - a lock is broken and asked for while other threads ask who it was.
 */
#include "harness/waiting.h"

struct asker {
    hf_lock   *m;
    atomic_int stop, asked, told;
};

static void *look(void *arg)
{
    struct asker *a = arg;
    char text[400];
    while (!atomic_load(&a->stop)) {
        if (hf_lock_asked(a->m, text, sizeof text) && strstr(text, "please"))
            atomic_store(&a->asked, 1);
        hf_lock_loss_text(a->m, text, sizeof text);
        if (strstr(text, "why"))
            atomic_store(&a->told, 1);
    }
    return NULL;
}

static void on_ask(hf_lock *m, void *arg)
{
    char text[400];
    (void)arg;
    CHECK(hf_lock_asked(m, text, sizeof text) > 0);
}

TEST(threads_ask_who_broke_it_while_it_is_taken_anew)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0), *operator = client_at(server_url(s), 0);
    struct asker a = { .m = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 60000,
                                                              .on_ask = on_ask }) };
    pthread_t thread;
    lock_now(a.m);
    CHECK_INT(pthread_create(&thread, NULL, look, &a), 0);
    for (int i = 0; i < 20; i++) {
        uint64_t fence = hf_lock_fence(a.m);
        hf_break_opts o = { .size = sizeof o, .reason = "why", .now = i % 2 };
        hf_break_info got;
        CHECK_HF(hf_ask(operator, hf_str("a"), fence, "please", NULL, NULL, &err), HF_OK);
        if (i == 0)
            CHECK_EVENTUALLY(atomic_load(&a.asked), 20000);
        CHECK_HF(hf_break(operator, hf_str("a"), fence, &o, &got, &err),
                 o.now ? HF_OK : HF_ETIMEDOUT);
        CHECK_EVENTUALLY(hf_lock_loss(a.m) == HF_LOSS_BROKEN, 20000);
        if (i == 0)
            CHECK_EVENTUALLY(atomic_load(&a.told), 20000);
        CHECK_HF(hf_lock_release(a.m, &err), HF_ELOST);
        lock_now(a.m);
    }
    atomic_store(&a.stop, 1);
    CHECK_INT(pthread_join(thread, NULL), 0);
    hf_lock_free(a.m);
    hf_client_free(c);
    hf_client_free(operator);
}
