/* SPDX-License-Identifier: MIT
 * record.c - who a session is, for people who look.
 */
#include "session/record.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"

#define TEXT_MAX 200 /* of one field: a record is for people */

static char *copy_text(const char *s)
{
    return mem_copy(s, strnlen(s, TEXT_MAX));
}

/* The first line of a file of /proc, or "". */
static void read_line(const char *path, char *ret, size_t size)
{
    ret[0] = '\0';
    FILE *f = fopen(path, "re");
    if (!f)
        return;
    if (fgets(ret, (int)size, f))
        ret[strcspn(ret, "\n")] = '\0';
    fclose(f);
}

/* Field 22 of /proc/self/stat: with pid and boot id it names a process for ever. */
static void read_start(char *ret, size_t size)
{
    char line[1024];
    read_line("/proc/self/stat", line, sizeof line);
    char *p = strrchr(line, ')'); /* the program's name may hold anything */
    for (int field = 2; p && field < 22; field++)
        p = strchr(p + 1, ' ');
    snprintf(ret, size, "%llu", p ? strtoull(p, NULL, 10) : 0);
}

static void read_user(char *ret, size_t size)
{
    char buffer[1024];
    struct passwd pw, *found = NULL;
    if (getpwuid_r(geteuid(), &pw, buffer, sizeof buffer, &found) == 0 && found)
        snprintf(ret, size, "%s", pw.pw_name);
    else
        snprintf(ret, size, "%u", (unsigned)geteuid());
}

int identity_init(struct identity *id, const char *program, const char *info)
{
    char host[256] = "", user[256];

    gethostname(host, sizeof host - 1);
    read_user(user, sizeof user);
    snprintf(id->pid, sizeof id->pid, "%ld", (long)getpid());
    read_start(id->start, sizeof id->start);
    read_line("/proc/sys/kernel/random/boot_id", id->boot, sizeof id->boot);
    id->host = copy_text(host);
    id->user = copy_text(user);
    id->program = copy_text(program ? program : program_invocation_short_name);
    id->info = copy_text(info ? info : "");
    if (id->host && id->user && id->program && id->info)
        return 0;
    identity_clear(id);
    return -1;
}

void identity_clear(struct identity *id)
{
    mem_free(id->host);
    mem_free(id->user);
    mem_free(id->program);
    mem_free(id->info);
    *id = (struct identity){ 0 };
}

/* Who has just been granted what it waited for holds it since now, whatever the record says. */
static void name_entry(char ret[24], uint64_t sequence, bool waits)
{
    snprintf(ret, 24, "%s%llu", waits ? "w" : "", (unsigned long long)sequence);
}

hf_err record_write(struct topo *t, const char *key, const struct identity *id,
                    const struct record_entry *entry, size_t n, int64_t ttl_ms,
                    int64_t deadline_ms, hf_error *reterr)
{
    hf_bytes keys[] = { hf_str(key) }, args[16 + 2 * RECORD_ENTRIES_MAX];
    char text[2 * RECORD_ENTRIES_MAX][24], ttl[24];
    size_t a = 0;

    snprintf(ttl, sizeof ttl, "%lld", (long long)ttl_ms);
    args[a++] = hf_str(ttl);
    args[a++] = hf_str("7");
    const char *const field[][2] = {
        { "host", id->host }, { "pid", id->pid },     { "user", id->user },
        { "boot", id->boot }, { "start", id->start }, { "program", id->program },
        { "info", id->info },
    };
    for (size_t i = 0; i < sizeof field / sizeof field[0]; i++) {
        args[a++] = hf_str(field[i][0]);
        args[a++] = hf_str(field[i][1]);
    }
    for (size_t i = 0; i < n && i < RECORD_ENTRIES_MAX; i++) {
        name_entry(text[2 * i], entry[i].sequence, entry[i].waits);
        snprintf(text[2 * i + 1], 24, "%lld", (long long)entry[i].age_ms);
        args[a++] = hf_str(text[2 * i]);
        args[a++] = hf_str(text[2 * i + 1]);
    }
    struct script_call sc = { .id = SCRIPT_record, .nkeys = 1, .keys = keys, .nargs = a,
                              .args = args, .deadline_ms = deadline_ms };
    hf_err e = script_run(t, &sc, reterr);
    if (!e)
        reply_free(sc.reply);
    return e;
}

hf_err record_delete(struct topo *t, const char *key, int64_t deadline_ms)
{
    if (topo_quorum(t)) { /* on all of them, by letting it end */
        struct identity nobody = { .host = "", .user = "", .program = "", .info = "" };
        return record_write(t, key, &nobody, NULL, 0, 1, deadline_ms, NULL);
    }
    hf_bytes argv[] = { hf_str("DEL"), hf_str(key) };
    struct call call = { .deadline_ms = deadline_ms };
    hf_err e = conn_call(topo_conn(t, argv[1]), 2, argv, &call, NULL);
    reply_free(call.reply);
    return e;
}

/* Anybody may have written the time: believe nothing. */
static int64_t age(int64_t now_ms, int64_t since_ms)
{
    int64_t ms;
    return __builtin_sub_overflow(now_ms, since_ms, &ms) || ms < 0 ? 0 : ms;
}

static void take(char **slot, const struct reply *value)
{
    if (value->len > 0) {
        mem_free(*slot);
        *slot = mem_copy(value->str, value->len);
    }
}

hf_err record_read(struct topo *t, const char *key, uint64_t sequence, bool waits, int64_t now_ms,
                   hf_party *party, int64_t deadline_ms, hf_error *reterr)
{
    char since[32], entry[24];
    name_entry(entry, sequence, waits);
    snprintf(since, sizeof since, "since:%s", entry);
    hf_bytes keys[] = { hf_str(key) };
    hf_bytes args[] = { hf_str("host"), hf_str("user"), hf_str("program"), hf_str("info"),
                        hf_str("pid"), hf_str(since) };
    struct script_call sc = { .id = SCRIPT_recall, .nkeys = 1, .keys = keys, .nargs = 6,
                              .args = args, .deadline_ms = deadline_ms };
    hf_err e = script_run(t, &sc, reterr);
    if (e)
        return e;
    struct reply *rp = sc.reply;
    for (size_t i = 0; rp->type == REPLY_ARRAY && i + 1 < rp->len; i += 2) {
        const struct reply *name = rp->item[i], *value = rp->item[i + 1];
        if (name->type != REPLY_BULK || value->type != REPLY_BULK)
            break;
        if (strcmp(name->str, "host") == 0)
            take(&party->host, value);
        else if (strcmp(name->str, "user") == 0)
            take(&party->user, value);
        else if (strcmp(name->str, "program") == 0)
            take(&party->program, value);
        else if (strcmp(name->str, "info") == 0)
            take(&party->info, value);
        else if (strcmp(name->str, "pid") == 0)
            party->pid = strtoll(value->str, NULL, 10);
        else if (strcmp(name->str, since) == 0)
            party->age_ms = age(now_ms, strtoll(value->str, NULL, 10));
    }
    reply_free(rp);
    return HF_OK;
}
