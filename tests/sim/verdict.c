/* SPDX-License-Identifier: MIT
 * verdict.c - what a call says when the server is gone at one exact moment.
 */
#include <stdio.h>

#include "harness/t.h"
#include "holdfast.h"
#include "sim/lib/model.h"
#include "sim/lib/world.h"

#define GRACE_MS  1000
#define OUTAGE_MS 20000

static struct {
    hf_err   result;
    hf_error err;
    unsigned grants;
    bool     taken; /* on the server, for nobody, when the call had ended */
} got;

static struct world_proc *client;

static bool on_server(void)
{
    return store_find(&model.store, hf_str("lock:a"), model_now_ms()) != NULL;
}

/* The answer to the grant is read when the grace is over. */
static void pause_after_grant(int proc)
{
    (void)proc;
    if (model.op != OP_acquire)
        return;
    got.grants++;
    world_freeze(client, GRACE_MS + 500);
}

static void acquire(void *arg)
{
    hf_client *c = NULL;
    hf_lock *m = NULL;
    hf_client_opts co = { .size = sizeof co, .timeout_ms = 1000 };
    hf_lock_opts lo = { .size = sizeof lo, .ttl_ms = 60000, .grace_ms = GRACE_MS };
    char url[64];
    (void)arg;
    snprintf(url, sizeof url, "redis://nowhere:%d", 7000 + client->id);
    CHECK_INT(hf_client_open(url, &co, &c, NULL), HF_OK);
    CHECK_INT(hf_lock_open(c, hf_str("a"), &lo, &m, NULL), HF_OK);
    got.result = hf_lock_acquire(m, OUTAGE_MS / 2, NULL, &got.err);
    got.taken = on_server();
    world_sleep(2 * OUTAGE_MS); /* it is cancelled in the background */
    CHECK(!on_server());
    hf_lock_free(m);
    hf_client_free(c);
}

/* Granted, but nobody knows whether the server still sees the session: it is given back, which gets
 * no answer, and the call begins anew with another token, whose requests cannot even be sent. */
TEST(P8_unchanged_is_not_said_while_an_earlier_token_may_have_the_lock)
{
    world_begin(t_seed());
    world_net = (struct world_net){ .usual_ms = 2 };
    world_on_command(pause_after_grant);
    client = world_add_proc(0);
    world_start(client, acquire, NULL);
    while (!got.grants)
        world_sleep(1);
    world_sleep(10);
    world_outage(OUTAGE_MS);
    while (!world_alone())
        world_sleep(1000);
    CHECK_INT(got.grants, 1);
    CHECK(got.taken);
    CHECK_INT(got.result, HF_EUNSURE);
    CHECK_INT(got.err.known, HF_KNOWN_NOTHING);
    world_end();
}
