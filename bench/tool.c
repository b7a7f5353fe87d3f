/* SPDX-License-Identifier: MIT
 * tool.c - what `holdfast run x -- true` costs on a server that is up, beside `flock f true`.
 */
#include <math.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/t.h"
#include "lib/contest.h"

extern char **environ;

struct runs {
    struct server *s;
    char           holdfast[4200], file[4200];
    int            n;
};

static struct cost run_often(const struct runs *r, const char *const *argv, const char *sent)
{
    struct samples us = { 0 };
    struct meter meter;
    double cpu = 0, switches = 0;
    meter_begin(&meter, r->s, sent);
    for (int i = 0; i < r->n; i++) {
        struct rusage u;
        pid_t pid;
        int status, e;
        int64_t begun = t_now_ns();
        if ((e = posix_spawnp(&pid, argv[0], NULL, NULL, (char *const *)(uintptr_t)argv, environ)))
            FAIL("%s cannot be run: error %d", argv[0], e);
        CHECK_INT(wait4(pid, &status, 0, &u), pid);
        samples_add(&us, (double)(t_now_ns() - begun) / 1000);
        CHECK_INT(status, 0);
        cpu += meter_rusage_us(&u);
        switches += (double)(u.ru_nvcsw + u.ru_nivcsw);
    }
    struct cost c = meter_end(&meter, r->n, &us);
    c.is[COST_CLIENT] = cpu / r->n;
    c.is[COST_SWITCHES] = switches / r->n;
    samples_free(&us);
    return c;
}

static struct cost by_holdfast(void *arg)
{
    struct runs *r = arg;
    const char *const argv[] = { r->holdfast, "run", "x", "--", "true", NULL };
    return run_often(r, argv, SENT_BY_HOLDFAST);
}

static struct cost by_flock(void *arg)
{
    struct runs *r = arg;
    const char *const argv[] = { "flock", r->file, "true", NULL };
    struct cost c = run_often(r, argv, "");
    c.is[COST_COMMANDS] = c.is[COST_BYTES] = c.is[COST_SERVER] = NAN;
    return c;
}

static void run_true(int rounds, int n)
{
    struct contest c = { .work = "holdfast run x -- true", .yardstick = "flock f true" };
    struct runs r = { .n = n };
    r.s = server_start_opts(&(struct server_opts){ .tcp = 1 });
    snprintf(r.holdfast, sizeof r.holdfast, "%s/../holdfast", t_program_dir());
    snprintf(r.file, sizeof r.file, "%s/f", t_dir());
    CHECK_INT(setenv("HOLDFAST_URL", server_tcp_url(r.s), 1), 0);
    if (access("/usr/bin/flock", X_OK) != 0 && access("/bin/flock", X_OK) != 0)
        SKIP("there is no flock(1) here");
    r.n = 5;
    by_holdfast(&r); /* its pages are in memory, the scripts on the server */
    by_flock(&r);
    r.n = n;
    contest_run(&c, rounds, by_holdfast, by_flock, &r);
    contest_ratio(&c, COST_P50, "<=", 2);
    contest_costs(&c);
}

TEST_TIMEOUT(aim_run_true, 300)
{
    run_true(3, 150);
}

TEST_TIMEOUT(long_run_true, 600)
{
    run_true(9, 500);
}
