/* SPDX-License-Identifier: MIT
 * bugs.c - mistakes of one line, made in the scripts: the simulation has to find each of them.
 *
 * SIM_BUGS=1: all of them, each in a minute of a core; =TEXT: those that are called so; without,
 * a few that are found soon, however slow the machine is.
 */
#include <stdlib.h>
#include <string.h>

#include "harness/t.h"
#include "sim/lib/find.h"
#include "sim/lib/model.h"

#define MOST_MS 60000

/* In every script that has the text, or only in this one. */
struct bug {
    const char *name;
    const char *script; /* NULL: all */
    const char *text, *instead;
    unsigned    how;
};
enum { QUICK = 4 }; /* it is found soon; and PLAY_NESTED, PLAY_CLUSTER: by schedules of that kind */

static const struct bug bugs[] = {
    { "release does not compare", "release", "if value ~= ARGV[1] then", "if false then",
      0 },
    { "a token that was given up is granted", NULL, "if given_up then return {-2} end", "",
      0 },
    { "a lock that has ended is renewed", "keep", "return v == value\n",
      "return v == value or v == ''\n", 0 },
    { "who comes takes a free lock before those who wait", "acquire",
      "if left ~= -2 or waiting > 0 then", "if left ~= -2 then", 0 },
    { "a lock is taken over too early", "look", "if ms >= grace then", "if ms >= grace / 3 then",
      0 },
    { "who is gone keeps its lock until its ttl ends", "look", "if ms >= grace then",
      "if ms >= grace * 1000 then", 0 },
    { "absence in another life of the server counts", "look",
      "if not state and not granted_here then return false end", "", 0 },
    { "a new life of the server does not lift the counter", "hello", "if name == reign then",
      "if name then", 0 },
    { "a lost counter begins at the present", NULL, "(t[1] + 60) * 1000000",
      "(t[1] + 0) * 1000000", 0 },
    { "a semaphore has a slot too many", NULL, "s.used + weight <= s.limit",
      "s.used + weight <= s.limit + 1", QUICK },
    { "a cancelled part of a lock stays", "cancel", "dismiss(s, ARGV[1])\n", "\n", 0 },
    { "a cancelled request is not remembered", "cancel", "if ARGV[2] ~= '0' then",
      "if false then", 0 },
    { "a queue without a ttl", "acquire", "redis.call('PEXPIRE', queue, 60000)\n", "\n", QUICK },
    { "a lock is handed to the dead", NULL, "present[2] > 0", "present[2] >= 0", 0 },
    { "who shares a lock overtakes who waits", "share",
      "if waiting > 0 or not (free or s and fits(s, weight)) then",
      "if not (free or s and fits(s, weight)) then", QUICK },
    { "a lock that is to be broken passes at once", "break",
      "if gone(token, n, tonumber(grace), of) then", "if true then", QUICK },
    { "the holder of another number is broken", "break",
      "if n ~= fence or not token then", "if not token then", 0 },
    { "a lock that was broken is renewed", "keep",
      "if not fence or not note(i, 'break', fence) then", "if true then", 0 },
    { "a lock that was broken is prolonged by a downgrade", "downgrade",
      "if type(broken) == 'string' then", "if false then", 0 },
    { "a question breaks the lock", "ask", "redis.call('HSET', breaks, 'ask:' .. number,",
      "redis.call('HSET', breaks, 'break:' .. number,", 0 },
    { "a question has no end", "ask",
      "redis.call('PEXPIRE', breaks, math.max(redis.call('PTTL', breaks), ms + 60000))", "",
      0 },
    { "a wait is not written down", "edge", "if ARGV[4] == '0' then", "if true then",
      PLAY_NESTED },
    { "a wait begins anew whenever it is said", "edge",
      "local since = tonumber(ARGV[6]) or now - ARGV[5]", "local since = now", PLAY_NESTED },
    { "the first in the queue is not seen", "edges", "for i, head in ipairs(heads) do\n",
      "for i, head in ipairs({heads[2]}) do\n", PLAY_NESTED },
    { "a key of a lock that moves is renewed, whosever it is", "hold_key",
      "if not is() then return {now, 0} end", "", PLAY_CLUSTER },
    { "a lock that moves stays when it is given back", "hold_key", "redis.call('DEL', key)", "",
      PLAY_CLUSTER },
    { "a sharer of a lock that moves never ends", "hold_key",
      "return found and tonumber(found) > now", "return found", PLAY_CLUSTER },
    { "who renews a lock that moves is told that it is lost", "hold_key",
      "if not is() then return {now, 0} end",
      "if not is() or ARGV[1] == 'renew' then return {now, 0} end", PLAY_CLUSTER },
    { "a mark of an earlier stay of the slot counts", "look",
      "reign .. ':' .. (name == reign and floor or '')", "reign .. ':'", PLAY_CLUSTER },
    { "who resigns takes another's value away", "proclaim", "elseif term == ARGV[2] then", "else",
      0 },
};
enum { BUGS = sizeof bugs / sizeof *bugs };

static char *changed(const char *text, const struct bug *b)
{
    size_t len = strlen(text), room = 4 * len + 100, n = 0;
    char *all = malloc(room);
    for (const char *p = text; *p;) {
        bool here = strncmp(p, b->text, strlen(b->text)) == 0;
        const char *from = here ? b->instead : p;
        size_t take = here ? strlen(b->instead) : 1;
        CHECK(n + take < room);
        memcpy(all + n, from, take);
        n += take;
        p += here ? strlen(b->text) : 1;
    }
    all[n] = '\0';
    return all;
}

/* How many scripts have it now. */
static int make(const struct bug *b)
{
    int n = 0;
    for (int i = 0; i < OP_COUNT; i++) {
        enum op_id id = (enum op_id)i;
        if ((b->script && strcmp(b->script, op_name(id)) != 0) || !strstr(op_text(id), b->text))
            continue;
        char *text = changed(op_text(id), b);
        CHECK(model_replace(id, text));
        free(text);
        n++;
    }
    return n;
}

static void mend(void)
{
    for (int i = 0; i < OP_COUNT; i++)
        CHECK(model_replace((enum op_id)i, NULL));
}

/* Time of the processor: a busy machine takes longer. */
static bool search(uint64_t first, unsigned kinds, int64_t most_ms, struct play_counts *counts,
                   struct finding *ret)
{
    struct search s = { .next = first, .most = UINT64_MAX, .kinds = kinds };
    int64_t begun = t_cpu_ms();
    bool found = false;
    while (!found && t_cpu_ms() - begun < most_ms)
        found = find_wrong(&s, 1000, counts, ret);
    return found;
}

static bool seek(const struct bug *b)
{
    struct play_counts counts = { 0 };
    struct finding f;
    int64_t begun = t_now_ms();
    if (make(b) == 0)
        FAIL("no script has \"%s\" any more: change the bug \"%s\"", b->text, b->name);
    int64_t most_ms = getenv("SIM_BUGS") ? MOST_MS : 10 * MOST_MS;
    /* An ordinary run plays the same schedules each time, as sim/search does. */
    uint64_t first = getenv("SEED") || getenv("SIM_BUGS") ? t_seed() : 1;
    bool found = search(first, b->how & ~(unsigned)QUICK, most_ms, &counts, &f);
    mend();
    if (!found) {
        t_note("%s: NOT FOUND in %llu schedules", b->name, (unsigned long long)counts.schedules);
        return false;
    }
    if (!play(f.seed, NULL, &counts))
        FAIL("SEED=%llu is wrong without any bug", (unsigned long long)f.seed);
    t_note("%s: found in %lld ms, after %llu schedules: SEED=%llu %s", b->name,
           (long long)(t_now_ms() - begun), (unsigned long long)counts.schedules,
           (unsigned long long)f.seed, f.text);
    return true;
}

TEST_TIMEOUT(each_bug_in_a_script_is_found, 3600)
{
    const char *which = getenv("SIM_BUGS");
    int missed = 0;
    for (size_t i = 0; i < BUGS; i++)
        if (which ? strcmp(which, "1") == 0 || strstr(bugs[i].name, which) : bugs[i].how & QUICK)
            missed += !seek(&bugs[i]);
    if (missed)
        FAIL("%d not found: their names are above", missed);
}

TEST(every_bug_can_be_made)
{
    for (size_t i = 0; i < BUGS; i++) {
        if (make(&bugs[i]) == 0)
            FAIL("no script has \"%s\" any more: change the bug \"%s\"", bugs[i].text,
                 bugs[i].name);
        mend();
    }
}
