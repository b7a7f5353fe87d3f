/* SPDX-License-Identifier: MIT
 * options.h - the options of all commands, from one table. */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

/* Which commands an option belongs to. */
enum cmd_bit {
    C_NONE = 1, /* in front of the command */
    C_RUN = 1 << 1,
    C_ACQUIRE = 1 << 2,
    C_EXTEND = 1 << 3,
    C_RELEASE = 1 << 4,
    C_CHECK = 1 << 5,
    C_STATUS = 1 << 6,
    C_LS = 1 << 7,
    C_SERVER = 1 << 8,
    C_SEQUENCE = 1 << 9,
    C_ELECT = 1 << 10,
    C_LEADER = 1 << 11,
    C_RESIZE = 1 << 12,
    C_ONCE = 1 << 13,
    C_LATCH = 1 << 14,
    C_BARRIER = 1 << 15,
    C_DOCTOR = 1 << 16,
    C_HELD = 1 << 17,
    C_BENCH = 1 << 18,
    C_BREAK = 1 << 19,
    C_ASK = 1 << 20,
    C_WHY = 1 << 21,
    C_WATCH = 1 << 22,
    C_HISTORY = 1 << 23,
    C_TOP = 1 << 24,
    C_GRAPH = 1 << 25,
    C_EXPORTER = 1 << 26,
    C_WEB = 1 << 27,
    C_ALL = (1 << 28) - 1,
    C_TAKE = C_RUN | C_ACQUIRE,
    C_COMMAND = C_RUN | C_ELECT | C_ONCE, /* run CMD */
    C_WATCHED = C_TAKE | C_ELECT | C_ONCE, /* somebody works under the lock */
    C_OWNER = C_EXTEND | C_RELEASE | C_CHECK,
    C_WORK = C_TAKE | C_ONCE, /* what waits for a lock and runs something */
    C_MEET = C_LATCH | C_BARRIER,
    C_NAMES = C_RUN | C_STATUS, /* take lists of names */
    C_PATTERN = C_LS | C_WATCH | C_TOP | C_GRAPH, /* take a pattern, or nothing */
    C_SERVES = C_EXPORTER | C_WEB,
    C_NAME = C_ALL & ~(C_NONE | C_NAMES | C_PATTERN | C_SERVES | C_SERVER | C_DOCTOR | C_BENCH),
    C_LOCKS = C_ALL & ~(C_NONE | C_SERVER) /* whatever talks to a server about locks */
};

enum output { OUT_TABLE, OUT_JSON, OUT_JSONL };
enum on_lost { LOST_TERM, LOST_KILL, LOST_IGNORE };
enum sort { SORT_NAME, SORT_AGE, SORT_WAITERS, SORT_TTL };

/* Durations in ms; GIVEN_NOT where the user said nothing. */
#define GIVEN_NOT INT64_C(-1)

struct opts {
    char       *url; /* our copy: the one in argv is overwritten */
    const char *prefix, *info, *owner, *value, *protocol;
    const char *listen, *token_file, *host; /* of what serves HTTP */
    int         output; /* enum output */
    int         quiet, verbose, help, version;
    int         nonblock, exclusive, shared, skip_ok, json, sh, all, waiters, watch, force, refresh;
    int         sh_told; /* --sh: the lock is held, and the caller's shell will learn so */
    int         down, wait, leave;
    int         sort, stale, mine, no_header; /* ls; sort: enum sort */
    int         replicas, repair_fence; /* replicas: 0 not given, HF_MAJORITY */
    int         busy_code;
    int         kill_after_given;
    int         on_lost; /* enum on_lost, or -1: not given */
    int64_t     hold_pid; /* 0: not given */
    int         from_time;
    int64_t     count, block, start; /* 0: not given */
    int64_t     slots, permits;
    int64_t     wait_ms, ttl_ms, grace_ms, max_run_ms, hold_min_ms, kill_after_ms;
    int64_t     fresh_ms, stale_ms, max_size; /* once; max_size in bytes */
    int64_t     time_ms; /* bench */
    int64_t     history, since_ms; /* how much is remembered; how far back is looked */
    int64_t     max_locks; /* exporter */
    int         one_scrape;
    int         dot, svg, allow_break;
    int64_t     every_ms;
    int64_t     fence; /* break, ask; 0: not given */
    const char *reason, *message;
    int         now;
    int         on_ask; /* a signal, ASK_RELEASE, or 0: only a line */
    int64_t     asked_ms; /* when the command began: -w counts from here */
    const char *shell; /* -c: CMD as a line for sh */
};

struct cmd {
    const char *name;
    int (*run)(const struct cmd *cmd, struct opts *o, int argc, char **argv);
    unsigned    bit;
    const char *synopsis;
    const char *help;
};

void options_init(struct opts *o);

/* How long to wait as -n and -w say: 0, what is left of D from asked_ms on, or HF_WAIT_FOREVER. */
int64_t options_wait_ms(const struct opts *o);
void options_free(struct opts *o);

/* Read the options of the commands in `cmds` from argv. cmd is NULL in front of the command; there,
 * and for what runs CMD, reading ends at the first word that is no option. Returns the index of
 * the first operand, or -1 after a usage error has been printed. */
int options_parse(struct opts *o, const struct cmd *cmd, int argc, char **argv);

/* The options could not be read to their end: see whether --sh is among them all the same. */
void options_find_sh(struct opts *o, int argc, char **argv);

/* What run, acquire and elect ask of their options together: fills in the defaults. 0, or an exit
 * status after a message. */
int options_check_take(struct opts *o, const struct cmd *cmd);

/* A comma separates names wherever one is given: who takes one name refuses it. 0, or an exit
 * status after a message. */
int options_check_name(const struct cmd *cmd, int argc, char **argv);

/* A number from 1 to max, as in --count; -1 for anything else. */
int64_t options_number(const char *text, int64_t max);

/* "holdfast CMD: what was wrong", and where to look. Returns the exit status. */
int usage_error(const struct cmd *cmd, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The row at `at` of the table of options, or the first one behind it that belongs to one of the
 * commands in bits. Returns where to go on; 0: there is no more. */
struct option_shape {
    char        letter; /* 0: none */
    const char *name;
    const char *arg;  /* NULL: takes none */
    const char *help; /* NULL: not shown */
    unsigned    cmds;
};
int options_next(int at, unsigned bits, struct option_shape *ret);

/* How much earlier than the lease's end CMD must be gone. */
int64_t deadline_margin_ms(int64_t ttl_ms);

#endif
