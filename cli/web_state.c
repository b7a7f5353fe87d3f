/* SPDX-License-Identifier: MIT
 * web_state.c - `holdfast web`: one look as JSON, with the graph drawn. */
#include "graph.h"
#include "web.h"

#include <stdlib.h>
#include <string.h>

enum { PARTIES = 50, SPARK = 30 };

static json_t *text_or_null(const char *s)
{
    return s ? json_bytes(s, strlen(s)) : json_null();
}

static json_t *number_or_null(int64_t n, int known)
{
    return known ? json_integer(n) : json_null();
}

static json_t *json_party(const hf_party *p)
{
    json_t *o = json_object();
    json_object_set_new(o, "owner", text_or_null(p->owner));
    json_object_set_new(o, "host", text_or_null(p->host));
    json_object_set_new(o, "user", text_or_null(p->user));
    json_object_set_new(o, "pid", number_or_null(p->pid, p->pid > 0));
    json_object_set_new(o, "program", text_or_null(p->program));
    json_object_set_new(o, "info", text_or_null(p->info && p->info[0] ? p->info : NULL));
    json_object_set_new(o, "age_ms", number_or_null(p->age_ms, p->age_ms >= 0));
    json_object_set_new(o, "fence", number_or_null((int64_t)p->fence, p->fence > 0));
    json_object_set_new(o, "permits", number_or_null(p->permits, p->permits > 0));
    json_object_set_new(o, "mode", text_or_null(p->mode));
    json_object_set_new(o, "lease_ms", number_or_null(p->lease_ms, p->lease_ms >= 0));
    json_object_set_new(o, "renewed_ms", number_or_null(p->renewed_ms, p->renewed_ms >= 0));
    json_object_set_new(o, "present", p->present < 0 ? json_null() : json_boolean(p->present));
    json_object_set_new(o, "waits_for", text_or_null(p->waits_for));
    return o;
}

static json_t *json_parties(hf_party *const *party, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n && i < PARTIES; i++)
        json_array_append_new(list, json_party(party[i]));
    return list;
}

/* What was seen at the last looks, the newest last. */
static json_t *json_ring(const struct scene *s, const struct scene_lock *l)
{
    json_t *list = json_array();
    for (unsigned back = SPARK; back-- > 0;)
        if (scene_seen(s, l, back) >= 0)
            json_array_append_new(list, json_integer(scene_seen(s, l, back)));
    return list;
}

static json_t *json_lock(const struct scene *s, const struct scene_lock *l)
{
    static const char *const stuck[] = { "no", "behind", "cycle" };
    json_t *o = json_object();
    const hf_inspect_info *i = l->info;
    size_t holders = i ? i->holders_total : 0;
    json_set_name(o, l->name, l->name_len);
    json_object_set_new(o, "kind", text_or_null(i ? i->election ? "election" : i->kind : NULL));
    json_object_set_new(o, "held", json_boolean(holders > 0));
    json_object_set_new(o, "ttl_ms", number_or_null(i ? i->ttl_ms : 0, holders && i->ttl_ms >= 0));
    json_object_set_new(o, "slots", number_or_null(i ? i->slots : 0, i && i->slots));
    json_object_set_new(o, "used", number_or_null(i ? i->used : 0, i && i->slots));
    json_object_set_new(o, "holders", json_parties(i ? i->holder : NULL, i ? i->holders : 0));
    json_object_set_new(o, "holders_total", json_integer((json_int_t)holders));
    json_object_set_new(o, "waiters", json_parties(i ? i->waiter : NULL, i ? i->waiters : 0));
    json_object_set_new(o, "waiters_total", json_integer(i ? (json_int_t)i->waiters_total : 0));
    json_object_set_new(o, "hold_ms", number_or_null(l->hold_ms, l->hold_ms >= 0));
    json_object_set_new(o, "wait_ms", number_or_null(l->wait_ms, l->wait_ms >= 0));
    json_object_set_new(o, "rate", json_real(l->rate));
    json_object_set_new(o, "seen", json_ring(s, l));
    json_object_set_new(o, "deadlock", json_string(stuck[l->stuck]));
    return o;
}

static int hotter(const void *a, const void *b)
{
    const struct scene_lock *x = *(const struct scene_lock *const *)a,
                            *y = *(const struct scene_lock *const *)b;
    size_t xw = x->info ? x->info->waiters_total : 0, yw = y->info ? y->info->waiters_total : 0;
    if (x->stuck != y->stuck)
        return x->stuck < y->stuck ? 1 : -1;
    if (xw != yw)
        return xw < yw ? 1 : -1;
    if (x->rate < y->rate || x->rate > y->rate)
        return x->rate < y->rate ? 1 : -1;
    return (x > y) - (x < y);
}

static json_t *json_locks(const struct scene *s)
{
    json_t *list = json_array();
    const struct scene_lock **lock = calloc(s->n + 1, sizeof *lock);
    for (size_t i = 0; lock && i < s->n; i++)
        lock[i] = &s->lock[i];
    if (lock && s->n)
        qsort(lock, s->n, sizeof *lock, hotter);
    for (size_t i = 0; lock && i < s->n && i < WEB_LOCKS; i++)
        json_array_append_new(list, json_lock(s, lock[i]));
    free(lock);
    return list;
}

/* The drawing, as text; null: out of memory. */
static json_t *json_drawing(const struct scene *s, json_t **ret_graph)
{
    struct graph g;
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    json_t *drawing = json_null();
    *ret_graph = json_null();
    if (f && graph_build(&g, s) == 0) {
        if (g.n)
            graph_print_svg(&g, f, 0);
        fflush(f);
        drawing = json_stringn(text ? text : "", size);
        *ret_graph = graph_json(&g);
        graph_free(&g);
    }
    if (f)
        fclose(f);
    free(text);
    return drawing ? drawing : json_null();
}

char *web_state(const struct gather *g, int allow_break)
{
    const struct scene *s = &g->scene;
    json_t *o = json_object(), *graph = NULL;
    const char *error = g->error.message[0] ? g->error.message : hf_err_text(g->result);
    json_object_set_new(o, "schema", json_string("holdfast.state/1"));
    json_object_set_new(o, "server", text_or_null(hf_client_url(g->c)));
    json_object_set_new(o, "pattern", text_or_null(g->pattern));
    json_object_set_new(o, "every_ms", json_integer(g->every_ms));
    json_object_set_new(o, "error", g->result ? text_or_null(error) : json_null());
    json_object_set_new(o, "looked", json_boolean(s->looks > 0)); /* else nothing below is known */
    json_object_set_new(o, "partial", json_boolean(g->result && s->partial));
    json_object_set_new(o, "allow_break", json_boolean(allow_break));
    json_object_set_new(o, "locks_total", json_integer((json_int_t)s->n));
    json_object_set_new(o, "held", json_integer((json_int_t)s->held));
    json_object_set_new(o, "waiting", json_integer((json_int_t)s->waiting));
    json_object_set_new(o, "deadlocked", json_integer((json_int_t)s->stuck));
    json_object_set_new(o, "rate", json_real(s->rate));
    json_object_set_new(o, "seen", json_ring(s, NULL));
    json_object_set_new(o, "locks", json_locks(s));
    json_object_set_new(o, "drawing", json_drawing(s, &graph));
    json_object_set_new(o, "graph", graph);
    char *text = json_dumps(o, JSON_COMPACT | JSON_ENSURE_ASCII);
    json_decref(o);
    return text;
}
