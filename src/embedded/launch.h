/* SPDX-License-Identifier: MIT
 * launch.h - start redis-server or valkey-server as a process of its own.
 */
#ifndef EMBEDDED_LAUNCH_H
#define EMBEDDED_LAUNCH_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/limit.h"
#include "base/claim.h"

struct launch {
    const char *dir;
    const char *socket;
    int         life_fd;  /* locked; the server keeps it open for as long as it lives */
    int         claim_fd; /* likewise, as CLAIM_FD */
    pid_t       pid;      /* out */
    bool        claimed;  /* out: another server has the claim, */
    pid_t       holder;   /* this one; 0: it cannot be seen */
    char        elsewhere[CLAIM_PATH_MAX]; /* out: its socket, where it can be used; else "" */
    off_t       log_from; /* out: where in the log this start begins */
};

/* Run the server program; returns as soon as it runs, before it answers, or when the limit is over
 * and it is on its way. It is nobody's child, has a session of its own and nothing of ours open but
 * life_fd and claim_fd.
 *
 *   HF_ECONN  no server program is installed, or it cannot be run
 *   HF_ESYS, HF_ENOMEM */
hf_err launch_server(struct launch *l, const struct limit *lim, hf_error *reterr);

/* The last line that this start wrote to the log, as printable text in quotes; returns buf. */
const char *launch_last_words(const struct launch *l, char *buf, size_t size);

/* Of DIR/server.pid, for a message; 0 when there is none. */
long launch_pid_in(const char *dir);

#endif
