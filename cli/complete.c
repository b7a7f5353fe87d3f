/* SPDX-License-Identifier: MIT
 * complete.c - what can come next on a command line, for the completion of shells.
 *
 * The scripts in share/completion know nothing of holdfast but how to ask here, so they are never
 * out of date: commands and options come from the tables that the program itself reads. On stdin
 * are the words of the line up to the cursor, each ended by a NUL; the last one is to be completed,
 * and may be empty. With the argument "line" it is the line itself, as it was typed. (As arguments
 * others could see the words, and one may be a URL with a password.)
 * The answer is one possible word on each line, with a tab and a description behind it; or one line
 * ":command N": the words from number N on, where holdfast itself is 0, are a command of its
 * own (":command N here": its name is the last word); or ":files": the name of a file is wanted. */
#include "complete.h"

#include "commands.h"
#include "exitcode.h"
#include "lock_names.h"
#include "shellwords.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1000, BYTES = 1 << 17 };

struct line {
    char *text;
    char *word[MOST];
    int   n;
    int   at; /* the word that is looked at */

    struct opts         o;   /* what was said of the server */
    const struct cmd   *cmd; /* NULL: in front of it */
    int                 help;
    int                 operands; /* behind the command */
    int                 no_options; /* behind "--" */
    int                 valued;   /* the next word is the value of this option: */
    struct option_shape option;
};

static int is_last(const struct line *l)
{
    return l->at == l->n - 1;
}

static unsigned bit_of(const struct line *l)
{
    return l->cmd ? l->cmd->bit : C_NONE;
}

static int begins(const char *word, const char *typed)
{
    return strncmp(word, typed, strlen(typed)) == 0;
}

static void offer(const char *typed, const char *front, const char *word, const char *about)
{
    if (begins(word, typed))
        printf("%s%s%s%s\n", front, word, about ? "\t" : "", about ? about : "");
}

/* ---- lists ------------------------------------------------------------------------------- */

static void offer_commands(const char *typed)
{
    const struct cmd *cmd;
    for (int i = 0; (cmd = command_at(i)); i++)
        offer(typed, "", cmd->name, cmd->help);
    offer(typed, "", "help", "the options of a command");
}

static void offer_options(unsigned bit, const char *typed)
{
    struct option_shape r;
    for (int at = 0; (at = options_next(at, bit, &r)) > 0;) {
        char name[64];
        snprintf(name, sizeof name, "--%s", r.name);
        if (r.help)
            offer(typed, "", name, r.help);
    }
}

/* "a|b|c": the words in small letters among them; capitals stand for something else. */
static void offer_alternatives(const char *typed, const char *front, const char *list)
{
    while (*list) {
        char word[64];
        size_t len = strcspn(list, "|");
        snprintf(word, sizeof word, "%.*s", (int)len, list);
        if (islower((unsigned char)word[0]))
            offer(typed, front, word, NULL);
        list += len + (list[len] == '|');
    }
}

static void offer_urls(const char *typed, const char *front)
{
    static const char *const urls[] = { "embedded:", "redis://", "rediss://", "unix:///",
                                        "redis+sentinel://", "redis+cluster://",
                                        "redis+quorum://" };
    for (size_t i = 0; i < sizeof urls / sizeof urls[0]; i++)
        offer(typed, front, urls[i], NULL);
}

static void offer_values(const struct option_shape *r, const char *typed, const char *front)
{
    if (strcmp(r->name, "url") == 0)
        offer_urls(typed, front);
    else if (strstr(r->arg, "FILE"))
        printf(":files\n");
    else if (strchr(r->arg, '|'))
        offer_alternatives(typed, front, r->arg);
}

/* ---- the line ---------------------------------------------------------------------------- */

/* What was said of the server counts for the names of its locks. */
static void remember(struct line *l, const struct option_shape *r, char *value)
{
    if (strcmp(r->name, "url") == 0)
        l->o.url = value;
    else if (strcmp(r->name, "prefix") == 0)
        l->o.prefix = value;
    else if (strcmp(r->name, "protocol") == 0)
        l->o.protocol = value;
    else if (strcmp(r->name, "command") == 0)
        l->o.shell = value;
}

/* By its name of len bytes or, if only one can be meant, the beginning of it. 0: there is none. */
static int find_long(unsigned bit, const char *name, size_t len, struct option_shape *ret)
{
    struct option_shape r;
    int found = 0;
    for (int at = 0; (at = options_next(at, bit, &r)) > 0;) {
        if (strncmp(r.name, name, len) != 0)
            continue;
        *ret = r;
        found++;
        if (!r.name[len])
            return 1;
    }
    return found == 1;
}

static int find_letter(unsigned bit, char letter, struct option_shape *ret)
{
    for (int at = 0; (at = options_next(at, bit, ret)) > 0;)
        if (ret->letter == letter)
            return 1;
    return 0;
}

static void long_option(struct line *l, char *word)
{
    struct option_shape r;
    size_t len = strcspn(word + 2, "=");
    char *value = word[2 + len] ? word + 2 + len + 1 : NULL;
    if (is_last(l) && !value) {
        offer_options(bit_of(l), word);
        return;
    }
    if (!find_long(bit_of(l), word + 2, len, &r) || !r.arg)
        return;
    if (!value) {
        l->valued = 1;
        l->option = r;
    } else if (is_last(l)) {
        char front[64];
        snprintf(front, sizeof front, "%.*s", (int)(value - word), word);
        offer_values(&r, value, front);
    } else {
        remember(l, &r, value);
    }
}

/* -n, -nw, -w5 */
static void letters(struct line *l, char *word)
{
    struct option_shape r;
    if (is_last(l)) {
        if (!word[1])
            offer_options(bit_of(l), word);
        return;
    }
    for (char *p = word + 1; *p; p++) {
        if (!find_letter(bit_of(l), *p, &r))
            return;
        if (!r.arg)
            continue;
        l->valued = !p[1];
        l->option = r;
        if (p[1])
            remember(l, &r, p + 1);
        return;
    }
}

/* A list "a,b": only the last name is completed. */
static void offer_names(const struct line *l, char *word)
{
    char *comma = l->cmd->bit & C_NAMES ? strrchr(word, ',') : NULL;
    char front[512] = "";
    if (comma) {
        int len = (int)(comma + 1 - word);
        if (snprintf(front, sizeof front, "%.*s", len, word) >= (int)sizeof front)
            return;
        word = comma + 1;
    }
    lock_names_print(&l->o, l->cmd->bit, front, word);
}

static void last_operand(struct line *l, char *word)
{
    static const char small[] = "abcdefghijklmnopqrstuvwxyz|";
    const unsigned unlisted = C_SEQUENCE | C_ONCE; /* names that no list has */
    unsigned bit = l->cmd->bit;
    if (!l->cmd->synopsis[strspn(l->cmd->synopsis, small)] && l->operands == 0)
        offer_alternatives(word, "", l->cmd->synopsis);
    else if ((l->operands == 0 || bit == C_STATUS)
             && (bit & (C_NAME | C_NAMES | C_PATTERN) & ~unlisted))
        offer_names(l, word);
}

/* 1: go on with the next word. */
static int operand(struct line *l, char *word)
{
    if (!l->cmd) {
        if (is_last(l))
            offer_commands(word);
        l->cmd = command_named(word);
        l->help |= strcmp(word, "help") == 0;
        l->no_options = 0;
        return l->cmd ? !l->help : l->help;
    }
    if ((l->cmd->bit & C_COMMAND) && l->operands == 1) {
        if (l->o.shell)
            return 0;
        if (is_last(l) && !*word && !l->no_options)
            printf("--\tthe command follows\n");
        else
            printf(":command %d%s\n", l->at, is_last(l) ? " here" : "");
        return 0;
    }
    if (is_last(l))
        last_operand(l, word);
    l->operands++;
    return 1;
}

static void walk(struct line *l)
{
    int more = 1;
    for (l->at = 1; more && l->at < l->n; l->at++) {
        char *word = l->word[l->at];
        if (l->valued) {
            l->valued = 0;
            if (is_last(l))
                offer_values(&l->option, word, "");
            else
                remember(l, &l->option, word);
        } else if (l->no_options || word[0] != '-') {
            more = operand(l, word);
        } else if (strcmp(word, "--") == 0 && !is_last(l)) {
            l->no_options = 1;
        } else if (word[1] == '-') {
            long_option(l, word);
        } else {
            letters(l, word);
        }
    }
}

/* 0, or an exit status: nothing can be said about such a line. */
static int read_words(struct line *l, int typed)
{
    l->text = malloc(BYTES + 1);
    if (!l->text)
        return EX_SYSTEM;
    size_t len = fread(l->text, 1, BYTES, stdin);
    l->text[len] = '\0';
    if (typed)
        l->n = shellwords_split(l->text, l->word, MOST);
    for (size_t i = 0; !typed && i < len && l->n < MOST; i += strlen(l->text + i) + 1)
        l->word[l->n++] = l->text + i;
    return len == BYTES || l->n == MOST ? EX_USE : 0;
}

int complete(int typed)
{
    struct line l = { .n = 0 };
    options_init(&l.o);
    int code = read_words(&l, typed);
    if (code == 0)
        walk(&l);
    free(l.text);
    return code;
}
