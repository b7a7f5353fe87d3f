/* SPDX-License-Identifier: MIT
 * record.c - who a session is, for people who look.
 */
#include "session/record.h"

#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/process.h"
#include "topo/keys.h"

#define TEXT_MAX 200 /* of one field: a record is for people */

static char *copy_text(const char *s)
{
    return mem_copy(s, strnlen(s, TEXT_MAX));
}

static void read_user(char *ret, size_t size)
{
    char buffer[1024];
    struct passwd pw, *found = NULL;
    if (getpwuid_r(geteuid(), &pw, buffer, sizeof buffer, &found) == 0 && found)
        snprintf(ret, size, "%.*s", TEXT_MAX, pw.pw_name);
    else
        snprintf(ret, size, "%u", (unsigned)geteuid());
}

int identity_init(struct identity *id, const char *program, const char *info)
{
    char host[256] = "";

    gethostname(host, sizeof host - 1);
    snprintf(id->pid, sizeof id->pid, "%ld", (long)getpid());
    id->host = copy_text(host);
    id->program = copy_text(program ? program : process_name());
    id->info = copy_text(info ? info : "");
    if (id->host && id->program && id->info)
        return 0;
    identity_clear(id);
    return -1;
}

void identity_complete(struct identity *id)
{
    if (id->complete)
        return;
    read_user(id->user, sizeof id->user);
    process_start_time(id->start, sizeof id->start);
    process_boot_id(id->boot, sizeof id->boot);
    id->complete = true;
}

/* PROGRAM and HOST without what a client's name may not hold, and not all of it if it is long. */
void identity_client_name(const struct identity *id, char *ret, size_t size)
{
    snprintf(ret, size, "holdfast:%.40s@%.50s:%s", id->program, id->host, id->pid);
    for (char *p = ret; *p; p++)
        if (*p <= ' ' || *p > '~')
            *p = '_';
}

void identity_clear(struct identity *id)
{
    mem_free(id->host);
    mem_free(id->program);
    mem_free(id->info);
    *id = (struct identity){ 0 };
}

/* Who has just been granted what it waited for holds it since now, whatever the record says. */
static void name_entry(char ret[24], uint64_t sequence, bool waits)
{
    snprintf(ret, 24, "%s%llu", waits ? "w" : "", (unsigned long long)sequence);
}

static void fill(struct record_writing *w, const char *key, const struct identity *id,
                 const struct record_entry *entry, size_t n, int64_t ttl_ms, int64_t deadline_ms)
{
    const struct op_field field[RECORD_FIELDS] = {
        { "host", hf_str(id->host) }, { "pid", hf_str(id->pid) },
        { "user", hf_str(id->user) }, { "boot", hf_str(id->boot) },
        { "start", hf_str(id->start) }, { "program", hf_str(id->program) },
        { "info", hf_str(id->info) },
    };
    if (n > RECORD_ENTRIES_MAX)
        n = RECORD_ENTRIES_MAX;
    memcpy(w->field, field, sizeof field);
    for (size_t i = 0; i < n; i++) {
        name_entry(w->named[i].name, entry[i].sequence, entry[i].waits);
        w->named[i].age_ms = entry[i].age_ms;
        w->named[i].lease[0] = '\0';
        if (entry[i].lease_ms > 0)
            snprintf(w->named[i].lease, sizeof w->named[i].lease, "%lld%s",
                     (long long)entry[i].lease_ms, entry[i].left ? " left" : "");
    }
    w->op = (struct op){ .id = OP_record, .deadline_ms = deadline_ms,
                         .record = { .key = hf_str(key), .ttl_ms = ttl_ms, .field = w->field,
                                     .fields = RECORD_FIELDS, .entry = w->named, .entries = n } };
}

struct record_writing *record_writing_new(struct exec *x, const char *key,
                                          const struct identity *id,
                                          const struct record_entry *entry, size_t n,
                                          int64_t ttl_ms, int64_t deadline_ms, struct task *t)
{
    struct record_writing *w = mem_alloc(sizeof *w);
    if (!w)
        return NULL;
    fill(w, key, id, entry, n, ttl_ms, deadline_ms);
    w->op.task = t;
    exec_begin(x, &w->op);
    return w;
}

void record_writing_free(struct record_writing *w)
{
    if (w)
        op_clear(&w->op);
    mem_free(w);
}

hf_err record_write(struct exec *x, const char *key, const struct identity *id,
                    const struct record_entry *entry, size_t n, int64_t ttl_ms,
                    int64_t deadline_ms, const atomic_int *stop, hf_error *reterr)
{
    struct record_writing w;
    fill(&w, key, id, entry, n, ttl_ms, deadline_ms);
    w.op.stop = stop;
    hf_err e = exec_run(x, &w.op, reterr);
    op_clear(&w.op);
    return e;
}

/* To a server a time to live of 0 is over, and PEXPIRE deletes the key: as DEL, in whatever way and
 * on however many servers a record is written. */
hf_err record_delete(struct exec *x, const char *key, int64_t deadline_ms)
{
    const struct op_field nobody = { "host", hf_str("") };
    AUTO(op_clear) struct op op = {
        .id = OP_record, .deadline_ms = deadline_ms,
        .record = { .key = hf_str(key), .ttl_ms = 0, .field = &nobody, .fields = 1 },
    };
    return exec_run(x, &op, NULL);
}

/* Anybody may have written the time: believe nothing. */
static int64_t age(int64_t now_ms, int64_t since_ms)
{
    int64_t ms;
    return __builtin_sub_overflow(now_ms, since_ms, &ms) || ms < 0 ? 0 : ms;
}

static void take(char **slot, hf_bytes value)
{
    if (value.len > 0) {
        mem_free(*slot);
        *slot = mem_copy(value.data, value.len);
    }
}

/* "30000", or "30000 left" */
static void take_lease(hf_party *party, hf_bytes value)
{
    char *end;
    long long ms = strtoll(value.data, &end, 10);
    if (ms <= 0 || (*end && strcmp(end, " left") != 0))
        return;
    party->lease_ms = ms;
    party->renews = *end == '\0';
}

static void take_since(hf_party *party, hf_bytes value, int64_t now_ms)
{
    long long since = strtoll(value.data, NULL, 10);
    party->age_ms = age(now_ms, since);
    party->since_unix_ms = now_ms - party->age_ms;
}

/* One field of a record, if it is about the lock that is read about. */
static void take_field(struct record_reading *r, const char *name, hf_bytes value)
{
    hf_party *party = r->party;
    if (strcmp(name, "host") == 0)
        take(&party->host, value);
    else if (strcmp(name, "user") == 0)
        take(&party->user, value);
    else if (strcmp(name, "program") == 0)
        take(&party->program, value);
    else if (strcmp(name, "info") == 0)
        take(&party->info, value);
    else if (strcmp(name, "pid") == 0)
        party->pid = strtoll(value.data, NULL, 10);
    else if (strcmp(name, r->since) == 0)
        take_since(party, value, r->now_ms);
    else if (strcmp(name, r->waits) == 0)
        party->claiming = 1;
    else if (strcmp(name, r->lease) == 0)
        take_lease(party, value);
}

hf_err record_read_begin(struct record_reading *r, const char *prefix, const char *session,
                         uint64_t sequence, bool waits, int64_t now_ms, hf_party *party,
                         int64_t deadline_ms, hf_error *reterr)
{
    char tail[64], entry[24], other[24];
    snprintf(tail, sizeof tail, "session:%s", session);
    name_entry(entry, sequence, waits);
    name_entry(other, sequence, !waits);
    *r = (struct record_reading){ .now_ms = now_ms, .party = party,
                                  .key = keys_reserved(prefix, tail) };
    if (!r->key)
        return err_set(reterr, HF_ENOMEM, "out of memory");
    snprintf(r->since, sizeof r->since, "since:%s", entry);
    snprintf(r->waits, sizeof r->waits, "since:%s", other);
    snprintf(r->lease, sizeof r->lease, "lease:%s", entry);
    const char *const field[] = { "host", "user", "program", "info", "pid", r->since, r->waits,
                                  r->lease };
    memcpy(r->field, field, sizeof field);
    r->op = (struct op){ .id = OP_recall, .deadline_ms = deadline_ms, .reterr = reterr,
                         .recall = { .key = hf_str(r->key), .n = sizeof field / sizeof field[0],
                                     .field = r->field } };
    return HF_OK;
}

hf_err record_read_end(struct record_reading *r)
{
    hf_err e = r->op.result;
    struct op_list told = r->op.got.list;
    for (size_t i = 0; !e && i + 1 < op_list_len(told); i += 2)
        take_field(r, op_list_at(told, i).data, op_list_at(told, i + 1));
    if (r->party->age_ms >= 0) /* who holds it says so: what it waited for is over */
        r->party->claiming = 0;
    op_clear(&r->op);
    mem_free(r->key);
    return e;
}

hf_party *record_party_new(void)
{
    hf_party *p = mem_zalloc(sizeof *p);
    if (p)
        p->age_ms = p->lease_ms = p->renewed_ms = p->since_unix_ms = p->ttl_ms = p->grace_ms
            = p->waits_ms = p->present = p->renews = -1;
    return p;
}

void record_party_clear(hf_party *p)
{
    mem_free(p->session);
    mem_free(p->mode);
    mem_free(p->waits_for);
    mem_free(p->owner);
    mem_free(p->host);
    mem_free(p->user);
    mem_free(p->program);
    mem_free(p->info);
}

void record_party_free(hf_party *p)
{
    if (!p)
        return;
    record_party_clear(p);
    mem_free(p);
}
