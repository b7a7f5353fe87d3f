/* SPDX-License-Identifier: MIT
 * lockjson.c - a lock as JSON: docs/json.md. */
#include "lockjson.h"

#include "output.h"

#include <string.h>
#include <time.h>

json_t *json_text(const char *s)
{
    return s ? json_bytes(s, strlen(s)) : json_null();
}

json_t *json_number(int64_t n, int known)
{
    return known ? json_integer(n) : json_null();
}

json_t *json_moment(int64_t unix_ms)
{
    char text[64];
    struct tm tm;
    time_t then = (time_t)(unix_ms / 1000);
    if (unix_ms <= 0 || !gmtime_r(&then, &tm) || !strftime(text, sizeof text, "%FT%TZ", &tm))
        return json_null();
    return json_string(text);
}

/* 1, 0, -1: not known */
static json_t *json_maybe(int truth)
{
    return truth < 0 ? json_null() : json_boolean(truth);
}

static void set_ms(json_t *o, const char *name, int64_t ms)
{
    json_object_set_new(o, name, json_number(ms, ms >= 0));
}

static json_t *json_party(const hf_party *p, int waits)
{
    json_t *o = json_object();
    json_object_set_new(o, "owner", json_text(p->owner));
    json_object_set_new(o, "session", json_text(p->session));
    json_object_set_new(o, "mode", json_text(p->mode));
    json_object_set_new(o, "host", json_text(p->host));
    json_object_set_new(o, "user", json_text(p->user));
    json_object_set_new(o, "pid", json_number(p->pid, p->pid > 0));
    json_object_set_new(o, "program", json_text(p->program));
    json_object_set_new(o, "info", json_text(p->info));
    set_ms(o, "age_ms", p->age_ms);
    json_object_set_new(o, "since", json_moment(p->since_unix_ms));
    json_object_set_new(o, "since_unix_ms", json_number(p->since_unix_ms, p->since_unix_ms > 0));
    json_object_set_new(o, "present", json_maybe(p->present));
    if (p->permits)
        json_object_set_new(o, "permits", json_integer(p->permits));
    if (waits)
        return o;
    json_object_set_new(o, "fence", json_number((int64_t)p->fence, p->fence > 0));
    set_ms(o, "lease_ms", p->lease_ms);
    set_ms(o, "ttl_ms", p->ttl_ms);
    set_ms(o, "grace_ms", p->grace_ms);
    set_ms(o, "renewed_ms", p->renewed_ms);
    json_object_set_new(o, "renews", json_maybe(p->renews));
    json_object_set_new(o, "claiming", json_boolean(p->claiming));
    json_object_set_new(o, "waits_for", json_text(p->waits_for));
    set_ms(o, "waits_ms", p->waits_ms);
    return o;
}

static json_t *json_parties(hf_party *const *party, size_t n, int waits)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_party(party[i], waits));
    return list;
}

json_t *json_lock(const hf_inspect_info *i)
{
    json_t *o = json_object();
    int held = i->holders > 0, ends = held && i->ttl_ms >= 0;
    json_object_set_new(o, "schema", json_string(SCHEMA_LOCK));
    json_set_name(o, i->name, i->name_len);
    json_object_set_new(o, "kind", json_text(i->kind));
    json_object_set_new(o, "held", json_boolean(held));
    json_object_set_new(o, "cause", json_string(hf_inspect_cause(i)));
    json_object_set_new(o, "ttl_ms", json_number(i->ttl_ms, ends));
    json_object_set_new(o, "expires", ends ? json_moment(i->now_unix_ms + i->ttl_ms) : json_null());
    json_object_set_new(o, "now_unix_ms", json_number(i->now_unix_ms, i->now_unix_ms > 0));
    set_ms(o, "absent_ms", i->absent_ms);
    json_object_set_new(o, "holders", json_parties(i->holder, i->holders, 0));
    json_object_set_new(o, "holders_total", json_integer((json_int_t)i->holders_total));
    if (i->slots) {
        json_object_set_new(o, "slots", json_integer(i->slots));
        json_object_set_new(o, "used", json_integer(i->used));
    }
    if (i->resized) {
        json_object_set_new(o, "resized", json_integer(i->resized));
        json_object_set_new(o, "named", json_number(i->named, i->named > 0));
    }
    if (i->election)
        json_object_set_new(o, "value", json_bytes(i->value, i->value_len));
    json_object_set_new(o, "waiters", json_parties(i->waiter, i->waiters, 1));
    json_object_set_new(o, "waiters_total", json_integer((json_int_t)i->waiters_total));
    return o;
}
