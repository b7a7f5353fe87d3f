/* SPDX-License-Identifier: MIT
 * options.c - the options of all commands, from one table.
 *
 * getopt_long(3) does the splitting, the table says where each value goes. Nothing here prints the
 * value of an option that could be a URL with a password in it. */
#include "options.h"

#include "asked.h"
#include "clock.h"
#include "exitcode.h"
#include "message.h"
#include "secrets.h"
#include "unknown.h"

#include <errno.h>
#include <getopt.h>
#include <holdfast.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum kind {
    K_FLAG,     /* int = 1 */
    K_COUNT,    /* int++ */
    K_TEXT,     /* const char * */
    K_URL,      /* char *, and hidden in argv */
    K_MS,       /* int64_t, a duration */
    K_CODE,     /* int, 0 to 255 */
    K_PID,      /* int64_t */
    K_NUMBER,   /* int64_t, at least 1 */
    K_COUNT_OF, /* int64_t, 1 to a million */
    K_SIZE,     /* int64_t, bytes */
    K_OUTPUT,   /* enum output */
    K_ON_LOST,  /* enum on_lost */
    K_SORT,     /* enum sort */
    K_ON_ASK,   /* int, a signal or ASK_RELEASE */
    K_PROTOCOL, /* const char *, one of three */
    K_REPLICAS  /* int, at least 1, or HF_MAJORITY */
};

struct option_row {
    char        letter; /* 0: none */
    const char *name;
    const char *arg; /* NULL: takes none */
    unsigned    cmds;
    enum kind   kind;
    size_t      to;
    const char *help; /* NULL: not shown */
};

#define TO(field) offsetof(struct opts, field)

static const struct option_row rows[] = {
    { 'c', "command", "LINE", C_COMMAND, K_TEXT, TO(shell), "CMD is /bin/sh -c LINE" },
    { 'n', "nonblock", NULL, C_WORK, K_FLAG, TO(nonblock), "do not wait: try once" },
    { 'w', "wait", "D", C_WORK, K_MS, TO(wait_ms), "wait at most D (without -n and -w: no limit)" },
    { 'x', "exclusive", NULL, C_TAKE, K_FLAG, TO(exclusive), "one holder at a time (the default)" },
    { 's', "shared", NULL, C_TAKE, K_FLAG, TO(shared), "together with others that say -s" },
    { 0, "slots", "N", C_TAKE | C_RESIZE, K_NUMBER, TO(slots), "a semaphore: at most N at a time" },
    { 0, "permits", "N", C_TAKE, K_NUMBER, TO(permits), "take N of the slots (1)" },
    { 0, "ttl", "D", C_TAKE | C_ELECT | C_EXTEND, K_MS, TO(ttl_ms), "length of the lease (30s)" },
    { 0, "grace", "D", C_WATCHED, K_MS, TO(grace_ms),
      "how long we must be gone before a waiter takes over (3s, TCP 5s, Sentinel and Cluster 15s); "
      "0: not before the ttl ends" },
    { 'E', "conflict-exit-code", "CODE", C_WORK, K_CODE, TO(busy_code),
      "exit status instead of 75 when busy" },
    { 0, "skip-ok", NULL, C_TAKE, K_FLAG, TO(skip_ok), "when busy, exit 0 without a word" },
    { 0, "max-run", "D", C_WORK, K_MS, TO(max_run_ms), "stop CMD after D, exit 80" },
    { 0, "hold-min", "D", C_TAKE, K_MS, TO(hold_min_ms),
      "keep the lock for D even if CMD ends earlier" },
    { 0, "on-lost", "term|kill|ignore", C_WATCHED, K_ON_LOST, TO(on_lost),
      "what CMD gets when the lock is lost (term)" },
    { 0, "on-ask", "SIG|release", C_RUN, K_ON_ASK, TO(on_ask),
      "what CMD gets when somebody asks for the lock (nothing); release: CMD is stopped" },
    { 0, "kill-after", "D", C_WATCHED, K_MS, TO(kill_after_ms),
      "KILL follows TERM after D (5s, at most a quarter of the ttl; a tenth of a shorter grace)" },
    { 0, "info", "TEXT", C_WATCHED, K_TEXT, TO(info), "shown to others who ask who holds it" },
    { 0, "owner", "ID", C_TAKE | C_OWNER, K_TEXT, TO(owner), "the owner id" },
    { 0, "ttl", "D", C_ONCE, K_MS, TO(fresh_ms), "how long the output is fresh; must be given" },
    { 0, "stale", "D", C_ONCE, K_MS, TO(stale_ms),
      "for D after that, print the old output while another computes" },
    { 0, "refresh", NULL, C_ONCE, K_FLAG, TO(refresh), "run CMD even if there is fresh output" },
    { 0, "max-size", "BYTES", C_ONCE, K_SIZE, TO(max_size),
      "larger output is passed on, not cached (1M, which is the most)" },
    { 0, "lease", "D", C_ONCE, K_MS, TO(ttl_ms), "length of the lock's lease (30s)" },
    { 0, "hold-pid", "PID", C_ACQUIRE, K_PID, TO(hold_pid),
      "keep it renewed in the background until PID ends" },
    { 0, "history", "N", C_WATCHED, K_COUNT_OF, TO(history),
      "note how each hold ended, the last N of a lock: holdfast history" },
    { 0, "since", "D", C_HISTORY, K_MS, TO(since_ms), "only holds that ended in the last D" },
    { 'c', "count", "N", C_HISTORY, K_COUNT_OF, TO(count), "at most the last N (100)" },
    { 0, "max-locks", "N", C_EXPORTER, K_COUNT_OF, TO(max_locks),
      "label at most N locks, those with the most waiters; the rest are summed (100)" },
    { 0, "once", NULL, C_EXPORTER, K_FLAG, TO(one_scrape),
      "print the metrics to stdout, and end" },
    { 0, "json", NULL, C_ACQUIRE, K_FLAG, TO(json), "print JSON" },
    { 0, "sh", NULL, C_ACQUIRE, K_FLAG, TO(sh),
      "print assignments for eval in a shell; without the lock, an exit" },
    { 0, "all", NULL, C_RELEASE, K_FLAG, TO(all), "every lock that ID holds" },
    { 0, "waiters", NULL, C_LS, K_FLAG, TO(waiters), "show who waits, in order" },
    { 0, "watch", NULL, C_LS, K_FLAG, TO(watch), "again every second, until a signal" },
    { 0, "sort", "name|age|waiters|ttl", C_LS, K_SORT, TO(sort),
      "in this order: by name, longest held, most waiters, soonest to end" },
    { 0, "stale", NULL, C_LS, K_FLAG, TO(stale), "only those that nobody renews" },
    { 0, "mine", NULL, C_LS, K_FLAG, TO(mine), "only those held by this user on this host" },
    { 0, "no-header", NULL, C_LS, K_FLAG, TO(no_header), "no line of titles" },
    { 0, "watch", NULL, C_LEADER, K_FLAG, TO(watch), "a line at each change, until a signal" },
    { 0, "value", "V", C_ELECT, K_TEXT, TO(value), "what others learn of the leader (host:pid)" },
    { 0, "count", "N", C_SEQUENCE, K_NUMBER, TO(count), "how many ids (1)" },
    { 0, "block", "N", C_SEQUENCE, K_NUMBER, TO(block),
      "how many to fetch in one round trip (as many as --count, at most 1000)" },
    { 0, "start", "N", C_SEQUENCE, K_NUMBER, TO(start), "the first id, if there is none yet (1)" },
    { 0, "from-time", NULL, C_SEQUENCE, K_FLAG, TO(from_time),
      "no id below the server's time in microseconds: a lost counter repeats none" },
    { 0, "force", NULL, C_SERVER, K_FLAG, TO(force), "stop even while locks are held" },
    { 'n', "nonblock", NULL, C_MEET, K_FLAG, TO(nonblock), "do not wait: ask once" },
    { 'w', "wait", "D", C_BARRIER, K_MS, TO(wait_ms),
      "wait at most D (without -n and -w: no limit)" },
    { 'w', "max-wait", "D", C_LATCH, K_MS, TO(wait_ms), "wait until it is at zero, at most D" },
    { 0, "wait", NULL, C_LATCH, K_FLAG, TO(wait), "wait until it is at zero" },
    { 0, "set", "N", C_LATCH, K_COUNT_OF, TO(count),
      "set it to N: if there is none, or it is at zero" },
    { 0, "force", NULL, C_LATCH, K_FLAG, TO(force), "with --set: even while it is counting down" },
    { 0, "down", NULL, C_LATCH, K_FLAG, TO(down), "count down by 1, or by N behind NAME" },
    { 0, "ttl", "D", C_LATCH, K_MS, TO(ttl_ms), "how long it is kept when nobody uses it (1d)" },
    { 0, "count", "N", C_BARRIER, K_COUNT_OF, TO(count), "how many parties meet" },
    { 0, "leave", NULL, C_BARRIER, K_FLAG, TO(leave),
      "meet to leave, separate from those who meet to enter" },
    { 0, "grace", "D", C_BARRIER, K_MS, TO(grace_ms),
      "how long we must be gone before it is broken (3s, TCP 5s)" },
    { 'E', "conflict-exit-code", "CODE", C_MEET, K_CODE, TO(busy_code),
      "exit status instead of 75 when waited in vain" },
    { 0, "protocol", "script|transaction|timestamp", C_LOCKS | C_NONE, K_PROTOCOL, TO(protocol),
      "how locks are taken (script, or transaction where the server runs no scripts)" },
    { 0, "replicas", "N|majority", C_WATCHED | C_DOCTOR, K_REPLICAS, TO(replicas),
      "so many replicas must acknowledge each grant and renewal" },
    { 0, "fence", "N", C_BREAK | C_ASK, K_NUMBER, TO(fence),
      "the holder with this number, as status shows it" },
    { 0, "reason", "TEXT", C_BREAK, K_TEXT, TO(reason), "told to the holder" },
    { 0, "now", NULL, C_BREAK, K_FLAG, TO(now),
      "hand the lock on at once: the holder may still believe that it has it" },
    { 0, "value", "V", C_BREAK, K_TEXT, TO(value),
      "with --now, instead of --fence: a lock of another library, if it still has this value" },
    { 'n', "nonblock", NULL, C_BREAK, K_FLAG, TO(nonblock), "do not wait until it is free" },
    { 'w', "wait", "D", C_BREAK, K_MS, TO(wait_ms),
      "wait at most D (without -n and -w: until it is free)" },
    { 'm', "message", "TEXT", C_ASK, K_TEXT, TO(message), "told to the holder" },
    { 0, "time", "D", C_BENCH, K_MS, TO(time_ms), "how long it takes in all (15s)" },
    { 0, "repair-fence", NULL, C_DOCTOR, K_FLAG, TO(repair_fence),
      "first put a fencing counter aside that is none, and begin a new one" },
    { 0, "dot", NULL, C_GRAPH, K_FLAG, TO(dot), "print it for dot(1) of graphviz" },
    { 0, "svg", NULL, C_GRAPH, K_FLAG, TO(svg), "print it as a drawing" },
    { 0, "every", "D", C_TOP | C_WEB, K_MS, TO(every_ms), "look anew every D (1s)" },
    { 0, "listen", "ADDRESS:PORT", C_SERVES, K_TEXT, TO(listen),
      "where to serve HTTP; a port alone is on 127.0.0.1" },
    { 0, "token-file", "FILE", C_SERVES, K_TEXT, TO(token_file),
      "its first line is needed with each request; must be given to listen beyond loopback" },
    { 0, "host", "NAME", C_SERVES, K_TEXT, TO(host),
      "one more name under which requests may come (a proxy's)" },
    { 0, "allow-break", NULL, C_WEB, K_FLAG, TO(allow_break),
      "locks can be broken from the page, with the token" },
    { 0, "url", "U", C_ALL, K_URL, TO(url),
      "the server ($HOLDFAST_URL, /etc/holdfast.conf, else embedded:)" },
    { 0, "prefix", "P", C_ALL, K_TEXT, TO(prefix), "in front of every name (lock:)" },
    { 'o', "output", "table|json|jsonl", C_ALL, K_OUTPUT, TO(output), "how to print" },
    { 'q', "quiet", NULL, C_ALL, K_FLAG, TO(quiet), "no messages but errors" },
    { 'v', "verbose", NULL, C_ALL, K_COUNT, TO(verbose), "tell what happens; twice: more" },
    { 'h', "help", NULL, C_ALL, K_FLAG, TO(help), "this text" },
    { 'V', "version", NULL, C_NONE, K_FLAG, TO(version), "print the version" },
};
enum { ROWS = sizeof rows / sizeof rows[0], LONG_ONLY = 256, START_MS = 100,
       INFO_SHOWN = 200 };

void options_init(struct opts *o)
{
    *o = (struct opts){ .busy_code = EX_BUSY, .on_lost = -1, .wait_ms = GIVEN_NOT,
                        .ttl_ms = GIVEN_NOT, .grace_ms = GIVEN_NOT, .max_run_ms = GIVEN_NOT,
                        .hold_min_ms = GIVEN_NOT, .kill_after_ms = GIVEN_NOT,
                        .time_ms = GIVEN_NOT, .every_ms = GIVEN_NOT,
                        .fresh_ms = GIVEN_NOT, .stale_ms = GIVEN_NOT,
                        .max_size = HF_VALUE_MAX, .since_ms = GIVEN_NOT,
                        .asked_ms = clock_now_ms() };
}

int64_t options_wait_ms(const struct opts *o)
{
    if (o->nonblock || o->wait_ms == 0)
        return 0;
    if (o->wait_ms == GIVEN_NOT)
        return HF_WAIT_FOREVER;
    int64_t gone = clock_now_ms() - o->asked_ms;
    if (gone < START_MS) /* it was just asked: 10s stay 10s in every message */
        return o->wait_ms;
    return o->wait_ms - gone > 1 ? o->wait_ms - gone : 1; /* 0 would be another question */
}

void options_free(struct opts *o)
{
    if (o->url)
        explicit_bzero(o->url, strlen(o->url));
    free(o->url);
    o->url = NULL;
}

int usage_error(const struct cmd *cmd, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    msg_error("%s%s%s", cmd ? cmd->name : "", cmd ? ": " : "", text);
    msg_error("see holdfast %s%s--help", cmd ? cmd->name : "", cmd ? " " : "");
    return EX_USE;
}

/* ---- values ------------------------------------------------------------------------------ */

/* Decimal digits only; -1 for anything else or more than max. */
static int64_t whole_number(const char *s, int64_t max)
{
    char *end;
    if (s[0] < '0' || s[0] > '9')
        return -1;
    errno = 0;
    long long n = strtoll(s, &end, 10);
    return errno || *end || n > max ? -1 : n;
}

static int one_of(const char *s, const char *const *words, int n)
{
    for (int i = 0; i < n; i++)
        if (strcmp(s, words[i]) == 0)
            return i;
    return -1;
}

static const char *shown(const struct option_row *r)
{
    static char text[40];
    snprintf(text, sizeof text, "--%s", r->name);
    return text;
}

static int set_ms(const struct cmd *cmd, const struct option_row *r, int64_t *to, const char *s)
{
    if (hf_duration_parse(s, to, NULL) == HF_OK)
        return 0;
    return usage_error(cmd, "%s: '%s' is not a duration (such as 500ms, 10s, 5m, 1h30m; a bare "
                       "number is seconds)", shown(r), s);
}

static int set_number(const struct cmd *cmd, const struct option_row *r, void *to, const char *s)
{
    int code = r->kind == K_CODE;
    int64_t n = whole_number(s, code ? 255 : r->kind == K_PID ? INT32_MAX : INT64_MAX);
    if (r->kind == K_PID && s[0] == '0') /* elsewhere 010 would be 8 */
        n = -1;
    if (n < 0 || (!code && n == 0))
        return usage_error(cmd, "%s: '%s' is not %s", shown(r), s,
                           code                ? "a number from 0 to 255"
                           : r->kind == K_PID ? "a process id (decimal, without zeros before it)"
                                              : "a number from 1 on");
    if (code)
        *(int *)to = (int)n;
    else
        *(int64_t *)to = n;
    return 0;
}

static int set_size(const struct cmd *cmd, const struct option_row *r, int64_t *to, const char *s)
{
    size_t digits = strspn(s, "0123456789");
    const char *unit = s + digits;
    int64_t n = -1, factor = strcasecmp(unit, "k") == 0 ? 1024
                             : strcasecmp(unit, "m") == 0 ? 1 << 20 : 1;
    if (digits > 0 && digits < 12 && (!*unit || factor > 1))
        n = strtoll(s, NULL, 10) * factor;
    if (n < 0 || n > HF_VALUE_MAX)
        return usage_error(cmd, "%s: '%s' is not a size of at most 1M (such as 4096, 64k, 1M)",
                           shown(r), s);
    *to = n;
    return 0;
}

int64_t options_number(const char *text, int64_t max)
{
    int64_t n = whole_number(text, max);
    return n > 0 ? n : -1;
}

static int set_count(const struct cmd *cmd, const struct option_row *r, int64_t *to, const char *s)
{
    int64_t n = options_number(s, HF_LATCH_MAX);
    if (n < 0)
        return usage_error(cmd, "%s: '%s' is not a number from 1 to %d", shown(r), s, HF_LATCH_MAX);
    *to = n;
    return 0;
}

static int set_word(const struct cmd *cmd, const struct option_row *r, int *to, const char *s)
{
    static const char *const outputs[] = { "table", "json", "jsonl" };
    static const char *const losses[] = { "term", "kill", "ignore" };
    static const char *const sorts[] = { "name", "age", "waiters", "ttl" };
    int i = r->kind == K_SORT ? one_of(s, sorts, 4)
                              : one_of(s, r->kind == K_OUTPUT ? outputs : losses, 3);
    if (i < 0)
        return usage_error(cmd, "%s: '%s' is not one of %s", shown(r), s, r->arg);
    *to = i;
    return 0;
}

static int set_on_ask(const struct cmd *cmd, int *to, const char *s)
{
    *to = asked_parse(s);
    if (*to > 0)
        return 0;
    return usage_error(cmd, "--on-ask: '%s' is neither a signal (such as USR1) nor release", s);
}

static int set_replicas(const struct cmd *cmd, int *to, const char *s)
{
    int64_t n = strcmp(s, "majority") == 0 ? HF_MAJORITY : whole_number(s, 100);
    if (n == -1 || n == 0)
        return usage_error(cmd, "--replicas: '%s' is not a number from 1 to 100, or majority", s);
    *to = (int)n;
    return 0;
}

static int set_protocol(const struct cmd *cmd, const struct option_row *r, const char **to,
                        const char *s)
{
    static const char *const names[] = { "script", "transaction", "timestamp" };
    int i = one_of(s, names, 3);
    if (i < 0)
        return usage_error(cmd, "--protocol: '%s' is not one of %s", s, r->arg);
    *to = names[i];
    return 0;
}

static int set_url(struct opts *o, char *arg)
{
    options_free(o);
    o->url = strdup(arg);
    secrets_hide_arg(arg);
    if (o->url)
        return 0;
    msg_error("out of memory");
    return EX_SYSTEM;
}

/* 0, or an exit status after a message. */
static int set_value(struct opts *o, const struct cmd *cmd, const struct option_row *r, char *arg)
{
    void *to = (char *)o + r->to;
    switch (r->kind) {
    case K_FLAG: *(int *)to = 1; return 0;
    case K_COUNT: ++*(int *)to; return 0;
    case K_TEXT: *(const char **)to = arg; return 0;
    case K_URL: return set_url(o, arg);
    case K_MS: return set_ms(cmd, r, to, arg);
    case K_CODE:
    case K_PID:
    case K_NUMBER: return set_number(cmd, r, to, arg);
    case K_COUNT_OF: return set_count(cmd, r, to, arg);
    case K_SIZE: return set_size(cmd, r, to, arg);
    case K_OUTPUT:
    case K_SORT:
    case K_ON_LOST: return set_word(cmd, r, to, arg);
    case K_ON_ASK: return set_on_ask(cmd, to, arg);
    case K_PROTOCOL: return set_protocol(cmd, r, to, arg);
    case K_REPLICAS: return set_replicas(cmd, to, arg);
    }
    return EX_BUG;
}

int options_next(int at, unsigned bits, struct option_shape *ret)
{
    for (; at < ROWS; at++)
        if (rows[at].cmds & bits) {
            *ret = (struct option_shape){ rows[at].letter, rows[at].name, rows[at].arg,
                                          rows[at].help, rows[at].cmds };
            return at + 1;
        }
    return 0;
}

/* ---- reading argv ------------------------------------------------------------------------ */

/* getopt's two tables for one command. */
struct tables {
    struct option longs[ROWS + 1];
    char          shorts[2 * ROWS + 3];
};

static void tables_fill(struct tables *t, unsigned bit, int stop_at_operand)
{
    size_t n = 0, s = 0;
    memset(t, 0, sizeof *t);
    if (stop_at_operand)
        t->shorts[s++] = '+';
    t->shorts[s++] = ':'; /* tells a missing value from an unknown option */
    for (int i = 0; i < ROWS; i++) {
        if (!(rows[i].cmds & bit))
            continue;
        int has_arg = rows[i].arg ? required_argument : no_argument;
        t->longs[n++] = (struct option){ rows[i].name, has_arg, NULL, LONG_ONLY + i };
        if (rows[i].letter) {
            t->shorts[s++] = rows[i].letter;
            if (rows[i].arg)
                t->shorts[s++] = ':';
        }
    }
}

static const struct option_row *row_of(int c, unsigned bit)
{
    if (c >= LONG_ONLY)
        return &rows[c - LONG_ONLY];
    for (int i = 0; i < ROWS; i++)
        if (rows[i].letter == c && (rows[i].cmds & bit))
            return &rows[i];
    return NULL;
}

/* getopt said '?' or ':'. word is the word that it stumbled over: only what stands in front of an
 * '=' is shown, the rest may be a secret. */
static int bad_option(const struct cmd *cmd, int c, const char *word)
{
    if (optopt == 0 || optopt >= LONG_ONLY) {
        int len = (int)strcspn(word, "=");
        const struct option_row *r = optopt ? row_of(optopt, ~0u) : NULL;
        if (c == ':')
            return usage_error(cmd, "%.*s needs a value%s%s", len, word, r ? ": " : "",
                               r ? r->arg : "");
        if (r)
            return usage_error(cmd, "%.*s takes no value", len, word);
        return unknown_option(cmd, word, len);
    }
    if (c == ':')
        return usage_error(cmd, "-%c needs a value", optopt);
    return unknown_letter(cmd, (char)optopt);
}

/* From optind on; -1 after a usage error has been printed, 1 if the options ended with --. */
static int parse_some(struct opts *o, const struct cmd *cmd, const struct tables *t, int argc,
                      char **argv)
{
    unsigned bit = cmd ? cmd->bit : C_NONE;
    while (!o->help && !o->version) {
        int before = optind ? optind : 1;
        optopt = 0;
        int c = getopt_long(argc, argv, t->shorts, t->longs, NULL);
        if (c == -1)
            return optind > before;
        if (c == '?' || c == ':') {
            bad_option(cmd, c, argv[optind - 1]);
            return -1;
        }
        const struct option_row *r = row_of(c, bit);
        if (!r || set_value(o, cmd, r, optarg) != 0)
            return -1;
    }
    return 0;
}

/* Options behind NAME, too, up to CMD or --. NAME is moved to where they end. */
static int parse_behind_name(struct opts *o, const struct cmd *cmd, const struct tables *t,
                             int argc, char **argv)
{
    int at = optind++;
    char *name = argv[at];
    int ended = parse_some(o, cmd, t, argc, argv);
    if (ended < 0)
        return -1;
    optind -= ended ? 2 : 1; /* CMD may need its -- */
    argv[optind] = name;
    return 0;
}

static int parse(struct opts *o, const struct cmd *cmd, int argc, char **argv)
{
    struct tables t;
    int stops = !cmd || (cmd->bit & C_COMMAND);
    tables_fill(&t, cmd ? cmd->bit : C_NONE, stops);
    opterr = 0;
    optind = 0; /* glibc: begin anew */
    int ended = parse_some(o, cmd, &t, argc, argv);
    if (ended < 0)
        return -1;
    int more = cmd && stops && !ended && optind + 1 < argc && argv[optind + 1][0] == '-'
               && strcmp(argv[optind + 1], "--") != 0;
    if (more && !o->help && parse_behind_name(o, cmd, &t, argc, argv) != 0)
        return -1;
    msg_level(o->quiet, o->verbose);
    return optind;
}

/* getopt ends at NAME if $POSIXLY_CORRECT is set, and options may come behind it all the same. CMD
 * is to find the variable as it was. */
int options_parse(struct opts *o, const struct cmd *cmd, int argc, char **argv)
{
    static const char variable[] = "POSIXLY_CORRECT";
    const char *value = getenv(variable);
    char *kept = value ? strdup(value) : NULL;
    unsetenv(variable);
    int first = parse(o, cmd, argc, argv);
    if (value && (!kept || setenv(variable, kept, 1) != 0)) {
        msg_error("out of memory");
        first = -1;
    }
    free(kept);
    return first;
}

void options_find_sh(struct opts *o, int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        o->sh |= strcmp(argv[i], "--sh") == 0;
}

/* ---- what belongs together --------------------------------------------------------------- */

int64_t deadline_margin_ms(int64_t ttl_ms)
{
    return ttl_ms / 20 > 50 ? ttl_ms / 20 : 50;
}

/* Between two renewals a lease of ttl falls to 2/3 of it when all is well. Half of it must be
 * enough to stop CMD, else every delay of the server would look like a loss. Where others may take
 * over after a grace that is shorter still, deadline.c shortens the time between TERM and KILL. */
static int check_kill_after(const struct opts *o, const struct cmd *cmd)
{
    int64_t need = o->on_lost == LOST_IGNORE ? 0 : deadline_margin_ms(o->ttl_ms);
    int64_t after = o->on_lost == LOST_TERM ? o->kill_after_ms : 0;
    const char *name = cmd->bit == C_ONCE ? "--lease" : "--ttl";
    char ttl[32], ka[32];
    if (after + need <= o->ttl_ms / 2)
        return 0;
    text_duration(ttl, sizeof ttl, o->ttl_ms);
    text_duration(ka, sizeof ka, after);
    if (after == 0)
        return usage_error(cmd, "%s %s is too short to stop CMD before the lease ends", name, ttl);
    return usage_error(cmd, "%s %s is too short for --kill-after %s: CMD could not be stopped "
                       "before the lease ends (it must be at least %" PRId64 "ms)", name, ttl, ka,
                       after * 20 / 9 > 1000 ? after * 20 / 9 + 1 : 2 * (after + 50));
}

static int check_hold_pid(const struct opts *o, const struct cmd *cmd)
{
    const char *bad = o->max_run_ms != GIVEN_NOT      ? "--max-run"
                      : o->hold_min_ms != GIVEN_NOT   ? "--hold-min"
                      : o->on_lost >= 0               ? "--on-lost"
                      : o->kill_after_ms != GIVEN_NOT ? "--kill-after"
                      : o->grace_ms > 0               ? "--grace"
                                                      : NULL;
    if (cmd->bit != C_ACQUIRE || o->hold_pid || !bad)
        return 0;
    return usage_error(cmd, "%s needs --hold-pid: without it nobody watches over the lock", bad);
}

static int check_mode(const struct opts *o, const struct cmd *cmd)
{
    if (!!o->exclusive + !!o->shared + !!o->slots > 1)
        return usage_error(cmd, "of -x, -s and --slots only one can be used");
    if (o->permits && !o->slots)
        return usage_error(cmd, "--permits needs --slots: of how many?");
    if (o->slots > 1000000)
        return usage_error(cmd, "--slots must be from 1 to 1000000");
    if (o->permits > o->slots)
        return usage_error(cmd, "--permits: there are only %" PRId64 " slots", o->slots);
    if (o->owner && (o->shared || o->slots))
        return usage_error(cmd, "--owner is for a lock with one holder: leave out -s and --slots");
    return 0;
}

int options_check_name(const struct cmd *cmd, int argc, char **argv)
{
    if (argc < 1 || !strchr(argv[0], ','))
        return 0;
    if (cmd->bit & (C_PATTERN | C_EXPORTER))
        return usage_error(cmd, "a comma separates names, and %s takes one pattern: write ? where "
                           "a name has a comma", cmd->name);
    if (cmd->bit == C_ACQUIRE)
        return usage_error(cmd, "a comma separates names, and acquire takes one: for all or none "
                           "of several use holdfast run NAME,NAME -- CMD");
    if (cmd->bit & C_NAME)
        return usage_error(cmd, "a comma separates names, and %s takes one: call it once for each",
                           cmd->name);
    return 0;
}

/* What is taken in another size than it was given is said. */
static void tell_cuts(const struct opts *o)
{
    char grace[32], ttl[32], half[32];
    if (o->info && strlen(o->info) > INFO_SHOWN)
        msg_note("--info has %zu bytes: others see the first %d", strlen(o->info), INFO_SHOWN);
    if (o->grace_ms > o->ttl_ms / 2)
        msg_note("--grace %s is more than half of the ttl, %s: it counts as %s",
                 text_duration(grace, sizeof grace, o->grace_ms),
                 text_duration(ttl, sizeof ttl, o->ttl_ms),
                 text_duration(half, sizeof half, o->ttl_ms / 2));
}

int options_check_take(struct opts *o, const struct cmd *cmd)
{
    if (o->nonblock && o->wait_ms != GIVEN_NOT)
        return usage_error(cmd, "-n and -w cannot be used together");
    if (o->json && o->sh)
        return usage_error(cmd, "--json and --sh cannot be used together");
    int code = check_hold_pid(o, cmd);
    if (!code)
        code = check_mode(o, cmd);
    if (code)
        return code;
    if (o->ttl_ms == GIVEN_NOT)
        o->ttl_ms = HF_TTL_DEFAULT_MS;
    if (o->ttl_ms < HF_TTL_MIN_MS || o->ttl_ms > HF_TTL_MAX_MS)
        return usage_error(cmd, "%s must be between 100ms and 365d",
                           cmd->bit == C_ONCE ? "--lease" : "--ttl");
    if (o->max_run_ms == 0)
        return usage_error(cmd, "--max-run must be longer than 0");
    if (o->on_lost < 0)
        o->on_lost = LOST_TERM;
    o->kill_after_given = o->kill_after_ms != GIVEN_NOT;
    if (!o->kill_after_given)
        o->kill_after_ms = o->ttl_ms / 4 < 5000 ? o->ttl_ms / 4 : 5000;
    if (cmd->bit == C_ELECT && o->on_lost == LOST_IGNORE)
        return usage_error(cmd, "--on-lost ignore: then there would be two leaders");
    if (cmd->bit != C_ACQUIRE || o->hold_pid)
        code = check_kill_after(o, cmd);
    if (!code)
        tell_cuts(o);
    return code;
}
