/* SPDX-License-Identifier: MIT
 * held.c - what the server pays each second for locks that are held and not renewed meanwhile: the
 * looks at their keys, and the pings.
 */
#include <holdfast.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "harness/server.h"
#include "harness/t.h"

static double of_command(struct server *s, const char *command, const char *what)
{
    char field[40];
    snprintf(field, sizeof field, "cmdstat_%s:", command);
    const char *p = strstr(server_ask(s, "INFO commandstats"), field);
    p = p ? strstr(p, what) : NULL;
    return p ? strtod(p + strlen(what), NULL) : 0;
}

static double cpu_ms(const struct server *s)
{
    clockid_t id;
    struct timespec t;
    CHECK_INT(clock_getcpuclockid(server_pid(s), &id), 0);
    CHECK_INT(clock_gettime(id, &t), 0);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void hold(int n, int seconds)
{
    struct server *s = server_start(NULL);
    hf_client *c = NULL;
    hf_error e;
    hf_lock **m = calloc((size_t)n, sizeof(*m));
    hf_lock_opts o = { .size = sizeof o, .ttl_ms = 600000 };
    t_sleep_ms(300);
    double idle = cpu_ms(s);
    t_sleep_ms(seconds * 1000);
    idle = cpu_ms(s) - idle;
    if (hf_client_open(server_url(s), NULL, &c, &e))
        FAIL("%s", e.message);
    for (int i = 0; i < n; i++) {
        char name[32];
        snprintf(name, sizeof name, "job-%d", i);
        if (hf_lock_open(c, hf_str(name), &o, &m[i], &e) || hf_lock_try(m[i], NULL, &e))
            FAIL("%s", e.message);
    }
    t_sleep_ms(1500);
    CHECK_STR(server_ask(s, "CONFIG RESETSTAT"), "OK");
    double cpu = cpu_ms(s);
    t_sleep_ms(seconds * 1000);
    cpu = cpu_ms(s) - cpu - idle;
    printf("# %6d held: %5.1f looks/s, %8.1f us/s in them (commandstats), %6.2f ms/s of the "
           "server's processor in all\n", n, of_command(s, "evalsha", "calls=") / seconds,
           of_command(s, "evalsha", "usec=") / seconds, cpu / seconds);
    for (int i = 0; i < n; i++)
        hf_lock_free(m[i]);
    free(m);
    hf_client_free(c);
}

TEST(one_thousand_and_ten_thousand_held)
{
    hold(1, 5);
    hold(1000, 5);
    hold(10000, 5);
}
