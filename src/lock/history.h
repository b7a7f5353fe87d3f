/* SPDX-License-Identifier: MIT
 * history.h - one entry of a lock's log.
 */
#ifndef LOCK_HISTORY_H
#define LOCK_HISTORY_H

#include "net/resp.h"

/* {ID, {name, value, ...}}, all of them bytes. Anybody may have written it; what it tells borrows
 * the text. */
hf_past history_entry(const struct reply *entry);

#endif
