/* SPDX-License-Identifier: MIT
 * embedded.h - the private server that is there without set-up.
 */
#ifndef EMBEDDED_EMBEDDED_H
#define EMBEDDED_EMBEDDED_H

#include "base/err.h"
#include "base/limit.h"
#include "base/log.h"

/* Its folder: dir made absolute, or the user's own when dir is NULL; to be freed. */
hf_err embedded_dir(const char *dir, char **ret, hf_error *reterr);

/* The socket in it; to be freed. HF_ECONFIG when the path is too long for a socket. */
hf_err embedded_socket(const char *dir, char **ret, hf_error *reterr);

/* Start it if it does not run. However many processes do so at the same moment, one starts it and
 * the others wait for it. HF_ECONN: no server program is installed, or it does not come up. */
hf_err embedded_ensure(const char *dir, const struct limit *lim, const struct log *log,
                       hf_error *reterr);

#endif
