/* SPDX-License-Identifier: MIT
 * cmd_why.c - holdfast why NAME: why it cannot be had, and when it can. */
#include "commands.h"
#include "exitcode.h"
#include "lockjson.h"
#include "message.h"
#include "open.h"
#include "output.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static void print_json(const char *name, const hf_why_info *why)
{
    json_t *j = json_object(), *cycle = json_array();
    int64_t now = why->lock && why->lock->now_unix_ms > 0 ? why->lock->now_unix_ms
                                                          : (int64_t)time(NULL) * 1000;
    int ends = why->free_ms >= 0;
    for (size_t i = 0; i < why->cycle_len; i++)
        json_array_append_new(cycle, json_text(why->cycle[i]));
    json_object_set_new(j, "schema", json_string(SCHEMA_WHY));
    json_set_name(j, name, strlen(name));
    json_object_set_new(j, "cause", json_string(why->cause));
    json_object_set_new(j, "text", json_text(why->text));
    json_object_set_new(j, "advice", json_text(why->advice));
    json_object_set_new(j, "free_ms", json_number(why->free_ms, ends));
    json_object_set_new(j, "free_at", ends ? json_moment(now + why->free_ms) : json_null());
    json_object_set_new(j, "cycle", cycle);
    json_object_set_new(j, "lock", why->lock ? json_lock(why->lock) : json_null());
    json_line(j);
}

/* The moment by the clock of this machine: that is the one that the reader looks at. */
static void print_free_at(int64_t free_ms)
{
    char text[64];
    struct tm tm;
    time_t then = time(NULL) + (time_t)((free_ms + 999) / 1000);
    if (free_ms > 0 && localtime_r(&then, &tm) && strftime(text, sizeof text, "%F %T", &tm))
        printf("  free at  %s, at the latest\n", text);
}

static void print_text(const char *name, const hf_why_info *why)
{
    char shown[TEXT_ESCAPED(1024) + 8], text[TEXT_ESCAPED(1024) + 8], buf[96];
    text_escape(shown, sizeof shown, name, strlen(name));
    printf("%s: %s\n", shown, text_escape(text, sizeof text, why->text, strlen(why->text)));
    printf("  cause    %s\n", why->cause);
    print_free_at(why->free_ms);
    if (why->lock && why->lock->waiters_total) {
        snprintf(buf, sizeof buf, "%zu", why->lock->waiters_total);
        printf("  waiters  %s\n", buf);
    }
    if (why->advice)
        printf("  to do    %s\n", why->advice);
}

static void print(const struct opts *o, const char *name, const hf_why_info *why)
{
    if (o->output != OUT_TABLE)
        print_json(name, why);
    else
        print_text(name, why);
}

/* The server was not even reached: that is an answer, too. */
static int tell_failure(const struct opts *o, const char *name, hf_err e, hf_error *err)
{
    hf_why_info why = { .text = err->message, .free_ms = -1 };
    err->code = e;
    why.cause = hf_why_error(err, &why.advice);
    if (!why.cause)
        return msg_failed(e, err);
    print(o, name, &why);
    return EX_OKAY;
}

int cmd_why(const struct cmd *cmd, struct opts *o, int argc, char **argv)
{
    hf_client *c = NULL;
    hf_why_info *why = NULL;
    hf_error err = { 0 };
    int code = EX_OKAY;
    if (argc != 1)
        return usage_error(cmd, argc ? "one lock at a time" : "the lock's name is missing");
    hf_err e = client_try(o, &c, &err);
    if (e)
        return tell_failure(o, argv[0], e, &err);
    e = hf_why(c, hf_str(argv[0]), 0, &why, &err);
    if (e)
        code = msg_failed(e, &err);
    else
        print(o, argv[0], why);
    hf_why_free(why);
    client_close(c);
    return code;
}
