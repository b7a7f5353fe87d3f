/* SPDX-License-Identifier: MIT
 * waiting.h - whom we wait for and which place we have, for a person who looks on. */
#ifndef CLI_WAITING_H
#define CLI_WAITING_H

#include <holdfast.h>
#include <pthread.h>

struct taken;

struct waiting {
    const struct taken  *t; /* what we wait for */
    pthread_t            thread;
    int                  end_fd; /* -1: nobody looks on */
    int                  terminal;
    char                 told[2048]; /* the last plain line, without its times */
};

/* From a second on: on a terminal one line, renewed every second; with -v elsewhere a line for
 * each change; else nothing. Costs one inspection a second, of several locks one for each. */
void waiting_start(struct waiting *w, const struct taken *t);
/* The line is gone when it returns. */
void waiting_end(struct waiting *w);

/* "you are 2nd of 3", or how many there are if we cannot be told from the others; empty: nobody
 * waits. */
void waiting_place(char *buf, size_t size, const hf_inspect_info *info);

#endif
