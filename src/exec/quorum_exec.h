/* SPDX-License-Identifier: MIT
 * quorum_exec.h - what waiting on several independent servers needs beside the operations.
 *
 * Operations reach them as they reach everything (exec.h). A lock is granted when a majority has
 * agreed on its number; a verdict about which too few answered is VERDICT_UNKNOWN.
 *
 *   HF_ENOQUORUM  too few servers answered, or may vote; the message says what the others said. Of
 *                 an acquire nothing stays on those that can be reached
 *   HF_ENOTSUP    what no majority can do soundly
 */
#ifndef EXEC_QUORUM_EXEC_H
#define EXEC_QUORUM_EXEC_H

#include "op/op.h"
#include "topo/quorum.h"

/* A place in line is not needed any more. Not granted: the next in line is told, where the lock is
 * free. Not waited for: where it stays, it does no harm for long. */
void quorum_leave_line(struct quorum *q, const struct lock_keys *keys, const char *token,
                       hf_bytes owner, bool granted);

#endif
