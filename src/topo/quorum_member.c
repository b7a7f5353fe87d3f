/* SPDX-License-Identifier: MIT
 * quorum_member.c - one server of a quorum: which it is, what it may have forgotten, and how its
 * clock goes.
 *
 * A member may vote when it is up and not young: one that restarted without its data has forgotten
 * what it had granted, and counts as a refusal until that cannot matter any more. That it may have
 * none is known where there is no append-only file. Where there is one, the file itself may be
 * gone: then our counter began in this life of the server, while that of another member is older.
 * In a new quorum all of them begin at the same time, when the first lock is asked for.
 */
#include "topo/quorum_member.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define TIME_MS 1000

struct greeting {
    struct link        *link;
    const struct limit *lim;
    hf_error           *reterr;
};

/* Fields of INFO; HF_EAUTH when this user may not ask. One with a ? may be missing. */
static hf_err info(struct greeting *g, const char *section, const char *const *field, size_t n,
                   char value[][64])
{
    struct reply *rp;
    hf_bytes argv[] = { hf_str("INFO"), hf_str(section) };
    hf_err e = link_exchange(g->link, 2, argv, g->lim, &rp, g->reterr);
    if (e)
        return e;
    for (size_t i = 0; i < n && !e; i++) {
        const char *name = field[i] + (field[i][0] == '?');
        const char *at = rp->type == REPLY_BULK ? strstr(rp->str, name) : NULL;
        value[i][0] = '\0';
        if (!at && name != field[i])
            continue;
        if (!at) {
            e = err_set(g->reterr, HF_EAUTH,
                        "INFO does not tell %s: a quorum must know whether a member restarted (see "
                        "docs/acl.md)", field[i]);
            break;
        }
        at += strlen(name);
        snprintf(value[i], 64, "%.*s", (int)(at[0] == ':' ? strcspn(at + 1, "\r\n") : 0), at + 1);
    }
    reply_free(rp);
    return e;
}

/* One server under two names would vote twice. *ret_another: it is not the one that it was. */
static hf_err set_run_id(struct member *m, const char *run_id, bool *ret_another, hf_error *reterr)
{
    struct quorum *q = m->q;
    const struct member *twin = NULL;
    mutex_lock(&q->mu);
    for (size_t i = 0; i < q->n; i++)
        if (&q->member[i] != m && strcmp(q->member[i].run_id, run_id) == 0)
            twin = &q->member[i];
    *ret_another = m->run_id[0] && strcmp(m->run_id, run_id) != 0;
    if (!twin)
        snprintf(m->run_id, sizeof m->run_id, "%s", run_id);
    mutex_unlock(&q->mu);
    if (twin)
        return err_set(reterr, HF_ECONFIG, "it is the same server as %s: name each once",
                       twin->shown);
    return HF_OK;
}

/* What is known of our counter there, which was asked for at that time. */
static void set_age_locked(struct member *m, const struct greeted *had, int64_t asked_ms)
{
    mutex_assert_held(&m->mu);
    int64_t now = clock_now_ms();
    bool there = had->age_ms >= 0;
    int64_t age = had->age_ms < INT64_MAX / 4 ? had->age_ms : INT64_MAX / 4;
    m->fresh = had->fresh;
    m->from_ms = there ? asked_ms - age : asked_ms;
    m->told = false;
    atomic_store(&m->begun_ms, there ? now - age : CLOCK_NEVER);
}

static hf_err examine(struct member *m, struct greeting *g, const struct greeted *had,
                      int64_t asked_ms)
{
    static const char *const life[] = { "run_id", "uptime_in_seconds", "?server_time_usec" };
    static const char *const memory[] = { "aof_enabled" };
    char value[4][64];
    bool another = false;
    int64_t sent_ms = clock_now_ms();
    hf_err e = info(g, "server", life, 3, value);
    if (!e)
        e = info(g, "persistence", memory, 1, value + 3);
    if (!e)
        e = set_run_id(m, value[0], &another, g->reterr);
    if (e)
        return e;
    /* Whole seconds of the clock, the last one of which may have just begun. */
    int64_t now = clock_now_ms(), uptime = (strtoll(value[1], NULL, 10) - 1) * 1000;
    int64_t born = uptime < 0 ? now : uptime < now ? now - uptime : 0;
    mutex_lock(&m->mu);
    m->keeps = strcmp(value[3], "1") == 0;
    set_age_locked(m, had, asked_ms);
    /* Its uptime is a difference of wall clocks; what we saw ourselves is surer. */
    m->born_ms = another ? now : born > m->born_ms ? born : m->born_ms;
    m->offset_known = m->offset_known && !another;
    atomic_store(&m->scripts, 0);
    bool keeps = m->keeps;
    mutex_unlock(&m->mu);
    quorum_compare_clocks(m->q, m->index, strtoll(value[2], NULL, 10) / 1000, sent_ms, 0);
    if (another)
        log_to(m->q->log, HF_LOG_WARNING, "%s restarted%s", m->shown,
               keeps ? "" : " without an append-only file: it does not vote until what it forgot "
                            "cannot matter any more");
    return HF_OK;
}

hf_err member_greet(void *arg, struct link *l, const struct limit *lim, hf_error *reterr)
{
    struct member *m = arg;
    struct greeting g = { l, lim, reterr };
    struct greeted had = { .again = m->stood };
    int64_t asked_ms = clock_now_ms();
    hf_err e = m->q->greet(m->q->arg, l, lim, &had, reterr);
    m->stood |= !e;
    atomic_store(&m->reign_due, had.due);
    if (!e)
        e = examine(m, &g, &had, asked_ms);
    /* Before anybody hears of the connection: what is cancelled must not be found and counted. */
    return e ? e : undos_by_link(m, l, lim, reterr);
}

/* Another one has had our counter since before that time. */
static bool others_are_older(struct quorum *q, size_t i, int64_t from_ms)
{
    for (size_t k = 0; k < q->n; k++)
        if (k != i && atomic_load(&q->member[k].begun_ms) < from_ms - QUORUM_TOGETHER_MS)
            return true;
    return false;
}

void quorum_gave_number(struct quorum *q, size_t i)
{
    int64_t unknown = CLOCK_NEVER;
    if (atomic_load(&q->member[i].begun_ms) == unknown)
        atomic_compare_exchange_strong(&q->member[i].begun_ms, &unknown, clock_now_ms());
}

int64_t quorum_young_ms(struct quorum *q, size_t i, int64_t ttl_ms, bool *ret_lost)
{
    struct member *m = &q->member[i];
    int64_t needed = q->quarantine_ms && ttl_ms > q->quarantine_ms ? ttl_ms : q->quarantine_ms;
    mutex_lock(&m->mu);
    int64_t left = m->born_ms + needed - clock_now_ms(), from = m->from_ms;
    bool keeps = m->keeps, fresh = m->fresh, told = m->told;
    mutex_unlock(&m->mu);
    *ret_lost = false;
    if (left <= 0 || (keeps && !(fresh && others_are_older(q, i, from))))
        return 0;
    *ret_lost = keeps;
    if (keeps && !told) {
        mutex_lock(&m->mu);
        m->told = true;
        mutex_unlock(&m->mu);
        log_to(q->log, HF_LOG_WARNING,
               "%s started lately without the data that others have, though appendonly yes is "
               "set there, so it may have lost its own: no vote for another %lld s, until the old "
               "leases have ended; see that its data folder outlives a restart (docs/quorum.md)",
               m->shown, (long long)(left + 999) / 1000);
    }
    return left;
}

void quorum_compare_clocks(struct quorum *q, size_t i, int64_t server_ms, int64_t sent_ms,
                           int64_t ttl_ms)
{
    struct member *m = &q->member[i];
    int64_t now = clock_now_ms();
    if (server_ms <= 0 || server_ms > INT64_MAX / 4)
        return; /* no time at all */
    int64_t offset = server_ms - (sent_ms + now) / 2, unsure = (now - sent_ms) / 2 + 1;
    mutex_lock(&m->mu);
    int64_t moved = offset - m->offset_ms;
    /* A quick answer after a slow one shows how wrong that was, not that a clock moved. */
    int64_t allowed = ttl_ms / 100 + unsure + m->unsure_ms + 10;
    allowed += (now - m->compared_ms) / 1000; /* clocks that are being set slowly */
    m->compared_ms = now;
    m->unsure_ms = unsure;
    bool jumped = m->offset_known && (moved > allowed || moved < -allowed);
    m->offset_ms = offset;
    m->offset_known = true;
    mutex_unlock(&m->mu);
    if (jumped)
        log_to(q->log, HF_LOG_WARNING,
               "the clock of %s moved by %+lld ms against ours: leases end that much %s there, and "
               "its vote is worth less meanwhile", m->shown, (long long)moved,
               moved > 0 ? "earlier" : "later");
}

void member_ask_time(struct member *m)
{
    hf_bytes argv[] = { hf_str("TIME") };
    int64_t sent_ms = clock_now_ms();
    struct exchange call = { .deadline_ms = sent_ms + TIME_MS, .only_up = true };
    if (!atomic_exchange(&m->ask_time, false) || conn_call(m->conn, 1, argv, &call, NULL))
        return;
    const struct reply *rp = call.reply;
    if (rp->type == REPLY_ARRAY && rp->len == 2 && rp->item[0]->str && rp->item[1]->str) {
        long long s = strtoll(rp->item[0]->str, NULL, 10), us = strtoll(rp->item[1]->str, NULL, 10);
        if (s > 0 && s < INT64_MAX / 4000) /* a hostile one is asked no better */
            quorum_compare_clocks(m->q, m->index, s * 1000 + us / 1000 % 1000, sent_ms, 0);
    }
    reply_free(call.reply);
}
