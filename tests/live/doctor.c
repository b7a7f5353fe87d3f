/* SPDX-License-Identifier: MIT
 * doctor.c - what hf_doctor_examine() says of a server: who else has rights there, its memory, its
 * role. What the command prints: cli/doctor.sh; clusters: cluster_doctor.c.
 */
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
    for (size_t i = 0; i < (selectors ? 11 : 8); i++)
        CHECK_STR(server_ask(s, keep_text("ACL SETUSER %s", users[i])), "OK");
    diagnose(&log, server_tcp_url(s));
    CHECK_TOLD(&log, 2, "may publish to lock:holdfast:s:*");
    CHECK_TOLD(&log, 2, "\"publisher\"");
    CHECK_TOLD(&log, 2, "\"quick\"");
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
