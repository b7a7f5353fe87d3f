/* SPDX-License-Identifier: MIT
 * ensure.h - the private server that is there without set-up.
 */
#ifndef EMBEDDED_ENSURE_H
#define EMBEDDED_ENSURE_H

#include <sys/types.h>

#include "base/err.h"
#include "base/limit.h"
#include "base/log.h"

/* Its folder: dir made absolute, or the user's own when dir is NULL; to be freed. */
hf_err embedded_dir(const char *dir, char **ret, hf_error *reterr);

/* The socket in it; to be freed. HF_ECONFIG when the path is too long for a socket. */
hf_err embedded_socket(const char *dir, char **ret, hf_error *reterr);

/* Start it if it does not run. However many processes do so at the same moment, one starts it and
 * the others wait for it. *ret_socket, to be freed, is where it listens: in dir, or in the folder
 * of a server of the same user that runs where dir is hidden from us (claim.h). HF_ECONN: no server
 * program is installed, it does not come up, or one runs that cannot be reached. */
hf_err embedded_ensure(const char *dir, const struct limit *lim, const struct log *log,
                       char **ret_socket, hf_error *reterr);

/* The same without starting it: *ret_socket is that of the server which runs, else the one in dir;
 * *ret_elsewhere is its process if it does not run in dir, else 0. */
hf_err embedded_find(const char *dir, char **ret_socket, pid_t *ret_elsewhere, hf_error *reterr);

/* The server that has the claim of this folder; 0: none that can be seen. */
pid_t embedded_holder(const char *dir);

#endif
