/* SPDX-License-Identifier: MIT
 * output.c - locks as sheets, or as JSON; and in words.
 *
 * Everything that comes from a server was written by somebody else: it is escaped before it
 * reaches a terminal, and JSON is pure ASCII for the same reason. */
#include "output.h"

#include "lockjson.h"
#include "message.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- lists that last --------------------------------------------------------------------- */

static void parties_free(hf_party **p, size_t n)
{
    for (size_t i = 0; p && i < n; i++) {
        if (!p[i])
            continue;
        free(p[i]->owner);
        free(p[i]->host);
        free(p[i]->user);
        free(p[i]->program);
        free(p[i]->info);
        free(p[i]->session);
        free(p[i]->mode);
        free(p[i]->waits_for);
        free(p[i]);
    }
    free(p);
}

static void info_free(hf_inspect_info *i)
{
    if (!i)
        return;
    parties_free(i->holder, i->holders);
    parties_free(i->waiter, i->waiters);
    free(i->name);
    free(i->kind);
    free(i->value);
    free(i);
}

/* NULL stays NULL; *bad is set when memory is out. */
static char *copy_text(const char *s, int *bad)
{
    char *copy = s ? strdup(s) : NULL;
    *bad |= s && !copy;
    return copy;
}

static char *copy_bytes(const char *s, size_t len, int *bad)
{
    char *copy = s ? malloc(len + 1) : NULL;
    if (copy)
        memcpy(copy, s, len + 1);
    *bad |= s && !copy;
    return copy;
}

static hf_party **copy_parties(hf_party *const *from, size_t n, int *bad)
{
    hf_party **to = calloc(n ? n : 1, sizeof *to);
    *bad |= !to;
    for (size_t i = 0; to && i < n; i++) {
        hf_party *p = to[i] = malloc(sizeof *p);
        *bad |= !p;
        if (!p)
            break;
        *p = *from[i];
        p->owner = copy_text(from[i]->owner, bad);
        p->host = copy_text(from[i]->host, bad);
        p->user = copy_text(from[i]->user, bad);
        p->program = copy_text(from[i]->program, bad);
        p->info = copy_text(from[i]->info, bad);
        p->session = copy_text(from[i]->session, bad);
        p->mode = copy_text(from[i]->mode, bad);
        p->waits_for = copy_text(from[i]->waits_for, bad);
    }
    return to;
}

static hf_inspect_info *info_copy(const hf_inspect_info *from)
{
    hf_inspect_info *to = calloc(1, sizeof *to);
    int bad = 0;
    if (!to)
        return NULL;
    *to = *from;
    to->name = copy_bytes(from->name, from->name_len, &bad);
    to->value = copy_bytes(from->value, from->value_len, &bad);
    to->kind = copy_text(from->kind, &bad);
    to->holder = copy_parties(from->holder, from->holders, &bad);
    to->waiter = copy_parties(from->waiter, from->waiters, &bad);
    if (!bad)
        return to;
    info_free(to);
    return NULL;
}

int lock_list_add(struct lock_list *l, const hf_inspect_info *info)
{
    if (l->n == l->room) {
        size_t room = l->room ? 2 * l->room : 16;
        hf_inspect_info **grown = reallocarray(l->lock, room, sizeof *grown);
        if (!grown)
            return -1;
        l->lock = grown;
        l->room = room;
    }
    l->lock[l->n] = info_copy(info);
    return l->lock[l->n] ? (l->n++, 0) : -1;
}

static int by_name(const void *a, const void *b)
{
    const hf_inspect_info *x = *(hf_inspect_info *const *)a, *y = *(hf_inspect_info *const *)b;
    size_t least = x->name_len < y->name_len ? x->name_len : y->name_len;
    int order = memcmp(x->name, y->name, least);
    return order ? order : (x->name_len > y->name_len) - (x->name_len < y->name_len);
}

void lock_list_sort(struct lock_list *l)
{
    if (l->n)
        qsort(l->lock, l->n, sizeof *l->lock, by_name);
}

void lock_list_free(struct lock_list *l)
{
    for (size_t i = 0; i < l->n; i++)
        info_free(l->lock[i]);
    free(l->lock);
    *l = (struct lock_list){ 0 };
}

/* ---- JSON -------------------------------------------------------------------------------- */

json_t *json_bytes(const void *data, size_t len)
{
    json_t *s = json_stringn(data, len); /* NULL when not UTF-8 */
    if (s)
        return s;
    char *buf = malloc(TEXT_ESCAPED(len) + 8);
    if (!buf)
        return json_null();
    s = json_string(text_escape(buf, TEXT_ESCAPED(len) + 8, data, len));
    free(buf);
    return s;
}

void json_set_name(json_t *object, const void *name, size_t len)
{
    json_t *plain = json_stringn(name, len);
    json_object_set_new(object, "name", plain ? plain : json_bytes(name, len));
    if (plain)
        return;
    char *hex = malloc(2 * len + 1);
    for (size_t i = 0; hex && i < len; i++)
        snprintf(hex + 2 * i, 3, "%02x", ((const unsigned char *)name)[i]);
    json_object_set_new(object, "name_hex", hex ? json_string(hex) : json_null());
    free(hex);
}

void json_line(json_t *value)
{
    json_dumpf(value, stdout, JSON_COMPACT | JSON_ENSURE_ASCII);
    putchar('\n');
    json_decref(value);
}

static void print_json(const struct lock_list *l, int one_array)
{
    json_t *list = json_array();
    for (size_t i = 0; i < l->n; i++) {
        if (one_array)
            json_array_append_new(list, json_lock(l->lock[i]));
        else
            json_line(json_lock(l->lock[i]));
    }
    if (one_array)
        json_line(list);
    else
        json_decref(list);
}

/* ---- words ------------------------------------------------------------------------------- */

/* Append to buf, which holds size bytes, as much as there is room for. */
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
    return s ? text_escape(buf, size, s, strlen(s)) : "-";
}

static void party_name(char *buf, size_t size, const hf_party *p)
{
    char a[300], b[300];
    if (p->host)
        add(buf, size, "%s%s%s", p->user ? escaped(a, sizeof a, p->user) : "", p->user ? "@" : "",
            escaped(b, sizeof b, p->host));
    else
        add(buf, size, "owner %s", escaped(a, sizeof a, p->owner));
}

/* "ann@web3, pid 812, backup.sh (nightly)", or the owner id when nothing else is known. */
static void party_text(char *buf, size_t size, const hf_party *p)
{
    char a[300];
    party_name(buf, size, p);
    if (p->pid > 0)
        add(buf, size, ", pid %" PRId64, p->pid);
    if (p->program)
        add(buf, size, ", %s", escaped(a, sizeof a, p->program));
    if (p->info && p->info[0])
        add(buf, size, " (%s)", escaped(a, sizeof a, p->info));
}

static void holder_who(char *buf, size_t size, const hf_inspect_info *i)
{
    buf[0] = '\0';
    add(buf, size, i->holders ? "held by " : "free now");
    if (i->holders)
        party_text(buf, size, i->holder[0]);
    if (i->holders_total > 1)
        add(buf, size, " and %zu more", i->holders_total - 1);
}

void holder_text(char *buf, size_t size, const hf_inspect_info *i)
{
    char t[32];
    holder_who(buf, size, i);
    if (i->holders == 0)
        return;
    if (i->holder[0]->age_ms >= 0)
        add(buf, size, ", for %s", text_duration(t, sizeof t, i->holder[0]->age_ms));
    if (i->ttl_ms >= 0)
        add(buf, size, ", ttl %s", text_duration(t, sizeof t, i->ttl_ms));
}

hf_err holder_ask(char *buf, size_t size, hf_client *c, const char *name, int64_t timeout_ms,
                  hf_inspect_info **ret, hf_error *reterr)
{
    hf_inspect_info *info = NULL;
    struct timespec pause = { .tv_nsec = 50000000 };
    hf_err e = HF_OK;
    buf[0] = '\0';
    /* Who has just come is about to say who it is. */
    for (int i = 0; i < 6; i++) {
        info = hf_inspect_free(info);
        e = hf_inspect_lock(c, hf_str(name), timeout_ms, &info, reterr);
        if (e || !info->holders || info->holder[0]->host || strcmp(info->kind, "foreign") == 0)
            break;
        nanosleep(&pause, NULL);
    }
    if (e == HF_OK)
        holder_text(buf, size, info);
    if (ret && e == HF_OK)
        *ret = info;
    else
        hf_inspect_free(info);
    return e;
}

void busy_print(const char *name, const hf_inspect_info *info)
{
    json_t *j = json_object();
    json_object_set_new(j, "schema", json_string(SCHEMA_BUSY));
    json_set_name(j, name, strlen(name));
    json_object_set_new(j, "taken", json_false());
    json_object_set_new(j, "lock", info ? json_lock(info) : json_null());
    json_line(j);
    fflush(stdout);
}

/* ---- sheets ------------------------------------------------------------------------------ */

static void set_number(char *cell, size_t size, int64_t n, int known)
{
    if (known)
        snprintf(cell, size, "%" PRId64, n);
    else
        snprintf(cell, size, "-");
}

static void set_duration(char *cell, size_t size, int64_t ms, const char *unknown)
{
    if (ms >= 0)
        text_duration(cell, size, ms);
    else
        snprintf(cell, size, "%s", unknown);
}

/* ", to read", ", for 3 permits": what it waits for */
static void add_wish(char *buf, size_t size, const hf_party *p)
{
    if (!p->mode)
        return;
    if (strcmp(p->mode, "shared") == 0)
        add(buf, size, ", to read");
    else if (strcmp(p->mode, "permits") == 0)
        add(buf, size, ", for %u permit%s", p->permits, p->permits == 1 ? "" : "s");
    else
        add(buf, size, ", to write");
}

void waiters_text(char *buf, size_t size, const hf_inspect_info *i)
{
    int kinds = strcmp(i->kind, "shared") == 0 || strcmp(i->kind, "semaphore") == 0;
    for (size_t n = 0; n < i->waiters; n++)
        kinds |= i->waiter[n]->mode && strcmp(i->waiter[n]->mode, "exclusive") != 0;
    buf[0] = '\0';
    for (size_t n = 0; n < i->waiters; n++) {
        const hf_party *p = i->waiter[n];
        char line[1024] = "", t[32];
        party_text(line, sizeof line, p);
        if (p->age_ms >= 0)
            add(line, sizeof line, ", for %s", text_duration(t, sizeof t, p->age_ms));
        if (kinds)
            add_wish(line, sizeof line, p);
        if (p->present == 0)
            add(line, sizeof line, ", gone");
        add(buf, size, "  %zu. %s\n", n + 1, line);
    }
    if (i->waiters_total > i->waiters)
        add(buf, size, "  and %zu more\n", i->waiters_total - i->waiters);
}

static void waiters_print(const hf_inspect_info *i)
{
    size_t size = 1100 * i->waiters + 64;
    char *text = malloc(size);
    if (!text) {
        msg_error("out of memory");
        return;
    }
    waiters_text(text, size, i);
    fputs(text, stdout);
    free(text);
}

static void sheet_line(const char *title, const char *value)
{
    if (value)
        printf("  %-8s %s\n", title, value);
}

/* "30.0s, renewed 2.1s ago", "30.0s, nobody renews it" */
static void sheet_lease(const hf_party *p)
{
    char buf[128], t[32];
    if (p->lease_ms < 0)
        return;
    snprintf(buf, sizeof buf, "%s", text_duration(t, sizeof t, p->lease_ms));
    if (p->renews == 0)
        add(buf, sizeof buf, ", nobody renews it");
    else if (p->renewed_ms >= 0)
        add(buf, sizeof buf, ", renewed %s ago", text_duration(t, sizeof t, p->renewed_ms));
    sheet_line("lease", buf);
}

static void sheet_party(const hf_party *p)
{
    char buf[1100], line[1000], t[32];
    sheet_line("owner", escaped(buf, sizeof buf, p->owner));
    sheet_line("host", escaped(buf, sizeof buf, p->host));
    if (p->user)
        sheet_line("user", escaped(buf, sizeof buf, p->user));
    set_number(buf, sizeof buf, p->pid, p->pid > 0);
    sheet_line("pid", buf);
    sheet_line("command", escaped(buf, sizeof buf, p->program));
    if (p->info && p->info[0])
        sheet_line("info", escaped(buf, sizeof buf, p->info));
    if (p->age_ms >= 0)
        snprintf(buf, sizeof buf, "%s ago", text_duration(t, sizeof t, p->age_ms));
    sheet_line("since", p->age_ms >= 0 ? buf : "-");
    sheet_lease(p);
    set_number(buf, sizeof buf, (int64_t)p->fence, p->fence > 0);
    sheet_line("fence", buf);
    if (p->permits > 1) {
        set_number(buf, sizeof buf, p->permits, 1);
        sheet_line("permits", buf);
    }
    if (p->present == 0)
        sheet_line("session", "gone");
    if (p->waits_for) {
        snprintf(buf, sizeof buf, "%s", escaped(line, sizeof line, p->waits_for));
        add(buf, sizeof buf, ", for %s", text_duration(t, sizeof t, p->waits_ms));
        sheet_line("waits", buf);
    }
}

/* "held (mutex)", "held by 3 (shared)", "4 of 5 taken (semaphore)" ... */
static void sheet_title(const hf_inspect_info *i, const char *name)
{
    printf("%s: ", name);
    if (strcmp(i->kind, "wrong type") == 0)
        puts("not a lock (wrong type)");
    else if (strcmp(i->kind, "latch") == 0)
        printf("%u of %u left (latch)\n", i->used, i->slots);
    else if (strcmp(i->kind, "barrier") == 0)
        printf("%u of %u are there (barrier)\n", i->used, i->slots);
    else if (i->holders == 0)
        puts("free");
    else if (i->slots)
        printf("%u of %u taken (%s)\n", i->used, i->slots, i->kind);
    else if (strcmp(i->kind, "shared") == 0)
        printf("held by %zu (shared)\n", i->holders_total);
    else
        printf("held (%s)\n", i->kind);
}

/* What only elections and semaphores have. */
static void sheet_kind(const hf_inspect_info *i)
{
    char buf[TEXT_ESCAPED(1024) + 8];
    if (i->election)
        sheet_line("value", text_escape(buf, sizeof buf, i->value, i->value_len));
    if (!i->resized)
        return;
    snprintf(buf, sizeof buf, "%u, set by resize", i->resized);
    if (i->named)
        add(buf, sizeof buf, " (callers say %u)", i->named);
    sheet_line("slots", buf);
}

/* What is not as it should be. */
static void sheet_state(const hf_inspect_info *i)
{
    char words[1024], buf[TEXT_ESCAPED(1024) + 8];
    const char *cause = hf_inspect_cause(i);
    if (strcmp(cause, "free") == 0 || strcmp(cause, "held") == 0
        || strcmp(cause, "not-a-lock") == 0 || strcmp(cause, "foreign") == 0)
        return;
    hf_inspect_words(i, words, sizeof words);
    snprintf(buf, sizeof buf, "%s: ", cause);
    text_escape(buf + strlen(buf), sizeof buf - strlen(buf), words, strlen(words));
    sheet_line("state", buf);
}

static void print_sheet(const hf_inspect_info *i)
{
    char name[TEXT_ESCAPED(1024) + 8], buf[64];
    text_escape(name, sizeof name, i->name, i->name_len);
    sheet_title(i, name);
    for (size_t n = 0; n < i->holders; n++) {
        if (i->holders > 1)
            printf("  %zu.\n", n + 1);
        sheet_party(i->holder[n]);
    }
    if (i->holders_total > i->holders)
        printf("  and %zu more\n", i->holders_total - i->holders);
    sheet_kind(i);
    if (i->holders || i->slots) {
        set_duration(buf, sizeof buf, i->ttl_ms, "for ever");
        sheet_line("ttl left", buf);
    }
    sheet_state(i);
    if (i->waiters_total == 0)
        return;
    snprintf(buf, sizeof buf, "%zu", i->waiters_total);
    sheet_line("waiters", buf);
    waiters_print(i);
}

void locks_print(const struct lock_list *l, const struct opts *o)
{
    if (o->output != OUT_TABLE)
        print_json(l, o->output == OUT_JSON);
    else
        for (size_t i = 0; i < l->n; i++)
            print_sheet(l->lock[i]);
}
