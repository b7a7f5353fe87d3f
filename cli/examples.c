/* SPDX-License-Identifier: MIT
 * examples.c - lines to try, one list for each command. */
#include "examples.h"

#include <stddef.h>
#include <string.h>

enum { LINES = 6 };

static const struct {
    const char *command;
    const char *line[LINES + 1];
} table[] = {
    { "run",
      { "holdfast run backup -- /usr/local/bin/backup.sh",
        "holdfast run -n --skip-ok nightly -- make report   # cron, on every host",
        "holdfast run deploy -w 5m -c 'git pull && make install'",
        "holdfast run --slots 3 crawler -- ./fetch          # three at a time",
        "holdfast run account:1,account:2 -- ./transfer     # both or none" } },
    { "once",
      { "holdfast once page --ttl 5m -- curl -s http://localhost/page",
        "holdfast once page --ttl 5m --stale 1h -c 'make -s page | gzip'" } },
    { "acquire",
      { "lock=$(holdfast acquire deploy --hold-pid $$ --sh) && eval \"$lock\"",
        "holdfast acquire deploy --owner me --ttl 10m",
        "holdfast acquire deploy -w 30s --json" } },
    { "extend", { "holdfast extend deploy --owner me --ttl 10m" } },
    { "release",
      { "holdfast release deploy --owner me",
        "holdfast release --all --owner me" } },
    { "check", { "holdfast check deploy --owner me || exit 1" } },
    { "held", { "if holdfast held deploy; then echo 'somebody deploys'; fi" } },
    { "resize", { "holdfast resize crawler --slots 5" } },
    { "status",
      { "holdfast status deploy",
        "holdfast status account:1,account:2",
        "holdfast status deploy -o json | jq" } },
    { "ls",
      { "holdfast ls",
        "holdfast ls 'account:*' --waiters",
        "holdfast ls --watch" } },
    { "elect",
      { "holdfast elect scheduler -- ./scheduler",
        "holdfast elect scheduler --value 10.0.0.7:8080 -- ./scheduler" } },
    { "leader",
      { "holdfast leader scheduler",
        "holdfast leader scheduler --watch" } },
    { "sequence",
      { "holdfast sequence orders",
        "holdfast sequence orders --count 100 --start 1000" } },
    { "latch",
      { "holdfast latch ready --set 3    # then on three hosts:",
        "holdfast latch ready --down",
        "holdfast latch ready --wait     # or: -w 10m" } },
    { "barrier",
      { "holdfast barrier begin --count 3 -w 10m && ./work",
        "holdfast barrier begin --count 3 --leave" } },
    { "doctor",
      { "holdfast doctor",
        "holdfast doctor --url redis://db1" } },
    { "bench", { "holdfast bench --time 5s" } },
    { "server",
      { "holdfast server status",
        "holdfast server stop" } },
    { "break",
      { "holdfast status deploy          # shows the fence",
        "holdfast break deploy --fence 1794769874605103 --reason 'host is gone'" } },
    { "ask", { "holdfast ask deploy -m 'please, the release waits'" } },
    { "why",
      { "holdfast why deploy",
        "holdfast why deploy -o json" } },
    { "watch",
      { "holdfast watch",
        "holdfast watch 'account:*' -o jsonl" } },
    { "history", { "holdfast history nightly" } },
    { "top", { "holdfast top" } },
    { "graph",
      { "holdfast graph",
        "holdfast graph --svg > graph.svg" } },
    { "exporter", { "holdfast exporter --listen 127.0.0.1:9121" } },
    { "web", { "holdfast web --listen 127.0.0.1:8080" } },
};

const char *const *examples_of(const char *command)
{
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (strcmp(table[i].command, command) == 0)
            return table[i].line;
    return NULL;
}
