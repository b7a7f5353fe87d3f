/* SPDX-License-Identifier: MIT
 * cmd_watch.c - holdfast watch [PATTERN]: what happens to the locks, as it happens. */
#include "commands.h"
#include "exitcode.h"
#include "message.h"
#include "open.h"
#include "output.h"
#include "past.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static json_t *text(const char *s)
{
    return s ? json_bytes(s, strlen(s)) : json_null();
}

static json_t *number(int64_t n, int known)
{
    return known ? json_integer(n) : json_null();
}

static void print_json(const hf_news *n, int64_t now_ms)
{
    const hf_party none = { .pid = 0 }, *p = n->party ? n->party : &none;
    json_t *j = json_object();
    json_object_set_new(j, "time", json_when(now_ms));
    json_object_set_new(j, "unix_ms", json_integer(now_ms));
    json_object_set_new(j, "event", text(n->kind));
    json_set_name(j, n->name, n->name_len);
    json_object_set_new(j, "fence", number((int64_t)p->fence, p->fence > 0));
    json_object_set_new(j, "held_ms", number(n->held_ms, n->held_ms >= 0));
    json_object_set_new(j, "waited_ms", number(n->waited_ms, n->waited_ms >= 0));
    json_object_set_new(j, "ttl_ms", number(n->ttl_ms, n->ttl_ms >= 0));
    json_object_set_new(j, "owner", text(p->owner));
    json_object_set_new(j, "host", text(p->host));
    json_object_set_new(j, "user", text(p->user));
    json_object_set_new(j, "pid", number(p->pid, p->pid > 0));
    json_object_set_new(j, "program", text(p->program));
    json_object_set_new(j, "info", text(p->info));
    json_object_set_new(j, "merged", json_integer(n->merged));
    json_object_set_new(j, "text", text(n->text));
    json_line(j);
}

static void add(char *buf, size_t size, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

static void add(char *buf, size_t size, const char *fmt, ...)
{
    size_t used = strlen(buf);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(buf + used, size - used, fmt, ap);
    va_end(ap);
}

static const char *escaped(char *buf, size_t size, const char *s)
{
    return text_escape(buf, size, s, strlen(s));
}

/* "ann@web3 pid 812 backup.sh (nightly)", or the owner id. */
static void add_party(char *buf, size_t size, const hf_party *p)
{
    char a[500];
    if (p->user)
        add(buf, size, "%s@", escaped(a, sizeof a, p->user));
    if (p->host)
        add(buf, size, "%s", escaped(a, sizeof a, p->host));
    else
        add(buf, size, "owner %s", escaped(a, sizeof a, p->owner ? p->owner : "?"));
    if (p->pid > 0)
        add(buf, size, " pid %" PRId64, p->pid);
    if (p->program)
        add(buf, size, " %s", escaped(a, sizeof a, p->program));
    if (p->info && p->info[0])
        add(buf, size, " (%s)", escaped(a, sizeof a, p->info));
}

static void print_line(const hf_news *n, int64_t now_ms)
{
    char when[32], name[TEXT_ESCAPED(HF_NAME_MAX)], more[2600] = "", t[32], a[1200];
    if (n->party)
        add_party(more, sizeof more, n->party);
    if (n->party && n->party->fence)
        add(more, sizeof more, ", fence %" PRIu64, n->party->fence);
    if (n->waited_ms >= 0)
        add(more, sizeof more, ", waited %s", text_duration(t, sizeof t, n->waited_ms));
    if (n->held_ms >= 0)
        add(more, sizeof more, ", held %s", text_duration(t, sizeof t, n->held_ms));
    if (n->ttl_ms >= 0)
        add(more, sizeof more, ", ttl %s", text_duration(t, sizeof t, n->ttl_ms));
    if (n->merged > 1)
        add(more, sizeof more, ", %u changes at once", n->merged);
    if (n->text[0])
        add(more, sizeof more, "%s%s", more[0] ? ": " : "", escaped(a, sizeof a, n->text));
    text_escape(name, sizeof name, n->name, n->name_len);
    printf("%s  %-10s  %s%s%s\n", past_clock(when, sizeof when, now_ms), n->kind, name,
           name[0] && more[0] ? "  " : "", more);
}

static int each(const hf_news *n, void *arg)
{
    const struct opts *o = arg;
    int64_t now_ms = n->unix_ms >= 0 ? n->unix_ms : past_now_ms();
    if (o->output == OUT_TABLE)
        print_line(n, now_ms);
    else
        print_json(n, now_ms);
    return fflush(stdout) != 0; /* nobody reads it any more */
}

/* Until a signal ends us: there is nothing to clean up. */
int cmd_watch(const struct cmd *cmd, struct opts *o, int argc, char **argv)
{
    hf_client *c = NULL;
    hf_error err;
    if (argc > 1)
        return usage_error(cmd, "one pattern at most: quote it, so that the shell does not "
                                "expand it");
    int code = client_open(o, NULL, &c);
    if (code)
        return code;
    hf_err e = hf_watch(c, argc ? argv[0] : NULL, HF_WAIT_FOREVER, each, o, &err);
    code = e ? msg_failed(e, &err) : 0;
    client_close(c);
    return code;
}
