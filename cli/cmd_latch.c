/* SPDX-License-Identifier: MIT
 * cmd_latch.c - holdfast latch NAME: set it, count it down, wait for zero, or see what is left. */
#include "commands.h"
#include "ending.h"
#include "exitcode.h"
#include "message.h"
#include "open.h"
#include "output.h"
#include "waiting.h"

#include <inttypes.h>
#include <string.h>

/* left, total: -1 when not known. */
static void print(const struct opts *o, const char *name, int64_t left, int64_t total)
{
    if (o->output != OUT_TABLE) {
        json_t *j = json_object();
        json_set_name(j, name, strlen(name));
        json_object_set_new(j, "left", left < 0 ? json_null() : json_integer(left));
        json_object_set_new(j, "total", total < 0 ? json_null() : json_integer(total));
        json_line(j);
    } else if (!o->quiet && left >= 0) {
        printf("%" PRId64 "\n", left);
    }
}

/* 0, or the exit status after a message: "not yet" is a note, not an error. */
static int result(const struct opts *o, hf_err e, const hf_error *err)
{
    if (e == HF_OK)
        return EX_OKAY;
    if (e != HF_EBUSY && e != HF_ETIMEDOUT && e != HF_ENOTSET)
        return msg_failed(e, err);
    msg_note("%s", err->message);
    return o->busy_code;
}

static int set(const struct opts *o, const char *name, hf_latch *lt)
{
    hf_error err = { 0 };
    uint32_t n = (uint32_t)o->count;
    int code = result(o, o->force ? hf_latch_reset(lt, n, &err) : hf_latch_set(lt, n, &err), &err);
    if (code == 0 && o->output != OUT_TABLE)
        print(o, name, o->count, o->count);
    return code;
}

static int down(const struct opts *o, const char *name, hf_latch *lt, uint32_t n)
{
    hf_error err = { 0 };
    uint32_t left = 0;
    int code = result(o, hf_latch_count_down(lt, n, &left, &err), &err);
    if (code == 0)
        print(o, name, left, -1);
    return code;
}

static int show_latch(const struct opts *o, const char *name, hf_latch *lt)
{
    hf_error err = { 0 };
    uint32_t left = 0, total = 0;
    hf_err e = hf_latch_count(lt, &left, &total, &err);
    int code = result(o, e, &err);
    if (code == 0)
        print(o, name, left, total);
    else if (e == HF_ENOTSET && o->output != OUT_TABLE)
        print(o, name, -1, -1);
    return code;
}

static void cancel(void *arg)
{
    hf_latch_cancel(arg);
}

static int wait_for_zero(const struct opts *o, hf_client *c, const char *name, hf_latch *lt)
{
    struct waiting w;
    hf_error err = { 0 };
    waiting_probe(&w, c, name);
    struct ending_wait waits = { cancel, lt, waiting_tell, &w, w.after_ms };
    int code = ending_wait(&waits);
    if (code)
        return code;
    client_limit(o, c, name);
    hf_err e;
    do
        e = hf_latch_wait(lt, options_wait_ms(o), &err);
    while (client_again(o, e));
    int sig = ending_waited();
    waiting_end(&w, e == HF_OK);
    if (e == HF_ECANCELED && sig)
        return EX_SIGNAL + sig;
    if (e == HF_ETIMEDOUT)
        e = client_answers(c, name, e, &err);
    code = result(o, e, &err);
    if (code == 0 && o->output != OUT_TABLE)
        print(o, name, 0, -1);
    return code;
}

static int check(const struct cmd *cmd, const struct opts *o, int argc, char **argv,
                 uint32_t *ret_n)
{
    int waits = o->wait || o->nonblock || o->wait_ms != GIVEN_NOT;
    if (argc < 1)
        return usage_error(cmd, "the latch's name is missing");
    if (argc > 2 || (argc == 2 && !o->down))
        return usage_error(cmd, "one latch at a time");
    if ((o->count != 0) + o->down + waits > 1)
        return usage_error(cmd, "--set, --down and waiting cannot be used together");
    if (o->force && !o->count)
        return usage_error(cmd, "--force needs --set");
    if (o->nonblock && o->wait_ms != GIVEN_NOT)
        return usage_error(cmd, "-n and -w cannot be used together");
    if (o->ttl_ms != GIVEN_NOT && (o->ttl_ms < HF_TTL_MIN_MS || o->ttl_ms > HF_TTL_MAX_MS))
        return usage_error(cmd, "--ttl must be between 100ms and 365d");
    int64_t n = argc == 2 ? options_number(argv[1], HF_LATCH_MAX) : 1;
    if (n < 0)
        return usage_error(cmd, "--down: '%s' is not a number from 1 to %d", argv[1], HF_LATCH_MAX);
    *ret_n = (uint32_t)n;
    return 0;
}

int cmd_latch(const struct cmd *cmd, struct opts *o, int argc, char **argv)
{
    hf_latch_opts lo = { .size = sizeof lo, .ttl_ms = o->ttl_ms == GIVEN_NOT ? 0 : o->ttl_ms };
    struct signals s;
    hf_client *c = NULL;
    hf_latch *lt = NULL;
    hf_error err = { 0 };
    uint32_t n = 1;
    int code = check(cmd, o, argc, argv, &n);
    if (code)
        return code;
    signals_block(&s); /* before the library's threads inherit the mask */
    int waits = o->wait || o->nonblock || o->wait_ms != GIVEN_NOT;
    code = waits ? client_await(o, NULL, &c) : client_open(o, NULL, &c);
    if (code)
        return code;
    hf_err e = hf_latch_open(c, hf_str(argv[0]), &lo, &lt, &err);
    if (e != HF_OK)
        code = msg_failed(e, &err);
    else if (o->count)
        code = set(o, argv[0], lt);
    else if (o->down)
        code = down(o, argv[0], lt, n);
    else if (waits)
        code = wait_for_zero(o, c, argv[0], lt);
    else
        code = show_latch(o, argv[0], lt);
    client_leave(o, code);
    client_close(c);
    hf_latch_free(lt);
    return code;
}
