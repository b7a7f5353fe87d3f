/* SPDX-License-Identifier: MIT
 * doctor.c - what hf_doctor_examine() says of a server: who else has rights there, its memory, its
 * disk, its role, its replicas. What the command prints: cli/doctor.sh; clusters: cluster_doctor.c.
 */
#include <signal.h>
#include <sys/resource.h>

#include "harness/doctor.h"
#include "harness/quorum.h"

static struct server *with_tcp(void)
{
    return server_start_opts(&(struct server_opts){ .tcp = 1 });
}

/* A line of this grade that has this in it. */
static int told(struct logbook *log, int grade, const char *part)
{
    char begin[8];
    snprintf(begin, sizeof begin, "[%d] ", grade);
    return has_line(log, begin, part);
}

#define CHECK_TOLD(log, grade, part)                                      \
    do {                                                                  \
        if (!told(log, grade, part))                                      \
            FAIL("not told: [%d] %s, in\n%s", grade, part, (log)->text);  \
    } while (0)

TEST(who_may_use_the_channels_of_the_sessions_and_not_the_locks)
{
    struct server *s = with_tcp();
    struct logbook log = LOGBOOK;
    int selectors = atoi(server_info(s, "redis_version")) >= 7;
    static const char *const users[] = {
        "publisher on nopass resetkeys resetchannels &lock:holdfast:s:* -@all +publish",
        "listener on nopass resetkeys resetchannels &* -@all +subscribe",
        "owner on nopass allkeys allchannels +@all", "half on nopass ~lock:* &* +@all",
        "sleeper off nopass resetkeys &* +@all", "stranger on nopass ~other:* &other:* +@all",
        "quick on nopass resetkeys &* -@all +@fast", "slow on nopass resetkeys &* -@all +@slow",
        /* since 7.0 */
        "chosen on nopass resetkeys resetchannels -@all (&* +publish)",
        "writer on nopass resetkeys %%W~lock:* &* +@all",
        "reader on nopass resetkeys %%R~lock:* &* +@all",
    };
    CHECK_STR(server_ask(s, "ACL SETUSER monitor on nopass ~lock:* &* -@all +@read +publish"),
              "OK");
    for (size_t i = 0; i < (selectors ? 11 : 8); i++)
        CHECK_STR(server_ask(s, keep_text("ACL SETUSER %s", users[i])), "OK");
    diagnose(&log, server_tcp_url(s));
    CHECK_TOLD(&log, 2, "may publish to lock:holdfast:s:*");
    CHECK_TOLD(&log, 2, "\"publisher\"");
    CHECK_TOLD(&log, 2, "\"quick\"");
    CHECK_TOLD(&log, 2, "\"monitor\""); /* it may only look at the locks */
    CHECK_TOLD(&log, 1, "\"listener\"");
    CHECK_TOLD(&log, 1, "\"slow\"");
    if (selectors) {
        CHECK_TOLD(&log, 2, "\"chosen\"");
        CHECK_TOLD(&log, 2, "\"reader\"");
    }
    static const char *const harmless[] = { "\"owner\"", "\"half\"", "\"sleeper\"", "\"stranger\"",
                                            "\"writer\"" };
    for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
        CHECK(!logbook_has(&log, harmless[i]));
    /* More than there is room for. */
    for (int i = 0; i < 30; i++)
        CHECK_STR(server_ask(s, "ACL SETUSER a-long-name-of-a-user-%d on nopass resetkeys &* -@all "
                             "+publish", i), "OK");
    diagnose(&log, server_tcp_url(s));
    CHECK_TOLD(&log, 2, ", ...");
}

TEST(memory_that_is_nearly_full_or_given_up_for_others)
{
    struct server *s = with_tcp();
    struct logbook log = LOGBOOK;
    server_ask(s, "CONFIG SET maxmemory-policy allkeys-lru");
    diagnose(&log, server_tcp_url(s));
    CHECK_TOLD(&log, 1, "|memory|");
    server_ask(s, "CONFIG SET maxmemory-policy noeviction");
    server_ask(s, "CONFIG SET maxmemory %lld", atoll(server_info(s, "used_memory")) * 102 / 100);
    diagnose(&log, server_tcp_url(s));
    CHECK_TOLD(&log, 2, "|memory|");
}

TEST(a_replica_in_the_place_of_a_master)
{
    struct server *s = with_tcp(), *replica = with_tcp();
    struct logbook log = LOGBOOK;
    CHECK_STR(server_ask(replica, "REPLICAOF 127.0.0.1 %d", server_port(s)), "OK");
    CHECK_EVENTUALLY(strcmp(server_info(replica, "master_link_status"), "up") == 0, 20000);
    diagnose(&log, server_tcp_url(replica));
    CHECK_TOLD(&log, 3, "|role|");
}

TEST(an_even_number_of_servers_in_a_quorum)
{
    struct members q = members_start(4, kept);
    struct logbook log = LOGBOOK;
    diagnose(&log, q.url);
    CHECK_LOGGED(&log, "run one more or one less");
}

/* ---- replicas -------------------------------------------------------------------------------- */

/* Let it follow s, and wait until s says so of it. */
static void follow(struct server *s, struct server *replica, const char *state)
{
    CHECK_STR(server_ask(replica, "REPLICAOF 127.0.0.1 %d", server_port(s)), "OK");
    CHECK_EVENTUALLY(server_info(s, "slave0") && strstr(server_info(s, "slave0"), state), 20000);
}

static struct server *master(void)
{
    struct server *s = with_tcp();
    CHECK_STR(server_ask(s, "CONFIG SET repl-diskless-sync-delay 0"), "OK");
    return s;
}

TEST(a_replica_whose_clock_is_off)
{
    struct server *s = master();
    struct server *r = server_start_opts(&(struct server_opts){ .tcp = 1, .clockshim = 1 });
    struct logbook log = LOGBOOK;
    const char *where = keep_text("replica 127.0.0.1:%d|clock|its clock is ", server_port(r));
    follow(s, r, "state=online");
    diagnose(&log, server_tcp_url(s));
    CHECK(!logbook_has(&log, where));
    server_clock_shift(r, 3600 * 1000);
    diagnose(&log, server_tcp_url(s));
    CHECK_TOLD(&log, 2, keep_text("%s+3", where));
    CHECK_TOLD(&log, 2, "leases would end that much earlier after a failover");
    server_clock_shift(r, -3600 * 1000);
    diagnose(&log, server_tcp_url(s));
    CHECK_TOLD(&log, 2, keep_text("%s-3", where));
    CHECK_TOLD(&log, 2, "leases would end that much later after a failover");
}

static int lag_of(struct server *s)
{
    const char *line = server_info(s, "slave0"), *lag = line ? strstr(line, "lag=") : NULL;
    return lag ? atoi(lag + 4) : -1;
}

TEST(a_replica_that_is_not_heard_any_more)
{
    struct server *s = master(), *r = with_tcp();
    struct logbook log = LOGBOOK;
    const char *where = keep_text("|replicas|the replica 127.0.0.1:%d", server_port(r));
    follow(s, r, "state=online");
    diagnose(&log, server_tcp_url(s));
    CHECK_TOLD(&log, 0, keep_text("%s is in step", where));
    server_freeze(r);
    CHECK_EVENTUALLY(lag_of(s) > 2, 20000);
    diagnose(&log, url_with(server_tcp_url(s), "timeout=8s"));
    CHECK_TOLD(&log, 2, keep_text("%s was last heard ", where));
}

/* It has asked for all the data, and waits for it. */
TEST(a_replica_that_is_not_in_step)
{
    struct server *s = with_tcp(), *r = with_tcp();
    struct logbook log = LOGBOOK;
    CHECK_STR(server_ask(s, "CONFIG SET repl-diskless-sync yes"), "OK");
    CHECK_STR(server_ask(s, "CONFIG SET repl-diskless-sync-delay 3600"), "OK");
    follow(s, r, "state=wait_bgsave");
    diagnose(&log, server_tcp_url(s));
    CHECK_TOLD(&log, 2, keep_text("|replicas|the replica 127.0.0.1:%d is not in step (wait_bgsave)",
                                  server_port(r)));
}

TEST(a_replica_that_clients_cannot_reach)
{
    struct server *s = master(), *r = with_tcp(), *nobody = with_tcp();
    struct logbook log = LOGBOOK;
    int port = server_port(nobody);
    server_kill(nobody);
    CHECK_STR(server_ask(r, "CONFIG SET replica-announce-port %d", port), "OK");
    follow(s, r, "state=online");
    diagnose(&log, server_tcp_url(s));
    CHECK_TOLD(&log, 2, keep_text("replica 127.0.0.1:%d|reach|", port));
    CHECK_TOLD(&log, 2, "a client must be able to reach it after a failover");
}

TEST(settings_of_replicas_that_cannot_be_read)
{
    struct server *s = master(), *r = with_tcp();
    struct logbook log = LOGBOOK;
    follow(s, r, "state=online");
    diagnose(&log, server_tcp_url(s));
    CHECK_TOLD(&log, 1, "|replicas|min-replicas-to-write 0: a master that is cut off");
    CHECK_STR(server_ask(s, "ACL SETUSER default -config"), "OK");
    diagnose(&log, server_tcp_url(s));
    CHECK_TOLD(&log, 1, "|replicas|this user may not read min-replicas-to-write");
}

/* ---- the disk -------------------------------------------------------------------------------- */

static int aof_is(struct server *s, const char *status)
{
    return strcmp(server_info(s, "aof_last_write_status"), status) == 0;
}

/* A replica writes all of it anew when it has got all the data. */
static int writes_its_file(struct server *s)
{
    return strcmp(server_info(s, "master_link_status"), "up") == 0
           && strcmp(server_info(s, "aof_rewrite_scheduled"), "0") == 0
           && strcmp(server_info(s, "aof_rewrite_in_progress"), "0") == 0;
}

/* How large files may become that the server writes. */
static void limit_files(struct server *s, rlim_t bytes)
{
    struct rlimit l = { .rlim_cur = bytes, .rlim_max = RLIM_INFINITY };
    CHECK_INT(prlimit(server_pid(s), RLIMIT_FSIZE, &l, NULL), 0);
}

TEST(a_disk_that_is_full)
{
    signal(SIGXFSZ, SIG_IGN); /* the servers' too: they get an error, as from a full disk */
    struct server *s = server_start_opts(&(struct server_opts){ .tcp = 1, .aof = 1 });
    struct server *r = server_start_opts(&(struct server_opts){ .tcp = 1, .aof = 1 });
    struct logbook log = LOGBOOK;
    const char *failed = keep_text("replica 127.0.0.1:%d|persistence|the last write to the "
                                   "append-only file failed", server_port(r));
    server_ask(s, "CONFIG SET repl-diskless-sync-delay 0");
    server_ask(r, "CONFIG SET replica-ignore-disk-write-errors yes"); /* or it ends, since 7.0 */
    follow(s, r, "state=online");
    CHECK_EVENTUALLY(writes_its_file(r), 20000);
    diagnose(&log, server_tcp_url(s));
    CHECK(!told(&log, 3, "|"));
    limit_files(r, 0);
    server_ask(s, "SET a b");
    CHECK_EVENTUALLY(aof_is(r, "err"), 10000);
    diagnose(&log, server_tcp_url(s));
    CHECK_TOLD(&log, 3, failed);
    limit_files(s, 0); /* a master refuses even PING then */
    server_ask(s, "SET a c");
    CHECK_EVENTUALLY(aof_is(s, "err"), 10000);
    diagnose(&log, server_tcp_url(s));
    CHECK_TOLD(&log, 3, keep_text("127.0.0.1:%d|persistence|the last write", server_port(s)));
    CHECK_TOLD(&log, 3, "it cannot save to disk"); /* so no lock was given for a try */
}

TEST(a_disk_that_is_to_be_waited_for)
{
    struct server *s = server_start_opts(&(struct server_opts){ .tcp = 1, .aof = 1 });
    struct logbook log = LOGBOOK;
    const char *url = url_with(server_tcp_url(s), "fsync=1");
    static const struct {
        const char *how;
        int         grade;
    } t[] = { { "no", 3 }, { "everysec", 2 }, { "always", 0 } };
    CHECK_STR(server_ask(s, "CONFIG SET appendfsync no"), "OK");
    diagnose(&log, server_tcp_url(s));
    CHECK_TOLD(&log, 1, "appendfsync no: a power cut can cost the last half minute");
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        CHECK_STR(server_ask(s, "CONFIG SET appendfsync %s", t[i].how), "OK");
        diagnose(&log, url);
        CHECK(told(&log, t[i].grade, "|persistence|"));
        CHECK_TOLD(&log, t[i].grade, keep_text("appendfsync %s", t[i].how));
    }
}
