/* SPDX-License-Identifier: MIT
 * inspect.c - looking at locks: who, where, since when; never a capability, never a change.
 */
#include <unistd.h>

#define LIVE_SCRIPTS
#include "harness/live.h"
#include "harness/proxy.h"
#include "harness/waiting.h"

static hf_inspect_info *look(hf_client *c, const char *name)
{
    hf_inspect_info *info = NULL;
    CHECK_HF(hf_inspect_lock(c, hf_str(name), 0, &info, &err), HF_OK);
    CHECK(info);
    return info;
}

static int has_record(hf_client *c, const char *name)
{
    hf_inspect_info *i = look(c, name);
    int has = i->holders == 1 && i->holder[0]->pid != 0 && i->holder[0]->age_ms >= 0;
    hf_inspect_free(i);
    return has;
}

TEST(a_free_lock_has_no_holder)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_inspect_info *i = look(c, "a");
    CHECK_STR(i->name, "a");
    CHECK_INT((long long)i->name_len, 1);
    CHECK_INT((long long)i->holders, 0);
    CHECK_INT((long long)i->waiters, 0);
    CHECK(i->kind);
    hf_inspect_free(i);
    hf_client_free(c);
}

/* Not only when it would have been written again, after twenty seconds. */
TEST(a_record_that_could_not_be_written_is_written_soon)
{
    struct server *s = server_start(NULL);
    struct proxy *p = proxy_start(s);
    hf_client *c = client_at(proxy_url(p), 5000), *eye = client_at(server_url(s), 0);
    hf_lock *m = lock_of(c, "a", 6000);
    proxy_when(p, lua_sha[LUA_record]); /* which the server does not know yet, and says so */
    proxy_drop_replies(p);
    lock_now(m);
    CHECK_EVENTUALLY(proxy_dropped(p) > 0, 10000);
    proxy_pass(p);
    CHECK(!has_record(eye, "a"));
    CHECK_EVENTUALLY(has_record(eye, "a"), 12000);
    unlock_now(m);
    hf_lock_free(m);
    hf_client_free(c);
    hf_client_free(eye);
}

TEST(a_held_lock_tells_who_where_since_when_and_its_number)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_with(server_url(s), (hf_client_opts){ .program = "prog",
                                                                .info = "nightly \"report\"\n" });
    hf_client *eye = client_at(server_url(s), 0);
    hf_lock *m = lock_of(c, "a", 30000);
    uint64_t f = lock_now(m);
    /* At once: what the key itself says. */
    hf_inspect_info *i = look(eye, "a");
    CHECK_INT((long long)i->holders, 1);
    CHECK_STR(i->kind, "mutex");
    CHECK(i->holder[0]->fence == f);
    CHECK_RANGE(i->ttl_ms, 25000, 30000);
    hf_inspect_free(i);
    CHECK_EVENTUALLY(has_record(eye, "a"), 5000); /* and soon: who it is */
    t_sleep_ms(300);
    i = look(eye, "a");
    const hf_party *p = i->holder[0];
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    CHECK_STR(p->host, host);
    CHECK_INT(p->pid, getpid());
    CHECK_STR(p->program, "prog");
    CHECK_STR(p->info, "nightly \"report\"\n");
    CHECK(p->user && p->user[0]);
    CHECK_RANGE(p->age_ms, 300, 20000);
    /* No capability: whoever looks cannot release it. */
    CHECK_INT((long long)strlen(p->owner), 8);
    CHECK(strncmp(p->owner, hf_lock_owner(m), 8) == 0);
    CHECK_HF(hf_owner_release(eye, hf_str("a"), hf_str(p->owner), &err), HF_ENOTOWNER);
    hf_inspect_free(i);
    unlock_now(m);
    i = look(eye, "a");
    CHECK_INT((long long)i->holders, 0);
    hf_inspect_free(i);
    hf_lock_free(m);
    hf_client_free(c);
    hf_client_free(eye);
    CHECK_STR(server_keys(s), ONLY_OURS); /* the record too is gone */
}

/* How long the first who waits, or who holds it, has done so; -1: nobody, or not known. */
static int64_t age_of(hf_client *c, int waits)
{
    hf_inspect_info *info;
    CHECK_HF(hf_inspect_lock(c, hf_str("a"), 0, &info, &err), HF_OK);
    int64_t age = waits ? (info->waiters ? info->waiter[0]->age_ms : -1)
                        : (info->holders ? info->holder[0]->age_ms : -1);
    hf_inspect_free(info);
    return age;
}

TEST(who_has_waited_holds_it_since_it_was_granted)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0), *d = client_at(server_url(s), 0);
    hf_lock *m = lock_of(c, "a", 20000);
    struct locker w = { .m = lock_of(d, "a", 20000), .wait_ms = 20000 };
    lock_now(m);
    locker_start(&w);
    CHECK_EVENTUALLY(age_of(c, 1) >= 1500, 20000);
    unlock_now(m);
    locker_join(&w, HF_OK);
    CHECK(age_of(c, 0) < 1500); /* not what it had waited */
    CHECK_EVENTUALLY(age_of(c, 0) >= 0, 5000);
    CHECK(age_of(c, 0) < 1500);
    unlock_now(w.m);
    hf_lock_free(m);
    hf_lock_free(w.m);
    hf_client_free(c);
    hf_client_free(d);
}

TEST(owner_ids_foreign_locks_and_wrong_types_are_told_apart)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *m = lock_with(c, "mine", (hf_lock_opts){ .ttl_ms = 30000,
                                                         .owner = hf_str("job-7") });
    uint64_t f = lock_now(m), g = 0;
    CHECK_HF(hf_owner_acquire(c, hf_str("bare"), 30000, hf_str("uid"), &g, &err), HF_OK);
    server_ask(s, "SET lock:foreign token PX 60000");
    server_ask(s, "SET lock:forever token");
    server_ask(s, "HSET lock:hash a b");
    hf_inspect_info *i = look(c, "mine");
    CHECK_STR(i->kind, "mutex");
    CHECK_STR(i->holder[0]->owner, "job-7");
    CHECK(i->holder[0]->fence == f);
    hf_inspect_free(i);
    i = look(c, "bare");
    CHECK_STR(i->holder[0]->owner, "uid");
    CHECK(i->holder[0]->fence == g);
    hf_inspect_free(i);
    i = look(c, "foreign");
    CHECK_STR(i->kind, "foreign");
    CHECK_STR(i->holder[0]->owner, "token");
    CHECK(i->holder[0]->fence == 0 && i->holder[0]->pid == 0 && i->holder[0]->age_ms == -1);
    CHECK(!i->holder[0]->host);
    hf_inspect_free(i);
    i = look(c, "forever");
    CHECK_INT(i->ttl_ms, -1);
    hf_inspect_free(i);
    CHECK_INT(server_int(s, "PTTL lock:forever"), -1); /* looking changes nothing */
    i = look(c, "hash");
    CHECK_STR(i->kind, "wrong type");
    CHECK_INT((long long)i->holders, 0);
    hf_inspect_free(i);
    hf_lock_free(m);
    hf_client_free(c);
}

struct seen {
    int  n, stop_after;
    char names[8192];
};

static int each(const hf_inspect_info *info, void *arg)
{
    struct seen *s = arg;
    s->n++;
    strncat(s->names, info->name, sizeof s->names - strlen(s->names) - 2);
    strcat(s->names, " ");
    return s->stop_after && s->n >= s->stop_after;
}

TEST(list_shows_the_locks_under_the_prefix_and_only_those)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_client *x = client_with(server_url(s), (hf_client_opts){ .prefix = "x:" });
    char name[32];
    for (int i = 0; i < 300; i++) {
        snprintf(name, sizeof name, "n%03d", i);
        CHECK_HF(hf_owner_acquire(c, hf_str(name), 60000, hf_str("me"), NULL, &err), HF_OK);
    }
    CHECK_HF(hf_owner_acquire(x, hf_str("other"), 60000, hf_str("me"), NULL, &err), HF_OK);
    CHECK_HF(hf_owner_acquire(c, hf_str("gone"), 60000, hf_str("me"), NULL, &err), HF_OK);
    /* leaves a tombstone */
    CHECK_HF(hf_owner_release(c, hf_str("gone"), hf_str("me"), &err), HF_OK);
    server_ask(s, "SET unrelated 1");
    struct seen all = { 0 };
    CHECK_HF(hf_inspect_list(c, NULL, 0, each, &all, &err), HF_OK);
    CHECK_INT(all.n, 300); /* no counter, reign, own, tombstones */
    struct seen some = { 0 };
    CHECK_HF(hf_inspect_list(c, "n00[0-4]", 0, each, &some, &err), HF_OK);
    CHECK_STR(some.names, "n000 n001 n002 n003 n004 ");
    struct seen few = { .stop_after = 3 };
    CHECK_HF(hf_inspect_list(c, NULL, 0, each, &few, &err), HF_OK);
    CHECK_INT(few.n, 3);
    struct seen none = { 0 };
    CHECK_HF(hf_inspect_list(c, "zzz*", 0, each, &none, &err), HF_OK);
    CHECK_INT(none.n, 0);
    struct seen other = { 0 };
    CHECK_HF(hf_inspect_list(x, NULL, 0, each, &other, &err), HF_OK);
    CHECK_STR(other.names, "other ");
    hf_client_free(c);
    hf_client_free(x);
}

TEST(P10_hostile_records_hurt_nobody_who_looks)
{
    static const char *const hostile[] = {
        "SET %s x", "LPUSH %s x", "HSET %s pid notanumber since:1 zzz host %s",
        "HSET %s pid 99999999999999999999999 since:1 -99999999999999999999 since:2 5",
    };
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    const char *session = "00112233445566778899aabbccddeeff";
    char key[100];
    snprintf(key, sizeof key, "lock:holdfast:session:%s", session);
    server_ask(s, "SET lock:a %s.1:5:0 PX 60000", session);
    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++) {
        server_ask(s, "DEL %s", key);
        server_ask(s, hostile[i], key, "h\x1b[31m");
        hf_inspect_info *info = look(c, "a");
        CHECK_INT((long long)info->holders, 1);
        CHECK(info->holder[0]->fence == 5);
        CHECK(info->holder[0]->age_ms >= -1);
        hf_inspect_free(info);
    }
    /* Thousands of fields: refused or read, never a crash. */
    server_ask(s, "DEL %s", key);
    server_ask(s, "EVAL %s 1 %s", "for i = 1, 20000 do redis.call('HSET', KEYS[1], i, i) end", key);
    hf_inspect_info *info = NULL;
    hf_err e = hf_inspect_lock(c, hf_str("a"), 0, &info, &err);
    t_note("20000 fields: %s", e ? err.message : "read");
    if (!e)
        hf_inspect_free(info);
    hf_client_free(c);
}

TEST(a_lock_that_was_left_behind_still_tells_who_left_it)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_with(server_url(s), (hf_client_opts){ .program = "leaver" });
    hf_lock *m = lock_of(c, "a", 30000);
    lock_now(m);
    CHECK_HF(hf_lock_detach(m, 60000, &err), HF_OK);
    hf_lock_free(m);
    hf_client_free(c);
    hf_client *eye = client_at(server_url(s), 0);
    hf_inspect_info *i = look(eye, "a");
    CHECK_INT((long long)i->holders, 1);
    CHECK_STR(i->holder[0]->program, "leaver");
    hf_inspect_free(i);
    hf_client_free(eye);
}

/* ---- looking writes nothing ---- */

static int count_one(const hf_inspect_info *info, void *arg)
{
    (void)info;
    ++*(int *)arg;
    return 0;
}

static void look_around(const char *url, const char *protocol)
{
    hf_client *c = client_with(url, (hf_client_opts){ .protocol = protocol });
    hf_inspect_info *i = look(c, "a");
    CHECK_INT((long long)i->holders, 0);
    hf_inspect_free(i);
    int listed = 0;
    CHECK_HF(hf_inspect_list(c, NULL, 0, count_one, &listed, &err), HF_OK);
    CHECK_INT(listed, 0);
    CHECK_HF(hf_owner_check(c, hf_str("a"), hf_str("me"), NULL, &err), HF_ENOTOWNER);
    hf_client_free(c);
}

/* On a server of which nobody has ever had a lock. */
TEST(S5_who_only_looks_writes_nothing)
{
    static const char *const protocol[] = { "script", "transaction", "timestamp" };
    static const char *const writes[] = { "\"set\"", "\"incr\"", "\"pexpire\"", "\"del\"",
                                          "\"zadd\"", "\"hset\"", "\"exec\"" };
    struct server *s = server_start(NULL);
    server_monitor_start(s);
    for (int p = 0; p < 3; p++)
        look_around(server_url(s), protocol[p]);
    CHECK(server_monitor_count(s, "getrange") + server_monitor_count(s, "GETRANGE") > 0);
    char *seen = strdup(server_monitor_text(s));
    for (char *at = seen; *at; at++)
        *at = *at >= 'A' && *at <= 'Z' ? (char)(*at + 32) : *at;
    for (size_t i = 0; i < sizeof writes / sizeof *writes; i++)
        if (strstr(seen, writes[i]))
            FAIL("somebody wrote: %s", writes[i]);
    free(seen);
    CHECK_STR(server_keys(s), "");
}

/* Who looked first and takes a lock then lets the reign begin, as everybody does. */
TEST(S5_a_client_that_has_looked_begins_the_reign_with_its_first_lock)
{
    struct server *s = server_start(NULL);
    for (int i = 0; i < 3; i++) {
        hf_client *c = client_at(server_url(s), 0);
        hf_inspect_free(look(c, "a"));
        CHECK_STR(server_keys(s), "");
        hf_lock *m = lock_of(c, "a", 5000);
        if (i == 1) /* a restart between the two */
            server_restart(s);
        uint64_t fence = 0;
        CHECK_HF(hf_lock_acquire(m, 5000, &fence, &err), HF_OK);
        CHECK(fence > 1600000000000000ULL);
        CHECK_CONTAINS(server_ask(s, "GET " REIGN_KEY), server_info(s, "run_id"));
        unsigned long long first = strtoull(strchr(server_ask(s, "GET " REIGN_KEY), ' '), NULL, 10);
        CHECK(fence > first);
        unlock_now(m);
        server_ask(s, "FLUSHALL");
        hf_lock_free(m);
        hf_client_free(c);
    }
}
