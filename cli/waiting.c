/* SPDX-License-Identifier: MIT
 * waiting.c - whom we wait for and which place we have, for a person who looks on.
 *
 * A thread of its own, once the wait takes long: the question may take as long as the server likes,
 * and neither a signal nor the grant may wait for that. */
#include "waiting.h"

#include "clock.h"
#include "message.h"
#include "output.h"
#include "platform.h"
#include "take.h"

#include <inttypes.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define EVERY_MS  1000
#define PROBE_MS  2000 /* the same, when only the absence of the server would be told */
#define ANSWER_MS 1000
#define BACK      "the server answers again"

/* ---- our place --------------------------------------------------------------------------- */

static int is_us(const hf_party *p)
{
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    return p->pid == getpid() && p->host && strcmp(p->host, host) == 0;
}

static const char *ordinal(size_t n)
{
    static const char *const ends[] = { "th", "st", "nd", "rd" };
    size_t ten = n / 10 % 10, one = n % 10;
    return ten == 1 || one > 3 ? ends[0] : ends[one];
}

void waiting_place(char *buf, size_t size, const hf_inspect_info *info)
{
    size_t total = info->waiters_total, i = 0;
    while (i < info->waiters && !is_us(info->waiter[i]))
        i++;
    buf[0] = '\0';
    if (i < info->waiters)
        snprintf(buf, size, "you are %zu%s of %zu", i + 1, ordinal(i + 1), total);
    else if (total > info->waiters)
        snprintf(buf, size, "you are behind the first %zu of %zu", info->waiters, total);
    else if (total > 0)
        snprintf(buf, size, "%zu wait%s", total, total == 1 ? "s" : "");
}

/* ---- the line ---------------------------------------------------------------------------- */

/* In the background the terminal belongs to somebody else. */
static int in_background(void)
{
    pid_t front = tcgetpgrp(STDERR_FILENO); /* fails where it is not our controlling terminal */
    return front >= 0 && front != getpgrp();
}

/* The first of a long name, and of a host without its domain: a line has 80 columns, and since when
 * somebody holds the lock, and what for, must be in them. */
static void shorten(char *name, hf_inspect_info *info)
{
    enum { SHOWN = 16 };
    size_t n = 0, at = 0, cut = 0;
    for (; name[at] && n < SHOWN; n++) {
        size_t bytes = text_char((unsigned char *)name + at, strlen(name + at));
        at += bytes ? bytes : 1;
        if (n == SHOWN - 4)
            cut = at;
    }
    if (name[at])
        memcpy(name + cut, "...", 4); /* more than that is behind it */
    for (size_t i = 0; i < info->holders; i++)
        if (info->holder[i]->host)
            info->holder[i]->host[strcspn(info->holder[i]->host, ".")] = '\0';
}

/* Is there anything new but the time? */
static int is_news(struct waiting *w, const hf_inspect_info *info, const char *cause,
                   const char *place)
{
    char same[sizeof w->told];
    const hf_party *p = info->holders ? info->holder[0] : NULL;
    snprintf(same, sizeof same, "%s %s %" PRIu64 " %d %s", cause, place, p ? p->fence : 0,
             p && p->host, p ? p->owner : "");
    int news = strcmp(same, w->told) != 0;
    memcpy(w->told, same, sizeof w->told);
    return news;
}

/* why NULL: what can be seen of the lock says it all. */
static void tell(struct waiting *w, hf_inspect_info *info, const hf_why_info *why)
{
    char name[TEXT_ESCAPED(1024) + 8], place[96], raw[1024], words[TEXT_ESCAPED(1024) + 8];
    const char *cause = why ? why->cause : hf_inspect_cause(info);
    text_escape(name, sizeof name, info->name, info->name_len);
    waiting_place(place, sizeof place, info);
    int news = is_news(w, info, cause, place), shown = w->terminal && !in_background();
    if (shown)
        shorten(name, info);
    const char *text = why ? why->text : hf_inspect_words(info, raw, sizeof raw);
    text_escape(words, sizeof words, text, strlen(text));
    /* Who, since when and what for; our place; the rest. */
    const char *rest = place[0] ? strstr(words, ", renewed ") : NULL;
    int first = (int)(rest ? rest - words : (ptrdiff_t)strlen(words));
    if (shown)
        msg_status("waiting for %.900s: %.*s%s%s%s", name, first, words, place[0] ? ", " : "",
                   place, rest ? rest : "");
    else if (!w->terminal && news)
        msg_note("waiting for %.900s: %.*s%s%s%s", name, first, words, place[0] ? ", " : "",
                 place, rest ? rest : "");
}

/* Nobody holds it, and yet we wait; or its holder waits, too: there is more to it. */
static void explain(struct waiting *w, hf_inspect_info *info)
{
    hf_why_info *why = NULL;
    int ask = strcmp(hf_inspect_cause(info), "free") == 0;
    for (size_t i = 0; i < info->holders; i++)
        ask |= info->holder[i]->waits_for != NULL;
    if (ask && hf_why(w->c, (hf_bytes){ info->name, info->name_len }, ANSWER_MS, &why, NULL))
        why = NULL;
    tell(w, info, why);
    hf_why_free(why);
}

/* The server is away, or back. */
static void tell_away(struct waiting *w, hf_err e)
{
    int away = e == HF_ECONN || e == HF_EUNSURE || e == HF_ENOQUORUM || e == HF_ETIMEDOUT;
    char since[32];
    if (away && !w->away_ms)
        msg_note_about("no answer from the server (%s): still waiting", hf_client_url(w->c));
    else if (!away && w->away_ms)
        msg_note_about(BACK);
    if (away && !w->away_ms)
        w->away_ms = clock_now_ms();
    else if (!away)
        w->away_ms = 0;
    else if (w->terminal && !in_background())
        msg_status("waiting, no answer from the server for %s",
                   text_duration(since, sizeof since, clock_now_ms() - w->away_ms));
}

/* Of several the first in whose queue we stand, or that somebody else holds. */
static hf_err refresh(struct waiting *w)
{
    hf_inspect_info *shown = NULL;
    hf_err e = HF_OK;
    for (size_t i = 0; i < w->t->n; i++) {
        hf_inspect_info *info = NULL;
        e = hf_inspect_lock(w->t->c, hf_str(w->t->lock[i].name), ANSWER_MS, &info, NULL);
        if (e != HF_OK)
            continue;
        int ours = w->t->n == 1, better = !shown && info->holders && !is_us(info->holder[0]);
        for (size_t n = 0; n < info->waiters; n++)
            ours |= is_us(info->waiter[n]);
        if (ours || better) {
            hf_inspect_free(shown);
            shown = info;
        } else {
            hf_inspect_free(info);
        }
        if (ours)
            break;
    }
    if (shown)
        explain(w, shown);
    hf_inspect_free(shown);
    return shown ? HF_OK : e;
}

/* Whether somebody answers, as cheaply as can be: many may wait. */
static hf_err probe(const struct waiting *w)
{
    return hf_owner_check(w->c, hf_str(w->name), hf_str("nobody"), NULL, NULL);
}

static void *waiting_main(void *arg)
{
    struct waiting *w = arg;
    struct pollfd p = { .fd = w->end_fd, .events = POLLIN };
    do
        tell_away(w, w->shown ? refresh(w) : probe(w));
    while (poll(&p, 1, w->shown ? EVERY_MS : PROBE_MS) <= 0);
    return NULL;
}

static void prepare(struct waiting *w)
{
    w->end_fd = -1;
    w->away_ms = 0;
    w->told[0] = '\0';
    w->after_ms = msg_verbosity() < 0 ? NEVER : w->shown ? EVERY_MS : PROBE_MS;
}

void waiting_tell(struct waiting *w)
{
    w->end_fd = platform_bell();
    if (w->end_fd >= 0 && pthread_create(&w->thread, NULL, waiting_main, w) != 0) {
        close(w->end_fd);
        w->end_fd = -1; /* nobody is told, and nothing else is lost */
    }
}

void waiting_start(struct waiting *w, const struct taken *t)
{
    w->t = t;
    w->c = t->c;
    w->name = t->lock[0].name;
    w->terminal = isatty(STDERR_FILENO);
    w->shown = w->terminal || msg_verbosity() > 0;
    prepare(w);
}

void waiting_probe(struct waiting *w, hf_client *c, const char *name)
{
    *w = (struct waiting){ .c = c, .name = name };
    prepare(w);
}

void waiting_end(struct waiting *w, int over)
{
    if (w->end_fd < 0)
        return;
    platform_bell_ring(w->end_fd);
    pthread_join(w->thread, NULL);
    close(w->end_fd);
    msg_status_clear();
    if (over && w->away_ms)
        msg_note_about(BACK);
}
