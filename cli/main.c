/* SPDX-License-Identifier: MIT
 * main.c - the table of commands. */
#include "commands.h"
#include "complete.h"
#include "ending.h"
#include "exitcode.h"
#include "help.h"
#include "message.h"
#include "platform.h"
#include "unknown.h"

#include <errno.h>
#include <fcntl.h>
#include <holdfast.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct cmd cmds[] = {
    { "run", cmd_run, C_RUN, "[options] NAME[,NAME...] -- CMD [ARG...]",
      "hold the lock while CMD runs; several names: all or nothing" },
    { "once", cmd_once, C_ONCE, "[options] NAME --ttl D -- CMD [ARG...]",
      "print CMD's output, cached; one caller at a time runs it" },
    { "acquire", cmd_acquire, C_ACQUIRE, "[options] NAME",
      "take the lock, print owner and fencing number" },
    { "extend", cmd_extend, C_EXTEND, "NAME --owner ID --ttl D",
      "set the lease of a lock to D from now" },
    { "release", cmd_release, C_RELEASE, "NAME --owner ID | --all --owner ID", "give a lock back" },
    { "check", cmd_check, C_CHECK, "NAME --owner ID",
      "exit 0 if ID still holds the lock, 82 if not" },
    { "held", cmd_held, C_HELD, "NAME", "exit 0 if anybody holds it, 1 if not" },
    { "resize", cmd_resize, C_RESIZE, "NAME --slots N",
      "change for all how many slots a semaphore has" },
    { "status", cmd_status, C_STATUS, "NAME[,NAME...]...",
      "who holds it, since when, time left, who waits" },
    { "why", cmd_why, C_WHY, "NAME", "why it cannot be had, and when it can" },
    { "ls", cmd_ls, C_LS, "[options] [PATTERN]", "list the locks" },
    { "watch", cmd_watch, C_WATCH, "[options] [PATTERN]",
      "what happens to the locks, as it happens" },
    { "history", cmd_history, C_HISTORY, "[options] NAME",
      "who held it, for how long, and how that ended" },
    { "exporter", cmd_exporter, C_EXPORTER, "--listen ADDRESS:PORT [PATTERN] | --once",
      "metrics of the locks, for Prometheus" },
    { "break", cmd_break, C_BREAK, "NAME --fence N [--reason TEXT] [--now] [-n | -w D]",
      "take a lock from its holder, safely" },
    { "ask", cmd_ask, C_ASK, "NAME [-m TEXT] [--fence N]", "ask the holder to let go" },
    { "top", cmd_top, C_TOP, "[options] [PATTERN]", "the hottest locks, live on the terminal" },
    { "graph", cmd_graph, C_GRAPH, "[--dot | --svg] [PATTERN]", "who waits for whom" },
    { "web", cmd_web, C_WEB, "[options] --listen ADDRESS:PORT",
      "the same as a page for a browser" },
    { "elect", cmd_elect, C_ELECT, "[options] NAME -- CMD [ARG...]",
      "run CMD while leader of NAME; again whenever elected again" },
    { "leader", cmd_leader, C_LEADER, "[options] NAME", "print who leads" },
    { "sequence", cmd_sequence, C_SEQUENCE, "[options] NAME",
      "print increasing ids that nobody else gets" },
    { "latch", cmd_latch, C_LATCH, "NAME [--set N [--force] | --down [N] | --wait]",
      "count down, wait for zero; without an option print what is left" },
    { "barrier", cmd_barrier, C_BARRIER, "[options] NAME --count N [--leave]",
      "wait until N have come" },
    { "doctor", cmd_doctor, C_DOCTOR, "[options]",
      "what is reachable, how it is set up, and what that means" },
    { "bench", cmd_bench, C_BENCH, "[options]",
      "what a lock costs on this server, and what limits it" },
    { "server", cmd_server, C_SERVER, "start|stop|status", "the embedded server" },
};
enum { CMDS = sizeof cmds / sizeof cmds[0] };

const struct cmd *command_at(int i)
{
    return i < CMDS ? &cmds[i] : NULL;
}

const struct cmd *command_named(const char *name)
{
    for (int i = 0; i < CMDS; i++)
        if (strcmp(cmds[i].name, name) == 0)
            return &cmds[i];
    return NULL;
}

static int help(int argc, char **argv)
{
    if (argc == 0 || strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0) {
        help_all();
        return EX_OKAY;
    }
    const struct cmd *cmd = command_named(argv[0]);
    if (!cmd)
        return unknown_command(argv[0]);
    help_command(cmd);
    return EX_OKAY;
}

static int dispatch(struct opts *o, int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--complete") == 0)
        return complete(argc > 2 && strcmp(argv[2], "line") == 0);
    int first = options_parse(o, NULL, argc, argv);
    if (first < 0) {
        options_find_sh(o, argc, argv);
        return EX_USE;
    }
    if (o->help) /* --help CMD is help CMD */
        return help(first < argc && command_named(argv[first]), argv + first);
    if (o->version) {
        printf("holdfast %s\n", hf_version());
        return EX_OKAY;
    }
    if (first == argc)
        return usage_error(NULL, "a command is missing");
    if (strcmp(argv[first], "help") == 0)
        return help(argc - first - 1, argv + first + 1);
    const struct cmd *cmd = command_named(argv[first]);
    if (!cmd) {
        options_find_sh(o, argc, argv);
        return unknown_command(argv[first]);
    }
    argc -= first;
    argv += first;
    first = options_parse(o, cmd, argc, argv);
    if (first < 0) {
        if (cmd->bit == C_ACQUIRE)
            options_find_sh(o, argc, argv);
        return EX_USE;
    }
    if (o->help) {
        help_command(cmd);
        return EX_OKAY;
    }
    if (cmd->bit != C_BENCH)
        platform_one_heap();
    int code = options_check_name(cmd, argc - first, argv + first);
    if (first < argc && !(cmd->bit & (C_PATTERN | C_SERVES | C_SERVER)))
        msg_about(argv[first]);
    return code ? code : cmd->run(cmd, o, argc - first, argv + first);
}

/* eval "$(holdfast acquire NAME --sh)" cannot see our exit status, so the text that it gets must
 * not let the script go on without the lock, whatever the reason: an error, busy, or skipped with
 * status 0. A shell that a person types into stays open: there a function or a sourced file ends,
 * where the shell can tell that it is in one, and eval fails. */
static void end_the_script(int code)
{
    int failed = code ? code : EX_BUSY;
    printf("case $- in *i*) [ -z \"${BASH_VERSION-}${ZSH_VERSION-}\" ] || "
           "return %d 2> /dev/null; (exit %d) ;; *) exit %d ;; esac\n", failed, failed, code);
}

/* A program started without stdin, stdout or stderr would get a socket under their numbers, and
 * write its messages to the server. */
static int std_descriptors(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", O_RDWR) != fd)
            return -1;
    return 0;
}

static struct opts o;

static void last_words(int code)
{
    if (o.sh && !o.sh_told && !o.help)
        end_the_script(code);
    o.sh_told = 1;
}

int main(int argc, char **argv)
{
    if (std_descriptors() != 0)
        return EX_SYSTEM;
    options_init(&o);
    ending_last(last_words);
    int code = dispatch(&o, argc, argv);
    ending_stop();
    options_free(&o);
    last_words(code);
    /* A full disk or a closed pipe must not look like success. */
    if ((fflush(stdout) != 0 || ferror(stdout)) && code == EX_OKAY) {
        msg_error("cannot write the output: %s", strerror(errno));
        code = EX_OUTPUT;
    }
    return code;
}
