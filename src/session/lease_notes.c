/* SPDX-License-Identifier: MIT
 * lease_notes.c - what others write for the holder of a lock: it is broken, or they ask for it.
 *
 * A note lies on the server beside the lock, and comes with the answer to a renewal. A message on
 * our channel says that there may be one. Anybody may send such a message: it makes us renew, not
 * more often than every HINT_MS, and means nothing else.
 */
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "session/keeper_impl.h"

#define HINT_MS 100 /* between two renewals of one lease because of messages */

/* ---- messages: "break TOKEN", "ask TOKEN" --------------------------------------------------- */

/* Holds: the keeper's mu. */
bool lease_hinted_locked(const struct lease *l, int64_t now_ms)
{
    return lease_hint_due_locked(l) <= now_ms;
}

/* Holds: the keeper's mu. */
int64_t lease_hint_due_locked(const struct lease *l)
{
    bool due = l->hint_ms && lease_state(l) != HF_STATE_LOST && !l->exclusive;
    return due ? l->hint_ms : CLOCK_NEVER;
}

/* Holds: the keeper's mu. A message that comes from now on may be about something newer. */
void lease_hint_sent_locked(struct lease *l, int64_t now_ms)
{
    l->hinted = l->hint_ms != 0;
    if (l->hinted)
        l->hinted_ms = now_ms;
    l->hint_ms = 0;
}

/* Holds: the keeper's mu. */
void lease_hint_answered_locked(struct lease *l, bool answered, int64_t now_ms)
{
    if (!answered && l->hinted && !l->hint_ms)
        l->hint_ms = now_ms;
    l->hinted = false;
}

static bool starts(const char **text, const char *word)
{
    size_t n = strlen(word);
    if (strncmp(*text, word, n) != 0)
        return false;
    *text += n;
    return true;
}

void keeper_message(struct keeper *k, const char *text)
{
    if (!starts(&text, "break ") && !starts(&text, "ask "))
        return;
    uint64_t sequence = client_sequence_of(k->c, text);
    int64_t now = clock_now_ms();
    keeper_lock(k);
    struct lease *l = sequence ? lease_set_find(&k->leases, sequence) : NULL;
    if (l && !l->hint_ms && lease_state(l) != HF_STATE_LOST && !l->leaving) {
        int64_t next = l->hinted_ms + HINT_MS;
        l->hint_ms = l->hinted_ms && next > now ? next : now;
        keeper_plan_renewal_locked(k, l, 0); /* if one is under way: again when that is over */
    }
    keeper_unlock(k);
}

/* ---- notes ---------------------------------------------------------------------------------- */

static void forget(struct lease *l)
{
    mem_free(l->broken_by);
    mem_free(l->asked_by);
    l->broken_by = l->asked_by = NULL;
    l->asks = 0;
    l->ask_due = l->hinted = false;
    l->hint_ms = l->hinted_ms = 0;
}

/* Holds: the keeper's mu. */
void lease_forget_notes_locked(struct lease *l)
{
    forget(l);
}

void keeper_forget_notes(struct lease *l)
{
    forget(l);
}

/* Holds: the keeper's mu. The same question comes with every renewal, as long as it is there. */
static void take_ask_locked(struct keeper *k, struct lease *l, char *note)
{
    mutex_assert_held(&k->mu);
    if (l->asked_by && strcmp(l->asked_by, note) == 0) {
        mem_free(note);
        return;
    }
    mem_free(l->asked_by);
    l->asked_by = note;
    l->asks++;
    l->ask_due = true;
    keeper_watch_now_locked(k, l);
}

void keeper_note_locked(struct keeper *k, struct lease *l, char *note, bool broken)
{
    mutex_assert_held(&k->mu);
    if (op_note_is(note, "break") && broken && !l->broken_by)
        l->broken_by = note;
    else if (op_note_is(note, "ask"))
        take_ask_locked(k, l, note);
    else
        mem_free(note);
}

void keeper_note(struct keeper *k, struct lease *l, char *note, bool broken)
{
    if (!note)
        return;
    keeper_lock(k);
    keeper_note_locked(k, l, note, broken);
    keeper_unlock(k);
}

const char *note_shown(const char *by_and_text, char *buf, size_t size)
{
    char by[120];
    size_t n = strcspn(by_and_text, " ");
    const char *text = by_and_text + n + (by_and_text[n] == ' ');
    err_plain(by, sizeof by, by_and_text, n);
    if (!*text)
        return err_plain(buf, size, by, strlen(by));
    size_t used = (size_t)snprintf(buf, size, "%s: ", by);
    if (used + 16 < size)
        err_plain(buf + used, size - used, text, strlen(text));
    return buf;
}

/* "KIND WHEN BY TEXT" as "BY: TEXT", or "BY" where nothing was said. Others wrote both. */
static void note_words(const char *note, char *buf, size_t size)
{
    const char *by = note ? strchr(note, ' ') : NULL; /* behind the kind */
    by = by ? strchr(by + 1, ' ') : NULL;             /* and behind the time */
    buf[0] = '\0';
    if (by)
        note_shown(by + 1, buf, size);
}

const char *keeper_told(struct keeper *k, const struct lease *l, enum note_kind kind, char *buf,
                        size_t size, unsigned *ret_asks)
{
    keeper_lock(k);
    note_words(kind == NOTE_BREAK ? l->broken_by : l->asked_by, buf, size);
    if (ret_asks)
        *ret_asks = l->asks;
    keeper_unlock(k);
    return buf;
}
