/* SPDX-License-Identifier: MIT
 * asked.c - run --on-ask: what happens when somebody asks for the lock. */
#include "asked.h"

#include "message.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

static const struct {
    const char *name;
    int         number;
} signals[] = {
    { "HUP", SIGHUP },   { "INT", SIGINT },   { "QUIT", SIGQUIT }, { "KILL", SIGKILL },
    { "USR1", SIGUSR1 }, { "USR2", SIGUSR2 }, { "ALRM", SIGALRM }, { "TERM", SIGTERM },
    { "CONT", SIGCONT }, { "STOP", SIGSTOP }, { "WINCH", SIGWINCH },
};

int asked_parse(const char *text)
{
    if (strcmp(text, "release") == 0)
        return ASK_RELEASE;
    char *end;
    long n = strtol(text, &end, 10);
    if (text[0] >= '0' && text[0] <= '9')
        return *end == '\0' && n > 0 && n <= SIGRTMAX ? (int)n : -1;
    if (strncasecmp(text, "SIG", 3) == 0)
        text += 3;
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
        if (strcasecmp(text, signals[i].name) == 0)
            return signals[i].number;
    return -1;
}

/* Nobody reads the mail of a job that was asked for something: a line for a terminal, or with
 * -v; and always when it changes what happens. */
static void tell(const struct opts *o, const char *name, const char *who)
{
    char shown[TEXT_ESCAPED(1024) + 8];
    text_escape(shown, sizeof shown, name, strlen(name));
    if (o->on_ask == ASK_RELEASE)
        msg_error("lock %s is asked for by %s: stopping CMD (--on-ask release)", shown, who);
    else if (o->on_ask || isatty(STDERR_FILENO))
        msg_note("lock %s is asked for by %s", shown, who);
    else
        msg_verbose("lock %s is asked for by %s", shown, who);
}

enum asked_what asked_check(struct asked *a, const struct taken *t, const struct opts *o,
                            int *ret_signal)
{
    unsigned all = 0;
    for (size_t i = 0; i < t->n; i++)
        all += hf_lock_asked(t->lock[i].m, NULL, 0);
    if (all <= a->heard)
        return ASKED_NOTHING;
    a->heard = all;
    for (size_t i = 0; i < t->n; i++) {
        char who[400];
        unsigned asks = hf_lock_asked(t->lock[i].m, who, sizeof who);
        if (asks > t->lock[i].asks)
            tell(o, t->lock[i].name, who);
        t->lock[i].asks = asks;
    }
    *ret_signal = o->on_ask;
    return !o->on_ask ? ASKED_NOTHING : o->on_ask == ASK_RELEASE ? ASKED_RELEASE : ASKED_SIGNAL;
}
