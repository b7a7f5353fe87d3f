/* SPDX-License-Identifier: MIT
 * watch.c - what happens to locks is told as it happens: each kind of event, made for real; and
 * that it costs nothing while nobody watches.
 */
#include "harness/cluster.h"
#include "harness/holder.h"

/* A thread that watches, and remembers: one line for each event. */
struct eye {
    hf_client      *c;
    const char     *pattern;
    pthread_mutex_t mu;
    char            text[65536];
    size_t          len;
    atomic_int      stop;
    hf_err          result;
    hf_error        error;
    pthread_t       thread;
};

static int note(const hf_news *n, void *arg)
{
    struct eye *e = arg;
    const hf_party none = { .pid = 0 }, *p = n->party ? n->party : &none;
    pthread_mutex_lock(&e->mu);
    if (e->len < sizeof e->text - 600)
        e->len += (size_t)snprintf(e->text + e->len, sizeof e->text - e->len,
                                   "%s %s fence=%llu pid=%lld held=%lld waited=%lld %.200s\n",
                                   n->kind, n->name, (unsigned long long)p->fence,
                                   (long long)p->pid, (long long)n->held_ms,
                                   (long long)n->waited_ms, n->text);
    pthread_mutex_unlock(&e->mu);
    return atomic_load(&e->stop);
}

static void *eye_main(void *arg)
{
    struct eye *e = arg;
    while (!atomic_load(&e->stop) && !e->result)
        e->result = hf_watch(e->c, e->pattern, 300000, note, e, &e->error);
    return NULL;
}

/* Does a line begin with this, and have that in it? */
static int saw(struct eye *e, const char *begin, const char *part)
{
    int found = 0;
    pthread_mutex_lock(&e->mu);
    for (const char *p = e->text; *p && !found; p += strcspn(p, "\n") + 1) {
        char line[700];
        snprintf(line, sizeof line, "%.*s", (int)strcspn(p, "\n"), p);
        found = strncmp(line, begin, strlen(begin)) == 0 && (!part || strstr(line, part));
    }
    pthread_mutex_unlock(&e->mu);
    return found;
}

#define CHECK_SEEN(e, begin, part)                                                       \
    do {                                                                                 \
        for (int tries_ = 0; !saw(e, begin, part) && tries_ < 500; tries_++)             \
            t_sleep_ms(20);                                                              \
        if (!saw(e, begin, part))                                                        \
            FAIL("not told: %s (%s), but:\n%s", begin, part ? part : "", (e)->text);     \
    } while (0)

static struct eye *eye_open(const char *url, const char *pattern)
{
    struct eye *e = keep_block(calloc(1, sizeof *e));
    pthread_mutex_init(&e->mu, NULL);
    e->c = client_at(url, 0);
    e->pattern = pattern;
    CHECK_INT(pthread_create(&e->thread, NULL, eye_main, e), 0);
    CHECK_SEEN(e, "watching", NULL);
    return e;
}

/* One more hold; the event of it ends the watch. On a busy machine a hold of a name that was not
 * seen before can be over before anybody looks: then there is none. */
static int has_ended(struct eye *e, hf_lock *m)
{
    if (m) {
        (void)!hf_lock_acquire(m, 0, NULL, &err);
        (void)hf_lock_release(m, &err);
    }
    return pthread_tryjoin_np(e->thread, NULL) == 0;
}

static void eye_close(struct eye *e, hf_lock *m)
{
    atomic_store(&e->stop, 1);
    CHECK_EVENTUALLY(has_ended(e, m), 20000);
    if (e->result)
        FAIL("watching ended with %s: %s", hf_err_name(e->result), e->error.message);
    hf_client_free(e->c);
}

static const char *fence_text(uint64_t fence)
{
    return keep_text("fence=%llu ", (unsigned long long)fence);
}

TEST(a_hold_is_told_from_its_grant_to_its_release)
{
    struct server *s = server_start(NULL);
    struct eye *e = eye_open(server_url(s), NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *m = lock_of(c, "a", 6000);
    const char *fence = fence_text(lock_now(m)), *pid = keep_text("pid=%d ", (int)getpid());
    CHECK_SEEN(e, "granted a ", fence);
    if (!saw(e, "granted a ", pid)) /* looked at late, as on a busy machine: who it is is known */
        CHECK_SEEN(e, "held a ", pid);
    CHECK_SEEN(e, "renewed a ", fence);
    unlock_now(m);
    CHECK_SEEN(e, "released a ", fence);
    CHECK(!saw(e, "expired", NULL) && !saw(e, "taken_over", NULL) && !saw(e, "unseen", NULL));
    eye_close(e, m);
}

TEST(who_waits_is_told_and_gets_it_or_gives_up)
{
    struct server *s = server_start(NULL);
    struct eye *e = eye_open(server_url(s), NULL);
    hf_client *c = client_at(server_url(s), 0), *c2 = client_at(server_url(s), 0);
    hf_lock *m = lock_of(c, "a", 30000), *m2 = lock_of(c2, "a", 30000);
    lock_now(m);
    CHECK_SEEN(e, "granted a ", NULL);
    CHECK_HF(hf_lock_acquire(m2, 300, NULL, &err), HF_ETIMEDOUT);
    CHECK_SEEN(e, "queued a ", NULL);
    CHECK_SEEN(e, "left_queue a ", NULL);
    struct locker l = { .m = m2, .wait_ms = 20000 };
    locker_start(&l);
    CHECK_QUEUE(s, "a", 1);
    t_sleep_ms(300);
    unlock_now(m);
    locker_join(&l, HF_OK);
    CHECK_SEEN(e, "granted a ", fence_text(l.fence));
    CHECK(!saw(e, "granted a ", keep_text("%swaited=-1", fence_text(l.fence))));
    unlock_now(m2);
    eye_close(e, m2);
}

TEST(readers_and_permits_come_and_go_one_by_one)
{
    struct server *s = server_start(NULL);
    struct eye *e = eye_open(server_url(s), NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *a = lock_with(c, "s", hf_semaphore(2)), *b = lock_with(c, "s", hf_semaphore(2));
    const char *fa = fence_text(lock_now(a)), *fb = fence_text(lock_now(b));
    CHECK_SEEN(e, "granted s ", fa);
    CHECK_SEEN(e, "granted s ", fb);
    unlock_now(a);
    CHECK_SEEN(e, "released s ", fa);
    CHECK(!saw(e, "released s ", fb));
    unlock_now(b);
    CHECK_SEEN(e, "released s ", fb);
    eye_close(e, a);
}

TEST(a_lease_that_nobody_renews_expires)
{
    struct server *s = server_start(NULL);
    struct eye *e = eye_open(server_url(s), NULL);
    hf_client *c = client_at(server_url(s), 0);
    uint64_t fence;
    CHECK_HF(hf_owner_acquire(c, hf_str("a"), 300, hf_str("me"), &fence, &err), HF_OK);
    CHECK_SEEN(e, "granted a ", fence_text(fence));
    CHECK_SEEN(e, "expired a ", fence_text(fence));
    eye_close(e, lock_of(c, "a", 30000));
}

TEST(a_dead_holder_is_taken_over)
{
    struct server *s = server_start(NULL);
    struct workers *w = holder_start(server_url(s), "a", (hf_lock_opts){ .ttl_ms = 60000,
                                                                         .grace_ms = 2000 });
    int pid = workers_pid(w, 0);
    CHECK_EVENTUALLY(strstr(server_keys(s), "holdfast:session:"), 10000);
    struct eye *e = eye_open(server_url(s), NULL); /* no threads before the fork */
    hf_lock *m = lock_with(client_at(server_url(s), 0), "a", (hf_lock_opts){ .ttl_ms = 60000 });
    workers_signal(w, 0, SIGKILL);
    uint64_t fence = lock_now(m);
    CHECK_SEEN(e, "taken_over a ", keep_text("pid=%d ", pid));
    CHECK_SEEN(e, "granted a ", fence_text(fence));
    workers_join(w, 5000);
    unlock_now(m);
    eye_close(e, m);
}

TEST(doubt_and_loss_are_told_by_the_holder)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 300);
    hf_lock *m = lock_of(c, "a", 4000), *m2 = lock_of(c, "b", 30000);
    struct eye *e = eye_open(server_url(s), NULL);
    const char *fence = fence_text(lock_now(m));
    server_freeze(s);
    CHECK(server_is_frozen(s));
    CHECK_EVENTUALLY(hf_lock_state(m) == HF_STATE_IN_DOUBT, 10000);
    CHECK_EVENTUALLY(hf_lock_state(m) == HF_STATE_LOST, 10000);
    server_thaw(s);
    CHECK_SEEN(e, "in_doubt a ", fence);
    CHECK_SEEN(e, "lost a ", fence);
    CHECK_SEEN(e, "lost a ", "has not renewed it");
    (void)hf_lock_release(m, &err);
    eye_close(e, m2);
}

TEST(a_lock_that_others_deleted_is_lost_in_words)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *m = lock_of(c, "a", 30000);
    struct eye *e = eye_open(server_url(s), NULL);
    lock_now(m);
    CHECK_INT(server_int(s, "DEL lock:a"), 1);
    CHECK_SEEN(e, "lost a ", "gone or has another owner");
    CHECK_HF(hf_lock_release(m, &err), HF_ELOST);
    eye_close(e, m);
}

TEST(marks_of_a_break_and_an_ask_are_told)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *m = lock_of(c, "a", 30000);
    struct eye *e = eye_open(server_url(s), NULL);
    unsigned long long fence = lock_now(m);
    CHECK_SEEN(e, "granted a ", NULL);
    CHECK_INT(server_int(s, "HSET {lock:a}:x %s %s", keep_text("ask:%llu", fence),
                         "1 ann@web3 please"), 1);
    CHECK_SEEN(e, "asked a ", "ann@web3 please");
    CHECK(!saw(e, "broken", NULL));
    CHECK_INT(server_int(s, "HSET {lock:a}:x %s %s", keep_text("break:%llu", fence),
                         "1 ann@web3 stuck"), 1);
    CHECK_INT(server_int(s, "DEL lock:a"), 1);
    CHECK_SEEN(e, "broken a ", "ann@web3 stuck");
    eye_close(e, lock_of(c, "b", 30000));
    (void)hf_lock_release(m, &err);
}

TEST(a_deadlock_is_told_by_its_victim)
{
    struct server *s = server_start(NULL);
    struct eye *e = eye_open(server_url(s), NULL);
    hf_client *c = client_at(server_url(s), 0);
    /* As notes.c writes it; and what anybody may write there. */
    static const char *const bad[] = { "x", "1 lost 2", "1 lost 2 a 1 h u p 999999 lock:a x",
                                       "1 lost 2 a 1 h u p 3 lock:a x", "1 lost 2 a 1 h u p 0 " };
    for (size_t n = 0; n < sizeof bad / sizeof bad[0]; n++)
        CHECK(server_int(s, "PUBLISH lock:holdfast:s:events %s", bad[n]) >= 1);
    server_int(s, "PUBLISH lock:holdfast:s:events %s",
               "5 deadlock 0 4f1d2a3b 812 web3 ann job.sh 6 lock:a it waits for b");
    CHECK_SEEN(e, "deadlock a ", "pid=812 held=-1 waited=-1 it waits for b");
    eye_close(e, lock_of(c, "a", 30000));
    CHECK(!saw(e, "lost", NULL));
}

TEST(only_what_matches_is_told)
{
    struct server *s = server_start(NULL);
    struct eye *e = eye_open(server_url(s), "job:*");
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *a = lock_of(c, "a", 30000), *b = lock_of(c, "job:1", 30000);
    hf_lock *tagged = lock_of(c, "job:{x}y", 30000);
    lock_now(a);
    lock_now(b);
    lock_now(tagged);
    CHECK_SEEN(e, "granted job:1 ", NULL);
    CHECK_SEEN(e, "granted job:{x}y ", NULL);
    CHECK(!saw(e, "granted a ", NULL));
    unlock_now(b);
    CHECK_SEEN(e, "released job:1 ", NULL);
    eye_close(e, b);
}

TEST(holds_too_short_to_be_seen_are_said_to_have_been)
{
    struct server *s = server_start(NULL);
    struct eye *e = eye_open(server_url(s), NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *m = lock_of(c, "a", 30000);
    for (int i = 0; i < 200 && !saw(e, "unseen a ", NULL); i++) {
        lock_now(m);
        unlock_now(m);
        t_sleep_ms(30);
    }
    CHECK(saw(e, "unseen a ", NULL));
    eye_close(e, m);
}

TEST(what_is_held_before_is_known)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *m = lock_of(c, "a", 30000);
    const char *fence = fence_text(lock_now(m));
    struct eye *e = eye_open(server_url(s), NULL);
    t_sleep_ms(100);
    unlock_now(m);
    CHECK_SEEN(e, "released a ", fence);
    CHECK(!saw(e, "granted a ", fence));
    eye_close(e, m);
}

TEST(a_connection_that_breaks_is_made_again_and_that_is_said)
{
    struct server *s = server_start(NULL);
    struct eye *e = eye_open(server_url(s), NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *m = lock_of(c, "a", 30000);
    CHECK(server_int(s, "CLIENT KILL TYPE pubsub") >= 1);
    CHECK_SEEN(e, "watching ", "had broken");
    const char *fence = fence_text(lock_now(m));
    CHECK_SEEN(e, "granted a ", fence);
    unlock_now(m);
    CHECK_SEEN(e, "released a ", fence);
    eye_close(e, m);
}

static long long commands(struct server *s)
{
    return strtoll(server_info(s, "total_commands_processed"), NULL, 10);
}

/* The same work, as many commands: with and without somebody who watches, but for his own. */
TEST(it_costs_nothing_while_nobody_watches)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *m = lock_of(c, "a", 30000);
    lock_now(m);
    unlock_now(m);
    server_monitor_start(s);
    long long before = commands(s);
    for (int i = 0; i < 100; i++) {
        lock_now(m);
        unlock_now(m);
    }
    long long each = commands(s) - before;
    CHECK_RANGE(each, 200, 2000); /* commands in scripts count as well */
    CHECK_INT(server_monitor_count(s, "\"PUBLISH\""), 0);
    CHECK_INT(server_monitor_count(s, "events"), 0);
    CHECK_STR(server_info(s, "tracking_clients"), "0");
    struct eye *e = eye_open(server_url(s), NULL);
    CHECK_STR(server_info(s, "tracking_clients"), "1");
    server_monitor_clear(s);
    lock_now(m);
    unlock_now(m);
    CHECK_INT(server_monitor_count(s, "\"PUBLISH\""), 0); /* whoever watches: its own looks only */
    eye_close(e, m);
    CHECK_EVENTUALLY(strcmp(server_info(s, "tracking_clients"), "0") == 0, 10000);
}

TEST(it_watches_all_masters_of_a_cluster)
{
    struct cluster *k = cluster_start(NULL);
    hf_client *c = client_at(k->url, 0);
    struct eye *e = eye_open(k->url, NULL);
    for (int i = 0; i < 12; i++) {
        hf_lock *m = lock_of(c, keep_text("n%d", i), 30000);
        const char *fence = fence_text(lock_now(m));
        CHECK_SEEN(e, keep_text("granted n%d ", i), fence);
        unlock_now(m);
        CHECK_SEEN(e, keep_text("released n%d ", i), fence);
        hf_lock_free(m);
    }
    hf_lock *last = lock_of(c, "last", 30000);
    eye_close(e, last);
}

TEST(it_is_refused_where_it_cannot_be)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_with(server_url(s), (hf_client_opts){ .protocol = "transaction" });
    struct eye e = { .mu = PTHREAD_MUTEX_INITIALIZER };
    CHECK_HF(hf_watch(c, NULL, 100, note, &e, &err), HF_ENOTSUP);
    hf_client *d = client_at(server_url(s), 0);
    CHECK_HF(hf_watch(d, NULL, 100, NULL, NULL, &err), HF_EINVAL);
    CHECK_HF(hf_watch(d, NULL, -5, note, &e, &err), HF_EINVAL);
    CHECK_HF(hf_watch(NULL, NULL, 100, note, &e, &err), HF_EINVAL);
    CHECK_HF(hf_watch(d, NULL, 50, note, &e, &err), HF_OK);
}
