/* SPDX-License-Identifier: MIT
 * quorum_data.c - servers of a quorum with an append-only file, and what becomes of their vote when
 * that is gone, kept, or has only just begun.
 */
#include "harness/doctor.h"
#include "harness/keep.h"
#include "harness/quorum.h"
#include "harness/waiting.h"

enum { QUARANTINE_MS = 6000 };
#define QUARANTINE "?quarantine=6s"

/* Each was set up an hour ago, and has been started since. */
static void make_old(struct members *q)
{
    for (int i = 0; i < q->n; i++) {
        char name[200];
        long long floor, first;
        CHECK(sscanf(server_ask(q->s[i], "GET " REIGN_KEY), "%199s %lld %lld", name, &floor, &first)
              == 3);
        CHECK_STR(server_ask(q->s[i], "SET " REIGN_KEY " %s", keep_text("%s %lld %lld", name, floor,
                                                                         first - 3600000000LL)),
                  "OK");
    }
}

/* Everybody has a counter: a lock was taken everywhere. */
static void use_all(struct members *q)
{
    hf_client *c = client_at(q->url, 2000);
    hf_lock *m = lock_of(c, "first", 5000);
    lock_now(m);
    for (int i = 0; i < q->n; i++)
        CHECK_EVENTUALLY(server_int(q->s[i], "EXISTS " FENCE_KEY " " REIGN_KEY) == 2, 2000);
    unlock_now(m);
    hf_lock_free(m);
    hf_client_free(c);
}

/* Three servers that have been used for long. The lock is held on 0 and 1: 2 was away. Nobody
 * renews it. */
static struct members held_on_two(void)
{
    struct members q = members_start(3, kept);
    members_url(&q, QUARANTINE);
    use_all(&q);
    make_old(&q);
    server_kill(q.s[2]);
    hf_client *a = client_at(q.url, 1500);
    CHECK_HF(hf_owner_acquire(a, hf_str("a"), QUARANTINE_MS, hf_str("first holder"), NULL, &err),
             HF_OK);
    hf_client_free(a);
    server_restart(q.s[2]);
    CHECK_INT(members_having(&q, "lock:a", 7), 2);
    return q;
}

static hf_err try_once(struct members *q, struct logbook *log)
{
    hf_client *c = client_with(q->url, (hf_client_opts){ .timeout_ms = 1000, .log = logbook_add,
                                                         .log_arg = log });
    hf_lock *m = lock_of(c, "a", 3000);
    hf_err e = hf_lock_try(m, NULL, &err);
    hf_lock_free(m);
    hf_client_free(c);
    return e;
}

/* Its folder was emptied: it would be the second of a majority for a second holder. */
TEST(Q5_a_server_whose_append_only_file_is_gone_does_not_vote)
{
    struct members q = held_on_two();
    struct logbook log = LOGBOOK;
    char where[40];
    server_empty(q.s[1]);
    int64_t emptied = t_now_ms();
    snprintf(where, sizeof where, "127.0.0.1:%d", server_port(q.s[1]));
    CHECK_HF(try_once(&q, &log), HF_EBUSY);
    CHECK_LOGGED(&log, keep_text("%s started lately without the data that others", where));
    /* Nor has it a say in whether the lock is free. */
    hf_client *looker = client_at(q.url, 1000);
    hf_inspect_info *info = NULL;
    CHECK_HF(hf_inspect_lock(looker, hf_str("a"), 1000, &info, &err), HF_OK);
    CHECK_INT(info->holders, 1);
    hf_inspect_free(info);
    hf_client_free(looker);
    /* Also when the only other one that knows of the holder is away. */
    server_kill(q.s[0]);
    CHECK_HF(try_once(&q, &log), HF_ENOQUORUM);
    CHECK_CONTAINS(err.message, keep_text("1 of 3 servers (%s) started lately without", where));
    CHECK_CONTAINS(err.message, "no vote for another ");
    CHECK_CONTAINS(err.message, "see that the data folder there outlives a restart");
    /* Who waits gets it, once the quarantine is over: the first lease is over by then, too. */
    hf_client *c = client_at(q.url, 1000);
    hf_lock *m = lock_of(c, "a", 4000);
    CHECK_HF(hf_lock_acquire(m, 4 * QUARANTINE_MS, NULL, &err), HF_OK);
    CHECK_TOOK(t_now_ms() - emptied, QUARANTINE_MS - 1500, 4 * QUARANTINE_MS);
    CHECK_INT(members_with(&q, "lock:a", hf_lock_owner(m), 6), 2);
    unlock_now(m);
    hf_lock_free(m);
    hf_client_free(c);
    /* For everybody; who has not seen it start counts in whole seconds. */
    CHECK_EVENTUALLY(try_once(&q, &log) == HF_OK, 5000);
}

static int says_that_nobody_knows(hf_client *c)
{
    hf_inspect_info *info = NULL;
    hf_err e = hf_inspect_lock(c, hf_str("a"), 0, &info, &err);
    hf_inspect_free(info);
    return e == HF_ENOQUORUM && strstr(err.message, "who holds the lock is not known") != NULL;
}

/* The lock is free on both that answer, and neither can say so. */
TEST(Q5_who_holds_it_is_not_known_where_all_that_answer_lost_their_data)
{
    struct members q = members_start(3, kept);
    use_all(&q);
    make_old(&q);
    hf_client *c = client_at(q.url, 0);
    hf_lock *m = lock_of(c, "b", 20000);
    lock_now(m);
    CHECK_EVENTUALLY(members_having(&q, "lock:b", 7) == 3, 10000); /* it knows all of them */
    unlock_now(m);
    CHECK(!says_that_nobody_knows(c));
    server_empty(q.s[0]);
    server_empty(q.s[1]);
    server_kill(q.s[2]);
    CHECK_EVENTUALLY(says_that_nobody_knows(c), 10000);
    hf_lock_free(m);
    hf_client_free(c);
}

/* Of five, a majority with one that lost its data is none, and one without it is. */
TEST(Q5_the_others_are_still_a_majority)
{
    struct members q = members_start(5, kept);
    struct logbook log = LOGBOOK;
    use_all(&q);
    make_old(&q);
    server_empty(q.s[2]);
    server_kill(q.s[0]);
    CHECK_HF(try_once(&q, &log), HF_OK);
    CHECK_EVENTUALLY(members_having(&q, "lock:a", 30) == 0, 2000);
    server_kill(q.s[1]);
    CHECK_HF(try_once(&q, &log), HF_ENOQUORUM);
    CHECK_INT(members_having(&q, "lock:a", 28), 0);
}

/* The same without the quarantine: so the fault is real. */
TEST(Q5_without_quarantine_the_empty_one_would_vote)
{
    struct members q = held_on_two();
    struct logbook log = LOGBOOK;
    members_url(&q, "?quarantine=0");
    server_empty(q.s[1]);
    CHECK_HF(try_once(&q, &log), HF_OK);
}

/* A client that was there when all began, and only looked at first, knows it as well. */
TEST(Q5_a_client_that_saw_the_quorum_begin_notices_a_loss)
{
    struct members q = members_start(3, kept);
    hf_client *c = client_at(q.url, 1000);
    hf_lock *m = lock_of(c, "a", 4000);
    lock_now(m);
    unlock_now(m);
    t_sleep_ms(5500); /* what began within 5 s began at the same time */
    server_empty(q.s[1]);
    server_kill(q.s[0]);
    int64_t until = t_now_ms() + 3000;
    do {
        CHECK_HF(hf_lock_try(m, NULL, &err), HF_ENOQUORUM);
    } while (!strstr(err.message, "started lately without the data that others have")
             && t_now_ms() < until);
    CHECK_CONTAINS(err.message, "started lately without the data that others have");
    hf_lock_free(m);
    hf_client_free(c);
}

TEST(Q5_a_server_that_kept_its_data_votes_at_once)
{
    struct members q = held_on_two();
    struct logbook log = LOGBOOK;
    server_restart(q.s[1]);
    CHECK_INT(members_having(&q, "lock:a", 7), 2);
    CHECK_HF(try_once(&q, &log), HF_EBUSY);
    server_ask(q.s[1], "DEL lock:a {lock:a}:own");
    server_kill(q.s[0]);
    CHECK_HF(try_once(&q, &log), HF_OK);
    CHECK(!logbook_has(&log, "lately"));
}

/* Nobody has anything older: there is nothing to wait for, whoever looked or came first. */
TEST(Q5_a_new_quorum_grants_at_once)
{
    struct members q = members_start(3, kept);
    struct logbook log = LOGBOOK;
    hf_client *looker = client_at(q.url, 1000);
    CHECK_HF(try_once(&q, &log), HF_OK);
    for (int i = 0; i < 3; i++) { /* and that is what they were */
        char name[200];
        long long floor, first;
        CHECK(sscanf(server_ask(q.s[i], "GET " REIGN_KEY), "%199s %lld %lld", name, &floor, &first)
              == 3);
        CHECK(floor == first);
        CHECK(atoi(server_info(q.s[i], "uptime_in_seconds")) < 50);
    }
    hf_lock *m = lock_of(looker, "a", 4000);
    CHECK_HF(hf_lock_try(m, NULL, &err), HF_OK);
    unlock_now(m);
    CHECK_HF(try_once(&q, &log), HF_OK);
    /* One that is started again with its data does not make the others look new. */
    server_restart(q.s[1]);
    server_kill(q.s[2]);
    CHECK_HF(try_once(&q, &log), HF_OK);
    CHECK_EVENTUALLY(hf_lock_try(m, NULL, &err) == HF_OK, 5000);
    CHECK(!logbook_has(&log, "lately"));
    hf_lock_free(m);
    hf_client_free(looker);
}

TEST(the_doctor_names_the_server_that_lost_its_data)
{
    struct members q = members_start(3, kept);
    struct logbook log = LOGBOOK;
    use_all(&q);
    diagnose(&log, q.url);
    CHECK(!logbook_has(&log, "without the data that others have"));
    make_old(&q);
    server_empty(q.s[1]);
    diagnose(&log, q.url);
    CHECK(found(&log, HF_GRADE_RISK, q.s[1], "without the data that others have"));
    CHECK(!found(&log, HF_GRADE_RISK, q.s[0], "without the data"));
    /* Also when somebody has used it meanwhile; and no longer than it matters. */
    struct logbook again = LOGBOOK, later = LOGBOOK;
    use_all(&q);
    diagnose(&again, q.url);
    CHECK(found(&again, HF_GRADE_RISK, q.s[1], "no vote for another "));
    members_url(&q, "?quarantine=1s");
    CHECK_EVENTUALLY(atoi(server_info(q.s[1], "uptime_in_seconds")) >= 2, 5000);
    diagnose(&later, q.url);
    CHECK(!logbook_has(&later, "without the data that others have"));
}

/* Who waits for a lock that is held, and free on two of which one has no vote, does so quietly. */
TEST(Q5_waiting_beside_a_server_without_a_vote_costs_little)
{
    struct members q = held_on_two();
    server_empty(q.s[1]);
    hf_client *c = client_at(q.url, 1000);
    hf_lock *m = lock_of(c, "a", 4000);
    struct locker l = { .m = m, .wait_ms = 30000 };
    server_monitor_start(q.s[0]);
    locker_start(&l);
    t_sleep_ms(2000);
    CHECK(!l.done);
    int requests = server_monitor_count(q.s[0], "\"EVAL");
    t_note("%d requests in two seconds", requests);
    CHECK_RANGE(requests, 1, 60);
    locker_join(&l, HF_OK);
    unlock_now(m);
    hf_lock_free(m);
    hf_client_free(c);
}
