/* SPDX-License-Identifier: MIT
 * cli_args.c - fuzz: any command line is read or refused with a message, up to what would be done.
 * The input is the arguments, each on a line.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../cli/commands.h"
#include "../cli/exitcode.h"
#include "holdfast.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
void __sanitizer_set_report_fd(void *fd) __attribute__((weak));

enum { WORDS = 24, SAID = 4096 };

static void must(int holds)
{
    if (!holds)
        abort();
}

/* Messages go to a pipe, and what a sanitizer has to say still to stderr. */
static int ends[2] = { -1, -1 }, kept = -1;

static void listen_in(void)
{
    if (kept < 0) {
        kept = dup(STDERR_FILENO);
        must(kept >= 0 && pipe2(ends, O_NONBLOCK | O_CLOEXEC) == 0);
        if (__sanitizer_set_report_fd)
            __sanitizer_set_report_fd((void *)(intptr_t)kept);
    }
    dup2(ends[1], STDERR_FILENO);
}

/* Lines of printable text, without the password of a URL, wherever that was given. */
static size_t heard(void)
{
    char said[SAID + 1];
    dup2(kept, STDERR_FILENO);
    ssize_t n = read(ends[0], said, SAID);
    if (n <= 0)
        return 0;
    said[n] = '\0';
    for (ssize_t i = 0; i < n; i++)
        must(said[i] == '\n' || ((unsigned char)said[i] >= ' ' && said[i] != 0x7f));
    must(!strstr(said, "//u:S3CR3T@") && !strstr(said, "//:S3CR3T@"));
    while (read(ends[0], said, SAID) > 0)
        ;
    return (size_t)n;
}

static void check_numbers(const struct opts *o)
{
    const int64_t ms[] = { o->wait_ms, o->ttl_ms, o->grace_ms, o->max_run_ms, o->hold_min_ms,
                           o->kill_after_ms, o->fresh_ms, o->stale_ms, o->time_ms, o->since_ms,
                           o->every_ms };
    for (size_t i = 0; i < sizeof ms / sizeof *ms; i++)
        must(ms[i] == GIVEN_NOT || (ms[i] >= 0 && ms[i] <= INT64_C(3155760000000)));
    must(o->busy_code >= 0 && o->busy_code <= 255);
    must(o->output >= OUT_TABLE && o->output <= OUT_JSONL);
    must(o->hold_pid >= 0 && o->count >= 0 && o->block >= 0 && o->start >= 0 && o->fence >= 0);
    must(o->max_size >= 0 && o->max_size <= HF_VALUE_MAX);
    must(o->replicas == HF_MAJORITY || (o->replicas >= 0 && o->replicas <= 100));
}

/* As main() does it, but for the command itself. */
static int parse(struct opts *o, int argc, char **argv)
{
    int first = options_parse(o, NULL, argc, argv);
    if (first < 0)
        return EX_USE;
    must(first <= argc);
    const struct cmd *cmd = first < argc ? command_named(argv[first]) : NULL;
    if (!cmd || o->help || o->version)
        return 0;
    argc -= first;
    argv += first;
    first = options_parse(o, cmd, argc, argv);
    if (first < 0)
        return EX_USE;
    must(first >= 1 && first <= argc && argv[argc] == NULL);
    if (o->help)
        return 0;
    check_numbers(o);
    int code = options_check_name(cmd, argc - first, argv + first);
    if (!code && (cmd->bit & C_WATCHED))
        code = options_check_take(o, cmd);
    if (!code && (cmd->bit & C_WATCHED))
        must(o->ttl_ms >= HF_TTL_MIN_MS && o->ttl_ms <= HF_TTL_MAX_MS && o->kill_after_ms >= 0
             && o->on_lost >= 0);
    return code;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1), *argv[WORDS + 2] = { "holdfast" };
    struct opts o;
    int argc = 1;
    must(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    for (char *p = text, *end; *p && argc <= WORDS; p = end) {
        argv[argc++] = p;
        end = p + strcspn(p, "\n");
        if (*end)
            *end++ = '\0';
    }
    options_init(&o);
    listen_in();
    int code = parse(&o, argc, argv);
    size_t said = heard();
    must(code == 0 || (code == EX_USE && said > 0));
    options_free(&o);
    free(text);
    return 0;
}
