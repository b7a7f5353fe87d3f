/* SPDX-License-Identifier: MIT
 * break_call.h - breaking a lock from a screen: as `holdfast break NAME --fence N`. */
#ifndef CLI_BREAK_CALL_H
#define CLI_BREAK_CALL_H

#include <holdfast.h>
#include <stddef.h>

enum { BREAK_SAID = 600 };

/* The holder is told, and the lock passes when it has let go, or when its lease has ended. Waits a
 * few seconds for that. said gets what came of it, in words. HF_OK: it has passed, or soon will. */
hf_err break_call(hf_client *c, hf_bytes name, uint64_t fence, const char *reason,
                  char said[BREAK_SAID]);

#endif
