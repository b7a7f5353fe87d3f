/* SPDX-License-Identifier: MIT
 * matrix.h - faults x topologies: what a row is, and what its functions may use.
 *
 * A cell is one row on one topology: servers, eight processes that contend for three locks, and the
 * fault, injected again and again at random moments. Each injection proves that it happened; fewer
 * than the row's number, and the cell has failed. Meanwhile every grant, every moment of belief,
 * every loss and every failed call is written to shared memory, which survives kill -9, and is
 * judged at the end by the invariants:
 *
 *   I1  fencing numbers are unique and rise in real time
 *   I2  no two believe at the same time that they hold a lock; a lock on a file, as a witness
 *   I3  nobody is told that its lock was taken while it could rely on it
 *   I4  a free lock with a waiter is granted
 *   I5  nobody who waits is passed over again and again
 *   I6  nothing is left behind: keys have a ttl, locks and queues end, descriptors are closed
 *   I7  calls end in time, and fail only where the row says that they may
 *   I8  no process ends by itself; the sanitizers find nothing
 *
 * A fault that the promises do not cover on a topology is "out" there: then I2 is measured and
 * published, and all others still hold, but for what the row says (MAY_...).
 */
#ifndef FAULTS_MATRIX_H
#define FAULTS_MATRIX_H

#include "harness/cluster.h"
#include "harness/fleet.h"
#include "harness/history.h"
#include "harness/net.h"
#include "harness/proc.h"
#include "harness/proxy.h"
#include "harness/quorum.h"
#include "harness/waiting.h"

enum { LOCKS = 3, CROWD = 8, SERVERS_MAX = 12, LOSSES = 16, ERRORS = 32, WITNESSES = 10000 };

/* ---- a row ----------------------------------------------------------------------------------- */

struct run;

/* What it needs of servers and clients. */
struct setup {
    int         memory_only;   /* no append-only file */
    int         fsync_always;
    int         clockshim, diskshim;
    int         mixed;         /* Q: every other server is a Valkey */
    int         proxy;         /* S and Q: between clients and servers, run.p[] */
    int         net;           /* each server behind a wire of its own, run.net */
    const char *options;       /* of the URL; NULL: replicas=1 on F and C, none on S and Q */
    const char *quarantine;    /* one more, for F and Q */
    int64_t     ttl_ms;        /* 0: 2000 */
    int64_t     grace_ms;      /* 0: half of it */
    int64_t     timeout_ms;    /* of the clients; 0: the default */
    int         down_after_ms; /* F; 0: 3000, so that only the fault itself deposes a master */
    int         node_timeout_ms; /* C; 0: 5000 */
    const char *const *args;   /* of every server with data */
};

enum {
    MAY_LOSE  = 1,  /* keys go early: I3 is not judged */
    MAY_FAIL  = 2,  /* calls may end with an honest error: counted */
    MAY_PASS  = 4,  /* waiters may be passed over: I5 is published */
    MAY_LATE  = 8,  /* processes stand still: I7 does not look at the time */
};

struct row {
    const char  *name;     /* ROW= */
    const char  *about;    /* for the table */
    const char  *topos;    /* of "SFCQ" */
    const char  *quick_on; /* those of `make test` */
    int          quick, whole; /* proven injections */
    const char  *out;      /* where I2 is not promised; NULL: nowhere */
    unsigned     may;
    struct setup want;
    int64_t      stall_ms; /* I4: so long a free lock may stay free; 0: 10 s */
    void       (*turn)(struct run *r, int index); /* what the crowd does instead; may be NULL */
    void       (*prepare)(struct run *r); /* servers are there, clients are not; may be NULL */
    int        (*inject)(struct run *r);  /* once; 1: it happened, and this proved it */
    void       (*finish)(struct run *r);  /* the clients are gone; may be NULL */
};

/* Where masters are replaced; and everywhere in `make test`, on machines of all kinds. */
enum { REPLACED_MS = 45000 };

/* All cells of these rows become tests of the program. */
void matrix_add(const struct row *row, size_t n);
#define ROWS(array)                                                                       \
    __attribute__((constructor)) static void add_rows(void)                               \
    {                                                                                     \
        matrix_add(array, sizeof array / sizeof array[0]);                                \
    }

/* ---- a cell that runs ------------------------------------------------------------------------ */

enum phase { IDLE, ASKING, HOLDING, RELEASING };

/* Shared by all processes. */
struct board {
    atomic_int go, stop, keep[LOCKS]; /* keep: who gets this one holds it until told */
    struct seat {
        atomic_int   phase, lock, opened;
        atomic_llong since_ns, beat_ns;
        atomic_long  signals;             /* SIGUSR1 */
        _Atomic int64_t real_ns, boot_ns; /* what its clocks are ahead: clocks.c */
        _Atomic(struct grant *) grant;
    } seat[CROWD];
    atomic_long calls, given_up, got[LOCKS], failed[ERRORS], lost[LOSSES];
    atomic_long taken_early;   /* I3 */
    atomic_long late, leaks;   /* I7, I6 */
    atomic_long wrong;         /* I7: a tool that ended otherwise than it must */
    _Atomic int64_t latest_ns; /* the call that ended last after its limit */
    _Atomic uint64_t newest[LOCKS]; /* at the resource */
    atomic_long written, refused;
    atomic_int  witnesses;     /* the file was locked by another */
    struct { int lock; unsigned client; int64_t at; } witness[WITNESSES];
    char        first_error[300];
};

struct run {
    const struct row *row;
    char             topo;
    int              quick;
    struct setup     want;
    struct server   *s[SERVERS_MAX]; /* those with data */
    int              n;
    struct fleet    *f;  /* F */
    struct cluster  *cl; /* C */
    struct proxy    *p[SERVERS_MAX]; /* in front of s[] */
    struct net      *net;
    const char      *url, *name[LOCKS];
    int              slot[LOCKS];
    struct board    *b;
    struct history  *h;
    struct workers  *w;
    int              injected, tries;
    int              switches; /* of masters, because the fault wants it so */
    long             mark;     /* the row's own */
};

/* The server that has this lock now; on Q any of them. */
struct server *run_server(struct run *r, int lock);
int run_any_lock(void);
const char *run_key(struct run *r, int lock); /* "lock:a" */
/* The sum of a number of INFO over all servers that can be asked; of lines NAME:N, or of lines
 * NAME:...FIELD=N if field is not NULL. */
long long run_info(struct run *r, const char *name, const char *field);
/* How often the logs of all servers with data contain it. */
int run_logged(struct run *r, const char *text);
/* How often masters have changed since the beginning. */
int run_switches(struct run *r);
/* As prepare(), with "quarantine=2s": fresh servers of a quorum do not vote at first. */
void run_outlast_quarantine(struct run *r);

/* ---- the crowd ---- */

/* On a network of our own, even and odd ones are at these places. */
enum { CLIENTS_AT = 12 };
extern void (*crowd_enters)(struct run *r, int index); /* each, when it begins; may be NULL */

void crowd_start(struct run *r);
void crowd_end(struct run *r);
/* Each lock is granted so often again, within a minute; or the cell fails. */
void crowd_go_on(struct run *r, int grants);
/* Somebody holds it and will not let go before crowd_let_go(); who. -1: it did not come to that. */
int crowd_hold(struct run *r, int lock);
void crowd_let_go(struct run *r);
/* Somebody waits for it, and is not one of the stopped; -1: nobody. */
int crowd_waiter(struct run *r, int lock);
int crowd_waiters(struct run *r, int lock);
/* It stands still when this returns, and its seat shows where. */
void crowd_freeze(struct run *r, int i);
void crowd_thaw(struct run *r, int i);
/* Gone, and another one in its place. It must stand still. */
void crowd_kill(struct run *r, int i);
void crowd_replace(struct run *r, int i);
int crowd_phase(const struct run *r, int i);
int crowd_lock(const struct run *r, int i);
/* Until then, or ms have passed; 1: so it is. */
int until_granted(struct run *r, int lock, long more, int64_t ms);

/* ---- the judge ---- */

struct verdict {
    size_t  grants, disorder, i1, i2, i3, i4, i5, i6, i7;
    int64_t overlap_ms, worst_ms;
    size_t  witness, overslept; /* the file was locked: by a holder; by one that had lost it */
    size_t  lost, spurious, passed;
    long    refused, calls, failed;
    int64_t x50_us, x99_us, max_us; /* from free to granted */
    int64_t late_ms, seconds;
    int     deposed; /* masters that changed without being told to: marked in the table */
};

void judge(struct run *r, struct verdict *v);
/* I6: what is left on the servers. */
size_t judge_leftovers(struct run *r);
/* Print the line, write it to the files of HF_FAULTS_OUT; 1: it holds. */
int table_line(struct run *r, const struct verdict *v);

#endif
