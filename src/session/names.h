/* SPDX-License-Identifier: MIT
 * names.h - the keys of each lock, once per client, however many handles it has.
 *
 * Ten thousand handles that wait for one lock need its keys once.
 */
#ifndef SESSION_NAMES_H
#define SESSION_NAMES_H

#include "topo/keys.h"

struct hf_client;
struct names;

struct names *names_new(struct hf_client *c); /* NULL: no memory */
struct names *names_free(struct names *n); /* nobody uses any of them */

/* The keys of a name; as client_keys(). */
hf_err names_use(struct names *n, hf_bytes name, struct lock_keys **ret, hf_error *reterr);
/* alone: in a forked child, where nobody else is and a lock may be taken for ever. */
void names_leave(struct names *n, struct lock_keys *k, int alone);

#endif
