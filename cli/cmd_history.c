/* SPDX-License-Identifier: MIT
 * cmd_history.c - holdfast history NAME: who held it, for how long, and how that ended. */
#include "commands.h"
#include "exitcode.h"
#include "message.h"
#include "open.h"
#include "output.h"
#include "past.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define COUNT_DEFAULT 100

struct history {
    const struct opts *o;
    const char        *name;
    json_t            *list; /* the newest first */
    size_t             most;
    int64_t            from_unix_ms; /* older ones are not wanted; -1: all are */
    int                older;        /* there is one */
};

static json_t *text(const char *s)
{
    return s ? json_bytes(s, strlen(s)) : json_null();
}

static json_t *number(int64_t n, int known)
{
    return known ? json_integer(n) : json_null();
}

static json_t *to_json(const struct history *h, const hf_past *p)
{
    json_t *j = json_object();
    json_set_name(j, h->name, strlen(h->name));
    json_object_set_new(j, "ended", json_when(p->ended_unix_ms));
    json_object_set_new(j, "ended_unix_ms", json_integer(p->ended_unix_ms));
    json_object_set_new(j, "end", text(p->end));
    json_object_set_new(j, "why", text(p->why));
    json_object_set_new(j, "note", text(p->note));
    json_object_set_new(j, "held_ms", number(p->held_ms, p->held_ms >= 0));
    json_object_set_new(j, "waited_ms", number(p->waited_ms, p->waited_ms >= 0));
    json_object_set_new(j, "fence", number((int64_t)p->fence, p->fence > 0));
    json_object_set_new(j, "mode", text(p->mode));
    json_object_set_new(j, "owner", text(p->owner));
    json_object_set_new(j, "host", text(p->host));
    json_object_set_new(j, "user", text(p->user));
    json_object_set_new(j, "pid", number(p->pid, p->pid > 0));
    json_object_set_new(j, "program", text(p->program));
    json_object_set_new(j, "info", text(p->info));
    return j;
}

static int each(const hf_past *p, void *arg)
{
    struct history *h = arg;
    if (p->ended_unix_ms < h->from_unix_ms) {
        h->older = 1;
        return 1;
    }
    json_array_append_new(h->list, to_json(h, p));
    return json_array_size(h->list) >= h->most;
}

/* ---- as a table ----------------------------------------------------------------------------- */

static const char *field(char *buf, size_t size, const json_t *j, const char *name)
{
    const json_t *v = json_object_get(j, name);
    const char *s = json_string_value(v);
    if (json_is_integer(v))
        snprintf(buf, size, "%lld", (long long)json_integer_value(v));
    else if (s && *s)
        text_escape(buf, size, s, strlen(s));
    else
        snprintf(buf, size, "-");
    return buf;
}

static const char *duration(char *buf, size_t size, const json_t *j, const char *name)
{
    const json_t *v = json_object_get(j, name);
    if (!json_is_integer(v))
        return "-";
    return text_duration(buf, size, json_integer_value(v));
}

static void print_row(const json_t *j)
{
    char when[32], held[32], waited[32], end[64], note[500], who[700], host[300], user[300];
    char pid[24], program[300], fence[24];
    past_local_time(when, sizeof when,
                    json_integer_value(json_object_get(j, "ended_unix_ms")));
    snprintf(who, sizeof who, "%s@%s", field(user, sizeof user, j, "user"),
             field(host, sizeof host, j, "host"));
    if (strcmp(who, "-@-") == 0)
        snprintf(who, sizeof who, "owner %s", field(host, sizeof host, j, "owner"));
    printf("%-19s  %-10s  %7s  %7s  %-24s  %7s  %-15s  %16s  %s\n", when,
           field(end, sizeof end, j, "end"), duration(held, sizeof held, j, "held_ms"),
           duration(waited, sizeof waited, j, "waited_ms"), who,
           field(pid, sizeof pid, j, "pid"), field(program, sizeof program, j, "program"),
           field(fence, sizeof fence, j, "fence"), field(note, sizeof note, j, "note"));
    field(note, sizeof note, j, "why");
    if (strcmp(note, "-") != 0)
        printf("%21s%s\n", "", note);
}

/* The oldest first, as in any log: last night ends at the bottom. */
static void print(const struct history *h)
{
    size_t n = json_array_size(h->list);
    if (h->o->output == OUT_TABLE && n)
        printf("%-19s  %-10s  %7s  %7s  %-24s  %7s  %-15s  %16s  %s\n", "ENDED", "HOW", "HELD",
               "WAITED", "HOLDER", "PID", "COMMAND", "FENCE", "NOTE");
    json_t *all = json_array();
    for (size_t i = n; i-- > 0;) {
        json_t *j = json_array_get(h->list, i);
        if (h->o->output == OUT_TABLE)
            print_row(j);
        else if (h->o->output == OUT_JSONL)
            json_line(json_incref(j));
        else
            json_array_append(all, j);
    }
    if (h->o->output == OUT_JSON)
        json_line(json_incref(all));
    json_decref(all);
}

/* By the server's clock, as are the ends. */
static int begin_at(struct history *h, hf_client *c)
{
    hf_inspect_info *info = NULL;
    hf_error err;
    hf_err e = hf_inspect_lock(c, hf_str(h->name), 0, &info, &err);
    if (e == HF_OK)
        h->from_unix_ms = info->now_unix_ms - h->o->since_ms;
    hf_inspect_free(info);
    return e == HF_OK ? 0 : msg_failed(e, &err);
}

int cmd_history(const struct cmd *cmd, struct opts *o, int argc, char **argv)
{
    hf_client *c = NULL;
    hf_error err;
    char since[32];
    if (argc != 1 || !argv[0][0])
        return usage_error(cmd, argc > 1 ? "one name" : "the lock's name is missing");
    struct history h = { .o = o, .name = argv[0], .list = json_array(), .from_unix_ms = -1,
                         .most = o->count ? (size_t)o->count : COUNT_DEFAULT };
    int code = client_open(o, NULL, &c);
    if (code == 0 && o->since_ms != GIVEN_NOT)
        code = begin_at(&h, c);
    if (code == 0) {
        hf_err e = hf_history_read(c, hf_str(argv[0]), each, &h, &err);
        code = e ? msg_failed(e, &err) : 0;
    }
    if (code == 0)
        print(&h);
    if (code == 0 && h.older && o->output == OUT_TABLE && json_array_size(h.list) == 0)
        msg_note("no hold of %s has ended in the last %s", argv[0],
                 text_duration(since, sizeof since, o->since_ms));
    else if (code == 0 && o->output == OUT_TABLE && json_array_size(h.list) == 0)
        msg_note("nothing is remembered of %s: holders note it with --history N, or ?history=N "
                 "in the URL", argv[0]);
    json_decref(h.list);
    client_close(c);
    return code;
}
