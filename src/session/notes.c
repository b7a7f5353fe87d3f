/* SPDX-License-Identifier: MIT
 * notes.c - what is to be told about locks in the background.
 */
#include "session/notes.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "session/client.h"
#include "session/record.h"

#define QUEUE_MAX  1000
#define PAUSE_MS   200
#define TOO_OLD_MS 60000 /* then nobody who watches wants to know any more */
#define LOG_TTL_MS INT64_C(2592000000) /* 30 days after the last entry */
#define TEXT_MAX   200 /* of one value, as in a session's record */
#define ENTRY_MAX  (NOTE_FIELDS_MAX * TEXT_MAX)

void notes_init(struct notes *q)
{
    *q = (struct notes){ .end = &q->first, .due_ms = CLOCK_NEVER };
    mutex_init(&q->mu, MUTEX_NOTES);
}

static struct note *note_free(struct note *n)
{
    if (!n)
        return NULL;
    mem_free(n->log);
    mem_free(n->message);
    mem_free(n->text);
    mem_free(n);
    return NULL;
}

void notes_clear(struct notes *q)
{
    while (q->first) {
        struct note *n = q->first;
        q->first = n->next;
        note_free(n);
    }
}

/* ---- into the queue -------------------------------------------------------------------------- */

static struct note *note_new(const struct lock_keys *keys)
{
    struct note *n = mem_zalloc(sizeof *n);
    if (!n)
        return NULL;
    n->since_ms = clock_now_ms();
    n->log = keys_companion(keys->key[KEY_LOCK], ":log", &n->log_len);
    return n->log ? n : note_free(n);
}

static void push(hf_client *c, struct note *n)
{
    struct notes *q = &c->notes;
    mutex_lock(&q->mu);
    bool room = q->n < QUEUE_MAX;
    if (room) {
        n->next = NULL;
        *q->end = n;
        q->end = &n->next;
        q->n++;
        if (q->due_ms == CLOCK_NEVER)
            q->due_ms = 0;
    }
    mutex_unlock(&q->mu);
    if (room) {
        keeper_nudge(c->keeper);
    } else {
        note_free(n);
        metrics_add(&c->metrics.notes_dropped, 1);
    }
}

/* One word of a message: blanks, and what a terminal would heed, become underscores. */
static void put_word(char *ret, size_t size, const char *text)
{
    snprintf(ret, size, "%.60s", *text ? text : "?");
    for (char *p = ret; *p; p++)
        if ((unsigned char)*p <= ' ' || *p == 0x7f)
            *p = '_';
}

/* KIND FENCE TOKEN PID HOST USER PROGRAM LENGTH KEY TEXT: see docs/protocol.md. */
static bool put_message(const hf_client *c, struct note *n, const char *kind,
                        const struct lock_keys *keys, const char *token, uint64_t fence,
                        const char *text)
{
    const struct identity *id = &c->identity;
    char head[400], host[64], user[64], program[64];
    hf_bytes key = keys->key[KEY_LOCK];
    put_word(host, sizeof host, id->host);
    put_word(user, sizeof user, id->user);
    put_word(program, sizeof program, id->program);
    int len = snprintf(head, sizeof head, "%s %llu %.8s %s %s %s %s %zu ", kind,
                       (unsigned long long)fence, token, id->pid, host, user, program, key.len);
    size_t tail = strlen(text);
    n->message = mem_alloc((size_t)len + key.len + 1 + tail);
    if (!n->message)
        return false;
    memcpy(n->message, head, (size_t)len);
    memcpy(n->message + len, key.data, key.len);
    n->message[(size_t)len + key.len] = ' ';
    memcpy(n->message + (size_t)len + key.len + 1, text, tail);
    n->message_len = (size_t)len + key.len + 1 + tail;
    return true;
}

void notes_event(hf_client *c, const char *kind, const struct lock_keys *keys, const char *token,
                 uint64_t fence, const char *text)
{
    struct note *n = exec_can(c->exec, EXEC_NOTES) ? note_new(keys) : NULL;
    if (!n)
        return;
    if (put_message(c, n, kind, keys, token, fence, text))
        push(c, n);
    else
        note_free(n);
}

/* ---- the history ----------------------------------------------------------------------------- */

/* The values of an entry lie one behind the other. */
static void put_bytes(struct note *n, const char *name, hf_bytes value)
{
    size_t len = value.len < TEXT_MAX ? value.len : TEXT_MAX;
    if (!len || n->used + len > ENTRY_MAX || n->fields == NOTE_FIELDS_MAX)
        return;
    memcpy(n->text + n->used, value.data, len);
    n->field[n->fields++] = (struct op_field){ name, { n->text + n->used, len } };
    n->used += len;
}

static void put_text(struct note *n, const char *name, const char *text)
{
    if (text)
        put_bytes(n, name, hf_str(text));
}

/* -1: not known. */
static void put_number(struct note *n, const char *name, int64_t number)
{
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)number);
    if (number >= 0)
        put_bytes(n, name, hf_str(text));
}

static void put_ourselves(struct note *n, const struct identity *id)
{
    put_text(n, "host", id->host);
    put_text(n, "user", id->user);
    put_text(n, "program", id->program);
    put_text(n, "info", id->info);
    put_text(n, "pid", id->pid);
}

/* An entry to which who it was, and how it ended, is to be added; NULL: no memory. */
static struct note *entry_new(hf_client *c, const struct lock_keys *keys)
{
    struct note *n = note_new(keys);
    if (n && (n->text = mem_alloc(ENTRY_MAX)))
        return n;
    metrics_add(&c->metrics.notes_dropped, 1);
    return note_free(n);
}

void notes_end(hf_client *c, const struct note_end *what)
{
    struct note *n = c->history ? entry_new(c, what->keys) : NULL;
    if (!n)
        return;
    put_number(n, "fence", (int64_t)what->fence);
    put_bytes(n, "owner", what->owner.len ? what->owner : (hf_bytes){ what->token, 8 });
    put_text(n, "mode", what->mode);
    put_text(n, "end", what->end);
    put_text(n, "why", what->why);
    put_text(n, "note", what->note);
    put_number(n, "waited", what->waited_ms);
    put_number(n, "held", what->held_ms);
    put_ourselves(n, &c->identity);
    push(c, n);
}

/* The holder shares the lock when it has no number there. */
static bool read_absence(struct note *n, hf_bytes absence, unsigned long long *ret_fence)
{
    char text[200];
    long long since;
    unsigned long long sequence;
    snprintf(text, sizeof text, "%.*s", (int)(absence.len < 199 ? absence.len : 199),
             (const char *)absence.data);
    *ret_fence = 0;
    if (sscanf(text, "%lld %32[0-9a-f].%llu:%llu", &since, n->session, &sequence, ret_fence) < 3
        || strlen(n->session) != 32)
        return false;
    n->absent_ms = since;
    n->sequence = sequence;
    return true;
}

void notes_taken_over(hf_client *c, const struct lock_keys *keys, hf_bytes absence)
{
    unsigned long long fence;
    struct note *n = c->history ? entry_new(c, keys) : NULL;
    if (!n)
        return;
    if (!read_absence(n, absence, &fence)) {
        note_free(n);
        return;
    }
    if (fence)
        put_number(n, "fence", (int64_t)fence);
    put_bytes(n, "owner", (hf_bytes){ n->session, 8 });
    put_text(n, "mode", fence ? "exclusive" : "shared");
    put_text(n, "end", "taken over");
    put_text(n, "why", "its process was gone for longer than its grace");
    push(c, n);
}

void notes_released_by_id(hf_client *c, const struct lock_keys *keys, hf_bytes id, uint64_t fence)
{
    char token[TOKEN_SIZE + 8], by[200];
    const struct identity *who = &c->identity;
    struct note *n = c->history ? entry_new(c, keys) : NULL;
    if (!n)
        return;
    snprintf(token, sizeof token, "0 %.*s", (int)(id.len < TOKEN_SIZE ? id.len : TOKEN_SIZE - 1),
             (const char *)id.data);
    unsigned long long none;
    bool random = read_absence(n, hf_str(token), &none);
    if (!random)
        n->session[0] = '\0';
    snprintf(by, sizeof by, "by its owner id, by %.60s@%.60s, pid %s", who->user, who->host,
             who->pid);
    if (fence)
        put_number(n, "fence", (int64_t)fence);
    put_bytes(n, "owner", random ? (hf_bytes){ n->session, 8 } : id);
    put_text(n, "end", "released");
    put_text(n, "why", by);
    push(c, n);
}

/* Thread: keeper. Who it was that is gone, as far as its record is still there. */
static void identify(hf_client *c, struct note *n, int64_t deadline_ms)
{
    struct record_reading r;
    hf_party party = { .age_ms = -1 };
    if (!n->session[0])
        return;
    if (!record_read_begin(&r, c->prefix, n->session, n->sequence, false, n->absent_ms, &party,
                           deadline_ms, NULL)) {
        (void)exec_run(c->exec, &r.op, NULL);
        (void)record_read_end(&r);
    }
    put_text(n, "host", party.host);
    put_text(n, "user", party.user);
    put_text(n, "program", party.program);
    put_text(n, "info", party.info);
    if (party.pid > 0)
        put_number(n, "pid", party.pid);
    if (n->absent_ms)
        put_number(n, "held", party.age_ms);
    record_party_clear(&party);
    n->session[0] = '\0';
}

/* ---- out of it ------------------------------------------------------------------------------- */

int64_t notes_due(struct notes *q)
{
    mutex_lock(&q->mu);
    int64_t due = q->due_ms;
    mutex_unlock(&q->mu);
    return due;
}

static size_t take(struct notes *q, struct note **ret)
{
    size_t n = 0;
    mutex_lock(&q->mu);
    while (n < NOTES_AT_ONCE && q->first) {
        ret[n] = q->first;
        q->first = ret[n++]->next;
        q->n--;
    }
    if (!q->first)
        q->end = &q->first;
    mutex_unlock(&q->mu);
    return n;
}

/* Those that could not be told go back in front of the others. */
static void settle(struct notes *q, struct note *again)
{
    struct note *last = again;
    mutex_lock(&q->mu);
    for (; last; last = last->next) {
        q->n++;
        if (last->next)
            continue;
        last->next = q->first;
        if (!q->first)
            q->end = &last->next;
        q->first = again;
        break;
    }
    q->due_ms = again ? clock_now_ms() + PAUSE_MS : q->first ? 0 : CLOCK_NEVER;
    mutex_unlock(&q->mu);
}

/* What is asked of the server, with what is known only now: how long ago it was. */
struct telling {
    hf_error        err;
    char            message[2048];
    char            ago[24];
    struct op_field field[NOTE_FIELDS_MAX + 1];
};

static void tell(const hf_client *c, struct note *n, struct telling *t, struct op *op,
                 int64_t deadline_ms)
{
    t->err.message[0] = '\0';
    long long ago = (long long)(clock_now_ms() - n->since_ms);
    snprintf(t->ago, sizeof t->ago, "%lld", ago);
    memcpy(t->field, n->field, n->fields * sizeof *n->field);
    t->field[n->fields] = (struct op_field){ "ago", hf_str(t->ago) };
    size_t len = 0;
    if (n->message && ago < TOO_OLD_MS) {
        size_t most = sizeof t->message - sizeof t->ago;
        len = (size_t)sprintf(t->message, "%lld ", ago);
        size_t some = n->message_len < most ? n->message_len : most;
        memcpy(t->message + len, n->message, some);
        len += some;
    }
    *op = (struct op){ .id = OP_note, .deadline_ms = deadline_ms, .once = true, .reterr = &t->err,
                       .note = { .log = { n->log, n->log_len },
                                 .keep = n->fields ? c->history : 0, .ttl_ms = LOG_TTL_MS,
                                 .channel = len ? c->events : "",
                                 .message = { t->message, len },
                                 .fields = n->fields ? n->fields + 1 : 0, .field = t->field } };
}

/* Whether it is to be tried again; else it is gone. */
static bool may_pass(const struct note *n)
{
    bool away = n->result == HF_ECONN || n->result == HF_EUNSURE;
    return away && clock_now_ms() - n->since_ms < TOO_OLD_MS;
}

static void give_up(hf_client *c, struct notes *q, const hf_error *err)
{
    metrics_add(&c->metrics.notes_dropped, 1);
    if (!q->told && c->history)
        log_to(&c->log, HF_LOG_WARNING, "the history cannot be written: %s",
               err ? err->message : "out of memory");
    q->told = true;
}

/* One of them has been told, or not; true: it is to be tried again. */
static bool settle_one(hf_client *c, struct notes *q, struct note *n, const hf_error *err,
                       bool last)
{
    if (n->result && !last && may_pass(n))
        return true;
    if (n->result)
        give_up(c, q, err);
    note_free(n);
    return false;
}

bool notes_run(hf_client *c, struct notes *q, int64_t deadline_ms, bool last)
{
    struct note *some[NOTES_AT_ONCE], *again = NULL, **end = &again;
    size_t n = take(q, some);
    AUTO(mem_freep) struct op *op = n ? mem_alloc(n * sizeof *op) : NULL;
    AUTO(mem_freep) struct telling *t = n ? mem_alloc(n * sizeof *t) : NULL;
    bool room = op && t;
    for (size_t i = 0; room && i < n; i++) {
        identify(c, some[i], deadline_ms);
        tell(c, some[i], &t[i], &op[i], deadline_ms);
    }
    if (room)
        exec_run_all(c->exec, op, n);
    for (size_t i = 0; i < n; i++) {
        some[i]->result = room ? op[i].result : HF_ENOMEM;
        if (room)
            op_clear(&op[i]);
        if (settle_one(c, q, some[i], room ? &t[i].err : NULL, last)) {
            *end = some[i];
            end = &some[i]->next;
        }
    }
    *end = NULL;
    settle(q, again);
    return !again;
}
