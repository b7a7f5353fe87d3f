/* SPDX-License-Identifier: MIT
 * judge.h - what must always be true in the simulated world, looked at after everything that
 * happens. It sees both sides: what the server has, and what each client believes.
 *
 *   I1 fence      the numbers of one name rise, whatever was lost
 *   I2 belief     who believe at the same time may hold together, and the server has it for them
 *   I3 ownership  nobody's hold is ended, prolonged or shortened but by itself, its time, or after
 *                 its session has been absent for its grace. What was broken is not prolonged, and
 *                 passes no earlier; a question changes nothing
 *   I4 liveness   what is free, or whose holder is gone, is handed to who waits; all calls end; a
 *                 circle of waits is found
 *   I5 order      nobody who is there is overtaken
 *   I6 no leak    every key ends, but two; no hold is left when all have gone
 *   I7 verdict    calls end in time and say what is true, of a deadlock too, which ends by one of
 *                 them; a loss is told in time
 *   I8 clean      no error in a script; no crash: the sanitizers
 * What a fault took away that no promise covers (docs/guarantees.md) is counted, not judged.
 */
#ifndef SIM_JUDGE_H
#define SIM_JUDGE_H

#include "lock/handle.h"
#include "sim/lib/world.h"

#define JUDGE_LOCKS   3
#define JUDGE_HANDLES 24

enum judge_kind { JUDGE_ALONE, JUDGE_READERS, JUDGE_SLOTS };

struct judge_verdict {
    unsigned times;
    int      rule; /* of the first: 1 is I1 */
    char     first[300];
};
extern struct judge_verdict judge_verdict;

/* What was not judged, because of a fault. */
struct judge_counts {
    uint64_t grants, takeovers, handovers, excused_beliefs, excused_grants, refused_grants, losses,
        could_be_handed; /* locks, when nothing disturbed */
};
extern struct judge_counts judge_counts;

__attribute__((format(printf, 2, 3))) void judge_wrong(int rule, const char *fmt, ...);

void judge_begin(void);
int judge_add_lock(const char *key, enum judge_kind kind, unsigned limit);
void judge_add_session(const struct world_proc *p, const char *session);
/* On which it hears of a lock. */
void judge_add_channel(const struct world_proc *p, int lock, const char *channel);
/* It does nothing more: who waits for it waits for nobody. */
void judge_close_session(const struct world_proc *p);
/* From now on its belief counts; weight 0: alone. judge_forget(): not any more. */
void judge_add_handle(const hf_lock *m, const struct world_proc *p, int lock, unsigned weight);
void judge_weigh(const hf_lock *m, unsigned weight); /* another one, from now on */
void judge_forget(const hf_lock *m);

/* After everything that happens this is called, too. */
void judge_watch(void (*fn)(void));

/* A call with this token ended, which had begun then: it will not take the lock any more. */
void judge_gone(const char *token, int64_t begun_ms);
/* Is it a holder on the server? With waits, or does it wait there? */
bool judge_has(int lock, const char *token, bool waits);
/* Does it hold it under this number? A replica that became the master may hand the lock to an
 * earlier place of the same token: its session refuses that. */
bool judge_has_hold(int lock, const char *token, uint64_t fence);
/* Whether this process stands in its queue. */
bool judge_waits(int lock, int proc);
/* The same for any token of a session from this number on: the one it is. NULL: none. */
const char *judge_has_any(int lock, const char *session, uint64_t first);

/* Whom it was granted to with this number; -1: to nobody whom we know. */
int judge_granted_to(int lock, uint64_t fence);
/* Of which term the value is that an election has on the server; 0: there is none. */
uint64_t judge_value_term(int lock);
/* The number of one of its holders, which chance takes; 0: nobody holds it. */
uint64_t judge_fence(int lock, uint64_t chance);
/* The holder with this number is about to lose it, whatever it believes. */
void judge_excuse(int lock, uint64_t fence);
/* Somebody was told that it has passed from the holder with this number. */
void judge_passed(int lock, uint64_t fence);

/* Around a fault that changes what the server has. */
void judge_before_fault(void);
void judge_after_fault(void);
bool judge_lossy(void); /* one has, so far */
/* Whatever is held now may end early. */
void judge_shake(void);
/* A new life of a server began. */
void judge_new_life(int server);
/* Nothing has gone wrong for a while, and nothing does in the network. */
bool judge_calm(void);
bool judge_calm_for(int64_t ms);
/* Something went wrong: liveness begins to count anew, so much later. */
void judge_disturbed(int64_t ms);

/* Nobody is there any more, and all time has passed. */
void judge_end(void);

#endif
