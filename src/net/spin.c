/* SPDX-License-Identifier: MIT
 * spin.c - a lone caller looks for its reply for a moment before it sleeps.
 */
#include "net/spin.h"

#include "base/clock.h"
#include "base/process.h"

#define SPIN_US       50
#define SCORE_AT_FIRST 4
#define SCORE_MAX      8
#define MISS           2
#define PAUSE_READS    100
#define CROWDED_READS  200

void spin_init(struct spin *sp, bool wanted)
{
    bool enabled = wanted && !stream_simulated() && process_cores() > 1;
    *sp = (struct spin){ .enabled = enabled, .score = SCORE_AT_FIRST };
}

void spin_crowded(struct spin *sp)
{
    sp->crowded = CROWDED_READS;
}

bool spin_begins(struct spin *sp, bool alone)
{
    if (!sp->enabled || !alone || (sp->crowded > 0 && sp->crowded--))
        return false;
    if (sp->pause > 0 && --sp->pause == 0)
        sp->score = 1;
    return sp->score > 0;
}

ssize_t spin_read(struct spin *sp, struct stream *s, void *buf, size_t n)
{
    int64_t until = clock_now_us() + SPIN_US;
    ssize_t got;
    do
        got = s->ops->read_now(s, buf, n);
    while (got == 0 && clock_now_us() < until);
    if (got != 0 && sp->score < SCORE_MAX)
        sp->score++;
    if (got == 0 && (sp->score -= MISS) <= 0)
        sp->pause = PAUSE_READS;
    return got;
}
