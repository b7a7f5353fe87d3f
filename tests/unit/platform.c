/* SPDX-License-Identifier: MIT
 * platform.c - what the system is asked for: bells, timers, pollers, and who this process is.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bell.h"
#include "base/claim.h"
#include "base/clock.h"
#include "base/forkguard.h"
#include "base/poller.h"
#include "base/process.h"
#include "base/sockopt.h"
#include "base/timer.h"
#include "harness/t.h"

static int readable(int fd, int ms)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };
    return poll(&p, 1, ms) == 1;
}

TEST(a_bell_is_heard_once_however_often_it_was_rung)
{
    int fd = bell_open();
    CHECK(fd >= 0 && !readable(fd, 0) && !bell_drain(fd));
    bell_ring(fd);
    bell_ring(fd);
    CHECK(readable(fd, 0) && bell_drain(fd));
    CHECK(!readable(fd, 0) && !bell_drain(fd));
    forkguard_close(fd);
}

TEST(a_timer_goes_off_when_it_is_time_and_not_when_it_is_off)
{
    int fd = timer_open();
    CHECK(fd >= 0 && !readable(fd, 0));
    int64_t at = clock_now_ms() + 30;
    timer_set(fd, at);
    CHECK(readable(fd, 5000));
    CHECK(clock_now_ms() >= at);
    timer_drain(fd);
    CHECK(!readable(fd, 0));
    timer_set(fd, 0); /* long ago */
    CHECK(readable(fd, 5000));
    timer_set(fd, CLOCK_NEVER);
    CHECK(!readable(fd, 0));
    forkguard_close(fd);
}

TEST(a_poller_stands_for_all_of_them)
{
    struct poller p;
    struct poller_news news;
    int pair[2];
    CHECK_INT(poller_open(&p), 0);
    CHECK_INT(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    poller_add(&p, pair[0], false, &pair);
    CHECK(!readable(p.fd, 0));
    CHECK_INT(write(pair[1], "x", 1), 1);
    poller_ring(&p);
    poller_set_timer(&p, clock_now_ms());
    CHECK_EVENTUALLY(readable(p.fd, 0), 5000);
    t_sleep_ms(5); /* the timer's time has come as well */
    poller_read(&p, &news);
    CHECK(news.rung && news.timed_out);
    CHECK_INT((long long)news.n, 1);
    CHECK(news.arg[0] == &pair);
    poller_read(&p, &news); /* what was not read is told again, the others once */
    CHECK(!news.rung && !news.timed_out && news.n == 1);

    char c;
    CHECK_INT(read(pair[0], &c, 1), 1);
    CHECK(!readable(p.fd, 0));
    poller_change(&p, pair[0], true, &pair); /* there is room to write */
    CHECK(readable(p.fd, 0));
    poller_remove(&p, pair[0]);
    CHECK(!readable(p.fd, 0));
    poller_close(&p);
    CHECK_INT(p.fd, -1);
}

TEST(a_process_is_named_for_ever)
{
    char start[32], again[32], boot[64];
    process_start_time(start, sizeof start);
    process_boot_id(boot, sizeof boot);
    CHECK(strtoull(start, NULL, 10) > 0);
    CHECK_INT((long long)strlen(boot), 36);
    CHECK(process_name()[0] && !strchr(process_name(), '/'));
    t_sleep_ms(20);
    process_start_time(again, sizeof again);
    CHECK_STR(again, start);
}

TEST(descriptors_are_closed_from_one_on)
{
    int status, pid = t_fork();
    if (pid == 0) {
        CHECK_INT(dup2(0, 100), 100);
        CHECK_INT(dup2(0, 200), 200);
        process_close_from(101);
        _exit(fcntl(100, F_GETFD) < 0 || fcntl(200, F_GETFD) >= 0);
    }
    CHECK_INT(waitpid(pid, &status, 0), pid);
    CHECK_INT(status, 0);
}

TEST(who_is_at_the_other_end_of_a_socket)
{
    uid_t uid;
    int64_t pid = 0;
    int pair[2];
    CHECK_INT(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    CHECK_INT(sockopt_peer(pair[0], &uid, &pid), 0);
    CHECK_INT(uid, geteuid());
    CHECK_INT(pid, getpid());
    int tcp = socket(AF_INET, SOCK_STREAM, 0);
    CHECK_INT(sockopt_peer(tcp, &uid, NULL), -1);
    CHECK_INT(sockopt_tcp(tcp, 5000), 0);
}

/* A path that is too long for the name is told from others all the same. */
TEST(one_claim_for_each_folder)
{
    char one[180], other[180];
    int pid = getpid(), fd[4] = { -1, -1, -1, -1 };
    snprintf(one, sizeof one, "/%d/%0150d/a", pid, 0);
    snprintf(other, sizeof other, "/%d/%0150d/b", pid, 0);
    CHECK_INT(claim_take(one, &fd[0], NULL), HF_OK);
    CHECK_INT(claim_take(one, &fd[1], NULL), HF_OK);
    CHECK_INT(claim_take(other, &fd[2], NULL), HF_OK);
    CHECK(fd[0] >= 0 && fd[1] < 0 && fd[2] >= 0);
    CHECK_INT(claim_holder(one), 0); /* not a server: it has another number here */
    forkguard_close(fd[0]);
    CHECK_INT(claim_take(one, &fd[3], NULL), HF_OK);
    CHECK(fd[3] >= 0);
    forkguard_close(fd[2]);
    forkguard_close(fd[3]);
}
