/* SPDX-License-Identifier: MIT
 * waiting.h - whom we wait for and which place we have, for a person who looks on. */
#ifndef CLI_WAITING_H
#define CLI_WAITING_H

#include <holdfast.h>
#include <pthread.h>

struct taken;

struct waiting {
    const struct taken  *t; /* what we wait for; NULL: not a lock */
    hf_client           *c;
    const char          *name;
    pthread_t            thread;
    int                  end_fd; /* -1: no thread */
    int64_t              after_ms; /* when there will be something to tell; NEVER: nobody looks
                                      on */
    int                  terminal, shown;
    int64_t              away_ms; /* since when nobody answers; 0: somebody does */
    char                 told[600]; /* what the last plain line was about, without its times */
};

/* What there is to tell once it takes long, by waiting_tell(): on a terminal one line, renewed
 * every second; with -v elsewhere a line for each change. Costs one inspection a second, of several
 * locks one for each. In any case but with -q: that the server is away, and that it is back. */
void waiting_start(struct waiting *w, const struct taken *t);
/* For what is not a lock: only whether the server is there. */
void waiting_probe(struct waiting *w, hf_client *c, const char *name);
/* after_ms have passed: tell it now, and from then on. Returns at once. */
void waiting_tell(struct waiting *w);
/* The line is gone when it returns. over: what we waited for has come. */
void waiting_end(struct waiting *w, int over);

/* "you are 2nd of 3", or how many there are if we cannot be told from the others; empty: nobody
 * waits. */
void waiting_place(char *buf, size_t size, const hf_inspect_info *info);

#endif
