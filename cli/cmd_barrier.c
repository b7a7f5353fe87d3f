/* SPDX-License-Identifier: MIT
 * cmd_barrier.c - holdfast barrier NAME --count N: wait until N have come. */
#include "commands.h"
#include "ending.h"
#include "exitcode.h"
#include "message.h"
#include "open.h"
#include "output.h"
#include "waiting.h"

#include <inttypes.h>
#include <string.h>

static void print(const struct opts *o, const char *name, uint32_t index, uint64_t generation)
{
    if (o->output != OUT_TABLE) {
        json_t *j = json_object();
        json_set_name(j, name, strlen(name));
        json_object_set_new(j, "count", json_integer(o->count));
        json_object_set_new(j, "index", o->leave ? json_null() : json_integer(index));
        json_object_set_new(j, "generation",
                            o->leave ? json_null() : json_integer((json_int_t)generation));
        json_line(j);
    } else if (!o->quiet && !o->leave) {
        printf("index=%" PRIu32 " generation=%" PRIu64 "\n", index, generation);
    }
}

static void cancel(void *arg)
{
    hf_barrier_cancel(arg);
}

static int meet(const struct opts *o, hf_client *c, const char *name, hf_barrier *b)
{
    struct waiting w;
    hf_error err = { 0 };
    uint32_t index = 0;
    uint64_t generation = 0;
    int64_t wait = options_wait_ms(o);
    waiting_probe(&w, c, name);
    struct ending_wait waits = { cancel, b, waiting_tell, &w, w.after_ms };
    int code = ending_wait(&waits);
    if (code)
        return code;
    client_limit(o, c, name);
    hf_err e = o->leave ? hf_barrier_leave(b, wait, &err)
                        : hf_barrier_wait(b, wait, &index, &generation, &err);
    int sig = ending_waited();
    waiting_end(&w, e == HF_OK);
    if (e == HF_ECANCELED && sig)
        return EX_SIGNAL + sig;
    if (e == HF_ETIMEDOUT)
        e = client_answers(c, name, e, &err);
    if (e == HF_EBUSY || e == HF_ETIMEDOUT) {
        msg_note("%s", err.message);
        return o->busy_code;
    }
    if (e != HF_OK)
        return msg_failed(e, &err);
    print(o, name, index, generation);
    return EX_OKAY;
}

int cmd_barrier(const struct cmd *cmd, struct opts *o, int argc, char **argv)
{
    hf_barrier_opts bo = { .size = sizeof bo,
                           .grace_ms = o->grace_ms == 0           ? HF_NO_TAKEOVER
                                       : o->grace_ms == GIVEN_NOT ? 0
                                                                  : o->grace_ms };
    struct signals s;
    hf_client *c = NULL;
    hf_barrier *b = NULL;
    hf_error err = { 0 };
    if (argc != 1)
        return usage_error(cmd, argc ? "one barrier at a time" : "the barrier's name is missing");
    if (!o->count)
        return usage_error(cmd, "--count is missing: how many parties meet");
    if (o->nonblock && o->wait_ms != GIVEN_NOT)
        return usage_error(cmd, "-n and -w cannot be used together");
    signals_block(&s); /* before the library's threads inherit the mask */
    int code = client_await(o, NULL, &c);
    if (code)
        return code;
    hf_err e = hf_barrier_open(c, hf_str(argv[0]), (uint32_t)o->count, &bo, &b, &err);
    code = e == HF_OK ? meet(o, c, argv[0], b) : msg_failed(e, &err);
    client_leave(o, code);
    client_close(c);
    hf_barrier_free(b);
    return code;
}
