/* SPDX-License-Identifier: MIT
 * meter.c - what work cost; see meter.h.
 */
#include "lib/meter.h"

#include <malloc.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "harness/t.h"

const char *const cost_names[COST_FIELDS] = {
    [COST_RATE] = "per_s",       [COST_P50] = "p50_us",          [COST_P99] = "p99_us",
    [COST_MAX] = "max_us",       [COST_COMMANDS] = "commands",   [COST_BYTES] = "bytes",
    [COST_SERVER] = "server_us", [COST_CLIENT] = "client_us",    [COST_SWITCHES] = "switches",
    [COST_FAIRNESS] = "max_min",
};

struct cost cost_none(void)
{
    struct cost c;
    for (int i = 0; i < COST_FIELDS; i++)
        c.is[i] = NAN;
    return c;
}

double meter_server_us(const struct server *s)
{
    clockid_t id;
    struct timespec t;
    CHECK_INT(clock_getcpuclockid(server_pid(s), &id), 0);
    CHECK_INT(clock_gettime(id, &t), 0);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

double meter_rusage_us(const struct rusage *u)
{
    return (double)(u->ru_utime.tv_sec + u->ru_stime.tv_sec) * 1e6
           + (double)(u->ru_utime.tv_usec + u->ru_stime.tv_usec);
}

double meter_heap(void)
{
    struct mallinfo2 m = mallinfo2();
    return (double)(m.uordblks + m.hblkhd);
}

double meter_seconds_since(int64_t start_ns)
{
    return (double)(t_now_ns() - start_ns) / 1e9;
}

static double field_of(const char *text, const char *field)
{
    const char *p = strstr(text, field);
    return p ? strtod(p + strlen(field), NULL) : 0;
}

double meter_commands(struct server *s, const char *names)
{
    const char *text = server_ask(s, "INFO commandstats");
    char list[200], *save = NULL;
    double sum = 0;
    snprintf(list, sizeof list, "%s", names);
    for (char *name = strtok_r(list, " ", &save); name; name = strtok_r(NULL, " ", &save)) {
        char field[60];
        snprintf(field, sizeof field, "cmdstat_%s:calls=", name);
        sum += field_of(text, field);
    }
    return sum;
}

double meter_script_us(struct server *s)
{
    const char *p = strstr(server_ask(s, "INFO commandstats"), "cmdstat_evalsha:");
    return p ? field_of(p, "usec=") : 0;
}

double meter_server_memory(struct server *s)
{
    return field_of(server_ask(s, "INFO memory"), "used_memory:");
}

static double bytes(struct server *s)
{
    const char *text = server_ask(s, "INFO stats");
    return field_of(text, "total_net_input_bytes:") + field_of(text, "total_net_output_bytes:");
}

void meter_begin(struct meter *m, struct server *s, const char *sent)
{
    m->s = s;
    m->sent = sent;
    m->commands = meter_commands(s, sent);
    double before = bytes(s);
    m->bytes = bytes(s);
    m->question = m->bytes - before; /* what it costs to ask: not theirs */
    m->server_us = meter_server_us(s);
    getrusage(RUSAGE_SELF, &m->own);
    m->start_ns = t_now_ns();
}

struct cost meter_end(const struct meter *m, double done, struct samples *us)
{
    struct cost c = cost_none();
    struct rusage own;
    double seconds = meter_seconds_since(m->start_ns);
    getrusage(RUSAGE_SELF, &own);
    done = done > 0 ? done : 1;
    c.is[COST_RATE] = done / seconds;
    c.is[COST_SERVER] = (meter_server_us(m->s) - m->server_us) / done;
    c.is[COST_BYTES] = (bytes(m->s) - m->bytes - m->question) / done;
    c.is[COST_COMMANDS] = (meter_commands(m->s, m->sent) - m->commands) / done;
    c.is[COST_CLIENT] = (meter_rusage_us(&own) - meter_rusage_us(&m->own)) / done;
    c.is[COST_SWITCHES] = (double)(own.ru_nvcsw - m->own.ru_nvcsw + own.ru_nivcsw
                                   - m->own.ru_nivcsw) / done;
    if (us) {
        c.is[COST_P50] = samples_at(us, 50);
        c.is[COST_P99] = samples_at(us, 99);
        c.is[COST_MAX] = samples_at(us, 100);
    }
    return c;
}

void meter_pin(int pid, int core)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int i = 0; i < CPU_SETSIZE && i < (int)sysconf(_SC_NPROCESSORS_ONLN); i++)
        if (core < 0 || i == core)
            CPU_SET(i, &set);
    CHECK_INT(sched_setaffinity(pid, sizeof set, &set), 0);
}
