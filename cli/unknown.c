/* SPDX-License-Identifier: MIT
 * unknown.c - a word that is no command or no option of the command, and what was meant by it.
 *
 * First what is certain: the word in full elsewhere, or the beginning of a longer one; then what
 * differs by a typing mistake. */
#include "unknown.h"

#include "commands.h"
#include "exitcode.h"
#include "suggest.h"

#include <stdio.h>
#include <string.h>

enum { FEW = 8 }; /* names that are worth saying, and fit */

/* "run", "run or once", "run, once or latch", with something in front of each. */
struct list {
    char   text[200];
    size_t n;
    const char *first, *last;
};

static void list_add(struct list *l, const char *front, const char *word)
{
    size_t len = strlen(l->text);
    if (l->last)
        snprintf(l->text + len, sizeof l->text - len, "%s%s%s", l->n > 1 ? ", " : "", front,
                 l->last);
    l->first = l->n == 0 ? word : l->first;
    l->last = word;
    l->n++;
}

static const char *list_text(struct list *l, const char *front, const char *joint)
{
    size_t len = strlen(l->text);
    snprintf(l->text + len, sizeof l->text - len, "%s%s%s", l->n > 1 ? joint : "", front, l->last);
    return l->text;
}

/* Which of two words that are near enough is nearer? */
struct nearest {
    const char *word; /* NULL: none yet */
    size_t      distance;
};

static void nearest_try(struct nearest *n, const char *typed, const char *word)
{
    size_t d = suggest_distance(typed, word);
    if (suggest_near(typed, word) && (!n->word || d < n->distance))
        *n = (struct nearest){ word, d };
}

static int begins(const char *word, const char *typed)
{
    return strncmp(word, typed, strlen(typed)) == 0;
}

/* ---- commands ---------------------------------------------------------------------------- */

/* What others call it. */
static const struct {
    const char *word, *ours;
} others[] = {
    { "list", "ls" },        { "unlock", "release" }, { "version", "--version" },
    { "lock", "run, or acquire" }, { "exec", "run" },       { "show", "status" },
    { "renew", "extend" },   { "cache", "once" },     { "id", "sequence" },
    { "steal", "break" },    { "kill", "break" },     { "delete", "break" },
    { "events", "watch" },   { "metrics", "exporter" },
};

/* A name of ours, or words about several. */
static int can_be_said(const char *ours)
{
    return strpbrk(ours, " -") || command_named(ours);
}

int unknown_command(const char *word)
{
    struct list beginnings = { .n = 0 };
    struct nearest near = { .word = NULL };
    const struct cmd *cmd;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (strcmp(word, others[i].word) == 0 && can_be_said(others[i].ours))
            return usage_error(NULL, "there is no command '%s': use %s", word, others[i].ours);
    for (int i = 0; (cmd = command_at(i)); i++) {
        nearest_try(&near, word, cmd->name);
        if (*word && begins(cmd->name, word))
            list_add(&beginnings, "", cmd->name);
    }
    if (beginnings.n > 0)
        return usage_error(NULL, "there is no command '%s': did you mean %s?", word,
                           list_text(&beginnings, "", " or "));
    if (near.word)
        return usage_error(NULL, "there is no command '%s': did you mean %s?", word, near.word);
    return usage_error(NULL, "there is no command '%s'", word);
}

/* ---- options ----------------------------------------------------------------------------- */

static int in_front(const char *text, const struct list *l)
{
    return usage_error(NULL, "unknown option %s: options of a command come behind it, as in "
                       "holdfast %s %s", text, l->first, text);
}

/* It belongs to other commands: 1 after a message. */
static int of_others(const struct cmd *cmd, const char *text, unsigned bits)
{
    struct list names = { .n = 0 };
    const struct cmd *other;
    for (int i = 0; (other = command_at(i)); i++)
        if (other->bit & bits)
            list_add(&names, "", other->name);
    if (names.n == 0)
        return 0;
    if (!cmd) {
        in_front(text, &names);
        return 1;
    }
    usage_error(cmd, "unknown option %s: it belongs to %s", text,
                names.n > FEW ? "other commands" : list_text(&names, "", " and "));
    return 1;
}

int unknown_letter(const struct cmd *cmd, char letter)
{
    struct option_shape r;
    char text[] = { '-', letter, '\0' };
    unsigned bits = 0;
    for (int at = 0; (at = options_next(at, C_ALL, &r)) > 0;)
        if (r.letter == letter)
            bits |= r.cmds;
    if (!of_others(cmd, text, bits))
        usage_error(cmd, "unknown option %s", text);
    return EX_USE;
}

int unknown_option(const struct cmd *cmd, const char *word, int len)
{
    struct list beginnings = { .n = 0 };
    struct nearest near = { .word = NULL };
    struct option_shape r;
    char text[64];
    unsigned bit = cmd ? cmd->bit : C_NONE, elsewhere = 0;
    snprintf(text, sizeof text, "%.*s", len, word);
    const char *typed = text + strspn(text, "-");
    for (int at = 0; (at = options_next(at, C_ALL, &r)) > 0;) {
        if (strcmp(r.name, typed) == 0)
            elsewhere |= r.cmds;
        if (!(r.cmds & bit) || !r.help)
            continue;
        nearest_try(&near, typed, r.name);
        if (*typed && begins(r.name, typed))
            list_add(&beginnings, "--", r.name);
    }
    if (beginnings.n > 0)
        return usage_error(cmd, "unknown option %s: did you mean %s?", text,
                           list_text(&beginnings, "--", " or "));
    if (of_others(cmd, text, elsewhere))
        return EX_USE;
    if (near.word)
        return usage_error(cmd, "unknown option %s: did you mean --%s?", text, near.word);
    return usage_error(cmd, "unknown option %s", text);
}
