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
    return model_find(hf_str("lock:a")) != NULL;
}

/* The answer to the grant is read when the grace is over. */
static void pause_after_grant(int proc)
{
    (void)proc;
    if (model->op != OP_acquire)
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
    char url[WORLD_URL_SIZE];
    (void)arg;
    CHECK_INT(hf_client_open(world_url(client, url), &co, &c, NULL), HF_OK);
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
    world_begin(t_seed(), 1);
    world_net = (struct world_net){ .usual_ms = 2 };
    world_on_command(pause_after_grant);
    client = world_add_proc(0);
    world_start(client, acquire, NULL);
    while (!got.grants)
        world_sleep(1);
    world_sleep(10);
    world_outage(0, OUTAGE_MS);
    while (!world_alone())
        world_sleep(1000);
    CHECK_INT(got.grants, 1);
    CHECK(got.taken);
    CHECK_INT(got.result, HF_EUNSURE);
    CHECK_INT(got.err.known, HF_KNOWN_NOTHING);
    world_end();
}

/* ---- breaking a lock ------------------------------------------------------------------------- */

static struct world_proc *operator;
static uint64_t fence;
static int looks;

/* The operator marks it and is paused; it reads the second answer when the lease is long over. */
static void pause_operator(int proc)
{
    if (model->op == OP_break && proc == operator->id && ++looks == 2)
        world_freeze(operator, 20000);
}

static void hold(void *arg)
{
    hf_client *c = NULL;
    hf_lock *m = NULL;
    hf_client_opts co = { .size = sizeof co };
    hf_lock_opts lo = { .size = sizeof lo, .ttl_ms = 5000, .grace_ms = HF_NO_TAKEOVER };
    char url[WORLD_URL_SIZE];
    (void)arg;
    CHECK_INT(hf_client_open(world_url(client, url), &co, &c, NULL), HF_OK);
    CHECK_INT(hf_lock_open(c, hf_str("a"), &lo, &m, NULL), HF_OK);
    CHECK_INT(hf_lock_acquire(m, 0, &fence, NULL), HF_OK);
    world_freeze(client, 10000); /* it does not let go */
    world_sleep(10000);
    hf_lock_free(m);
    hf_client_free(c);
}

static void break_a(void *arg)
{
    hf_client *c = NULL;
    hf_client_opts co = { .size = sizeof co };
    hf_break_opts bo = { .size = sizeof bo, .wait_ms = HF_WAIT_FOREVER };
    char url[WORLD_URL_SIZE];
    (void)arg;
    CHECK_INT(hf_client_open(world_url(operator, url), &co, &c, NULL), HF_OK);
    while (!fence)
        world_sleep(1);
    got.result = hf_break(c, hf_str("a"), fence, &bo, NULL, &got.err);
    hf_client_free(c);
}

TEST(BR2_an_operator_that_was_paused_does_not_say_that_the_holder_renews)
{
    world_begin(t_seed(), 1);
    world_net = (struct world_net){ .usual_ms = 2 };
    world_on_command(pause_operator);
    client = world_add_proc(0);
    operator = world_add_proc(0);
    world_start(client, hold, NULL);
    world_start(operator, break_a, NULL);
    while (!world_alone())
        world_sleep(1000);
    CHECK_INT(got.result, HF_OK);
    CHECK(looks >= 3); /* it was paused, and looked again */
    world_end();
}
