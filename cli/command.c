/* SPDX-License-Identifier: MIT
 * command.c - CMD: where it begins on the command line, and what it is told. */
#include "command.h"

#include "exitcode.h"
#include "message.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The system's shell and not $SHELL: a line of cron means the same at a terminal. */
static char **shell_line(const struct cmd *cmd, const struct opts *o, char **rest)
{
    static char *words[4] = { "/bin/sh", "-c" };
    if (*rest) {
        usage_error(cmd, "-c is the whole command, but '%s' follows: leave out one of them", *rest);
        return NULL;
    }
    words[2] = (char *)o->shell; /* as it is in argv */
    return words;
}

char **command_find(const struct cmd *cmd, const struct opts *o, int argc, char **argv)
{
    int dashes = argc > 1 && strcmp(argv[1], "--") == 0;
    if (argc < 1)
        usage_error(cmd, "the lock's name is missing");
    else if (o->shell)
        return shell_line(cmd, o, argv + 1 + dashes);
    else if (argc < 2 + dashes)
        usage_error(cmd, "the command to run is missing: NAME -- CMD, or NAME -c 'LINE'");
    else if (!dashes && argv[1][0] == '-')
        usage_error(cmd, "a command that begins with '-', as '%s' does, needs -- before it",
                    argv[1]);
    else
        return argv + 1 + dashes;
    return NULL;
}

const char *command_program(char **command)
{
    const char *slash = strrchr(command[0], '/');
    return slash && slash[1] ? slash + 1 : command[0];
}

int command_environment(const struct taken *t, const char *list, const struct opts *o)
{
    char *fences = taken_fences(t), *owners = taken_owners(t), ttl[32], held[8192];
    hf_error err;
    hf_err e = hf_client_held(t->c, held, sizeof held, &err);
    if (e != HF_OK) {
        free(fences);
        free(owners);
        return msg_failed(e, &err);
    }
    snprintf(ttl, sizeof ttl, "%" PRId64, o->ttl_ms);
    int bad = !fences || !owners || setenv("HOLDFAST_NAME", list, 1) != 0
              || setenv("HOLDFAST_HELD", held, 1) != 0
              || setenv("HOLDFAST_FENCE", fences, 1) != 0
              || setenv("HOLDFAST_OWNER", owners, 1) != 0 || setenv("HOLDFAST_TTL_MS", ttl, 1) != 0;
    free(fences);
    free(owners);
    if (bad)
        msg_error("out of memory");
    return bad ? EX_SYSTEM : 0;
}
