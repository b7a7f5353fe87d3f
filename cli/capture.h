/* SPDX-License-Identifier: MIT
 * capture.h - CMD's output, passed on as it comes and kept. */
#ifndef CLI_CAPTURE_H
#define CLI_CAPTURE_H

#include <poll.h>
#include <stddef.h>

struct capture {
    int    in, out; /* our end of the pipe, and CMD's */
    char  *kept;
    size_t len, max;
    int    too_large; /* more than max came, or memory ran out: what is kept is not all */
    char   part[4096]; /* came and is still to be passed on: no more than a pipe takes at once */
    size_t have, sent;
    int    ended;  /* nothing more will come */
    int    counted; /* CMD is gone, and rest says how much of the pipe is its own */
    int    rest;
    int    broken; /* errno of our own stdout, or 0 */
};

/* 0, or -1 and errno. */
int capture_open(struct capture *c, size_t max);
void capture_close(struct capture *c);

/* What to wait for. */
void capture_poll(const struct capture *c, struct pollfd p[2]);
/* After poll(): never waits. gone: CMD is, so what is in the pipe is all that counts; what
 * processes that it left behind may write later does not. */
void capture_step(struct capture *c, const struct pollfd p[2], int gone);
/* All is read and passed on. */
int capture_done(const struct capture *c);
/* Nobody wants the rest. */
void capture_abandon(struct capture *c);

#endif
