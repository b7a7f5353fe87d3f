/* SPDX-License-Identifier: MIT
 * listing.c - many locks, printed as they come: as a table, as JSON.
 *
 * Everything that comes from a server was written by somebody else: it is escaped before it
 * reaches a terminal, and JSON is pure ASCII for the same reason. */
#include "listing.h"

#include "lockjson.h"
#include "message.h"
#include "output.h"

#include <inttypes.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { AT_ONCE = 1000, CELL = 900, LEAST = 8, LEAST_NAME = 12, TAIL = 1 << 17 };
enum { NAME, KIND, HOLDER, HOST, PID, SINCE, TTL, FENCE, WAITERS, STATE, INFO };
static const char *const titles[LISTING_COLUMNS] = { "NAME", "KIND", "HOLDER", "HOST", "PID",
                                                     "SINCE", "TTL", "FENCE", "WAITERS", "STATE",
                                                     "INFO" };

/* ---- which, and in which order ------------------------------------------------------------ */

static int is_mine(const hf_inspect_info *i)
{
    static char host[256], user[256];
    if (!user[0]) {
        const struct passwd *pw = getpwuid(geteuid());
        gethostname(host, sizeof host - 1);
        if (pw)
            snprintf(user, sizeof user, "%s", pw->pw_name);
        else
            snprintf(user, sizeof user, "%u", (unsigned)geteuid());
    }
    for (size_t n = 0; n < i->holders; n++) {
        const hf_party *p = i->holder[n];
        if (p->user && p->host && strcmp(p->user, user) == 0 && strcmp(p->host, host) == 0)
            return 1;
    }
    return 0;
}

static int is_stale(const hf_inspect_info *i)
{
    static const char *const causes[] = { "silent", "left", "absent", "claim", "no-ttl" };
    const char *cause = hf_inspect_cause(i);
    for (size_t n = 0; n < sizeof causes / sizeof causes[0]; n++)
        if (strcmp(cause, causes[n]) == 0)
            return 1;
    return 0;
}

static int64_t key_of(const struct opts *o, const hf_inspect_info *i)
{
    switch (o->sort) {
    case SORT_AGE: return i->holders ? -i->holder[0]->age_ms : 1;
    case SORT_WAITERS: return -(int64_t)i->waiters_total;
    case SORT_TTL: return i->ttl_ms >= 0 ? i->ttl_ms : INT64_MAX;
    default: return 0;
    }
}

static int by_key(const void *a, const void *b)
{
    const struct listing_line *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x->order < y->order ? -1 : 1;
}

/* ---- cells -------------------------------------------------------------------------------- */

static const char *escaped(char *buf, size_t size, const char *s)
{
    return s && s[0] ? text_escape(buf, size, s, strlen(s)) : "-";
}

static void put_number(char *cell, int64_t n, int known)
{
    if (known)
        snprintf(cell, CELL, "%" PRId64, n);
    else
        snprintf(cell, CELL, "-");
}

static void put_time(char *cell, int64_t ms, const char *unknown)
{
    if (ms >= 0)
        text_duration(cell, CELL, ms);
    else
        snprintf(cell, CELL, "%s", unknown);
}

/* What its holder said about itself, and what a leader tells. */
static void put_info(char *cell, const hf_inspect_info *i, const hf_party *p)
{
    char info[CELL / 2], value[CELL / 4];
    snprintf(cell, CELL, "%s", escaped(info, sizeof info, p->info));
    if (!i->election)
        return;
    text_escape(value, sizeof value, i->value, i->value_len < 64 ? i->value_len : 64);
    snprintf(cell, CELL, "value=%s%s%s", value, p->info && p->info[0] ? " " : "",
             p->info && p->info[0] ? escaped(info, sizeof info, p->info) : "");
}

static void put_cells(char cell[LISTING_COLUMNS][CELL], const hf_inspect_info *i)
{
    static const hf_party nobody = { .age_ms = -1 };
    const hf_party *p = i->holders ? i->holder[0] : &nobody;
    char buf[CELL / 2], used[40] = "", more[40] = "";
    if (i->slots)
        snprintf(used, sizeof used, " %u/%u", i->used, i->slots);
    if (i->holders_total > 1)
        snprintf(more, sizeof more, " +%zu", i->holders_total - 1);
    snprintf(cell[KIND], CELL, "%s%s", escaped(buf, sizeof buf, i->kind), used);
    snprintf(cell[HOLDER], CELL, "%s%s",
             escaped(buf, sizeof buf, p->program ? p->program : p->owner), more);
    snprintf(cell[HOST], CELL, "%s", escaped(buf, sizeof buf, p->host));
    put_number(cell[PID], p->pid, p->pid > 0);
    put_time(cell[SINCE], p->age_ms, "-");
    put_time(cell[TTL], i->ttl_ms, i->holders || i->slots ? "for ever" : "-");
    put_number(cell[FENCE], (int64_t)p->fence, p->fence > 0);
    put_number(cell[WAITERS], (int64_t)i->waiters_total, 1);
    snprintf(cell[STATE], CELL, "%s", hf_inspect_cause(i));
    put_info(cell[INFO], i, p);
}

/* The cells, and what stands in lines of its own below them. NULL: no memory. */
static char *row_new(const struct opts *o, const hf_inspect_info *i)
{
    char name[TEXT_ESCAPED(HF_NAME_MAX)], cell[LISTING_COLUMNS][CELL];
    char *tail = NULL;
    size_t size = strlen(text_escape(name, sizeof name, i->name, i->name_len)) + 1, at = 0;
    put_cells(cell, i);
    if (o->waiters && i->waiters && !(tail = malloc(TAIL)))
        return NULL;
    if (tail)
        waiters_text(tail, TAIL, i);
    for (int c = KIND; c < LISTING_COLUMNS; c++)
        size += strlen(cell[c]) + 1;
    char *row = malloc(size + (tail ? strlen(tail) : 0) + 1);
    for (int c = 0; row && c < LISTING_COLUMNS; c++) {
        const char *text = c == NAME ? name : cell[c];
        memcpy(row + at, text, strlen(text) + 1);
        at += strlen(text) + 1;
    }
    if (row)
        snprintf(row + at, size + (tail ? strlen(tail) : 0) + 1 - at, "%s", tail ? tail : "");
    free(tail);
    return row;
}

/* ---- the table ---------------------------------------------------------------------------- */

/* Characters, not bytes. Wide ones count once: good enough for names. */
static int width(const char *s)
{
    int n = 0;
    for (; *s; s++)
        n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

static const char *cell_behind(const char *cell)
{
    return cell + strlen(cell) + 1;
}

static int total_of(const int wide[LISTING_COLUMNS])
{
    int total = -2;
    for (int c = 0; c < LISTING_COLUMNS; c++)
        total += wide[c] ? wide[c] + 2 : 0;
    return total;
}

/* On a terminal the columns with words of others are made as narrow as a line needs, the widest
 * first; the rest tells by "..." that it was cut. Where that is not enough, columns are left out:
 * `status` has them. Elsewhere, where programs read, all is there. */
static void fit(int wide[LISTING_COLUMNS])
{
    static const int words[] = { NAME, HOLDER, HOST, INFO }, spare[] = { FENCE, PID, HOST, KIND };
    struct winsize w;
    size_t left_out = 0;
    if (!isatty(STDOUT_FILENO))
        return;
    int room = ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 1 ? w.ws_col : 80;
    while (total_of(wide) > room) {
        int widest = NAME;
        for (size_t i = 1; i < sizeof words / sizeof words[0]; i++)
            if (wide[words[i]] > wide[widest])
                widest = words[i];
        if (wide[widest] > (widest == NAME ? LEAST_NAME : LEAST))
            wide[widest]--;
        else if (left_out < sizeof spare / sizeof spare[0])
            wide[spare[left_out++]] = 0;
        else
            return;
    }
}

/* As much of it as there is room for; how many columns that takes. */
static int put_cut(const char *s, int wide)
{
    int n = 0, all = width(s);
    if (all <= wide) {
        fputs(s, stdout);
        return all;
    }
    for (; *s && (n < wide - 3 || ((unsigned char)*s & 0xc0) == 0x80); s++) {
        putchar(*s);
        n += ((unsigned char)s[1] & 0xc0) != 0x80;
    }
    fputs("...", stdout);
    return n + 3;
}

/* cell: one after the other, each behind the NUL of the one before. Returns what is behind them. */
static const char *row_print(const char *cell, const int wide[LISTING_COLUMNS], int cut)
{
    int gap = 0;
    for (int c = 0; c < LISTING_COLUMNS; c++, cell = cell_behind(cell)) {
        if (!wide[c])
            continue;
        printf("%*s", gap, "");
        int n = put_cut(cell, cut ? wide[c] : INT32_MAX);
        gap = (n < wide[c] ? wide[c] - n : 0) + 2;
    }
    putchar('\n');
    return cell;
}

static void titles_print(const int wide[LISTING_COLUMNS])
{
    char row[128];
    size_t at = 0;
    for (int c = 0; c < LISTING_COLUMNS; c++) {
        memcpy(row + at, titles[c], strlen(titles[c]) + 1);
        at += strlen(titles[c]) + 1;
    }
    row_print(row, wide, 0);
}

/* The lines so far. Those that are printed later are not narrower. */
static void flush_table(struct listing *l)
{
    int terminal = isatty(STDOUT_FILENO), wide[LISTING_COLUMNS];
    for (size_t i = 0; i < l->n; i++) {
        const char *cell = l->line[i].text;
        for (int c = 0; c < LISTING_COLUMNS; c++, cell = cell_behind(cell))
            if (width(cell) > l->wide[c])
                l->wide[c] = width(cell);
    }
    memcpy(wide, l->wide, sizeof wide);
    fit(wide);
    /* Who counts lines counts locks. */
    if (l->printed == 0 && !l->o->no_header && (l->n || terminal))
        titles_print(wide);
    for (size_t i = 0; i < l->n; i++)
        fputs(row_print(l->line[i].text, wide, terminal), stdout);
}

/* ---- the whole ---------------------------------------------------------------------------- */

static void flush(struct listing *l)
{
    int array = l->o->output == OUT_JSON || l->one_array;
    if (l->o->output == OUT_TABLE)
        flush_table(l);
    for (size_t i = 0; i < l->n; i++) {
        if (l->o->output != OUT_TABLE) {
            if (array && l->printed + i > 0)
                putchar(',');
            fputs(l->line[i].text, stdout);
            if (!array)
                putchar('\n');
        }
        free(l->line[i].text);
    }
    l->printed += l->n;
    l->n = 0;
}

void listing_begin(struct listing *l, const struct opts *o, int one_array)
{
    *l = (struct listing){ .o = o, .one_array = one_array };
    for (int c = 0; c < LISTING_COLUMNS; c++)
        l->wide[c] = width(titles[c]);
    if (o->output == OUT_JSON || (o->output == OUT_JSONL && one_array))
        putchar('[');
}

static char *render(const struct opts *o, const hf_inspect_info *info)
{
    if (o->output == OUT_TABLE)
        return row_new(o, info);
    json_t *j = json_lock(info);
    char *text = json_dumps(j, JSON_COMPACT | JSON_ENSURE_ASCII);
    json_decref(j);
    return text;
}

int listing_add(struct listing *l, const hf_inspect_info *info)
{
    const struct opts *o = l->o;
    if ((o->stale && !is_stale(info)) || (o->mine && !is_mine(info)))
        return 0;
    if (l->n == l->room) {
        size_t room = l->room ? 2 * l->room : 16;
        struct listing_line *grown = reallocarray(l->line, room, sizeof *grown);
        if (!grown)
            return -1;
        l->line = grown;
        l->room = room;
    }
    struct listing_line line = { key_of(o, info), l->came++, render(o, info) };
    if (!line.text)
        return -1;
    l->line[l->n++] = line;
    if (o->sort == SORT_NAME && l->n >= (o->output == OUT_TABLE ? AT_ONCE : 1))
        flush(l);
    return 0;
}

void listing_end(struct listing *l)
{
    if (l->n && l->o->sort != SORT_NAME)
        qsort(l->line, l->n, sizeof *l->line, by_key);
    if (l->n || l->printed == 0)
        flush(l);
    if (l->o->output == OUT_JSON || (l->o->output == OUT_JSONL && l->one_array))
        puts("]");
    free(l->line);
}
