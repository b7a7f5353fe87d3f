/* SPDX-License-Identifier: MIT
 * pause.c - P5: a process that stood still reads what has arrived before it calls a lock lost, and
 * believes in nothing meanwhile; and whoever lost a lock is told why: by which of both times, by
 * whose silence, or by its own pause.
 */
#include <signal.h>

#include "harness/proc.h"
#include "harness/waiting.h"

/* ---- a holder in a process of its own, which can be stopped ---- */

struct pausing {
    const char  *url;
    int64_t      ttl_ms, grace_ms;
    atomic_int   holding, finish;
    atomic_int   state, held, lost_events, believed_after_loss;
    atomic_llong beat_ms, away_ms; /* the last sign of life; the longest time without */
    atomic_int   loss, released;
    char         text[400], message[512];
};

static void on_event(hf_lock *m, hf_state state, void *arg)
{
    struct pausing *p = arg;
    (void)m;
    if (state == HF_STATE_LOST)
        atomic_fetch_add(&p->lost_events, 1);
}

static void look(struct pausing *p, const hf_lock *m)
{
    int64_t now = t_now_ms(), away = now - atomic_load(&p->beat_ms);
    int lost = atomic_load(&p->state) == HF_STATE_LOST;
    int held = hf_lock_is_held(m);
    if (lost && (held || hf_lock_state(m) != HF_STATE_LOST))
        atomic_store(&p->believed_after_loss, 1);
    atomic_store(&p->held, held);
    atomic_store(&p->state, hf_lock_state(m));
    if (away > atomic_load(&p->away_ms))
        atomic_store(&p->away_ms, away);
    atomic_store(&p->beat_ms, now);
}

static void holds(int index, void *arg)
{
    struct pausing *p = arg;
    (void)index;
    hf_client *c = client_at(p->url, 20000);
    hf_lock *m = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = p->ttl_ms, .grace_ms = p->grace_ms,
                                                   .on_event = on_event, .event_arg = p });
    lock_now(m);
    atomic_store(&p->beat_ms, t_now_ms());
    atomic_store(&p->holding, 1);
    while (!atomic_load(&p->finish)) {
        look(p, m);
        t_sleep_ms(1);
    }
    atomic_store(&p->loss, hf_lock_loss(m));
    hf_lock_loss_text(m, p->text, sizeof p->text);
    err.message[0] = '\0';
    atomic_store(&p->released, hf_lock_release(m, &err));
    snprintf(p->message, sizeof p->message, "%s", err.message);
    hf_lock_free(m);
    hf_client_free(c);
}

static struct workers *holder_begin(struct pausing **ret, struct server *s, int64_t ttl_ms,
                                    int64_t grace_ms)
{
    struct pausing *p = *ret = shared_memory(sizeof *p);
    p->url = server_url(s);
    p->ttl_ms = ttl_ms;
    p->grace_ms = grace_ms;
    struct workers *w = workers_start(1, holds, p);
    CHECK_EVENTUALLY(atomic_load(&p->holding), 10000);
    return w;
}

static int is_stopped(int pid)
{
    char path[64], line[256] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *f = fopen(path, "r");
    CHECK(f && fgets(line, sizeof line, f));
    fclose(f);
    return strncmp(strrchr(line, ')'), ") T", 3) == 0;
}

static void stop(struct workers *w)
{
    workers_signal(w, 0, SIGSTOP);
    CHECK_EVENTUALLY(is_stopped(workers_pid(w, 0)), 5000);
}

/* It has been away for so long, and is back. */
static void go_on(struct workers *w, struct pausing *p, int64_t least_ms)
{
    workers_signal(w, 0, SIGCONT);
    CHECK_EVENTUALLY(atomic_load(&p->away_ms) >= least_ms, 5000);
}

static void finish(struct workers *w, struct pausing *p)
{
    atomic_store(&p->finish, 1);
    workers_join(w, 15000);
    t_note("%s", p->text[0] ? p->text : "not lost");
    CHECK_INT(atomic_load(&p->believed_after_loss), 0); /* what was said cannot be unsaid */
}

static void check_lost(struct workers *w, struct pausing *p, hf_loss loss, const char *words)
{
    CHECK_EVENTUALLY(atomic_load(&p->lost_events) == 1, 5000);
    finish(w, p);
    CHECK_INT(atomic_load(&p->loss), loss);
    CHECK_CONTAINS(p->text, words);
    CHECK_INT(atomic_load(&p->released), HF_ELOST);
    CHECK_CONTAINS(p->message, p->text);
}

/* ---- F2: what lies in the socket is read first ---- */

/* Twice the grace, and somebody waits for it: the server saw us all the time. */
TEST(F2_stopped_for_longer_than_its_grace_it_is_not_lost_while_the_server_has_it)
{
    struct server *s = server_start(NULL);
    struct pausing *p;
    struct workers *w = holder_begin(&p, s, 30000, 2000);
    hf_client *c = client_at(server_url(s), 0);
    struct locker l = { .m = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 30000,
                                                               .grace_ms = 3000 }),
                        .wait_ms = 20000 };
    locker_start(&l);
    CHECK_QUEUE(s, "a", 1);
    char *value = strdup(server_ask(s, "GET lock:a"));
    for (int i = 0; i < 3; i++) {
        atomic_store(&p->away_ms, 0);
        stop(w);
        t_sleep_ms(4000);
        CHECK_STR(server_ask(s, "GET lock:a"), value);
        go_on(w, p, 3900);
        CHECK_EVENTUALLY(atomic_load(&p->state) == HF_STATE_SAFE && atomic_load(&p->held), 3000);
    }
    CHECK_INT(atomic_load(&p->lost_events), 0);
    CHECK_INT(atomic_load(&l.done), 0);
    finish(w, p);
    CHECK_INT(atomic_load(&p->released), HF_OK);
    locker_join(&l, HF_OK);
    unlock_now(l.m);
    free(value);
    hf_lock_free(l.m);
    hf_client_free(c);
}

/* Without a grace: the answer to its renewal came when it could not read it, and by the time that
 * it could, the lease before that had ended. */
TEST(F2_the_answer_to_a_renewal_that_lies_in_the_socket_is_read_first)
{
    struct server *s = server_start(NULL);
    struct pausing *p;
    struct workers *w = holder_begin(&p, s, 6000, HF_NO_TAKEOVER);
    t_sleep_ms(1600);
    CHECK_EVENTUALLY(server_int(s, "PTTL lock:a") > 5700, 3000); /* the first: it was just sent */
    int64_t start = t_now_ms();
    t_sleep_ms(1500);
    server_freeze(s);
    t_sleep_ms(start + 2300 - t_now_ms()); /* the next one was due after 2000 ms */
    CHECK_INT(atomic_load(&p->lost_events), 0);
    stop(w);
    server_thaw(s);
    CHECK_EVENTUALLY(server_int(s, "PTTL lock:a") > 5400, 3000); /* it was renewed */
    int64_t sleeps = start + 6300 - t_now_ms();
    t_sleep_ms(sleeps);
    go_on(w, p, sleeps);
    CHECK_EVENTUALLY(atomic_load(&p->state) == HF_STATE_SAFE && atomic_load(&p->held), 3000);
    CHECK_INT(atomic_load(&p->lost_events), 0);
    finish(w, p);
    CHECK_INT(atomic_load(&p->released), HF_OK);
}

/* The server pauses for most of the grace, and then we do: two stalls, each shorter than it. */
TEST(F2_a_pause_of_the_server_of_seven_tenths_of_the_grace_is_survived)
{
    struct server *s = server_start(NULL);
    struct pausing *p;
    struct workers *w = holder_begin(&p, s, 30000, 3000);
    t_sleep_ms(500);
    server_freeze(s);
    CHECK(server_is_frozen(s));
    t_sleep_ms(2100);
    server_thaw(s);
    CHECK_EVENTUALLY(atomic_load(&p->state) == HF_STATE_SAFE, 3000);
    stop(w);
    t_sleep_ms(2100);
    go_on(w, p, 2000);
    CHECK_EVENTUALLY(atomic_load(&p->state) == HF_STATE_SAFE, 3000);
    CHECK_INT(atomic_load(&p->lost_events), 0);
    finish(w, p);
    CHECK_INT(atomic_load(&p->released), HF_OK);
}

/* P1: its session was closed meanwhile, and another took over: it never believes again. */
TEST(F2_stopped_and_taken_over_it_never_believes_again)
{
    struct server *s = server_start(NULL);
    struct pausing *p;
    struct workers *w = holder_begin(&p, s, 30000, 1000);
    hf_client *c = client_at(server_url(s), 0);
    struct locker l = { .m = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 30000,
                                                               .grace_ms = 3000 }),
                        .wait_ms = 20000 };
    long long inbox = only_inbox(s);
    locker_start(&l);
    CHECK_QUEUE(s, "a", 1);
    stop(w);
    CHECK_INT(server_int(s, "CLIENT KILL ID %lld", inbox), 1);
    locker_join(&l, HF_OK);
    go_on(w, p, 900);
    for (int64_t until = t_now_ms() + 1500; t_now_ms() < until; t_sleep_ms(1))
        CHECK_INT(atomic_load(&p->away_ms) > 0 && atomic_load(&p->state) == HF_STATE_SAFE, 0);
    CHECK_HF(hf_lock_verify(l.m, &err), HF_OK);
    check_lost(w, p, HF_LOSS_PAUSED, "this process stood still for ");
    unlock_now(l.m);
    hf_lock_free(l.m);
    hf_client_free(c);
}

/* ---- N17: why it was lost ---- */

TEST(N17_our_own_pause_is_named)
{
    struct server *s = server_start(NULL);
    struct pausing *p;
    struct workers *w = holder_begin(&p, s, 4000, 2000);
    t_sleep_ms(2400);
    stop(w);
    t_sleep_ms(5100);
    go_on(w, p, 5000);
    check_lost(w, p, HF_LOSS_PAUSED, "this process stood still for 5.");
    CHECK_CONTAINS(p->text, "of 4.0 s"); /* the lease: with its grace alone over it had gone on */
}

TEST(N17_a_silent_server_is_named_with_its_address_and_the_grace)
{
    struct server *s = server_start(NULL);
    struct pausing *p;
    struct workers *w = holder_begin(&p, s, 30000, 1000);
    t_sleep_ms(300);
    server_freeze(s);
    CHECK_EVENTUALLY(atomic_load(&p->lost_events) == 1, 5000);
    server_thaw(s);
    check_lost(w, p, HF_LOSS_GRACE, "its grace of 1.0 s ended: ");
    CHECK_CONTAINS(p->text, server_url(s));
    CHECK_CONTAINS(p->text, " has not answered for ");
}

TEST(N17_a_silent_server_is_named_with_the_lease_where_nobody_takes_over)
{
    struct server *s = server_start(NULL);
    struct pausing *p;
    struct workers *w = holder_begin(&p, s, 1500, HF_NO_TAKEOVER);
    server_freeze(s);
    CHECK_EVENTUALLY(atomic_load(&p->lost_events) == 1, 5000);
    server_thaw(s);
    check_lost(w, p, HF_LOSS_EXPIRED, "its lease of 1.5 s ended: ");
    CHECK_CONTAINS(p->text, server_url(s));
}

TEST(N17_a_key_that_is_gone_is_the_servers_word)
{
    struct server *s = server_start(NULL);
    struct pausing *p;
    struct workers *w = holder_begin(&p, s, 4000, 2000);
    CHECK_INT(server_int(s, "DEL lock:a"), 1);
    CHECK_EVENTUALLY(atomic_load(&p->lost_events) == 1, 5000);
    check_lost(w, p, HF_LOSS_TAKEN, " says that it is gone or has another owner");
    CHECK_CONTAINS(p->text, server_url(s));
}

TEST(N17_one_that_was_released_by_its_owner_id_says_so)
{
    struct server *s = server_start(NULL);
    struct pausing *p;
    struct workers *w = holder_begin(&p, s, 4000, HF_NO_TAKEOVER);
    hf_client *c = client_at(server_url(s), 0);
    char *owner = strdup(server_ask(s, "GET lock:a"));
    owner[strcspn(owner, ":")] = '\0';
    size_t n = 0;
    CHECK_HF(hf_owner_release_all(c, hf_str(owner), &n, &err), HF_OK);
    if (n == 1) {
        CHECK_EVENTUALLY(atomic_load(&p->lost_events) == 1, 5000);
        check_lost(w, p, HF_LOSS_RELEASED, "it was released on purpose");
    } else {
        FAIL("nothing was released for the owner of %s", server_ask(s, "GET lock:a"));
    }
    free(owner);
    hf_client_free(c);
}

TEST(N17_a_maximum_hold_and_a_lock_that_is_not_renewed)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    char text[400];
    hf_lock *m = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 6000, .max_hold_ms = 500 });
    hf_lock *o = lock_with(c, "b", (hf_lock_opts){ .ttl_ms = 500, .no_renew = 1,
                                                   .grace_ms = HF_NO_TAKEOVER });
    lock_now(m);
    lock_now(o);
    CHECK_STR(hf_lock_loss_text(m, text, sizeof text), "");
    CHECK_EVENTUALLY(hf_lock_state(m) == HF_STATE_LOST && hf_lock_state(o) == HF_STATE_LOST,
                     5000);
    CHECK_INT(hf_lock_loss(m), HF_LOSS_MAX_HOLD);
    CHECK_CONTAINS(hf_lock_loss_text(m, text, sizeof text), "maximum hold time");
    CHECK_INT(hf_lock_loss(o), HF_LOSS_EXPIRED);
    CHECK_CONTAINS(hf_lock_loss_text(o, text, sizeof text), "not renewed (no_renew)");
    CHECK_STR(hf_lock_loss_text(o, text, 4), "its");
    CHECK_HF(hf_lock_release(m, &err), HF_ELOST);
    CHECK_HF(hf_lock_release(o, &err), HF_ELOST);
    hf_lock_free(m);
    hf_lock_free(o);
    hf_client_free(c);
}
