/* SPDX-License-Identifier: MIT
 * fsync.c - grants and renewals that must be on disk: fsync=1, on servers that have WAITAOF.
 */
#include "harness/fleet.h"
#include "harness/waiting.h"

/* The tests' own server is older in most places: then it is a Valkey, where one is installed. */
static void need_waitaof(void)
{
    const char *program = server_use_one_that_knows("waitaof");
    if (!program)
        LEFT_OUT("no server with WAITAOF: install valkey-server, or see make test-valkey");
}

static struct server *start(const char *appendfsync)
{
    need_waitaof();
    struct server *s = server_start_opts(&(struct server_opts){ .aof = 1, .diskshim = 1 });
    server_ask(s, "CONFIG SET appendfsync %s", appendfsync);
    return s;
}

static const char *url_of(const char *base, const char *options)
{
    static char url[300];
    snprintf(url, sizeof url, "%s?fsync=1%s", base, options);
    return url;
}

static hf_client *client_of(const struct server *s, const char *options)
{
    return client_at(url_of(server_url(s), options), 0);
}

TEST(fsync_needs_a_server_that_can)
{
    struct server *s = server_start_opts(&(struct server_opts){ .aof = 1 });
    const char *about = server_ask(s, "COMMAND INFO waitaof");
    hf_client *c = NULL;
    if (strncmp(about, "waitaof", 7) == 0) { /* then let it be one that cannot */
        server_kill(s);
        s = server_start_opts(&(struct server_opts){
            .aof = 1, .args = (const char *const[]){ "--rename-command", "WAITAOF", "", NULL } });
    }
    CHECK_HF(hf_client_open(url_of(server_url(s), ""), NULL, &c, &err), HF_ENOTSUP);
    CHECK_CONTAINS(err.message, "WAITAOF");
    /* An embedded server leaves its disk alone. */
    CHECK_HF(hf_client_open("embedded:/nowhere?fsync=1", NULL, &c, &err), HF_ENOTSUP);
    CHECK_CONTAINS(err.message, "fsync=1 is not for the embedded server");
}

TEST(P1_a_grant_and_its_renewals_are_on_disk)
{
    struct server *s = start("always");
    hf_client *c = client_of(s, "");
    hf_lock *m = lock_of(c, "a", 4000);
    lock_now(m);
    unlock_now(m); /* the server knows the scripts now */
    server_monitor_start(s);
    lock_now(m);
    CHECK_INT(server_monitor_count(s, "\"WAITAOF\" \"1\" \"0\""), 1);
    CHECK_EVENTUALLY(server_monitor_count(s, "\"WAITAOF\" \"1\" \"0\"") >= 3, 5000);
    CHECK_INT(hf_lock_state(m), HF_STATE_SAFE);
    unlock_now(m);
    hf_lock_free(m);
    hf_client_free(c);
}

/* Its turn comes once in a second: longer than replicas are waited for. */
TEST(grants_are_waited_for_where_the_disk_has_its_turn_every_second)
{
    struct server *s = start("everysec");
    hf_client *c = client_of(s, "");
    hf_lock *m = lock_of(c, "a", 30000);
    int64_t longest = 0;
    for (int i = 0; i < 4; i++) {
        int64_t begun = t_now_ms();
        CHECK_HF(hf_lock_try(m, NULL, &err), HF_OK);
        if (t_now_ms() - begun > longest)
            longest = t_now_ms() - begun;
        unlock_now(m);
    }
    t_note("the longest took %lld ms", (long long)longest);
    hf_lock_free(m);
    hf_client_free(c);
}

TEST(without_an_append_only_file_it_is_refused)
{
    struct server *s = start("always");
    hf_client *c = client_of(s, ""), *d = NULL;
    hf_lock *m = lock_of(c, "a", 30000);
    lock_now(m);
    unlock_now(m);
    server_ask(s, "CONFIG SET appendonly no");
    CHECK_HF(hf_lock_try(m, NULL, &err), HF_EREPLICAS); /* who was connected before */
    CHECK_CONTAINS(err.message, "not known to be on the server's disk");
    CHECK_INT(err.known, HF_KNOWN_UNCHANGED);
    CHECK_STR(server_ask(s, "GET lock:a"), NULL);
    CHECK_HF(hf_client_open(url_of(server_url(s), ""), NULL, &d, &err), HF_ECONFIG);
    CHECK_CONTAINS(err.message, "set appendonly yes there");
    server_ask(s, "ACL SETUSER u on >pw ~* &* +@all -waitaof");
    char base[200];
    snprintf(base, sizeof base, "unix://u:pw@%s", server_socket(s));
    CHECK_HF(hf_client_open(url_of(base, ""), NULL, &d, &err), HF_EAUTH);
    CHECK_CONTAINS(err.message, "'waitaof'");
    hf_lock_free(m);
    hf_client_free(c);
}

TEST(a_grant_that_never_gets_to_disk_is_undone)
{
    struct server *s = start("no");
    hf_client *c = client_of(s, "&timeout=1s");
    hf_lock *m = lock_of(c, "a", 30000), *several[] = { lock_of(c, "x", 30000),
                                                          lock_of(c, "y", 30000) };
    CHECK_HF(hf_lock_try(m, NULL, &err), HF_EREPLICAS);
    CHECK_CONTAINS(err.message, "appendfsync no there?");
    CHECK_INT(err.known, HF_KNOWN_UNCHANGED);
    CHECK_INT(hf_lock_state(m), HF_STATE_FREE);
    CHECK_STR(server_ask(s, "GET lock:a"), NULL);
    CHECK_HF(hf_owner_acquire(c, hf_str("b"), 30000, hf_str("me"), NULL, &err), HF_EREPLICAS);
    CHECK_STR(server_ask(s, "GET lock:b"), NULL);
    CHECK_HF(hf_multi_acquire(several, 2, 0, &err), HF_EREPLICAS);
    CHECK_INT(server_int(s, "EXISTS lock:x lock:y"), 0);
    CHECK_HF(hf_lock_acquire(m, 1200, NULL, &err), HF_EREPLICAS);
    CHECK_CONTAINS(err.message, "the server's disk"); /* and not that replicas are missing */
    /* Who has the time gets it when the disk is back. */
    struct locker w = { .m = m, .wait_ms = 30000 };
    locker_start(&w);
    server_ask(s, "CONFIG SET appendfsync always");
    locker_join(&w, HF_OK);
    unlock_now(m);
    hf_lock_free(m);
    hf_lock_free(several[0]);
    hf_lock_free(several[1]);
    hf_client_free(c);
}

TEST(P5_a_renewal_that_never_gets_to_disk_lengthens_nothing)
{
    struct server *s = start("always");
    struct logbook log = LOGBOOK;
    hf_client *c = client_with(url_of(server_url(s), "&timeout=1s"),
                               (hf_client_opts){ .log = logbook_add, .log_arg = &log });
    hf_lock *m = lock_of(c, "a", 1500), *e = lock_of(c, "b", 60000);
    lock_now(m);
    lock_now(e);
    server_ask(s, "CONFIG SET appendfsync no");
    int64_t left = hf_lock_time_left_ms(m);
    CHECK_EVENTUALLY(hf_lock_state(m) == HF_STATE_LOST, left + 500);
    CHECK_INT(hf_lock_loss(m), HF_LOSS_EXPIRED);
    CHECK_LOGGED(&log, "the server's disk");
    CHECK(server_int(s, "PTTL lock:a") > 0); /* in memory it was renewed */
    left = hf_lock_time_left_ms(e);
    CHECK_HF(hf_lock_extend(e, 120000, &err), HF_EREPLICAS);
    CHECK(hf_lock_is_held(e) && hf_lock_time_left_ms(e) <= left);
    hf_lock_free(m);
    hf_lock_free(e);
    hf_client_free(c);
}

/* ---- a disk that hangs ---- */

/* The thread that syncs hangs, and the server goes on without it. */
TEST(a_grant_while_the_disk_hangs_is_undone)
{
    struct server *s = start("everysec");
    hf_client *c = client_of(s, "&timeout=1600ms");
    hf_lock *m = lock_of(c, "a", 30000);
    lock_now(m);
    unlock_now(m);
    server_disk_delay(s, -1);
    for (int i = 0; i < 1000 && !server_disk_delayed(s); i++) {
        server_ask(s, "SET other %d", i);
        t_sleep_ms(5);
    }
    CHECK(server_disk_delayed(s) > 0); /* the fault: the disk is busy with what came before */
    CHECK_HF(hf_lock_try(m, NULL, &err), HF_EREPLICAS);
    CHECK_CONTAINS(err.message, "not known to be on the server's disk");
    CHECK_STR(server_ask(s, "GET lock:a"), NULL);
    server_disk_delay(s, 0);
    lock_now(m);
    unlock_now(m);
    hf_lock_free(m);
    hf_client_free(c);
}

/* It syncs before it answers: then the server hangs, and whoever asked is in doubt. */
TEST(P8_a_server_that_hangs_with_its_disk_keeps_no_lock_for_nobody)
{
    struct server *s = start("always");
    hf_client *c = client_of(s, "&timeout=1500ms");
    hf_lock *m = lock_of(c, "a", 60000);
    lock_now(m);
    unlock_now(m);
    server_disk_delay(s, -1);
    int64_t begun = t_now_ms();
    hf_err e = hf_lock_try(m, NULL, &err);
    t_note("%s after %lld ms: %s", hf_err_name(e), (long long)(t_now_ms() - begun), err.message);
    CHECK(e == HF_EUNSURE || e == HF_ETIMEDOUT || e == HF_ECONN);
    CHECK(server_disk_delayed(s) > 0);
    CHECK(!hf_lock_is_held(m));
    server_disk_delay(s, 0);
    CHECK_EVENTUALLY(!server_ask(s, "GET lock:a"), 10000);
    lock_now(m);
    unlock_now(m);
    hf_lock_free(m);
    hf_client_free(c);
}

/* ---- with replicas ---- */

TEST(replicas_need_it_on_disk_too)
{
    need_waitaof();
    struct fleet *f = fleet_start(&(struct fleet_opts){ .no_sentinels = 1 });
    for (int i = 0; i < FLEET; i++)
        server_ask(f->node[i], "CONFIG SET appendfsync always");
    hf_client *c = client_at(url_of(f->url, "&replicas=2"), 0);
    hf_lock *m = lock_of(c, "a", 6000); /* replicas tell of their disks once in a second */
    lock_now(m);
    unlock_now(m);
    server_monitor_start(f->node[0]);
    lock_now(m);
    CHECK_INT(server_monitor_count(f->node[0], "\"WAITAOF\" \"1\" \"2\""), 1);
    CHECK_EVENTUALLY(server_monitor_count(f->node[0], "\"WAITAOF\" \"1\" \"2\"") >= 3, 20000);
    /* with the next one, on a busy disk */
    CHECK_EVENTUALLY(hf_lock_state(m) == HF_STATE_SAFE, 6000);
    unlock_now(m);
    server_ask(f->node[2], "CONFIG SET appendfsync no"); /* it has it, but in memory only */
    CHECK_HF(hf_lock_try(m, NULL, &err), HF_EREPLICAS);
    CHECK_CONTAINS(err.message, "1 of the 2 replicas");
    CHECK_STR(server_ask(f->node[0], "GET lock:a"), NULL);
    hf_lock_free(m);
    hf_client_free(c);
}
