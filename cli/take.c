/* SPDX-License-Identifier: MIT
 * take.c - one lock or several, all or nothing, with a wait that signals can end.
 *
 * hf_multi_acquire() blocks the main thread. Another one reads the signals and cancels the wait
 * (ending.c); if it takes long, a third tells who looks on whom we wait for (waiting.c). */
#include "take.h"

#include "clock.h"
#include "ending.h"
#include "exitcode.h"
#include "message.h"
#include "open.h"
#include "output.h"
#include "waiting.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define LATE_MS   450 /* what -w D may take on top of D */
#define WHO_MS    1000 /* for who holds it, with -n */
#define LEAVE_MS  950 /* the way out, with a server that does not answer */
#define LOST_MS   200 /* the same, when there is nothing to release */

/* ---- names ------------------------------------------------------------------------------- */

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static size_t find(const struct taken *t, const char *name)
{
    size_t i = 0;
    while (strcmp(t->lock[i].name, name) != 0)
        i++;
    return i;
}

static int out_of_memory(void)
{
    msg_error("out of memory");
    return EX_SYSTEM;
}

/* Cut text at the separators; word has room for all of them. */
static void cut(char *text, char separator, const char **word)
{
    size_t n = 0;
    word[n++] = text;
    for (char *p = text; separator && *p; p++) {
        if (*p == separator) {
            *p = '\0';
            word[n++] = p + 1;
        }
    }
}

int taken_names(struct taken *t, const struct cmd *cmd, const char *list, char separator)
{
    t->words = strdup(list);
    t->given = 1;
    for (const char *p = list; separator && *p; p++)
        t->given += *p == separator;
    const char **word = calloc(t->given, sizeof *word), **sorted = calloc(t->given, sizeof *sorted);
    t->lock = calloc(t->given, sizeof *t->lock);
    t->order = calloc(t->given, sizeof *t->order);
    int bad = !t->words || !word || !sorted || !t->lock || !t->order;
    int empty = 0;
    if (!bad) {
        cut(t->words, separator, word);
        memcpy(sorted, word, t->given * sizeof *sorted);
        qsort(sorted, t->given, sizeof *sorted, by_bytes);
        for (size_t i = 0; i < t->given; i++)
            if (i == 0 || strcmp(sorted[i], sorted[i - 1]) != 0)
                t->lock[t->n++].name = sorted[i];
        for (size_t i = 0; i < t->given; i++)
            t->order[i] = find(t, word[i]);
        empty = sorted[0][0] == '\0';
    }
    free(word);
    free(sorted);
    if (bad)
        return out_of_memory();
    return empty ? usage_error(cmd, "a lock's name is empty") : 0;
}

/* 0 is "never" on the command line and "as usual" in the library. */
static int64_t grace_of(const struct opts *o)
{
    return o->grace_ms == 0 ? HF_NO_TAKEOVER : o->grace_ms == GIVEN_NOT ? 0 : o->grace_ms;
}

int taken_open(struct taken *t, hf_client *c, const struct opts *o, int outlive)
{
    hf_lock_opts mo = { .size = sizeof mo, .ttl_ms = o->ttl_ms, .owner = hf_str(o->owner),
                         .whole_lease = 1, .shared = o->shared,
                         .slots = (unsigned)o->slots, .permits = (unsigned)o->permits };
    mo.no_renew = outlive;
    mo.grace_ms = outlive ? HF_NO_TAKEOVER : grace_of(o);
    t->c = c;
    for (size_t i = 0; i < t->n; i++) {
        hf_error err;
        hf_err e = hf_lock_open(c, hf_str(t->lock[i].name), &mo, &t->lock[i].m, &err);
        if (e != HF_OK)
            return msg_failed(e, &err);
    }
    return 0;
}

int taken_open_election(struct taken *t, hf_client *c, const struct opts *o, const char *value)
{
    hf_election_opts eo = { .size = sizeof eo, .ttl_ms = o->ttl_ms, .grace_ms = grace_of(o) };
    struct taken_lock *l = &t->lock[0];
    hf_error err;
    hf_err e = hf_election_open(c, hf_str(l->name), &eo, &l->el, &err);
    if (e != HF_OK)
        return msg_failed(e, &err);
    t->c = c;
    l->m = hf_election_lock(l->el);
    l->value = value;
    return 0;
}

void taken_note(struct taken *t, const char *text)
{
    for (size_t i = 0; i < t->n; i++)
        if (t->lock[i].m)
            (void)!hf_lock_note(t->lock[i].m, text, NULL);
}

static hf_err give_back(struct taken_lock *l, hf_error *reterr)
{
    return l->el ? hf_election_resign(l->el, reterr) : hf_lock_release(l->m, reterr);
}

/* ---- waiting ----------------------------------------------------------------------------- */

struct wanted {
    hf_lock **m;
    size_t    n;
};

static void cancel(void *arg)
{
    const struct wanted *w = arg;
    hf_multi_cancel(w->m, w->n);
}

/* ---- taking ------------------------------------------------------------------------------ */

/* What is left of the time that -w grants, for a last question; 0: as usual. With -n nobody waits
 * for an answer to what is only of interest. */
static int64_t time_to_ask(const struct opts *o)
{
    if (o->nonblock)
        return WHO_MS;
    if (o->wait_ms == GIVEN_NOT)
        return 0;
    int64_t left = o->asked_ms + o->wait_ms + LATE_MS - clock_now_ms();
    return left > 10 ? left : 10;
}

/* One of several is busy: the first that somebody holds. */
static const char *busy_name(const struct taken *t, int64_t timeout_ms)
{
    const char *name = t->lock[0].name;
    for (size_t i = 0; i < t->n && t->n > 1; i++) {
        hf_inspect_info *info = NULL;
        hf_err e = hf_inspect_lock(t->c, hf_str(t->lock[i].name), timeout_ms, &info, NULL);
        int held = e == HF_OK && info->holders > 0;
        hf_inspect_free(info);
        if (held)
            return t->lock[i].name;
    }
    return name;
}

/* Busy, or the server is away, which is not the same: e says only that the time is over. */
static int busy(const struct taken *t, const struct opts *o, hf_err e)
{
    char who[1024] = "", shown[TEXT_ESCAPED(1024) + 8], waited[32];
    hf_error err = { 0 };
    hf_err asked = HF_OK;
    hf_inspect_info *info = NULL;
    int json = (o->json || o->output != OUT_TABLE) && !o->skip_ok;
    const char *name = busy_name(t, time_to_ask(o));
    text_escape(shown, sizeof shown, name, strlen(name));
    text_duration(waited, sizeof waited, o->wait_ms);
    if (e != HF_EBUSY || json || (!o->skip_ok && msg_verbosity() >= 0))
        asked = holder_ask(who, sizeof who, t->c, name, time_to_ask(o), &info, &err);
    if (asked != HF_OK && e != HF_EBUSY) {
        msg_error("%s not obtained within %s: %s", shown, waited, err.message);
        return exit_code_of(asked);
    }
    if (json)
        busy_print(name, info);
    hf_inspect_free(info);
    if (o->skip_ok) {
        msg_verbose("%s is busy: skipped", shown);
        return EX_OKAY;
    }
    if (e == HF_ETIMEDOUT)
        msg_note("%s not obtained within %s: %s", shown, waited, who[0] ? who : "busy");
    else
        msg_note("%s is %s", shown, who[0] ? who : "busy");
    return o->busy_code;
}

static hf_err take_all(struct taken *t, const struct opts *o, const struct wanted *w,
                       hf_error *reterr)
{
    struct taken_lock *l = &t->lock[0];
    hf_err e;
    do {
        int64_t wait = options_wait_ms(o);
        e = l->el ? hf_election_campaign(l->el, hf_str(l->value), wait, NULL, reterr)
                  : hf_multi_acquire(w->m, w->n, wait, reterr);
    } while (client_again(o, e));
    for (size_t i = 0; i < t->n && e == HF_OK; i++) {
        t->lock[i].fence = hf_lock_fence(t->lock[i].m);
        t->lock[i].told_lost = 0;
    }
    t->since_ms = clock_now_ms();
    return e;
}

static void tell_taken(const struct taken *t, int64_t asked_ms)
{
    char name[TEXT_ESCAPED(1024) + 8], waited[32];
    for (size_t i = 0; i < t->n; i++)
        msg_verbose("%s taken, fence %" PRIu64 ", after %s",
                    text_escape(name, sizeof name, t->lock[i].name, strlen(t->lock[i].name)),
                    t->lock[i].fence, text_duration(waited, sizeof waited, t->since_ms - asked_ms));
}

int taken_wait(struct taken *t, const struct opts *o, int *ret_code)
{
    struct waiting line;
    struct wanted w = { calloc(t->n, sizeof *w.m), t->n };
    hf_error err = { 0 };
    hf_err e = HF_OK;
    int sig = 0;
    *ret_code = EX_SYSTEM;
    if (!w.m) {
        out_of_memory();
        return 0;
    }
    for (size_t i = 0; i < t->n; i++)
        w.m[i] = t->lock[i].m;
    waiting_start(&line, t);
    struct ending_wait wait = { cancel, &w, waiting_tell, &line,
                                o->nonblock ? NEVER : line.after_ms };
    *ret_code = ending_wait(&wait);
    if (*ret_code == 0) {
        client_limit(o, t->c, t->lock[0].name);
        e = take_all(t, o, &w, &err);
        sig = ending_waited();
        waiting_end(&line, e == HF_OK);
    }
    free(w.m);
    if (*ret_code == 0 && !sig && e == HF_OK) {
        ending_off();
        tell_taken(t, o->asked_ms);
        return 1;
    }
    taken_release(t);
    if (sig)
        *ret_code = sig > 0 ? EX_SIGNAL + sig : EX_BUG;
    else if (e == HF_EBUSY || e == HF_ETIMEDOUT)
        *ret_code = busy(t, o, e);
    else if (e != HF_OK)
        *ret_code = msg_failed(e, &err);
    ending_off();
    if (!o->nonblock && o->wait_ms != GIVEN_NOT)
        client_leave(o, *ret_code);
    return 0;
}

/* ---- letting go -------------------------------------------------------------------------- */

static void not_released(const struct taken_lock *l, hf_err e, const hf_error *err)
{
    char name[TEXT_ESCAPED(1024) + 8], quoted[sizeof name + 2];
    text_escape(name, sizeof name, l->name, strlen(l->name));
    snprintf(quoted, sizeof quoted, "\"%s\"", name);
    if (e == HF_ELOST) /* the handle is free by now, and only the message knows why */
        msg_error("found at its release: %s", err->message);
    else if (strstr(err->message, quoted))
        msg_error("%s", err->message);
    else
        msg_error("%s: %s", name, err->message[0] ? err->message : hf_err_text(e));
}

int taken_all_lost(const struct taken *t)
{
    int lost = 1;
    for (size_t i = 0; i < t->n; i++)
        lost &= t->lock[i].told_lost || hf_lock_state(t->lock[i].m) == HF_STATE_LOST
                || hf_lock_state(t->lock[i].m) == HF_STATE_FREE;
    return lost;
}

void taken_way_out(struct taken *t, int64_t free_ms, const char *also, int code)
{
    char words[2048], name[TEXT_ESCAPED(200) + 8], left[32];
    size_t len = strnlen(t->lock[0].name, 200);
    int many = t->n > 1;
    if (taken_all_lost(t)) {
        ending_in(LOST_MS, code, NULL);
        return;
    }
    snprintf(words, sizeof words, "%s%s%s: %s release was not confirmed, and %s free in %s at the "
             "latest: the server does not answer (%s)", also,
             text_escape(name, sizeof name, t->lock[0].name, len), many ? " and others" : "",
             many ? "their" : "its", many ? "they are" : "it is",
             text_duration(left, sizeof left, free_ms), hf_client_url(t->c));
    ending_in(LEAVE_MS, code, words);
}

void taken_end(struct taken *t, hf_client *c, int code)
{
    ending_said(code);
    if (t->abandoned)
        ending_now(code);
    ending_in(LEAVE_MS, code, NULL);
    client_close(c); /* the handles can only be freed then, and do not release once more */
    taken_free(t);
    ending_stop();
}

int taken_release(struct taken *t)
{
    int released = 1;
    for (size_t i = t->n; i-- > 0;) {
        hf_error err = { 0 };
        int was_lost = hf_lock_state(t->lock[i].m) == HF_STATE_LOST;
        if (hf_lock_state(t->lock[i].m) == HF_STATE_FREE)
            continue;
        hf_err e = give_back(&t->lock[i], &err);
        released &= e == HF_OK || e == HF_ELOST || was_lost;
        if (e != HF_OK && !was_lost && !(e == HF_ELOST && t->lock[i].told_lost))
            not_released(&t->lock[i], e, &err);
    }
    return released;
}

void taken_leave(struct taken *t, int64_t ms)
{
    for (size_t i = t->n; i-- > 0;) {
        hf_error err = { 0 };
        if (hf_lock_state(t->lock[i].m) == HF_STATE_LOST
            || hf_lock_state(t->lock[i].m) == HF_STATE_FREE)
            continue;
        hf_err e = hf_lock_detach(t->lock[i].m, ms, &err);
        if (e != HF_OK)
            not_released(&t->lock[i], e, &err);
    }
}

void taken_abandon(struct taken *t, int64_t ms)
{
    if (!t->lock[0].el) /* that of an election cannot be left behind: it has its grace */
        taken_leave(t, ms);
    t->abandoned = 1;
}

void taken_free(struct taken *t)
{
    for (size_t i = t->n; i-- > 0;) {
        if (t->lock[i].el)
            hf_election_free(t->lock[i].el);
        else
            hf_lock_free(t->lock[i].m);
    }
    free(t->lock);
    free(t->order);
    free(t->words);
    *t = (struct taken){ 0 };
}

/* ---- what CMD is told -------------------------------------------------------------------- */

static char *joined(const struct taken *t, int owners)
{
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return NULL;
    for (size_t i = 0; i < t->given; i++) {
        const struct taken_lock *l = &t->lock[t->order[i]];
        if (i)
            putc(',', f);
        if (owners)
            fputs(hf_lock_owner(l->m), f);
        else
            fprintf(f, "%" PRIu64, l->fence);
    }
    int bad = ferror(f);
    if (fclose(f) == 0 && !bad)
        return text;
    free(text);
    return NULL;
}

char *taken_fences(const struct taken *t)
{
    return joined(t, 0);
}

char *taken_owners(const struct taken *t)
{
    return joined(t, 1);
}
