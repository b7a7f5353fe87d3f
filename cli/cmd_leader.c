/* SPDX-License-Identifier: MIT
 * cmd_leader.c - holdfast leader NAME: who leads, now or at each change. */
#include "clock.h"
#include "commands.h"
#include "exitcode.h"
#include "message.h"
#include "open.h"
#include "output.h"
#include "waiting.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How long a leader may be shown without its value: it is about to say it. */
#define VALUE_MS 500

/* ---- printing ----------------------------------------------------------------------------- */

static json_t *text_or_null(const char *s)
{
    return s ? json_bytes(s, strlen(s)) : json_null();
}

static void print_json(const char *name, const hf_leader *l)
{
    json_t *j = json_object();
    json_set_name(j, name, strlen(name));
    json_object_set_new(j, "leads", json_boolean(l->leads));
    json_object_set_new(j, "term", l->term ? json_integer((json_int_t)l->term) : json_null());
    json_object_set_new(j, "value", l->value ? json_bytes(l->value, l->value_len) : json_null());
    json_object_set_new(j, "ttl_ms",
                        l->leads && l->ttl_ms >= 0 ? json_integer(l->ttl_ms) : json_null());
    json_object_set_new(j, "owner", text_or_null(l->party->owner));
    json_object_set_new(j, "host", text_or_null(l->party->host));
    json_object_set_new(j, "user", text_or_null(l->party->user));
    json_object_set_new(j, "pid", l->party->pid ? json_integer(l->party->pid) : json_null());
    json_object_set_new(j, "program", text_or_null(l->party->program));
    json_object_set_new(j, "info", text_or_null(l->party->info));
    json_line(j);
}

static void print_word(const char *title, const char *s)
{
    char buf[TEXT_ESCAPED(1024) + 8];
    if (s)
        printf(" %s=%s", title, text_escape(buf, sizeof buf, s, strlen(s)));
}

/* Behind the value with -v: everything on the same line. */
static void print_who(const hf_leader *l)
{
    char t[32];
    printf(" term=%" PRIu64, l->term);
    print_word("owner", l->party->owner);
    print_word("host", l->party->host);
    if (l->party->pid)
        printf(" pid=%" PRId64, l->party->pid);
    print_word("program", l->party->program);
    if (l->ttl_ms >= 0)
        print_word("ttl", text_duration(t, sizeof t, l->ttl_ms));
}

/* The bytes as they are for a program; one harmless line for a person, and where lines are
 * counted. */
static void print_value(const hf_leader *l, int as_line)
{
    if (!as_line) {
        fwrite(l->value, 1, l->value_len, stdout);
        return;
    }
    char *buf = malloc(TEXT_ESCAPED(l->value_len) + 8);
    if (buf)
        fputs(text_escape(buf, TEXT_ESCAPED(l->value_len) + 8, l->value, l->value_len), stdout);
    free(buf);
}

static void print(const struct opts *o, const char *name, const hf_leader *l)
{
    int as_line = o->watch || o->verbose || isatty(STDOUT_FILENO);
    if (o->output != OUT_TABLE) {
        print_json(name, l);
        return;
    }
    if (o->watch && l->leads)
        printf("%" PRIu64 "%s", l->term, l->value ? " " : "");
    else if (o->watch)
        putchar('-');
    if (l->value)
        print_value(l, as_line);
    if (l->leads && o->verbose)
        print_who(l);
    if (l->leads || o->watch)
        putchar('\n');
}

/* ---- asking ------------------------------------------------------------------------------- */

/* Who leads; seen NULL: now. One that has not said its value yet is given the time to. */
static hf_err read_leader(hf_client *c, const char *name, const hf_leader *seen, hf_leader **ret,
                  hf_error *reterr)
{
    hf_leader *more = NULL;
    hf_err e = hf_election_observe(c, hf_str(name), seen, HF_WAIT_FOREVER, ret, reterr);
    if (e || !(*ret)->leads || (*ret)->value)
        return e;
    if (hf_election_observe(c, hf_str(name), *ret, VALUE_MS, &more, NULL) == HF_OK) {
        hf_leader_free(*ret);
        *ret = more;
    }
    return HF_OK;
}

/* Until a signal ends us: there is nothing to clean up. */
static int watch(hf_client *c, const struct opts *o, const char *name)
{
    hf_leader *seen = NULL;
    int code = 0;
    struct waiting w;
    waiting_probe(&w, c, name);
    if (w.after_ms != NEVER)
        waiting_tell(&w);
    while (code == 0 && !ferror(stdout)) {
        hf_leader *now = NULL;
        hf_error err;
        hf_err e = read_leader(c, name, seen, &now, &err);
        if (client_again(o, e))
            continue;
        if (e) {
            code = msg_failed(e, &err);
            break;
        }
        print(o, name, now);
        fflush(stdout);
        hf_leader_free(seen);
        seen = now;
    }
    waiting_end(&w, 0);
    hf_leader_free(seen);
    return code;
}

int cmd_leader(const struct cmd *cmd, struct opts *o, int argc, char **argv)
{
    hf_client *c = NULL;
    hf_leader *l = NULL;
    hf_error err;
    if (argc != 1)
        return usage_error(cmd, argc ? "one election at a time" : "the election's name is missing");
    int code = o->watch ? client_await(o, NULL, &c) : client_open(o, NULL, &c);
    if (code)
        return code;
    if (o->watch) {
        code = watch(c, o, argv[0]);
    } else {
        hf_err e = read_leader(c, argv[0], NULL, &l, &err);
        if (e)
            code = msg_failed(e, &err);
        else
            print(o, argv[0], l);
        if (!e && !l->leads) {
            msg_note("nobody leads %s", argv[0]);
            code = EX_BUSY;
        }
    }
    hf_leader_free(l);
    client_close(c);
    return code;
}
