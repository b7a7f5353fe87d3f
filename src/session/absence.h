/* SPDX-License-Identifier: MIT
 * absence.h - the holders that a waiter has been seeing absent, and for how long by its own clock.
 */
#ifndef SESSION_ABSENCE_H
#define SESSION_ABSENCE_H

#include "net/resp.h"

#define ABSENCES_MAX 100 /* a look looks at no more holders than that */

struct absences; /* NULL: none */

/* After a look: seen is what it answered. Who was absent before as well keeps its time; old is
 * freed. When memory is short all clocks start anew. */
struct absences *absences_update(struct absences *old, const struct reply *seen, int64_t now_ms);
struct absences *absences_free(struct absences *a);

/* For the next look: pairs of absence and milliseconds, how many arguments. */
#define ABSENCES_ARGS_MAX (2 * ABSENCES_MAX)
size_t absences_args(const struct absences *a, int64_t now_ms, hf_bytes args[ABSENCES_ARGS_MAX],
                     char text[ABSENCES_MAX][24]);

#endif
