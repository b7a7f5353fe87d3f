/* SPDX-License-Identifier: MIT
 * top.c - the screen of `holdfast top`: rows, keys, and the list of all locks. */
#include "top.h"

#include "clock.h"
#include "message.h"
#include "party.h"

#include <fnmatch.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define SAID_MS    8000
#define SILENCE_MS 1500

void top_say(struct top *t, enum ink ink, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(t->said, sizeof t->said, fmt, ap);
    va_end(ap);
    t->said_ink = ink;
    t->said_until_ms = clock_now_ms() + SAID_MS;
}

const char *top_sort_name(enum top_sort sort)
{
    static const char *const names[TOP_SORTS] = { "waiters", "longest wait", "longest hold",
                                              "hand-overs", "name" };
    return names[sort];
}

/* ---- which rows, in which order ------------------------------------------------------------- */

static int wanted(const struct top *t, const struct scene_lock *l)
{
    char name[TEXT_ESCAPED(HF_NAME_MAX)];
    if (!t->filter[0])
        return 1;
    text_escape(name, sizeof name, l->name, l->name_len);
    if (strpbrk(t->filter, "*?["))
        return fnmatch(t->filter, name, 0) == 0;
    return strcasestr(name, t->filter) != NULL;
}

static int order_of(double a, double b) /* the larger first */
{
    return (a < b) - (a > b);
}

static const struct top *sorting; /* qsort() has no argument of its own; one thread draws */

static int by_sort(const void *a, const void *b)
{
    const struct scene_lock *x = *(const struct scene_lock *const *)a,
                            *y = *(const struct scene_lock *const *)b;
    size_t xw = x->info ? x->info->waiters_total : 0, yw = y->info ? y->info->waiters_total : 0;
    const int by[] = { [TOP_WAITERS] = order_of((double)xw, (double)yw),
                       [TOP_WAIT] = order_of((double)x->wait_ms, (double)y->wait_ms),
                       [TOP_HELD] = order_of((double)x->hold_ms, (double)y->hold_ms),
                       [TOP_RATE] = order_of(x->rate, y->rate),
                       [TOP_NAME] = 0 };
    int order = order_of(x->stuck == STUCK_CYCLE, y->stuck == STUCK_CYCLE);
    if (sorting->sort == TOP_NAME)
        order = 0;
    if (order == 0)
        order = sorting->reverse ? -by[sorting->sort] : by[sorting->sort];
    if (order == 0 && sorting->sort != TOP_NAME)
        order = by[TOP_WAITERS] ? by[TOP_WAITERS] : by[TOP_RATE] ? by[TOP_RATE] : by[TOP_WAIT];
    if (order == 0) /* the scene is in the order of names */
        order = sorting->reverse && sorting->sort == TOP_NAME ? (x < y) - (x > y)
                                                               : (x > y) - (x < y);
    return order;
}

static int grow(struct top *t, size_t n)
{
    if (n <= t->room)
        return 0;
    const struct scene_lock **grown = reallocarray(t->row, n, sizeof *grown);
    if (!grown)
        return -1;
    t->row = grown;
    t->room = n;
    return 0;
}

const struct scene_lock *top_chosen(const struct top *t)
{
    return t->chosen_len ? scene_find(&t->gather.scene, t->chosen, t->chosen_len) : NULL;
}

static void choose(struct top *t, size_t at)
{
    t->at = at < t->rows ? at : t->rows ? t->rows - 1 : 0;
    if (t->at >= t->rows)
        return;
    const struct scene_lock *l = t->row[t->at];
    t->chosen_len = l->name_len < HF_NAME_MAX ? l->name_len : HF_NAME_MAX;
    memcpy(t->chosen, l->name, t->chosen_len);
    t->chosen[t->chosen_len] = '\0';
}

int top_refresh(struct top *t)
{
    const struct scene *s = &t->gather.scene;
    t->rows = 0;
    if (grow(t, s->n) != 0)
        return -1;
    for (size_t i = 0; i < s->n; i++)
        if (wanted(t, &s->lock[i]))
            t->row[t->rows++] = &s->lock[i];
    sorting = t;
    if (t->rows)
        qsort(t->row, t->rows, sizeof *t->row, by_sort);
    if (t->view == VIEW_LOCK || (t->view == VIEW_HELP && t->back == VIEW_LOCK))
        return top_lock_lines(t, top_chosen(t));
    /* In the list the bar stays where it is, as long as nobody has moved it: the hottest lock is
     * what one looks at. Once moved, it follows the lock. */
    if (t->chosen_len) {
        for (size_t i = 0; i < t->rows; i++)
            if (t->row[i]->name_len == t->chosen_len
                && memcmp(t->row[i]->name, t->chosen, t->chosen_len) == 0) {
                t->at = i;
                return 0;
            }
        t->chosen_len = 0;
    }
    if (t->at >= t->rows)
        t->at = t->rows ? t->rows - 1 : 0;
    return 0;
}

/* ---- drawing -------------------------------------------------------------------------------- */

void top_spark(const struct scene *s, const struct scene_lock *l, int width, char *buf, size_t size)
{
    int most = 1;
    size_t used = 0;
    buf[0] = '\0';
    if (width > SCENE_RING)
        width = SCENE_RING;
    for (int i = 0; i < width; i++)
        if (scene_seen(s, l, (unsigned)i) > most)
            most = scene_seen(s, l, (unsigned)i);
    for (int i = width - 1; i >= 0; i--) {
        int seen = scene_seen(s, l, (unsigned)i);
        const char *bar = screen_bar(seen <= 0 ? 0 : (8 * seen + most - 1) / most);
        if (used + 4 < size)
            used += (size_t)snprintf(buf + used, size - used, "%s", bar);
    }
}

static void draw_title(const struct top *t)
{
    char text[700];
    snprintf(text, sizeof text, " holdfast top  %s%s%s", t->server,
             t->gather.pattern ? "  " : "", t->gather.pattern ? t->gather.pattern : "");
    char clean[TEXT_ESCAPED(sizeof text)], every[40], d[32];
    text_escape(clean, sizeof clean, text, strlen(text));
    snprintf(every, sizeof every, " %s ", t->paused ? "PAUSED"
             : text_duration(d, sizeof d, t->gather.every_ms));
    int right = screen_width(every);
    screen_put(0, 0, screen_columns - right, INK_BAR, clean);
    screen_put(0, screen_columns - right, right, INK_BAR, every);
}

/* For how long the server has been away; 0: it is not, or not long enough to speak of it. */
static int64_t away_ms(struct top *t)
{
    int64_t silence = gather_silence_ms(&t->gather);
    if (t->away_since_ms)
        return clock_now_ms() - t->away_since_ms + 1;
    return silence >= SILENCE_MS ? silence : 0;
}

static void draw_away(const struct top *t, int64_t ms)
{
    char text[TEXT_ESCAPED(sizeof t->gather.error.message) + 100], d[32];
    char clean[TEXT_ESCAPED(sizeof t->gather.error.message)] = "";
    const char *why = t->gather.error.message[0] ? t->gather.error.message
                                                 : hf_err_text(t->gather.result);
    if (t->away_since_ms)
        text_escape(clean, sizeof clean, why, strlen(why));
    snprintf(text, sizeof text, " %s for %s%s%s", t->away_since_ms && t->gather.scene.partial
             ? "some locks are missing" : "no answer", text_duration(d, sizeof d, ms),
             clean[0] ? ": " : "", clean);
    screen_put(1, 0, screen_columns, INK_BAD, text);
}

static void draw_sums(struct top *t)
{
    const struct scene *s = &t->gather.scene;
    char text[1200], spark[4 * SCENE_RING + 1];
    if (away_ms(t)) {
        draw_away(t, away_ms(t));
        return;
    }
    if (!s->looks) {
        screen_put(1, 0, screen_columns, INK_DIM, " looking ...");
        return;
    }
    top_spark(s, NULL, 20, spark, sizeof spark);
    snprintf(text, sizeof text, " %zu locks, %zu held, %zu waiting, %.1f hand-overs/s  %s", s->n,
             s->held, s->waiting, s->rate, spark);
    screen_put(1, 0, screen_columns, INK_PLAIN, text);
    if (s->stuck) {
        snprintf(text, sizeof text, " DEADLOCK: %zu locks ", s->stuck);
        int n = screen_width(text);
        screen_put(1, screen_columns - n, n, INK_BAD, text);
    }
}

static void draw_bottom(const struct top *t)
{
    char text[BREAK_SAID + 500], name[TEXT_ESCAPED(HF_NAME_MAX)];
    int row = screen_rows - 1;
    screen_cursor(-1, 0);
    if (t->typing != TYPING_NOT) {
        if (t->typing == TYPING_FILTER)
            snprintf(text, sizeof text, "filter: %s", t->typed);
        else
            snprintf(text, sizeof text, "break %.60s? The holder is told and stops. Type yes: %s",
                     text_escape(name, sizeof name, t->chosen, t->chosen_len), t->typed);
        screen_put(row, 0, screen_columns, t->typing == TYPING_BREAK ? INK_BAD : INK_BOLD, text);
        screen_cursor(row, screen_width(text));
        return;
    }
    if (t->said[0]) {
        screen_put(row, 0, screen_columns, t->said_ink, t->said);
        return;
    }
    if (t->view == VIEW_LIST)
        snprintf(text, sizeof text, "q quit  enter open  / %s%s  s sort: %s%s  p pause  b break  "
                 "? help", t->filter[0] ? "filter: " : "filter", t->filter, top_sort_name(t->sort),
                 t->reverse ? ", turned" : "");
    else if (t->view == VIEW_LOCK)
        snprintf(text, sizeof text, "q quit  esc back  p pause  b break  ? help");
    else
        snprintf(text, sizeof text, "any key: back");
    screen_put(row, 0, screen_columns, INK_DIM, text);
}

/* Which columns there are, and how wide; 0: not here. */
struct columns {
    int name, kind, holder, waiters, oldest, held, ttl, rate, spark;
};

static struct columns columns_of(int width)
{
    struct columns c = { .waiters = 5, .oldest = 7, .held = 7, .ttl = 7, .rate = 6 };
    if (width >= 72)
        c.spark = width >= 130 ? 24 : 9;
    if (width >= 130)
        c.kind = 14;
    if (width < 50)
        c.held = c.ttl = 0;
    int rest = width - c.kind - c.waiters - c.oldest - c.held - c.ttl - c.rate - c.spark - 2;
    c.holder = rest >= 24 ? rest * 2 / 5 : 0;
    c.name = rest - c.holder > 4 ? rest - c.holder : 4;
    return c;
}

static void draw_titles(const struct top *t, const struct columns *c)
{
    const struct {
        int         width, right;
        const char *word;
        int         sort; /* TOP_SORTS: it is not sorted by that */
    } title[] = {
        { c->name, 0, "NAME", TOP_NAME },       { c->kind, 0, "KIND", TOP_SORTS },
        { c->holder, 0, "HOLDER", TOP_SORTS },       { c->waiters, 1, "WAIT", TOP_WAITERS },
        { c->oldest, 1, "OLDEST", TOP_WAIT },   { c->held, 1, "HELD", TOP_HELD },
        { c->ttl, 1, "LEASE", TOP_SORTS },           { c->rate, 1, "/S", TOP_RATE },
        { c->spark, 0, " SEEN", TOP_SORTS },
    };
    int x = 1;
    for (size_t i = 0; i < sizeof title / sizeof title[0]; i++) {
        enum ink ink = (int)t->sort == title[i].sort ? INK_NOTE : INK_DIM;
        if (title[i].right)
            screen_right(2, x, title[i].width - 1, ink, title[i].word);
        else
            screen_put(2, x, title[i].width - 1, ink, title[i].word);
        x += title[i].width;
    }
}

static const char *duration_or(char *buf, size_t size, int64_t ms, const char *none)
{
    return ms >= 0 ? text_duration(buf, size, ms) : none;
}

static enum ink row_ink(const struct scene_lock *l)
{
    if (l->stuck != STUCK_NOT)
        return INK_BAD;
    if (!l->info || !l->info->holders)
        return INK_DIM;
    return l->info->waiters_total ? INK_BOLD : INK_PLAIN;
}

static void draw_row(const struct top *t, const struct columns *c, int y, size_t i)
{
    const struct scene_lock *l = t->row[i];
    const hf_inspect_info *info = l->info;
    int chosen = i == t->at, x = 1;
    enum ink ink = chosen ? INK_BAR : INK_PLAIN, strong = chosen ? INK_BAR : row_ink(l);
    char text[TEXT_ESCAPED(HF_NAME_MAX)], d[32], spark[4 * SCENE_RING + 8] = " ";
    screen_put(y, 0, screen_columns, ink, l->stuck == STUCK_CYCLE ? "!" : "");
    screen_put(y, x, c->name - 1, strong, text_escape(text, sizeof text, l->name, l->name_len));
    x += c->name;
    screen_put(y, x, c->kind - 1, ink, info ? party_kind(text, sizeof text, info) : "");
    x += c->kind;
    snprintf(text, sizeof text, "%s", info ? "-" : "free");
    if (info && info->holders)
        party_short(text, sizeof text, info->holder[0]);
    if (info && info->holders_total > 1)
        snprintf(text + strlen(text), sizeof text - strlen(text), " +%zu", info->holders_total - 1);
    screen_put(y, x, c->holder - 1, ink, text);
    x += c->holder;
    snprintf(text, sizeof text, "%zu", info ? info->waiters_total : 0);
    screen_right(y, x, c->waiters - 1, ink, text);
    x += c->waiters;
    screen_right(y, x, c->oldest - 1, ink, duration_or(d, sizeof d, l->wait_ms, "-"));
    x += c->oldest;
    screen_right(y, x, c->held - 1, ink, duration_or(d, sizeof d, l->hold_ms, "-"));
    x += c->held;
    const char *none = info && info->holders ? "ever" : "-";
    screen_right(y, x, c->ttl - 1, ink,
                 duration_or(d, sizeof d, info && info->holders ? info->ttl_ms : -1, none));
    x += c->ttl;
    snprintf(text, sizeof text, "%.1f", l->rate);
    screen_right(y, x, c->rate - 1, ink, text);
    x += c->rate;
    top_spark(&t->gather.scene, l, c->spark - 1, spark + 1, sizeof spark - 1);
    screen_put(y, x, c->spark, chosen ? INK_BAR : INK_NOTE, c->spark ? spark : "");
}

static void draw_list(struct top *t, int from, int to)
{
    struct columns c = columns_of(screen_columns);
    size_t fit = to > from ? (size_t)(to - from) : 0;
    draw_titles(t, &c);
    if (t->at < t->first)
        t->first = t->at;
    if (fit && t->at >= t->first + fit)
        t->first = t->at - fit + 1;
    if (t->first + fit > t->rows)
        t->first = t->rows > fit ? t->rows - fit : 0;
    for (size_t i = 0; i < fit && t->first + i < t->rows; i++)
        draw_row(t, &c, from + (int)i, t->first + i);
    if (t->rows == 0 && t->gather.scene.looks && fit)
        screen_put(from + 1, 2, screen_columns - 2, INK_DIM,
                   t->filter[0] ? "no lock matches the filter" : "no lock is held");
}

static void draw_help(int from, int to)
{
    static const char *const words[] = {
        "up down j k        choose a lock        page up, page down, home, end",
        "enter, right       open it: holders, waiters in order",
        "esc, left          back to the list",
        "s                  sort by the next column: waiters, longest wait, longest hold,",
        "                   hand-overs, name",
        "r                  turn the order round",
        "/                  show only names with a text in them, or that match a * ? pattern",
        "p, space           pause, and go on",
        "+ -                look more often, less often",
        "b                  break the lock, after a confirmation: its holder is told and stops,",
        "                   then the next in line gets it",
        "q, Ctrl-C          quit",
        "",
        "WAIT    how many wait        OLDEST  the longest of these waits",
        "HELD    how long it is held  LEASE   what is left of the lease",
        "/S      hand-overs per second that were seen: one look each second misses some",
        "SEEN    the same at the last looks",
        "!       part of a deadlock",
    };
    for (size_t i = 0; i < sizeof words / sizeof words[0] && from + (int)i < to; i++)
        screen_put(from + (int)i, 1, screen_columns - 1, INK_PLAIN, words[i]);
}

void top_draw(struct top *t)
{
    int last = screen_rows - 1;
    if (t->said[0] && clock_now_ms() > t->said_until_ms)
        t->said[0] = '\0';
    screen_clear();
    draw_title(t);
    draw_sums(t);
    if (t->view == VIEW_LIST)
        draw_list(t, 3, last);
    else if (t->view == VIEW_LOCK)
        top_lock_draw(t, 2, last);
    else
        draw_help(3, last);
    draw_bottom(t);
    screen_show();
}

/* ---- keys ----------------------------------------------------------------------------------- */

static void move(struct top *t, int64_t by)
{
    int lock = t->view == VIEW_LOCK;
    int64_t n = (int64_t)(lock ? t->lines : t->rows);
    int64_t at = (int64_t)(lock ? t->line_at : t->at) + by;
    at = at < 0 || n == 0 ? 0 : at >= n ? n - 1 : at;
    if (lock)
        t->line_at = (size_t)at;
    else
        choose(t, (size_t)at);
}

static void ask_break(struct top *t)
{
    if (t->view == VIEW_LIST)
        choose(t, t->at);
    const struct scene_lock *l = top_chosen(t);
    const hf_party *p = top_holder(t);
    if (t->breaking.started) {
        top_say(t, INK_WARN, "the break of another lock is not done yet");
    } else if (!l || !l->info || !l->info->holders) {
        top_say(t, INK_WARN, "nobody holds it");
    } else if (!p) {
        top_say(t, INK_WARN, "it has several holders: %s", t->view == VIEW_LIST
                                                               ? "open it, and choose one"
                                                               : "choose one");
    } else if (!p->fence) {
        top_say(t, INK_WARN, "it has no fencing number: it was not taken by holdfast");
    } else {
        t->typing = TYPING_BREAK;
        t->typed[0] = '\0';
        t->breaking.fence = p->fence;
    }
}

static void finish_typing(struct top *t)
{
    enum top_typing was = t->typing;
    t->typing = TYPING_NOT;
    if (was == TYPING_BREAK && strcmp(t->typed, "yes") == 0)
        top_break_begin(t);
    else if (was == TYPING_BREAK)
        top_say(t, INK_PLAIN, "not broken");
}

static void type_key(struct top *t, int key)
{
    size_t n = strlen(t->typed);
    if (key == 27) {
        if (t->typing == TYPING_FILTER)
            t->filter[0] = '\0';
        t->typing = TYPING_NOT;
    } else if (key == '\n') {
        finish_typing(t);
    } else if (key == SKEY_BACK && n) {
        while (n && ((unsigned char)t->typed[--n] & 0xc0) == 0x80)
            ;
        t->typed[n] = '\0';
    } else if (key >= ' ' && key < 256 && n + 1 < sizeof t->typed) {
        t->typed[n] = (char)key;
        t->typed[n + 1] = '\0';
    }
    if (t->typing == TYPING_FILTER)
        snprintf(t->filter, sizeof t->filter, "%s", t->typed);
}

static void view_key(struct top *t, int key)
{
    if (key == '\n' || key == SKEY_RIGHT) {
        if (t->view == VIEW_LIST && t->rows) {
            choose(t, t->at);
            t->view = VIEW_LOCK;
            t->line_at = t->line_first = 0;
        }
    } else if (key == 27 || key == SKEY_LEFT || key == SKEY_BACK) {
        if (t->view == VIEW_LIST)
            t->filter[0] = '\0';
        t->view = VIEW_LIST;
    } else if (key == '?' || key == 'h') {
        t->back = t->view;
        t->view = VIEW_HELP;
    } else if (key == '/' && t->view == VIEW_LIST) {
        t->typing = TYPING_FILTER;
        snprintf(t->typed, sizeof t->typed, "%s", t->filter);
    } else if (key == 's' && t->view == VIEW_LIST) {
        t->sort = (enum top_sort)((t->sort + 1) % TOP_SORTS);
        t->chosen_len = 0;
    } else if (key == 'r') {
        t->reverse = !t->reverse;
    } else if (key == 'b') {
        ask_break(t);
    }
}

/* Holds: the gatherer's mu, so what it is told is written into it here. */
static void pace_key(struct top *t, int key)
{
    static const int64_t paces[] = { 200, 500, 1000, 2000, 5000, 10000 };
    enum { LAST = sizeof paces / sizeof paces[0] - 1 };
    int i = 0;
    if (key == 'p' || key == ' ')
        t->gather.paused = t->paused = !t->paused;
    while (i < LAST && paces[i] < t->gather.every_ms)
        i++;
    if (key == '+' && i > 0)
        t->gather.every_ms = paces[i - 1];
    if (key == '-' && i < LAST)
        t->gather.every_ms = paces[i + 1];
    pthread_cond_broadcast(&t->gather.news);
}

void top_key(struct top *t, int key)
{
    int page = screen_rows > 6 ? screen_rows - 5 : 1;
    if (t->typing != TYPING_NOT) {
        type_key(t, key);
        return;
    }
    t->said[0] = '\0';
    if (t->view == VIEW_HELP) {
        t->view = t->back;
        t->quit = key == 'q';
        return;
    }
    switch (key) {
    case 'q': t->quit = 1; break;
    case 'k': case SKEY_UP: move(t, -1); break;
    case 'j': case SKEY_DOWN: move(t, 1); break;
    case SKEY_PAGE_UP: move(t, -page); break;
    case SKEY_PAGE_DOWN: move(t, page); break;
    case SKEY_HOME: case 'g': move(t, INT32_MIN); break;
    case SKEY_END: case 'G': move(t, INT32_MAX); break;
    case 'p': case ' ': case '+': case '-': pace_key(t, key); break;
    default: view_key(t, key);
    }
}
