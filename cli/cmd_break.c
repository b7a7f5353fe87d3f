/* SPDX-License-Identifier: MIT
 * cmd_break.c - holdfast break NAME --fence N: take a lock from its holder, safely. */
#include "commands.h"
#include "clock.h"
#include "exitcode.h"
#include "message.h"
#include "open.h"
#include "output.h"
#include "parties.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { SOON_MS = 1000 }; /* who lives has let go by then; else whoever waits is told what for */

struct breaking {
    hf_client        *c;
    const struct opts *o;
    const char       *name;
    char              who[PARTY_TEXT]; /* the holder, as far as it is known */
    int64_t           begun_ms;
    hf_break_info     info;
};

static const char *const results[] = {
    [HF_BROKEN_FREE] = "free",       [HF_BROKEN_RELEASED] = "released",
    [HF_BROKEN_EXPIRED] = "expired", [HF_BROKEN_GONE] = "gone",
    [HF_BROKEN_AT_ONCE] = "at_once", [HF_BROKEN_MARKED] = "marked",
};

static void print_json(const struct breaking *b, int64_t after_ms)
{
    json_t *j = json_object();
    json_set_name(j, b->name, strlen(b->name));
    json_object_set_new(j, "fence", b->o->fence ? json_integer(b->o->fence) : json_null());
    json_object_set_new(j, "result", json_string(results[b->info.how]));
    json_object_set_new(j, "holder", b->who[0] ? json_string(b->who) : json_null());
    json_object_set_new(j, "after_ms", json_integer(after_ms));
    json_object_set_new(j, "free_in_ms", b->info.how == HF_BROKEN_MARKED
                                             ? json_integer(b->info.left_ms) : json_null());
    json_object_set_new(j, "present", b->info.present < 0 ? json_null()
                                                          : json_boolean(b->info.present));
    json_object_set_new(j, "told", json_boolean(b->info.told));
    json_line(j);
}

/* Why it is not free yet: a part of a sentence. */
static const char *why_not_yet(const struct breaking *b)
{
    return b->info.told           ? "knows, and has not let go yet"
           : b->info.present == 0 ? "is gone, or its connection is"
                                  : "does not answer";
}

static void print_words(const struct breaking *b, int64_t after_ms)
{
    char after[32], left[32];
    const char *who = b->who[0] ? b->who : "the holder";
    text_duration(after, sizeof after, after_ms);
    text_duration(left, sizeof left, b->info.left_ms);
    switch (b->info.how) {
    case HF_BROKEN_FREE: printf("free: nobody holds it any more\n"); break;
    case HF_BROKEN_RELEASED: printf("broken: %s let go after %s\n", who, after); break;
    case HF_BROKEN_EXPIRED:
        printf("broken: %s did not answer, and its lease ended after %s\n", who, after);
        break;
    case HF_BROKEN_GONE:
        printf("broken: %s was gone, and the lock was handed on after %s\n", who, after);
        break;
    case HF_BROKEN_AT_ONCE: printf("broken at once: %s was not waited for\n", who); break;
    case HF_BROKEN_MARKED:
        printf("marked: %s %s; it is free in %s at the latest\n", who, why_not_yet(b), left);
        break;
    }
}

static void print(const struct breaking *b)
{
    int64_t after = clock_now_ms() - b->begun_ms;
    if (b->o->output != OUT_TABLE)
        print_json(b, after);
    else if (!b->o->quiet)
        print_words(b, after);
}

/* ---- doing it ------------------------------------------------------------------------------ */

static hf_err break_for(struct breaking *b, int64_t wait_ms, hf_error *err)
{
    hf_break_opts o = { .size = sizeof o, .reason = b->o->reason, .now = b->o->now,
                        .wait_ms = wait_ms };
    if (b->o->value)
        o.value = hf_str(b->o->value);
    return hf_break(b->c, hf_str(b->name), (uint64_t)b->o->fence, &o, &b->info, err);
}

/* First a moment; then, if it takes longer and may, whoever waits knows for what. */
static hf_err break_and_wait(struct breaking *b, hf_error *err)
{
    char left[32];
    int64_t wait = options_wait_ms(b->o);
    int64_t first = wait >= 0 && wait < SOON_MS ? wait : SOON_MS;
    hf_err e = break_for(b, first, err);
    if (e != HF_ETIMEDOUT || first == wait)
        return e;
    msg_note_about("marked: %s %s; it is free in %s at the latest, and is waited for",
                   b->who[0] ? b->who : "the holder", why_not_yet(b),
                   text_duration(left, sizeof left, b->info.left_ms));
    int told = b->info.told;
    e = break_for(b, wait < 0 ? wait : options_wait_ms(b->o), err);
    if (e == HF_ENOTOWNER || (e == HF_OK && b->info.how == HF_BROKEN_FREE)) {
        /* it has passed between the two */
        b->info.how = told || (e == HF_OK && b->info.told) ? HF_BROKEN_RELEASED
                                                           : HF_BROKEN_EXPIRED;
        e = HF_OK;
    }
    return e;
}

static void warn_of_now(const struct breaking *b)
{
    if (b->o->now)
        msg_note_about("--now: %s is not waited for. Until it hears of this, it may still believe "
                       "that it has the lock while another one has it: only fencing protects what "
                       "it writes", b->who[0] ? b->who : "the holder");
}

static int break_lock(struct breaking *b)
{
    hf_error err;
    hf_err e = party_with_fence(b->c, b->name, (uint64_t)b->o->fence, b->who, &err);
    if (e != HF_OK)
        return msg_failed(e, &err);
    warn_of_now(b);
    b->begun_ms = clock_now_ms();
    e = break_and_wait(b, &err);
    if (e == HF_OK || e == HF_ETIMEDOUT)
        print(b);
    if (e == HF_ETIMEDOUT)
        return EX_BUSY;
    return e == HF_OK ? EX_OKAY : msg_failed(e, &err);
}

static int check(const struct cmd *cmd, const struct opts *o, int argc)
{
    if (argc != 1)
        return usage_error(cmd, argc ? "one lock at a time" : "the lock's name is missing");
    if (o->nonblock && o->wait_ms != GIVEN_NOT)
        return usage_error(cmd, "-n and -w cannot be used together");
    if (o->value && (!o->now || o->fence))
        return usage_error(cmd, "--value is for a lock of another library: with --now, and without "
                           "--fence");
    if (!o->fence && !o->value)
        return usage_error(cmd, "--fence is missing: the number of the holder that shall let go, "
                           "which holdfast status NAME shows");
    if (o->reason && strlen(o->reason) > HF_REASON_MAX)
        return usage_error(cmd, "--reason has %zu bytes, and may have %d", strlen(o->reason),
                           HF_REASON_MAX);
    return 0;
}

int cmd_break(const struct cmd *cmd, struct opts *o, int argc, char **argv)
{
    struct breaking b = { .o = o };
    int code = check(cmd, o, argc);
    if (code)
        return code;
    b.name = argv[0];
    code = client_open(o, NULL, &b.c);
    if (code)
        return code;
    code = break_lock(&b);
    client_close(b.c);
    return code;
}
