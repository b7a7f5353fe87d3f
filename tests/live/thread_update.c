/* SPDX-License-Identifier: MIT
 * thread_update.c - updates and computations by many threads of one client: also run under TSan.
 */
#include <stdatomic.h>

#include "harness/live.h"

#define THREADS 8

static hf_change add_one(void *arg, hf_bytes old, hf_bytes *ret)
{
    char *text = arg, before[32] = "0";
    if (old.data)
        memcpy(before, old.data, old.len < 31 ? old.len : 31);
    *ret = (hf_bytes){ text, (size_t)snprintf(text, 32, "%ld", atol(before) + 1) };
    return HF_CHANGE_SET;
}

static void *update_often(void *arg)
{
    char text[32];
    hf_update_opts o = { .size = sizeof o, .tries = 1000 };
    for (int i = 0; i < 20; i++)
        CHECK_HF(hf_update_run(arg, hf_str("count"), &o, add_one, text, &err), HF_OK);
    return NULL;
}

static void in_threads(void *(*fn)(void *), void *arg)
{
    pthread_t t[THREADS];
    for (int i = 0; i < THREADS; i++)
        CHECK_INT(pthread_create(&t[i], NULL, fn, arg), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(t[i], NULL);
}

TEST(U1_threads_update_one_key_together)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 10000);
    in_threads(update_often, c);
    CHECK_INT(atoll(server_ask(s, "GET count")), THREADS * 20);
    hf_client_free(c);
}

static atomic_int computed, served;

static hf_err compute(void *arg, hf_lock *m, hf_bytes *ret, hf_error *reterr)
{
    (void)arg;
    (void)m;
    (void)reterr;
    atomic_fetch_add(&computed, 1);
    *ret = hf_str("value");
    return HF_OK;
}

static void *ask_once(void *arg)
{
    hf_once_opts o = { .size = sizeof o, .ttl_ms = 60000 };
    hf_value *v = NULL;
    CHECK_HF(hf_once_compute(arg, hf_str("v"), &o, 30000, compute, NULL, &v, &err), HF_OK);
    CHECK_STR(v->data, "value");
    hf_value_free(v);
    atomic_fetch_add(&served, 1);
    return NULL;
}

TEST(O1_threads_of_one_client_compute_once)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 10000);
    in_threads(ask_once, c);
    CHECK_INT(atomic_load(&computed), 1);
    CHECK_INT(atomic_load(&served), THREADS);
    hf_client_free(c);
}
