/* presence.pml - a lock is taken over only when its holder no longer believes (rules A1 to A6).
 *
 * One holder, two waiters that look, and a world that closes the holder's subscription, moves
 * the lock to another server and sets clocks. Ages are counted in ticks and stop at OLD. The TTL
 * is long: the end of the lease can only shorten belief.
 */
#ifndef WITHOUT
#define WITHOUT 0 /* spin -DWITHOUT=SELF_CHECK ... takes that rule away */
#endif
#define HAS(guard) (guard != WITHOUT)
#define HOLDERS_GRACE 1    /* A1 the grace in the value counts, not the waiter's own */
#define BELIEF_ENDS 2      /* A2 belief ends grace after the last proof, trouble noticed or not */
#define FROM_SENDING 3     /* A2 a proof counts from the ping's sending, not from its answer */
#define RETURN_VERIFIES 4  /* A3 who subscribed again is back only after a script found it owner */
#define OWNER_CLEARS 5     /* A3 scripts run for the owner delete the mark of absence */
#define SAME_SERVER 6      /* A3 that script ran on the server where the subscription stands */
#define REIGN 7            /* A4 absence counts in the reign of the grant, or of a present look */
#define REIGN_REPLID 8     /* A4 a reign is more than a run_id, which repeats after a failback */
#define LOOKS_STAMP 9      /* A4 only looks make an older lock liable, not renewals and returns */
#define SELF_CHECK 10      /* A4 grace > 0 only if a script here saw the own subscription ... */
#define CHECK_AGAIN 11     /* A4 ... and sees it again after each new subscription */
#define OWN_CLOCK 12       /* A6 the taker saw the holder absent for grace by its own clock ... */
#define SAME_MARK 13       /* A6 ... under one and the same mark: a new one restarts its clock */

#define GRACE 2
#define OLD 3
#define MARK_TTL 2         /* two look intervals */
#define LOOKERS 2
#define when(condition, action) if :: (condition) -> action :: else fi
#define grow(age, counts) age = (!(counts) -> 0 : (age < OLD -> age + 1 : OLD))

/* On the serving server. */
bit run_id;                /* which of two machines */
byte reign;                /* run_id and replid together: never repeats */
byte stored_reign;         /* the reign key */
bool granted_here = true;  /* the lock's number is above the stored reign's floor */
bool seen_here;            /* a look saw this token present in the stored reign */
bool liable = true;        /* the value's grace is not 0 */
bool taken;                /* another owner has the lock */
bool mark;                 /* of absence: since its first look, since its last, its reign */
byte mark_age, mark_idle, mark_reign;

/* The holder: where its subscription stands (at a deposed master: ELSEWHERE), what it knows. */
mtype = { NOWHERE, HERE, ELSEWHERE, UP, BROKEN, VERIFYING, IDLE, SENT, EXECUTED };
mtype subscribed = HERE, session = UP, ping = IDLE;
byte ping_age, proof_age;  /* since the sending of this ping; of the last answered one */
bool gave_up;              /* belief ended: it does not come back */
bool connected = true;     /* the command connection's first script ran on the serving server */
bool checked = true;       /* a script on it saw the own subscription standing */
byte regrants = 1;         /* times the holder releases and takes the lock anew */

bool absent[LOOKERS];      /* each looker: saw the holder absent, since when */
byte absent_age[LOOKERS];
byte closes = 2, moves = 2, clock_steps = 1; /* faults left */

#define PROVEN (proof_age < GRACE || !HAS(BELIEF_ENDS) && session == UP)
#define BELIEVES (!gave_up && (!liable || PROVEN))

/* ---- scripts ---- */

#define REIGN_NAME (HAS(REIGN_REPLID) -> reign : run_id)
#define ABSENCE_COUNTS (liable && (granted_here || seen_here || !HAS(REIGN)))
#define TAKERS_GRACE (HAS(HOLDERS_GRACE) -> GRACE : 1)
#define LONG_ABSENT(w) (mark_age >= TAKERS_GRACE && \
    (absent_age[w] >= TAKERS_GRACE || !HAS(OWN_CLOCK)))

inline store_reign() {
    when(stored_reign != REIGN_NAME,
        stored_reign = REIGN_NAME; granted_here = false; seen_here = false)
}

inline delete_mark() {
    mark = false; mark_age = 0; mark_idle = 0; mark_reign = 0
}

inline forget_absence(w) {
    absent[w] = false; absent_age[w] = 0
}

inline set_mark() { /* one that no looker has seen before */
    mark = true; mark_age = 0; mark_reign = REIGN_NAME;
    when(HAS(SAME_MARK), forget_absence(0); forget_absence(1))
}

inline look(w) {
    store_reign();
    if
    :: subscribed == HERE -> seen_here = true; delete_mark(); forget_absence(w)
    :: subscribed != HERE && !ABSENCE_COUNTS -> forget_absence(w)
    :: else ->
        when(!mark || mark_reign != REIGN_NAME || mark_idle > MARK_TTL, set_mark());
        mark_idle = 0;
        absent[w] = true;
        taken = LONG_ABSENT(w)
    fi
}

inline owner_script() { /* renew, return: found the lock to be the caller's */
    when(HAS(OWNER_CLEARS), delete_mark());
    when(!HAS(LOOKS_STAMP), seen_here = true)
}

inline hello() { /* the first script on a command connection, and after a new subscription */
    store_reign();
    connected = true;
    checked = (subscribed == HERE || !HAS(SELF_CHECK))
}

inline grant_anew() { /* a release deletes the mark; no looker knows the new token */
    regrants--;
    delete_mark(); forget_absence(0); forget_absence(1);
    granted_here = true; seen_here = false; liable = checked; gave_up = false
}

/* ---- holder and lookers ---- */

inline come_back() {
    if
    :: taken && HAS(RETURN_VERIFIES) -> gave_up = true
    :: else -> when(HAS(RETURN_VERIFIES), owner_script()); session = UP; proof_age = 0
    fi
}

active proctype holder() {
    do
    :: d_step { session == UP && ping == IDLE -> ping = SENT }
    :: d_step { ping == SENT && subscribed != NOWHERE -> ping = EXECUTED }
    :: d_step { ping == EXECUTED ->
        ping = IDLE; proof_age = (HAS(FROM_SENDING) -> ping_age : 0); ping_age = 0 }
    :: d_step { session != BROKEN && subscribed != HERE -> /* notices it, however late */
        session = BROKEN; subscribed = NOWHERE; ping = IDLE; ping_age = 0 }
    :: atomic { session == BROKEN ->
        session = VERIFYING;
        checked = checked && !HAS(CHECK_AGAIN);
        if
        :: subscribed = HERE
        :: reign > 0 -> subscribed = ELSEWHERE
        fi
    }
    :: d_step { session == VERIFYING && connected &&
        (subscribed != ELSEWHERE || !HAS(SAME_SERVER)) -> come_back() }
    :: d_step { session == VERIFYING && gave_up -> session = UP } /* holds nothing to verify */
    :: d_step { connected && !taken && !gave_up -> owner_script() } /* renew */
    :: d_step { !connected || !checked -> hello() }
    :: d_step { regrants > 0 && connected && !taken -> grant_anew() }
    od
}

active [LOOKERS] proctype looker() {
    do
    :: d_step { !taken -> look(_pid - 1) }
    od
}

/* ---- the world ---- */

inline tick() {
    grow(proof_age, true); grow(ping_age, ping != IDLE);
    grow(mark_age, mark); grow(mark_idle, mark);
    grow(absent_age[0], absent[0]); grow(absent_age[1], absent[1]);
    gave_up = !BELIEVES
}

inline move() { /* restart, failover, failback: the lock survives, the subscriptions do not */
    moves--; reign++; run_id = 1 - run_id;
    connected = false; checked = false;
    if
    :: subscribed = NOWHERE
    :: subscribed != NOWHERE -> subscribed = ELSEWHERE /* the old server lives on with it */
    :: subscribed == ELSEWHERE && reign == 2 -> subscribed = HERE /* failback to that one */
    fi
}

active proctype world() {
    do
    :: d_step { tick() }
    :: d_step { closes > 0 && subscribed == HERE -> closes--; subscribed = NOWHERE }
    :: atomic { moves > 0 -> move() }
    :: d_step { clock_steps > 0 && mark -> clock_steps--; mark_age = OLD }
    :: d_step { taken && BELIEVES -> assert(false) } /* P5: two believe */
    od
}
