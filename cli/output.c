/* SPDX-License-Identifier: MIT
 * output.c - locks as a table, as a sheet, as JSON.
 *
 * Everything that comes from a server was written by somebody else: it is escaped before it
 * reaches a terminal, and JSON is pure ASCII for the same reason. */
#include "output.h"

#include "message.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

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
    free(i);
}

/* NULL stays NULL; *bad is set when memory is out. */
static char *copy_text(const char *s, int *bad)
{
    char *copy = s ? strdup(s) : NULL;
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
    to->value = NULL;
    to->name = malloc(from->name_len + 1);
    if (to->name)
        memcpy(to->name, from->name, from->name_len + 1);
    else
        bad = 1;
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

static json_t *json_text(const char *s)
{
    return s ? json_bytes(s, strlen(s)) : json_null();
}

static json_t *json_number(int64_t n, int known)
{
    return known ? json_integer(n) : json_null();
}

/* When that was, by our own clock; null: not known. */
static json_t *json_time(int64_t age_ms)
{
    char text[32];
    struct tm tm;
    time_t then = time(NULL) - (time_t)(age_ms / 1000);
    if (age_ms < 0 || !gmtime_r(&then, &tm) || !strftime(text, sizeof text, "%FT%TZ", &tm))
        return json_null();
    return json_string(text);
}

static json_t *json_parties(hf_party *const *party, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) {
        const hf_party *p = party[i];
        json_t *o = json_object();
        json_object_set_new(o, "owner", json_text(p->owner));
        json_object_set_new(o, "host", json_text(p->host));
        json_object_set_new(o, "user", json_text(p->user));
        json_object_set_new(o, "pid", json_number(p->pid, p->pid > 0));
        json_object_set_new(o, "program", json_text(p->program));
        json_object_set_new(o, "info", json_text(p->info));
        json_object_set_new(o, "age_ms", json_number(p->age_ms, p->age_ms >= 0));
        json_object_set_new(o, "since", json_time(p->age_ms));
        json_object_set_new(o, "fence", json_number((int64_t)p->fence, p->fence > 0));
        if (p->permits)
            json_object_set_new(o, "permits", json_integer(p->permits));
        json_array_append_new(list, o);
    }
    return list;
}

static json_t *json_lock(const hf_inspect_info *i)
{
    json_t *o = json_object();
    int held = i->holders > 0;
    json_set_name(o, i->name, i->name_len);
    json_object_set_new(o, "kind", json_text(i->kind));
    json_object_set_new(o, "held", json_boolean(held));
    json_object_set_new(o, "ttl_ms", json_number(i->ttl_ms, held && i->ttl_ms >= 0));
    json_object_set_new(o, "holders", json_parties(i->holder, i->holders));
    json_object_set_new(o, "holders_total", json_integer((json_int_t)i->holders_total));
    if (i->slots) {
        json_object_set_new(o, "slots", json_integer(i->slots));
        json_object_set_new(o, "used", json_integer(i->used));
    }
    json_object_set_new(o, "waiters", json_parties(i->waiter, i->waiters));
    json_object_set_new(o, "waiters_total", json_integer((json_int_t)i->waiters_total));
    return o;
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

void holder_line(char *buf, size_t size, const hf_inspect_info *i, const char *since)
{
    char a[300];
    const hf_party *p = i->holders ? i->holder[0] : NULL;
    buf[0] = '\0';
    if (!p) {
        add(buf, size, "nobody holds it, but it is not granted yet");
        return;
    }
    add(buf, size, "held by ");
    party_name(buf, size, p);
    if (since[0])
        add(buf, size, " for %s", since);
    if (p->info && p->info[0])
        add(buf, size, " (%s)", escaped(a, sizeof a, p->info));
    if (p->pid > 0)
        add(buf, size, ", pid %" PRId64, p->pid);
    if (p->program)
        add(buf, size, ", %s", escaped(a, sizeof a, p->program));
    if (i->holders_total > 1)
        add(buf, size, " and %zu more", i->holders_total - 1);
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
                  hf_error *reterr)
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
    hf_inspect_free(info);
    return e;
}

/* ---- tables ------------------------------------------------------------------------------ */

enum { COLUMNS = 10 };
static const char *const titles[COLUMNS] = { "NAME",  "KIND", "HOLDER", "HOST",   "PID",
                                             "SINCE", "TTL",  "FENCE",  "WAITERS", "INFO" };
enum { NAME, KIND, HOLDER, HOST, CELL = 600, LEAST = 8 };

struct table_row {
    char *cell[COLUMNS]; /* to be freed */
};

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

/* 0, or -1 when memory is out. */
static int row_fill(struct table_row *r, const hf_inspect_info *i)
{
    static const hf_party nobody = { .age_ms = -1 };
    const hf_party *p = i->holders ? i->holder[0] : &nobody;
    char name[TEXT_ESCAPED(HF_NAME_MAX)], c[COLUMNS][CELL], buf[CELL];
    int bad = 0;
    text_escape(name, sizeof name, i->name, i->name_len);
    snprintf(c[KIND], CELL, "%s", escaped(buf, sizeof buf, i->kind));
    if (i->slots)
        add(c[KIND], CELL, " %u/%u", i->used, i->slots);
    snprintf(c[HOLDER], CELL, "%s", escaped(buf, sizeof buf, p->program ? p->program : p->owner));
    if (i->holders_total > 1)
        add(c[HOLDER], CELL, " +%zu", i->holders_total - 1);
    snprintf(c[HOST], CELL, "%s", escaped(buf, sizeof buf, p->host));
    set_number(c[4], CELL, p->pid, p->pid > 0);
    set_duration(c[5], CELL, p->age_ms, "-");
    set_duration(c[6], CELL, i->ttl_ms, i->holders || i->slots ? "for ever" : "-");
    set_number(c[7], CELL, (int64_t)p->fence, p->fence > 0);
    set_number(c[8], CELL, (int64_t)i->waiters_total, 1);
    snprintf(c[9], CELL, "%s", p->info && p->info[0] ? escaped(buf, sizeof buf, p->info) : "-");
    for (int k = 0; k < COLUMNS; k++)
        r->cell[k] = copy_text(k == NAME ? name : c[k], &bad);
    return bad ? -1 : 0;
}

/* Characters, not bytes. Wide ones count once: good enough for names. */
static int width(const char *s)
{
    int n = 0;
    for (; *s; s++)
        n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

/* On a terminal the columns with words of others are made as narrow as a line needs, the widest
 * first; the rest tells by "..." that it was cut. Elsewhere, where programs read, nothing is. */
static void fit(int wide[COLUMNS])
{
    struct winsize w;
    int total = 2 * (COLUMNS - 1);
    if (!isatty(STDOUT_FILENO))
        return;
    int room = ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 1 ? w.ws_col : 80;
    for (int c = 0; c < COLUMNS; c++)
        total += wide[c];
    while (total > room) {
        int widest = wide[HOLDER] > wide[NAME] ? HOLDER : NAME;
        if (wide[HOST] > wide[widest])
            widest = HOST;
        if (wide[widest] <= LEAST)
            return;
        wide[widest]--;
        total--;
    }
}

/* Cut it to so many characters. */
static void cut(char *s, int wide)
{
    int n = 0;
    if (width(s) <= wide)
        return;
    for (; n < wide - 3 || ((unsigned char)*s & 0xc0) == 0x80; s++)
        n += ((unsigned char)s[1] & 0xc0) != 0x80;
    memcpy(s, "...", 4); /* more than that is behind it */
}

static void row_print(const char *const cell[COLUMNS], const int wide[COLUMNS])
{
    for (int c = 0; c < COLUMNS; c++) {
        fputs(cell[c], stdout);
        if (c < COLUMNS - 1)
            printf("%*s", wide[c] - width(cell[c]) + 2, "");
    }
    putchar('\n');
}

static void waiters_print(const hf_inspect_info *i)
{
    for (size_t n = 0; n < i->waiters; n++) {
        char buf[1024] = "", t[32];
        party_text(buf, sizeof buf, i->waiter[n]);
        if (i->waiter[n]->age_ms >= 0)
            add(buf, sizeof buf, ", for %s", text_duration(t, sizeof t, i->waiter[n]->age_ms));
        printf("  %zu. %s\n", n + 1, buf);
    }
    if (i->waiters_total > i->waiters)
        printf("  and %zu more\n", i->waiters_total - i->waiters);
}

static void table_free(struct table_row *rows, size_t n)
{
    for (size_t i = 0; rows && i < n; i++)
        for (int c = 0; c < COLUMNS; c++)
            free(rows[i].cell[c]);
    free(rows);
}

static void print_table(const struct lock_list *l, int waiters)
{
    int wide[COLUMNS], bad = 0;
    const size_t n = l->n;
    struct table_row *rows = calloc(n ? n : 1, sizeof *rows);
    for (int c = 0; c < COLUMNS; c++)
        wide[c] = width(titles[c]);
    for (size_t i = 0; rows && i < n && !bad; i++) {
        bad = row_fill(&rows[i], l->lock[i]);
        for (int c = 0; c < COLUMNS && !bad; c++)
            if (width(rows[i].cell[c]) > wide[c])
                wide[c] = width(rows[i].cell[c]);
    }
    if (!rows || bad) {
        msg_error("out of memory");
        table_free(rows, n);
        return;
    }
    fit(wide);
    if (n || isatty(STDOUT_FILENO)) /* who counts lines counts locks */
        row_print(titles, wide);
    for (size_t i = 0; i < n; i++) {
        for (int c = 0; c < COLUMNS; c++)
            cut(rows[i].cell[c], wide[c]);
        row_print((const char *const *)rows[i].cell, wide);
        if (waiters)
            waiters_print(l->lock[i]);
    }
    table_free(rows, n);
}

static void sheet_line(const char *title, const char *value)
{
    if (value)
        printf("  %-8s %s\n", title, value);
}

static void sheet_party(const hf_party *p)
{
    char buf[1100], t[32];
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
    set_number(buf, sizeof buf, (int64_t)p->fence, p->fence > 0);
    sheet_line("fence", buf);
    if (p->permits > 1) {
        set_number(buf, sizeof buf, p->permits, 1);
        sheet_line("permits", buf);
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
    if (i->holders || i->slots) {
        set_duration(buf, sizeof buf, i->ttl_ms, "for ever");
        sheet_line("ttl left", buf);
    }
    if (i->waiters_total == 0)
        return;
    snprintf(buf, sizeof buf, "%zu", i->waiters_total);
    sheet_line("waiters", buf);
    waiters_print(i);
}

void locks_print(const struct lock_list *l, const struct opts *o, int sheet, int one_array)
{
    if (o->output != OUT_TABLE)
        print_json(l, one_array || o->output == OUT_JSON);
    else if (!sheet)
        print_table(l, o->waiters);
    else
        for (size_t i = 0; i < l->n; i++)
            print_sheet(l->lock[i]);
}
