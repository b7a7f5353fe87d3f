/* SPDX-License-Identifier: MIT
 * sequence.c - the promises SEQ1 to SEQ7 of src/lock/sequence.c, against real servers.
 */
#include <sys/mman.h>
#include <unistd.h>

#include "harness/live.h"
#include "harness/proc.h"
#include "harness/proxy.h"

#define KEY    "lock:holdfast:seq:ids"
#define ID_MAX UINT64_C(9007199254740991)

static hf_sequence *sequence_with(hf_client *c, const char *name, hf_sequence_opts o)
{
    hf_sequence *q = NULL;
    o.size = sizeof o;
    CHECK_HF(hf_sequence_open(c, hf_str(name), &o, &q, &err), HF_OK);
    CHECK(q);
    return q;
}

static uint64_t next(hf_sequence *q)
{
    uint64_t id = 0;
    CHECK_HF(hf_sequence_next(q, &id, &err), HF_OK);
    CHECK(id > 0);
    return id;
}

/* How many scripts the server has run. */
static long long scripts(struct server *s)
{
    const char *names[] = { "cmdstat_evalsha:calls=", "cmdstat_eval:calls=" };
    const char *info = server_ask(s, "INFO commandstats");
    long long n = 0;
    for (int i = 0; i < 2; i++) {
        const char *p = strstr(info, names[i]);
        n += p ? atoll(p + strlen(names[i])) : 0;
    }
    return n;
}

static uint64_t server_us(struct server *s)
{
    const char *t = server_ask(s, "TIME");
    return strtoull(t, NULL, 10) * 1000000 + strtoull(strchr(t, '\n') + 1, NULL, 10);
}

/* ---- many processes ---- */

enum { PROCS = 32, EACH = 4000 };

struct many {
    struct server *s;
    uint64_t     (*id)[EACH]; /* shared between the processes */
};

static void take_many(int index, void *arg)
{
    struct many *m = arg;
    hf_client *c = client_at(server_url(m->s), 0);
    /* Every process its own block: some of them several round trips, some hundreds. */
    hf_sequence *q = sequence_with(c, "ids", (hf_sequence_opts){ .block = 1 + t_random(1500) });
    for (int i = 0; i < EACH; i++)
        m->id[index][i] = next(q);
    hf_sequence_free(q);
    hf_client_free(c);
}

static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

TEST(SEQ1_SEQ2_32_processes_never_get_one_id_twice_and_each_gets_rising_ones)
{
    struct many m = { .s = server_start(NULL) };
    m.id = mmap(NULL, sizeof(uint64_t[PROCS][EACH]), PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(m.id != MAP_FAILED);
    t_note("seed %llu", (unsigned long long)t_seed());
    workers_run(PROCS, take_many, &m, 50000);
    for (int p = 0; p < PROCS; p++)
        for (int i = 1; i < EACH; i++)
            CHECK(m.id[p][i] > m.id[p][i - 1]);
    uint64_t *all = m.id[0];
    qsort(all, PROCS * EACH, sizeof *all, by_number);
    CHECK_INT(all[0], 1);
    for (int i = 1; i < PROCS * EACH; i++)
        if (all[i] == all[i - 1])
            FAIL("%llu was given twice", (unsigned long long)all[i]);
    CHECK(strtoull(server_ask(m.s, "GET " KEY), NULL, 10) >= all[PROCS * EACH - 1]);
    CHECK_INT(server_int(m.s, "PTTL " KEY), -1);
}

/* ---- one handle ---- */

TEST(SEQ7_one_round_trip_serves_a_block)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_sequence *q = NULL;
    CHECK_HF(hf_sequence_open(c, hf_str("ids"), NULL, &q, &err), HF_OK);
    CHECK_INT(next(q), 1); /* and the script is known there from now on */
    long long before = scripts(s);
    for (int i = 2; i <= 10000; i++)
        CHECK_INT(next(q), i);
    CHECK_INT(scripts(s) - before, 9); /* a block of 1000 was there, 9 more were fetched */
    hf_sequence_free(q);
    hf_client_free(c);
    CHECK_STR(server_ask(s, "GET " KEY), "10000");
}

TEST(SEQ3_with_blocks_of_one_the_later_asker_gets_the_larger_id)
{
    struct server *s = server_start(NULL);
    hf_client *a = client_at(server_url(s), 0), *b = client_at(server_url(s), 0);
    hf_sequence_opts one = { .block = 1 };
    hf_sequence *qa = sequence_with(a, "ids", one), *qb = sequence_with(b, "ids", one);
    uint64_t last = 0;
    for (int i = 0; i < 200; i++) {
        uint64_t id = next(t_random(2) ? qa : qb);
        CHECK(id > last);
        last = id;
    }
    CHECK_INT(last, 200); /* and no gap, as nobody died */
    hf_sequence_free(qa);
    hf_sequence_free(qb);
    hf_client_free(a);
    hf_client_free(b);
}

TEST(start_counts_only_where_there_is_no_counter)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_sequence *q = sequence_with(c, "ids", (hf_sequence_opts){ .block = 10, .start = 500 });
    CHECK_INT(next(q), 500);
    hf_sequence *other = sequence_with(c, "ids", (hf_sequence_opts){ .block = 10, .start = 7000 });
    CHECK_INT(next(other), 510);
    CHECK_INT(next(q), 501);
    hf_sequence *more = sequence_with(c, "more", (hf_sequence_opts){ 0 });
    CHECK_INT(next(more), 1); /* another name, another counter */
    hf_sequence_free(q);
    hf_sequence_free(other);
    hf_sequence_free(more);
    hf_client_free(c);
}

/* ---- a counter that is lost ---- */

TEST(SEQ2_a_handle_does_not_go_back_though_the_server_forgets)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_sequence *q = sequence_with(c, "ids", (hf_sequence_opts){ .block = 10 });
    uint64_t last = 0;
    for (int i = 0; i < 1000; i++) {
        if (i == 495)
            CHECK_STR(server_ask(s, "FLUSHALL"), "OK");
        uint64_t id = next(q);
        CHECK(id > last);
        last = id;
    }
    hf_sequence_free(q);
    q = sequence_with(c, "ids", (hf_sequence_opts){ .block = 10 });
    CHECK(next(q) > last); /* it took the counter along */
    hf_sequence_free(q);
    hf_client_free(c);
}

TEST(SEQ6_from_time_repeats_nothing_when_the_counter_was_lost)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_sequence_opts o = { .from_time = 1 };
    uint64_t last = 0, before = server_us(s);
    for (int life = 0; life < 6; life++) {
        hf_sequence *q = sequence_with(c, "ids", o); /* a handle that knows nothing */
        for (int i = 0; i < 1500; i++) {
            uint64_t id = next(q);
            CHECK(id > last && id > before);
            last = id;
        }
        hf_sequence_free(q);
        uint64_t given = strtoull(server_ask(s, "GET " KEY), NULL, 10);
        /* SEQ6's condition: the clock has passed them. */
        CHECK_EVENTUALLY(server_us(s) > given, 1000);
        if (life % 3 == 0)
            CHECK_STR(server_ask(s, "FLUSHALL"), "OK");
        else if (life % 3 == 1)
            CHECK_STR(server_ask(s, "SET " KEY " 7"), "OK"); /* an old copy of the data */
        else
            server_restart(s); /* without its data */
    }
    hf_client_free(c);
}

TEST(without_from_time_a_lost_counter_begins_anew)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_sequence *q = sequence_with(c, "ids", (hf_sequence_opts){ 0 });
    CHECK_INT(next(q), 1);
    hf_sequence_free(q);
    CHECK_STR(server_ask(s, "FLUSHALL"), "OK");
    q = sequence_with(c, "ids", (hf_sequence_opts){ 0 });
    CHECK_INT(next(q), 1); /* as the documentation says */
    hf_sequence_free(q);
    hf_client_free(c);
}

/* ---- lost replies ---- */

TEST(SEQ4_lost_replies_leave_gaps_and_repeat_nothing)
{
    struct server *s = server_start(NULL);
    struct proxy *p = proxy_start(s);
    hf_client *c = client_at(proxy_url(p), 500), *direct = client_at(server_url(s), 0);
    hf_sequence *q = sequence_with(c, "ids", (hf_sequence_opts){ .block = 5 });
    hf_sequence *other = sequence_with(direct, "ids", (hf_sequence_opts){ .block = 1 });
    uint64_t last = 0;
    int unsure = 0;
    for (int i = 0; i < 60; i++) {
        int lose = i % 10 == 7;
        long dropped = proxy_dropped(p);
        if (lose)
            proxy_drop_replies(p);
        for (int k = 0; k < 5;) {
            uint64_t id = 0;
            hf_err e = hf_sequence_next(q, &id, &err);
            if (e == HF_EUNSURE) {
                CHECK_INT(id, 0); /* left alone */
                unsure++;
                proxy_pass(p);
                continue;
            }
            CHECK_HF(e, HF_OK);
            CHECK(id > last);
            last = id;
            k++;
        }
        if (lose)
            CHECK(proxy_dropped(p) > dropped);
        uint64_t theirs = next(other);
        CHECK(theirs > last); /* so it cannot be ours too: ours rise, and theirs is taken */
        last = theirs;
    }
    CHECK(unsure > 0);
    hf_sequence_free(q);
    hf_sequence_free(other);
    hf_client_free(c);
    hf_client_free(direct);
}

TEST(SEQ4_a_cut_reply_is_asked_for_again_unseen)
{
    struct server *s = server_start(NULL);
    struct proxy *p = proxy_start(s);
    hf_client *c = client_at(proxy_url(p), 5000);
    hf_sequence *q = sequence_with(c, "ids", (hf_sequence_opts){ .block = 3 });
    uint64_t last = next(q);
    for (size_t k = 0; k < 8; k++) {
        proxy_cut_after(p, k);
        for (int i = 0; i < 3; i++) {
            uint64_t id = next(q);
            CHECK(id > last);
            last = id;
        }
        CHECK_INT(proxy_cuts(p), (long)k + 1);
    }
    hf_sequence_free(q);
    hf_client_free(c);
}

/* ---- what is no counter ---- */

TEST(SEQ5_a_key_that_is_no_counter_gives_an_error_and_stays)
{
    static const char *const bad[] = { "SET " KEY " abc", "SET " KEY " -5", "SET " KEY " 1.5",
                                       "SET " KEY " 007", "SET " KEY " 9007199254740993",
                                       "SET " KEY " 99999999999999999999999999999999999999",
                                       "LPUSH " KEY " x", "HSET " KEY " a b" };
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint64_t id = 77;
        server_ask(s, "DEL " KEY);
        server_ask(s, bad[i]);
        char *before = strdup(server_ask(s, "DUMP " KEY));
        hf_sequence *q = sequence_with(c, "ids", (hf_sequence_opts){ .from_time = i % 2 });
        CHECK_HF(hf_sequence_next(q, &id, &err), HF_ECOUNTER);
        CHECK_CONTAINS(err.message, "\"ids\"");
        CHECK_CONTAINS(err.message, "nothing was changed");
        CHECK_INT(id, 77);
        CHECK_STR(server_ask(s, "DUMP " KEY), before);
        free(before);
        server_ask(s, "DEL " KEY);
        CHECK(next(q) > 0); /* the handle goes on when it is mended */
        hf_sequence_free(q);
    }
    CHECK_STR(server_ask(s, "SET %s %b", KEY, "", (size_t)0), "OK");
    hf_sequence *q = sequence_with(c, "ids", (hf_sequence_opts){ 0 });
    uint64_t id;
    CHECK_HF(hf_sequence_next(q, &id, &err), HF_ECOUNTER);
    hf_sequence_free(q);
    hf_client_free(c);
}

TEST(SEQ5_at_the_end_of_all_ids_nothing_wraps)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_sequence *q = sequence_with(c, "ids", (hf_sequence_opts){ .block = 2, .start = ID_MAX - 2 });
    uint64_t id = 0;
    CHECK(next(q) == ID_MAX - 2);
    CHECK(next(q) == ID_MAX - 1);
    CHECK_HF(hf_sequence_next(q, &id, &err), HF_ECOUNTER);
    CHECK_CONTAINS(err.message, "9007199254740990");
    CHECK_STR(server_ask(s, "GET " KEY), "9007199254740990");
    hf_sequence *one = sequence_with(c, "ids", (hf_sequence_opts){ .block = 1 });
    CHECK(next(one) == ID_MAX); /* exactly one was left */
    CHECK_HF(hf_sequence_next(one, &id, &err), HF_ECOUNTER);
    hf_sequence_free(q);
    hf_sequence_free(one);
    hf_client_free(c);
}

TEST(options_and_names_are_checked)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_sequence *q = NULL;
    hf_sequence_opts o = { .size = sizeof o, .block = HF_BLOCK_MAX + 1 };
    CHECK_HF(hf_sequence_open(c, hf_str("a"), &o, &q, &err), HF_EINVAL);
    o = (hf_sequence_opts){ .size = sizeof o, .start = ID_MAX + 1 };
    CHECK_HF(hf_sequence_open(c, hf_str("a"), &o, &q, &err), HF_EINVAL);
    o = (hf_sequence_opts){ .size = 0 };
    CHECK_HF(hf_sequence_open(c, hf_str("a"), &o, &q, &err), HF_EINVAL);
    CHECK_CONTAINS(err.message, "sizeof(hf_sequence_opts)");
    CHECK_HF(hf_sequence_open(c, hf_str(""), NULL, &q, &err), HF_EINVAL);
    CHECK_HF(hf_sequence_open(c, hf_str("holdfast:x"), NULL, &q, &err), HF_EINVAL);
    CHECK_HF(hf_sequence_open(NULL, hf_str("a"), NULL, &q, &err), HF_EINVAL);
    CHECK(!q);
    CHECK(!hf_sequence_free(NULL));
    /* Bytes are bytes. */
    hf_bytes name = { "a\0\n{b", 5 };
    CHECK_HF(hf_sequence_open(c, name, NULL, &q, &err), HF_OK);
    CHECK_INT(next(q), 1);
    CHECK_INT(server_int(s, "EXISTS %b", "lock:holdfast:seq:a\0\n{b", (size_t)23), 1);
    hf_client_free(c);
    uint64_t id;
    CHECK_HF(hf_sequence_next(q, &id, &err), HF_EINVAL);
    hf_sequence_free(q);
}

static void in_child(int index, void *arg)
{
    (void)index;
    uint64_t id;
    CHECK_HF(hf_sequence_next(arg, &id, &err), HF_EFORK);
    hf_sequence_free(arg);
}

TEST(a_forked_child_gets_no_ids_of_its_parents_block)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_sequence *q = sequence_with(c, "ids", (hf_sequence_opts){ 0 });
    CHECK_INT(next(q), 1);
    workers_run(1, in_child, q, 10000);
    CHECK_INT(next(q), 2);
    hf_sequence_free(q);
    hf_client_free(c);
}
