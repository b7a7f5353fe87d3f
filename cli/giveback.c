/* SPDX-License-Identifier: MIT
 * giveback.c - giving the locks back when we cannot any more, because we have been killed or had to
 * leave a server that did not answer: we prepare it, the guardian does it.
 *
 * The guardian was forked from a program with threads, so it cannot use the library. It runs
 * `holdfast release` instead, for each lock, by the token of that grant: whatever became of it
 * meanwhile, nobody else's is touched. */
#include "giveback.h"

#include "clock.h"
#include "exitcode.h"
#include "platform.h"
#include "secrets.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WORDS = 12 };

#define TRY_MS   10000 /* a server that is started again is there by then */
#define PAUSE_MS 200
#define LOOK_MS  5

struct giveback {
    char **env;
    char  *url;    /* "HOLDFAST_URL=...", ours */
    size_t n;
    char *(*argv)[WORDS];
    char  *done;   /* of the guardian: for each, whether there is nothing left to do */
};

static void wipe(char *text)
{
    if (text)
        explicit_bzero(text, strlen(text));
    free(text);
}

struct giveback *giveback_free(struct giveback *g)
{
    if (!g)
        return NULL;
    wipe(g->url);
    free(g->env);
    free(g->argv);
    free(g->done);
    free(g);
    return NULL;
}

static int is_secret(const char *entry)
{
    size_t len = strcspn(entry, "=");
    for (char *const *p = secrets_kept(); *p; p++)
        if (strncmp(*p, entry, len + 1) == 0)
            return 1;
    return 0;
}

/* Our environment, with what was taken out of it so that CMD does not see it. 0, or -1. */
static int set_env(struct giveback *g, const struct opts *o)
{
    size_t n = 0;
    while (environ[n])
        n++;
    g->env = calloc(n + SECRETS_MAX + 2, sizeof *g->env);
    if (!g->env || (o->url && asprintf(&g->url, "HOLDFAST_URL=%s", o->url) < 0))
        return -1;
    n = 0;
    for (char **p = environ; *p; p++)
        if (!is_secret(*p) && !(o->url && strncmp(*p, "HOLDFAST_URL=", 13) == 0))
            g->env[n++] = *p;
    for (char *const *p = secrets_kept(); *p; p++)
        if (!(o->url && strncmp(*p, "HOLDFAST_URL=", 13) == 0))
            g->env[n++] = *p;
    if (o->url)
        g->env[n++] = g->url;
    return 0;
}

static void set_words(char *argv[WORDS], const struct opts *o, const char *name, const char *token)
{
    const char *words[WORDS] = { "holdfast", "release", "--owner", token };
    int n = 4;
    if (o->prefix) {
        words[n++] = "--prefix";
        words[n++] = o->prefix;
    }
    if (o->protocol) {
        words[n++] = "--protocol";
        words[n++] = o->protocol;
    }
    words[n++] = "--";
    words[n] = name;
    memcpy(argv, words, sizeof words); /* execve() does not change them */
}

struct giveback *giveback_new(const struct taken *t, const struct opts *o)
{
    /* With an id of the caller's choice a later grant of another process looks the same; and a lock
     * that shall be kept for a while is not given back early. */
    if (o->owner || o->hold_min_ms != GIVEN_NOT)
        return NULL;
    struct giveback *g = calloc(1, sizeof *g);
    if (!g || !(g->argv = calloc(t->n, sizeof *g->argv)) || !(g->done = calloc(t->n, 1))
        || set_env(g, o) != 0)
        return giveback_free(g);
    for (; g->n < t->n; g->n++)
        set_words(g->argv[g->n], o, t->lock[g->n].name, hf_lock_owner(t->lock[g->n].m));
    return g;
}

static void pause_for(int64_t ms)
{
    nanosleep(&(struct timespec){ .tv_nsec = ms * 1000000L }, NULL);
}

/* Whoever ends our control group sends this to all in it. There is an end to us without it. */
static _Noreturn void become_release(const struct giveback *g, size_t i)
{
    sigset_t some;
    sigemptyset(&some);
    sigaddset(&some, SIGTERM);
    sigaddset(&some, SIGHUP);
    sigaddset(&some, SIGINT);
    sigprocmask(SIG_SETMASK, &some, NULL);
    platform_run_self(g->argv[i], g->env);
    _exit(EX_SYSTEM);
}

/* The exit status; -1: it was ended, by us at until_ms, or could not be started. */
static int release(const struct giveback *g, size_t i, int64_t until_ms)
{
    int status = 0;
    pid_t pid = fork(), got = 0;
    if (pid == 0)
        become_release(g, i);
    while (pid > 0 && (got = waitpid(pid, &status, WNOHANG)) == 0) {
        if (clock_now_ms() >= until_ms)
            kill(pid, SIGKILL);
        pause_for(LOOK_MS);
    }
    return got > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* A server that refuses us or does not know us will not think better of it; one that is away may
 * come back, and with it the lock. */
void giveback_run(const struct giveback *g)
{
    int64_t until = clock_now_ms() + TRY_MS;
    for (;;) {
        size_t left = 0;
        for (size_t i = 0; i < g->n; i++) {
            int status = g->done[i] ? 0 : release(g, i, until);
            g->done[i] = status >= 0 && status != EX_SERVER;
            left += !g->done[i];
        }
        if (!left || clock_now_ms() >= until)
            return;
        pause_for(PAUSE_MS);
    }
}
