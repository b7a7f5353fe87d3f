/* SPDX-License-Identifier: MIT
 * lock_end.c - a hold is over, or something rare happened to it: it is counted, told to those who
 * watch, and noted in the history. Nobody waits for that.
 */
#include "lock/handle.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"

static const char *mode_of(const hf_lock *m)
{
    return !m->lease.grant.shared ? "exclusive" : m->opts.slots ? "permits" : "shared";
}

static void set_note(hf_lock *m, const char *text)
{
    if (!m->c->history)
        return;
    mutex_lock(&m->c->notes.mu);
    snprintf(m->note, LOCK_NOTE_SIZE, "%s", text);
    mutex_unlock(&m->c->notes.mu);
}

void lock_begun(hf_lock *m, int64_t waited_ms)
{
    atomic_store(&m->waited_ms, waited_ms);
    set_note(m, "");
    atomic_store(&m->ended, false);
}

void lock_ended(hf_lock *m, const char *end, const char *why)
{
    if (atomic_exchange(&m->ended, true))
        return;
    const struct grant *g = &m->lease.grant;
    char note[LOCK_NOTE_SIZE] = "";
    int64_t held = clock_now_ms() - m->lease.granted_ms;
    metrics_hold(&m->c->metrics, held);
    if (!m->c->history)
        return;
    mutex_lock(&m->c->notes.mu);
    memcpy(note, m->note, sizeof note);
    mutex_unlock(&m->c->notes.mu);
    struct note_end what = { .keys = m->keys, .token = g->token, .owner = m->opts.owner,
                             .fence = g->fence, .mode = mode_of(m), .end = end, .why = why,
                             .note = note, .waited_ms = atomic_load(&m->waited_ms),
                             .held_ms = held };
    notes_end(m->c, &what);
}

/* Thread: watchdog. */
void lock_tell(hf_lock *m, hf_state state)
{
    char why[300];
    const struct grant *g = &m->lease.grant;
    const char *kind = state == HF_STATE_LOST       ? "lost"
                       : state == HF_STATE_IN_DOUBT ? "in_doubt"
                                                    : "safe";
    hf_lock_loss_text(m, why, sizeof why);
    notes_event(m->c, kind, m->keys, g->token, g->fence, why);
    if (state == HF_STATE_LOST)
        lock_ended(m, "lost", why);
}

void lock_tell_deadlock(hf_lock *m, const hf_error *err)
{
    const struct grant *g = &m->lease.grant;
    notes_event(m->c, "deadlock", m->keys, g->token, 0, err ? err->message : "");
}

hf_err hf_lock_note(hf_lock *m, const char *text, hf_error *reterr)
{
    hf_err e = lock_enter(m, reterr);
    if (!e && !text)
        e = err_set(reterr, HF_EINVAL, "no text was given, but NULL");
    if (!e && m->depth == 0)
        e = lock_not_held(m, reterr);
    if (!e)
        set_note(m, text);
    return e;
}
