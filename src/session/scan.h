/* SPDX-License-Identifier: MIT
 * scan.h - all locks under a client's prefix.
 */
#ifndef SESSION_SCAN_H
#define SESSION_SCAN_H

#include "session/client.h"

/* each() is called with every name that matches the glob pattern (NULL: all), once, in byte order;
 * a result that is not HF_OK ends the scan and is returned. until_ms: for all of it; CLOCK_NEVER:
 * each request takes as long as the client allows. HF_ECONN may also mean that one of several
 * servers is away, after each() has been called for what the others have. */
hf_err scan_locks(hf_client *c, const char *pattern, int64_t until_ms,
                  hf_err (*each)(hf_bytes name, void *arg, hf_error *reterr), void *arg,
                  hf_error *reterr);

#endif
