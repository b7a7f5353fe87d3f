/* SPDX-License-Identifier: MIT
 * party.c - a holder or waiter in words; what others wrote is made harmless. */
#include "party.h"

#include "message.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void add(char *buf, size_t size, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

static void add(char *buf, size_t size, const char *fmt, ...)
{
    size_t used = strlen(buf);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(buf + used, size - used, fmt, ap);
    va_end(ap);
}

static const char *clean(char *buf, size_t size, const char *s)
{
    return text_escape(buf, size, s, strlen(s));
}

static void add_name(char *buf, size_t size, const hf_party *p)
{
    char a[300], b[300];
    if (p->host)
        add(buf, size, "%s%s%s", p->user ? clean(a, sizeof a, p->user) : "", p->user ? "@" : "",
            clean(b, sizeof b, p->host));
    else
        add(buf, size, "owner %s", p->owner ? clean(a, sizeof a, p->owner) : "?");
}

char *party_words(char *buf, size_t size, const hf_party *p)
{
    char a[300];
    buf[0] = '\0';
    add_name(buf, size, p);
    if (p->pid > 0)
        add(buf, size, ", pid %" PRId64, p->pid);
    if (p->program)
        add(buf, size, ", %s", clean(a, sizeof a, p->program));
    if (p->info && p->info[0])
        add(buf, size, " (%s)", clean(a, sizeof a, p->info));
    return buf;
}

char *party_short(char *buf, size_t size, const hf_party *p)
{
    buf[0] = '\0';
    add_name(buf, size, p);
    if (p->host && p->pid > 0)
        add(buf, size, ":%" PRId64, p->pid);
    return buf;
}

char *party_kind(char *buf, size_t size, const hf_inspect_info *info)
{
    buf[0] = '\0';
    if (info->election)
        add(buf, size, "election");
    else
        clean(buf, size, info->kind ? info->kind : "");
    if (info->slots)
        add(buf, size, " %u/%u", info->used, info->slots);
    return buf;
}
