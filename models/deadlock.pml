/* deadlock.pml - who waits for whom, read lock by lock, and who gives up (rules 29 to 31).
 *
 * A ring: owner i has lock i and waits, or not, for the lock of the next one. Whoever waits stands
 * in that queue, says so beside its own lock a little later, and takes that back a little later
 * still. Waits end at any time, and a lock may be lost under a wait. A look reads one lock after
 * the other: the holder's entry and the queue, in one step. Clocks are of different servers: what
 * they say about who began first is any order, but the same for all who look. Ring of one: a reader
 * that reads once more, behind a writer.
 */
#ifndef WITHOUT
#define WITHOUT 0 /* spin -DWITHOUT=TWICE ... takes that rule away */
#endif
#define HAS(guard) (guard != WITHOUT)
#define TWICE 1   /* what a look finds counts when a second one, begun after it, finds it too */
#define SAME 2    /* with the same waits */
#define QUEUED 3  /* an entry counts while its waiter stands in the queue */
#define HOLDS 4   /* and while its holder holds */
#define LAST 5    /* only who began to wait last gives up */
#define AGAIN 6   /* who waits looks again */
#define PERMITS 7 /* permits of those who can go on count as free */
#define AHEAD 8   /* who stands before one in the queue counts as who holds */

#define MAX 4
#define NEXT(i) ((i + 1) % n)
#define BEFORE(i) ((i + n - 1) % n)

byte n;              /* in the ring */
bool outside;        /* lock 0 has a second permit, and its holder waits for nobody */
bool waits[MAX];     /* it stands in the queue of the next */
byte begun[MAX];     /* how many waits: the number of the present one */
byte since[MAX];     /* when that began, by some clock */
byte said[MAX];      /* beside its lock: the number of the wait that it is in; 0: nothing */
byte said_since[MAX];
bool lost[MAX];      /* somebody else, who goes on, has its lock */
bool news[MAX];      /* what there is to see has changed since its last look began */
byte ends = 1, losses = 1, more = 1; /* faults left; more: second waits */

/* Ghosts. */
bool closed;   /* it is a circle now: */
byte circles;  /* so many there have been, */
byte given_up; /* and from these somebody has gone, as bits */
bool looks[MAX], was[MAX]; /* it has been one since the look began */

/* Something has changed. */
inline changed()
{
    news[0] = true; news[1] = true; news[2] = true; news[3] = true;
    if
    :: n == 1 && waits[0] ||
       n == 2 && waits[0] && waits[1] && !(lost[0] || lost[1]) && !outside ||
       n == 4 && waits[0] && waits[1] && waits[2] && waits[3] &&
       !(lost[0] || lost[1] || lost[2] || lost[3]) ->
        if :: !closed -> closed = true; circles++ :: else fi;
        if
        :: !HAS(TWICE) ->
            was[0] = looks[0]; was[1] = looks[1]; was[2] = looks[2]; was[3] = looks[3]
        :: else
        fi
    :: else -> closed = false
    fi
}

proctype owner(byte me)
{
end:
    do
    :: atomic { !waits[me] && (begun[me] == 0 || begun[me] == 1 && more > 0) ->
        more = more - begun[me]; waits[me] = true; begun[me]++;
        if
        :: since[me] = 1
        :: n == 2 || n == 4 && me == 0 -> since[me] = 2
        fi;
        changed() }
    :: atomic { waits[me] && said[me] != begun[me] ->
        said[me] = begun[me]; said_since[me] = since[me]; changed() }
    :: atomic { !waits[me] && said[me] > 0 -> said[me] = 0; said_since[me] = 0; changed() }
    :: atomic { waits[me] && ends > 0 && !(n == 4 && me == 0) ->
        ends--; waits[me] = false; changed() }
    :: atomic { waits[me] && losses > 0 && n > 1 -> losses--; lost[me] = true; changed() }
    od
}

/* One look, from the lock that is waited for to one's own: seen[], from b on, is which wait each
 * is in, 0: it goes on. */
inline look(b)
{
    k = NEXT(me);
    do
    :: atomic {
        if
        :: HAS(QUEUED) && k != NEXT(me) && seen[b + BEFORE(k)] > 0 &&
           !(waits[BEFORE(k)] && begun[BEFORE(k)] == seen[b + BEFORE(k)]) -> seen[b + BEFORE(k)] = 0
        :: else
        fi;
        seen[b + k] = (lost[k] && HAS(HOLDS) || k == 0 && outside && HAS(PERMITS) -> 0 : said[k]);
        at[k] = said_since[k];
        if
        :: k == me -> k = MAX; break
        :: else -> k = NEXT(k)
        fi
        }
    od;
    atomic {
        k = 0;
        circle = HAS(AHEAD) || n > 1;
        do
        :: k < n ->
            circle = circle && seen[b + k] > 0 && (!HAS(LAST) || n == 4 ||
                at[k] < since[me] || at[k] == since[me] && k <= me);
            k++
        :: else -> break
        od;
        k = 0
    }
}

proctype looker(byte me)
{
    byte k, seen[2 * MAX], at[MAX], looked_wait, mine;
    bool circle;
end:
    do
    :: atomic { waits[me] && said[me] == begun[me] && news[me] &&
        (HAS(AGAIN) || looked_wait != begun[me]) ->
        news[me] = false; looked_wait = begun[me]; looks[me] = true; was[me] = closed };
        look(0);
        if
        :: atomic { circle && HAS(TWICE) -> was[me] = closed; mine = circles };
            look(MAX);
            atomic {
                k = 0;
                do
                :: k < n -> circle = circle && (seen[k] == seen[MAX + k] || !HAS(SAME)); k++
                :: else -> break
                od;
                k = 0
            }
        :: atomic { else -> mine = circles }
        fi;
        atomic {
            if
            :: circle && waits[me] && looked_wait == begun[me] ->
                assert(was[me]);   /* it was one */
                assert(!(given_up & (1 << mine))); /* and nobody else has left it */
                given_up = given_up | (1 << mine);
                waits[me] = false;
                changed()
            :: else
            fi;
            k = 0;
            do
            :: k < MAX -> seen[k] = 0; seen[MAX + k] = 0; at[k] = 0; k++
            :: else -> break
            od;
            k = 0; mine = 0; circle = false; looks[me] = false; was[me] = false
        }
    od
}

/* When nothing happens any more, nobody waits for ever. */
proctype judge()
{
end:
    if
    :: atomic { timeout -> assert(!closed) }
    fi
}

init {
    byte i;
    atomic {
        if
        :: n = 1
        :: n = 2; ends = 0; losses = 0; more = 0 /* or judge would wait for them */
        :: n = 2; ends = 0; losses = 0; more = 0; outside = true
        :: n = 2
        :: n = 4; ends = 2; losses = 0 /* what never was there at once */
        fi;
        do
        :: i < n ->
            run owner(i);
            /* In a large ring one looks, and is the last whatever the clocks say. */
            if
            :: n < 4 || i == 0 -> run looker(i)
            :: else
            fi;
            i++
        :: else -> break
        od;
        if
        :: n < 4 -> run judge()
        :: else
        fi
    }
}
