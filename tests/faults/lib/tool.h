/* SPDX-License-Identifier: MIT
 * tool.h - the command that `holdfast run` runs in the rows about the tool, and how the tool must
 * end.
 */
#ifndef FAULTS_TOOL_H
#define FAULTS_TOOL_H

#include "faults/lib/matrix.h"

/* How far a run of the tool has come, by what it says and what its command notes. */
enum stage { STARTS, WAITS, TAKEN, RUNS, ENDS, STAGES };

/* What the command does when it gets one of the signals that end a program. */
enum manner { DIES, HANDLES, IGNORES, MANNERS };

/* A page that the command shares with who looks on: it survives kill -9. */
struct note {
    int             manner, family, code, run_ms; /* told to it */
    atomic_int      hold;                         /* run on until this is 0 */
    atomic_int      pid;                          /* it has begun */
    atomic_int      ready;                        /* it treats signals in its manner from here on */
    atomic_int      witness;                      /* the file was locked by another */
    atomic_int      got;                          /* the signal that it handled */
    atomic_int      ended, status;                /* by itself, and with what */
    _Atomic int64_t began_ns, beat_ns, ended_ns;
    _Atomic uint64_t fence;
};

/* The command itself: finds its note and the file by the environment. */
#define TOOL_NOTE    "TOOL_NOTE"
#define TOOL_WITNESS "TOOL_WITNESS"
_Noreturn void tool_command(const char *note, const char *witness);

struct note *tool_note(const char *path);

/* One run of the tool that is over. */
struct outcome {
    int exited, status; /* 0: it died of the signal `status` */
    int sig;            /* sent to it; 0: none */
    int sure;           /* and it was alive then, for certain */
    enum stage stage;   /* how far it had come when it was sent */
    int limited;        /* -w or -n: it may have given up */
    int taken_away;     /* its lock */
    int told_lost, told_silent; /* it says that it has lost the lock; that nobody answers */
    int was_ready;      /* the command treated signals in its manner when it was sent */
    int manner;
    int began, ended, code, got; /* as in the note */
};

/* NULL: it had to end so. Else what is wrong. */
const char *tool_judge(const struct outcome *o);

/* ---- one run after another ---- */

enum { TOOL_SIGNALS = 5 };
extern const int tool_signals[TOOL_SIGNALS];

/* Shared by the driver and all who start the tool. */
extern struct tool {
    atomic_uint  next;                   /* which signal, and at which stage */
    atomic_long  proven, hit[TOOL_SIGNALS][STAGES], runs, unanswered;
    atomic_llong gone_ns[STAGES + 1];    /* the longest from the fault to the end of the tool, */
    atomic_llong command_ns;             /* and of its command, if it was killed or lost its lock */
    struct note *note[CROWD];                /* of each */
    struct {
        atomic_long     over;            /* runs */
        _Atomic int64_t taken_away_ns;   /* when the lock was taken from it, */
        atomic_long     of_run;          /* in this run, counted from 1; 0: never */
    } one[CROWD];
} *tool;

void tool_prepare(struct run *r);
/* What the crowd does: one run, which some signal hits, or none. */
void tool_signalled_turn(struct run *r, int index);
void tool_quiet_turn(struct run *r, int index);

#endif
