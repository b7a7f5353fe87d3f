/* SPDX-License-Identifier: MIT
 * help.c - the text of --help, in 80 columns. */
#include "help.h"

#include "commands.h"
#include "examples.h"
#include "exitcode.h"

#include <stdio.h>
#include <string.h>

enum { LEFT = 32, WIDTH = 80, NAMES = 11 };

/* Behind the first `left` columns, on as many lines as it takes. */
static void print_wrapped(int left, const char *text)
{
    for (;;) {
        size_t len = strlen(text), room = (size_t)(WIDTH - left);
        if (len > room) {
            len = room;
            while (len > 1 && text[len] != ' ')
                len--;
        }
        printf("%.*s\n", (int)len, text);
        text += len + strspn(text + len, " ");
        if (!*text)
            return;
        printf("%*s", left, "");
    }
}

static void print_options(unsigned bit)
{
    struct option_shape r;
    for (int at = 0; (at = options_next(at, bit, &r)) > 0;) {
        char left[64], letter[] = { '-', r.letter, ',', ' ', '\0' };
        if (!r.help)
            continue;
        int n = snprintf(left, sizeof left, "%s--%s%s%s", r.letter ? letter : "", r.name,
                         r.arg ? " " : "", r.arg ? r.arg : "");
        printf("  %-*s", LEFT - 2, left);
        if (n > LEFT - 3)
            printf("\n%*s", LEFT, "");
        print_wrapped(LEFT, r.help);
    }
}

static void print_examples(const struct cmd *cmd)
{
    const char *const *line = examples_of(cmd->name);
    if (!line)
        return;
    printf("\nExamples:\n");
    for (; *line; line++)
        printf("  %s\n", *line);
}

void help_all(void)
{
    const struct cmd *cmd;
    printf("holdfast - distributed locks on Redis and Valkey\n\nUsage:\n");
    for (int i = 0; (cmd = command_at(i)); i++) {
        int left = printf("  holdfast %-8s ", cmd->name);
        print_wrapped(left, cmd->synopsis);
    }
    printf("\nCommands:\n");
    for (int i = 0; (cmd = command_at(i)); i++) {
        printf("  %-8s ", cmd->name);
        print_wrapped(NAMES, cmd->help);
    }
    printf("  %-8s a command's options, with examples: holdfast help CMD\n", "help");
    printf("\nOptions of every command:\n");
    print_options(C_NONE);
    printf("\nDurations D: 500ms 10s 5m 1h30m 1d; a bare number is seconds.\n\nExit status:\n");
    exit_codes_print(stdout);
    printf("\nThe manual: holdfast(1).\n");
}

void help_command(const struct cmd *cmd)
{
    int left = printf("Usage: holdfast %s ", cmd->name);
    print_wrapped(left, cmd->synopsis);
    printf("\n");
    print_wrapped(0, cmd->help);
    printf("\nOptions:\n");
    print_options(cmd->bit);
    print_examples(cmd);
    printf("\nDurations D: 500ms 10s 5m 1h30m 1d; a bare number is seconds. More: holdfast(1).\n");
}
