/* SPDX-License-Identifier: MIT
 * absence.h - the holders of a lock that have been seen absent, and for how long by our own clock.
 */
#ifndef SESSION_ABSENCE_H
#define SESSION_ABSENCE_H

#include "op/lock.h"

#define ABSENCES_MAX 100 /* a look looks at no more holders than that */

struct absences; /* NULL: none */

/* After a look: seen is what it answered. Who was absent before as well keeps its time; old is
 * freed. When memory is short all clocks start anew. */
struct absences *absences_update(struct absences *old, struct op_list seen, int64_t now_ms);
struct absences *absences_free(struct absences *a);
/* The one that has been seeing for longer; the other is freed. */
struct absences *absences_longer(struct absences *a, struct absences *b);

/* For the next look: how many, and each with the time until now. */
size_t absences_list(struct absences *a, int64_t now_ms, const struct op_absence **ret);

#endif
