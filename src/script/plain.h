/* SPDX-License-Identifier: MIT
 * plain.h - the protocols that need no script: the same operations with WATCH, MULTI and EXEC.
 *
 * script_run() comes here when a client does not use scripts. Each script has a function that does
 * the same by plain commands and gives the same answer, so that nothing above knows the difference.
 * WATCH belongs to a connection, so none of this goes over the shared, pipelined one.
 */
#ifndef SCRIPT_PLAIN_H
#define SCRIPT_PLAIN_H

#include "script/script.h"

struct plain;

/* keys: the counter and the reign, for the greeting of each connection; they must outlive it. */
struct plain *plain_new(struct topo *t, const char *fence_key, const char *reign_key,
                        int64_t skew_ms);
struct plain *plain_free(struct plain *p); /* nobody is in a call; also in a forked child */

void plain_choose(struct plain *p, enum protocol protocol);
enum protocol plain_protocol(const struct plain *p);
int64_t plain_skew_ms(const struct plain *p); /* of protocol timestamp, else 0 */

/* As script_run(). HF_ECONFLICT: others changed the lock at every try; HF_ENOTSUP: not without
 * scripts. */
hf_err plain_run(struct plain *p, struct script_call *sc, hf_error *reterr);

/* What hello.lua does, on a fresh connection (hello.c). *ret_code: 0, 1 a new reign, -4, -5. */
hf_err plain_hello(struct link *l, const char *fence_key, const char *reign_key,
                   int64_t deadline_ms, long long *ret_code, hf_error *reterr);

#endif
