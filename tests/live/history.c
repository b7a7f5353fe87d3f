/* SPDX-License-Identifier: MIT
 * history.c - who held it: each way in which a hold can end, and that nobody waits for the writing.
 */
#include "harness/holder.h"

struct entry {
    char     end[32], why[200], note[100], mode[16], host[64], info[64];
    uint64_t fence;
    int64_t  pid, waited_ms, held_ms, ended_unix_ms;
};

struct page {
    size_t       n, most;
    struct entry e[300];
};

static int each(const hf_past *p, void *arg)
{
    struct page *all = arg;
    struct entry *e = &all->e[all->n++];
    snprintf(e->end, sizeof e->end, "%s", p->end);
    snprintf(e->why, sizeof e->why, "%s", p->why);
    snprintf(e->note, sizeof e->note, "%s", p->note ? p->note : "");
    snprintf(e->mode, sizeof e->mode, "%s", p->mode ? p->mode : "");
    snprintf(e->host, sizeof e->host, "%s", p->host ? p->host : "");
    snprintf(e->info, sizeof e->info, "%s", p->info ? p->info : "");
    e->fence = p->fence;
    e->pid = p->pid;
    e->waited_ms = p->waited_ms;
    e->held_ms = p->held_ms;
    e->ended_unix_ms = p->ended_unix_ms;
    return all->n == all->most;
}

static struct page page;

static size_t read_all(hf_client *c, const char *name, size_t most)
{
    page = (struct page){ .most = most ? most : 300 };
    CHECK_HF(hf_history_read(c, hf_str(name), each, &page, &err), HF_OK);
    return page.n;
}

static hf_client *with_history(struct server *s, int n)
{
    return client_with(server_url(s), (hf_client_opts){ .history = n, .info = "nightly" });
}

TEST(without_it_nothing_is_written)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *m = lock_of(c, "a", 30000);
    server_monitor_start(s);
    for (int i = 0; i < 5; i++) {
        lock_now(m);
        unlock_now(m);
    }
    hf_client_free(hf_lock_free(m) ? NULL : c);
    CHECK_INT(server_monitor_count(s, "log"), 0);
    CHECK_INT(server_monitor_count(s, "XADD"), 0);
    CHECK_INT(server_monitor_count(s, "holdfast:s:events"), 0);
    CHECK_STR(server_keys(s), ONLY_OURS);
}

TEST(a_release_tells_who_how_long_and_what_it_said)
{
    struct server *s = server_start(NULL);
    hf_client *c = with_history(s, 10);
    hf_lock *m = lock_of(c, "a", 30000);
    char host[64] = "";
    gethostname(host, sizeof host - 1);
    uint64_t fence = lock_now(m);
    CHECK_HF(hf_lock_note(m, "exit 3", &err), HF_OK);
    t_sleep_ms(60);
    unlock_now(m);
    CHECK_EVENTUALLY(read_all(c, "a", 0) == 1, 10000);
    const struct entry *e = &page.e[0];
    CHECK_STR(e->end, "released");
    CHECK_STR(e->note, "exit 3");
    CHECK_STR(e->mode, "exclusive");
    CHECK_STR(e->host, host);
    CHECK_STR(e->info, "nightly");
    CHECK(e->fence == fence);
    CHECK_INT(e->pid, getpid());
    CHECK_RANGE(e->held_ms, 60, 20000);
    CHECK_RANGE(e->waited_ms, 0, 10000);
    int64_t now = strtoll(server_ask(s, "TIME"), NULL, 10) * 1000;
    CHECK_RANGE(e->ended_unix_ms, now - 60000, now + 60000);
    CHECK(server_int(s, "PTTL {lock:a}:log") > 86400000);
    CHECK_HF(hf_lock_note(m, "x", &err), HF_ENOTHELD);
    CHECK_HF(hf_lock_note(NULL, "x", &err), HF_EINVAL);
}

TEST(what_was_said_is_of_one_hold_only)
{
    struct server *s = server_start(NULL);
    hf_client *c = with_history(s, 10);
    hf_lock *m = lock_of(c, "a", 30000);
    lock_now(m);
    CHECK_HF(hf_lock_note(m, "exit 3", &err), HF_OK);
    unlock_now(m);
    lock_now(m);
    unlock_now(m);
    CHECK_EVENTUALLY(read_all(c, "a", 0) == 2, 10000);
    CHECK_STR(page.e[0].note, "");
    CHECK_STR(page.e[1].note, "exit 3");
}

TEST(only_the_last_ones_are_kept_and_paged)
{
    struct server *s = server_start(NULL);
    hf_client *c = with_history(s, 150);
    hf_lock *m = lock_of(c, "a", 30000);
    uint64_t fence = 0;
    for (int i = 0; i < 400; i++) {
        fence = lock_now(m);
        unlock_now(m);
        if (i % 50 == 0) /* the queue of what is to be written is not endless */
            CHECK_EVENTUALLY(read_all(c, "a", 1) == 1 && page.e[0].fence == fence, 10000);
    }
    CHECK_EVENTUALLY(read_all(c, "a", 1) == 1 && page.e[0].fence == fence, 10000);
    size_t n = read_all(c, "a", 0); /* trimmed by whole nodes of a hundred */
    CHECK_RANGE((long long)n, 150, 299);
    for (size_t i = 1; i < n; i++)
        CHECK(page.e[i].fence < page.e[i - 1].fence);
    CHECK_INT((long long)read_all(c, "a", 7), 7);
}

TEST(the_last_release_is_written_before_the_client_is_closed)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_with(url_with(server_url(s), "history=5"), (hf_client_opts){ 0 });
    hf_client *eye = client_at(server_url(s), 0);
    hf_lock *m = lock_of(c, "a", 30000);
    lock_now(m);
    hf_client_free(c); /* which releases it */
    hf_lock_free(m);
    CHECK_INT((long long)read_all(eye, "a", 0), 1);
    CHECK_STR(page.e[0].end, "released");
}

TEST(a_loss_is_told_with_its_cause)
{
    struct server *s = server_start(NULL);
    hf_client *c = with_history(s, 10);
    hf_lock *m = lock_of(c, "a", 30000);
    uint64_t fence = lock_now(m);
    CHECK_INT(server_int(s, "DEL lock:a"), 1);
    CHECK_EVENTUALLY(read_all(c, "a", 0) == 1, 10000);
    CHECK_STR(page.e[0].end, "lost");
    CHECK(strstr(page.e[0].why, "gone or has another owner"));
    CHECK(page.e[0].fence == fence);
    CHECK_HF(hf_lock_release(m, &err), HF_ELOST);
    lock_now(m);
    unlock_now(m);
    CHECK_EVENTUALLY(read_all(c, "a", 0) == 2, 10000); /* once each */
}

TEST(what_is_left_behind_is_told)
{
    struct server *s = server_start(NULL);
    hf_client *c = with_history(s, 10);
    hf_lock *m = lock_of(c, "a", 30000);
    lock_now(m);
    CHECK_HF(hf_lock_detach(m, 20000, &err), HF_OK);
    CHECK_EVENTUALLY(read_all(c, "a", 0) == 1, 10000);
    CHECK_STR(page.e[0].end, "left");
}

TEST(what_was_left_behind_and_released_by_id_is_told_twice)
{
    struct server *s = server_start(NULL);
    hf_client *c = with_history(s, 10);
    hf_lock *m = lock_of(c, "a", 30000);
    uint64_t fence = lock_now(m);
    char owner[100];
    snprintf(owner, sizeof owner, "%s", hf_lock_owner(m));
    CHECK_HF(hf_lock_detach(m, 20000, &err), HF_OK);
    CHECK_HF(hf_owner_release(c, hf_str("a"), hf_str(owner), &err), HF_OK);
    CHECK_EVENTUALLY(read_all(c, "a", 0) == 2, 10000);
    CHECK_STR(page.e[0].end, "released");
    CHECK(strstr(page.e[0].why, "by its owner id"));
    CHECK_INT(page.e[0].pid, getpid()); /* whose session that was */
    CHECK(page.e[0].fence == fence && page.e[1].fence == fence);
    CHECK_STR(page.e[1].end, "left");
    CHECK_HF(hf_owner_acquire(c, hf_str("b"), 20000, hf_str("me"), &fence, &err), HF_OK);
    CHECK_HF(hf_owner_release(c, hf_str("b"), hf_str("me"), &err), HF_OK);
    CHECK_EVENTUALLY(read_all(c, "b", 0) == 1, 10000);
    CHECK(page.e[0].fence == fence);
}

TEST(a_dead_holder_is_told_by_its_successor)
{
    struct server *s = server_start(NULL);
    struct workers *w = holder_start(server_url(s), "a", (hf_lock_opts){ .ttl_ms = 60000,
                                                                         .grace_ms = 2000 });
    hf_client *c = with_history(s, 10); /* no threads before the fork */
    hf_lock *m = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 60000 });
    int pid = workers_pid(w, 0);
    CHECK_EVENTUALLY(strstr(server_keys(s), "holdfast:session:"), 10000);
    workers_signal(w, 0, SIGKILL);
    CHECK_HF(hf_lock_acquire(m, 20000, NULL, &err), HF_OK);
    CHECK_EVENTUALLY(read_all(c, "a", 0) == 1, 10000);
    CHECK_STR(page.e[0].end, "taken over");
    CHECK_INT(page.e[0].pid, pid);
    CHECK(page.e[0].fence > 0 && page.e[0].fence < hf_lock_fence(m));
    CHECK(page.e[0].held_ms >= 0);
    unlock_now(m);
    CHECK_EVENTUALLY(read_all(c, "a", 0) == 2, 10000);
    workers_join(w, 5000);
}

TEST(readers_and_permits_say_what_they_were)
{
    struct server *s = server_start(NULL);
    hf_client *c = with_history(s, 10);
    hf_lock *r = lock_with(c, "r", hf_reader()), *p = lock_with(c, "p", hf_semaphore(3));
    lock_now(r);
    lock_now(p);
    unlock_now(r);
    unlock_now(p);
    CHECK_EVENTUALLY(read_all(c, "r", 0) == 1, 10000);
    CHECK_STR(page.e[0].mode, "shared");
    CHECK_EVENTUALLY(read_all(c, "p", 0) == 1, 10000);
    CHECK_STR(page.e[0].mode, "permits");
}

TEST(no_release_waits_for_it)
{
    struct server *s = server_start(NULL);
    hf_client *c = with_history(s, 10);
    hf_lock *m = lock_of(c, "a", 30000);
    lock_now(m);
    unlock_now(m);
    CHECK_EVENTUALLY(read_all(c, "a", 0) == 1, 10000);
    server_monitor_start(s);
    lock_now(m);
    unlock_now(m);
    CHECK_EVENTUALLY(read_all(c, "a", 0) == 2, 10000);
    /* What asks about the lock comes first; what is noted of it follows by itself. */
    const char *text = server_monitor_text(s);
    const char *note = strstr(text, "\"XADD\""), *release = strstr(text, "\"DEL\" \"lock:a\"");
    CHECK(note);
    CHECK(!release || release < note);
}

TEST(a_key_that_holds_something_else_is_left_alone)
{
    struct server *s = server_start(NULL);
    hf_client *c = with_history(s, 10);
    hf_lock *m = lock_of(c, "a", 30000);
    CHECK_STR(server_ask(s, "SET {lock:a}:log precious"), "OK");
    lock_now(m);
    unlock_now(m);
    CHECK_HF(hf_history_read(c, hf_str("a"), each, &page, &err), HF_ETYPE);
    lock_now(lock_of(c, "b", 30000)); /* behind it in the queue */
    CHECK_HF(hf_client_release_all(c, NULL, &err), HF_OK);
    CHECK_EVENTUALLY(read_all(c, "b", 0) == 1, 10000);
    CHECK_STR(server_ask(s, "GET {lock:a}:log"), "precious");
}

TEST(it_is_refused_where_it_has_no_place)
{
    hf_client *c = NULL;
    hf_client_opts o = { .size = sizeof o, .history = 3 };
    CHECK_HF(hf_client_open("redis+quorum://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3", &o, &c, &err),
             HF_ENOTSUP);
    CHECK(strstr(err.message, "quorum"));
    o.history = -1;
    CHECK_HF(hf_client_open("redis://127.0.0.1:1", &o, &c, &err), HF_ECONFIG);
    o.history = HF_HISTORY_MAX + 1;
    CHECK_HF(hf_client_open("redis://127.0.0.1:1", &o, &c, &err), HF_ECONFIG);
}

TEST(without_scripts_it_is_said_and_locking_works)
{
    struct server *s = server_start(NULL);
    struct logbook book = LOGBOOK;
    hf_client *c = client_with(server_url(s), (hf_client_opts){ .history = 3, .log = logbook_add,
                                                                .log_arg = &book,
                                                                .protocol = "transaction" });
    hf_lock *m = lock_of(c, "a", 30000);
    lock_now(m);
    unlock_now(m);
    CHECK_EVENTUALLY(logbook_has(&book, "the history cannot be written"), 10000);
    CHECK_HF(hf_history_read(c, hf_str("a"), each, &page, &err), HF_ENOTSUP);
    hf_lock_free(m);
    hf_client_free(c);
}
