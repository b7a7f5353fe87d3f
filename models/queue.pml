/* queue.pml - waiting in order, and release by direct handoff (rules B1 and D1 to D6).
 *
 * Three clients want the lock once each. A server step is one script; a message may be lost or
 * late, a request may arrive a second time, much later. Ages are counted in ticks, the claim
 * window is CLAIM of them. A slow client is one that the scheduler leaves alone; FROZEN is for
 * ever, with its connections standing. Presence takeover is one step of a look.
 */
#ifndef WITHOUT
#define WITHOUT 0 /* spin -DWITHOUT=REJOIN ... takes that rule away */
#endif
#define HAS(guard) (guard != WITHOUT)
#define TOMB_CANCEL 1      /* B1 a cancel leaves a tombstone */
#define TOMB_RELEASE 2     /* B1 so does a release, when the acquire was sent more than once */
#define GHOST_CANCEL 3     /* B1 a wake-up for a token nobody waits for is answered by cancel */
#define BACKUP_LOOKS 4     /* D1 not only the youngest waiter looks, the others back it up */
#define LOOK_IN_ORDER 5    /* D1 a look hands to the first living waiter, not to the looker */
#define REJOIN 6           /* D2 who does not find itself in the queue joins again ... */
#define OLD_TICKET 7       /* D2 ... with its old ticket */
#define CANCEL_PASSES 8    /* D3 a cancel by the one that was handed the lock passes it on */
#define GRANT_LAPSES 9     /* D4 a handed-over grant ends with the claim window, if not claimed */
#define CONFIRM_FIRST 10   /* D4 who was last refused long ago confirms before it believes */
#define FROM_SENDING 11    /* D4 a refusal is as old as its request, not as its answer */
#define BELIEF_ENDS 12     /* D4 unconfirmed belief ends the claim window after that request */
#define NEWER_ONLY 13      /* D4 a wake-up from before the last refusal is known by its number */
#define CLAIM_COLLECTS 14  /* D5 a claim collects a grant, a repeated acquire does not */
#define NEWCOMER_QUEUES 15 /* D6 a newcomer to a free lock queues behind those who wait */
#define DROP_DEAD 16       /* D4 a handoff goes to a living waiter, the dead are dropped */

#define N 3
#define CLAIM 2
#define when(condition, action) if :: (condition) -> action :: else fi
#define for_all(action) for (k : 1 .. N) { action }

mtype = { OUT, WAITING, HOLDING, DONE, DEAD, FROZEN };
mtype state[N + 1] = OUT;
bool confirmed[N + 1];     /* HOLDING with the full TTL, not for the claim window only */
byte refused_age[N + 1];   /* since the last request that was refused */
bool late_answer[N + 1];   /* its answer is under way (only without FROM_SENDING) */
bool wakeup[N + 1], old_wakeup[N + 1]; /* messages under way: since that refusal; before it */
bool subscribed[N + 1] = true;
bool copy[N + 1], sent_twice[N + 1];   /* a second acquire is under way; ever was */
byte arrival[N + 1], arrivals;         /* the order of first enqueuing */
bool missed[N + 1];        /* missed a window: no longer entitled to its place */

byte owner;                /* the lock key; 0 = free */
bool collected;            /* its TTL is the full one, not the claim window */
byte grant_age;            /* else: since when */
bool queued[N + 1], tomb[N + 1];
byte ticket[N + 1], tickets; /* 1 .. tickets, renumbered so that they stay small */
bool quiet;                /* the faults are over */
byte crashes = 1, freezes = 1, breaks = 1, copies = 1, cancels = 1; /* faults left */
hidden byte first, k;      /* scratch */

#define ALIVE(i) subscribed[i]
#define FREE (owner == 0 || state[owner] == DEAD)
#define UNSURE(i) (state[i] == HOLDING && !confirmed[i])
#define BELIEVES(i) (state[i] == HOLDING && \
    (confirmed[i] || refused_age[i] < CLAIM || !HAS(BELIEF_ENDS)))

/* ---- scripts ---- */

inline head_of_queue() { /* to `first` */
    first = 0;
    for_all(when(queued[k] && (first == 0 || ticket[k] < ticket[first]), first = k))
}

inline first_living() { /* to `first`; the dead in front of it are dropped */
    head_of_queue();
    do
    :: first != 0 && !ALIVE(first) && HAS(DROP_DEAD) -> queued[first] = false; head_of_queue()
    :: else -> break
    od
}

inline give(x, for_long) {
    owner = x; collected = for_long; grant_age = 0; queued[x] = false;
    assert(for_long || state[x] != DEAD); /* P6: a dead waiter delays nobody; then the order */
    for_all(assert(!(queued[k] && ALIVE(k) && !missed[k] && arrival[k] < arrival[x])))
}

inline hand_on() { /* the first living waiter becomes the owner, for the claim window */
    owner = 0; collected = false; grant_age = 0;
    first_living();
    when(first != 0, wakeup[first] = ALIVE(first); give(first, false))
}

inline new_ticket(i) {
    for_all(when(ticket[i] != 0 && ticket[k] > ticket[i], ticket[k]--));
    when(ticket[i] == 0, tickets++);
    ticket[i] = tickets
}

inline join(i) {
    when(!queued[i] && (ticket[i] == 0 || !HAS(OLD_TICKET)), new_ticket(i));
    queued[i] = true;
    when(arrival[i] == 0, arrivals++; arrival[i] = arrivals)
}

inline acquire(i) { /* also a repeat, a late copy, and joining again */
    first_living();
    if
    :: tomb[i]
    :: !tomb[i] && owner == i ->
        wakeup[i] = ALIVE(i); when(!HAS(CLAIM_COLLECTS), collect_unasked(i))
    :: !tomb[i] && owner == 0 && (first == 0 || !HAS(NEWCOMER_QUEUES)) -> give(i, true)
    :: !tomb[i] && owner == 0 && first != 0 && HAS(NEWCOMER_QUEUES) -> join(i); hand_on()
    :: else -> join(i)
    fi
}

inline collect_unasked(i) {
    assert(collected || state[i] != FROZEN); /* P6: a paused one delays for its window at most */
    collected = true
}

inline cancel(i) {
    tomb[i] = HAS(TOMB_CANCEL);
    queued[i] = false;
    when(owner == i && HAS(CANCEL_PASSES), hand_on())
}

inline release(i) {
    tomb[i] = sent_twice[i] && HAS(TOMB_RELEASE);
    when(owner == i, hand_on())
}

/* ---- clients ---- */

inline leave(i, as) { /* what it knew is forgotten */
    state[i] = as; confirmed[i] = false; refused_age[i] = 0;
    late_answer[i] = false; wakeup[i] = false; old_wakeup[i] = false
}

inline believe(i, sure) {
    state[i] = HOLDING; confirmed[i] = sure; wakeup[i] = false; old_wakeup[i] = false;
    for_all(assert(k == i || !BELIEVES(k))) /* P1 */
}

inline refused(i) { /* what is under way now, is from before */
    state[i] = WAITING; refused_age[i] = 0; late_answer[i] = !HAS(FROM_SENDING);
    old_wakeup[i] = old_wakeup[i] || wakeup[i]; wakeup[i] = false
}

inline ask(i) { /* acquire, and what its answer means */
    acquire(i);
    if
    :: owner == i && collected -> believe(i, true)
    :: owner == i && !collected -> state[i] = WAITING; refused_age[i] = CLAIM /* was handed it */
    :: else -> refused(i)
    fi
}

inline claim(i) { /* for the full TTL, if the grant still stands */
    if
    :: owner == i -> collected = true; grant_age = 0; believe(i, true)
    :: else -> missed[i] = true; queued[i] = false; new_ticket(i); ask(i)
    fi
}

inline woken(i) {
    if
    :: !HAS(CONFIRM_FIRST) -> refused_age[i] = 0; believe(i, false)
    :: HAS(CONFIRM_FIRST) && 2 * refused_age[i] < CLAIM -> believe(i, false)
    :: else -> claim(i)
    fi
}

inline keep(i) { /* the keeper confirms what was believed at once */
    if
    :: owner == i && BELIEVES(i) -> collected = true; grant_age = 0; confirmed[i] = true
    :: else -> cancel(i); leave(i, DONE) /* lost */
    fi
}

inline look(i) {
    if
    :: owner == i -> claim(i)
    :: owner != i && !queued[i] -> ask(i)
    :: queued[i] && FREE && HAS(LOOK_IN_ORDER) -> hand_on()
    :: queued[i] && FREE && !HAS(LOOK_IN_ORDER) -> give(i, true); believe(i, true)
    :: else -> refused(i) /* busy */
    fi
}
/* A look that finds the lock busy only renews the refusal: of interest while faults go on. */
#define LOOKS(i) ((ticket[i] == tickets || HAS(BACKUP_LOOKS)) && subscribed[i] && \
    (owner == i || !queued[i] && HAS(REJOIN) || \
    queued[i] && (FREE || !quiet && (refused_age[i] > 0 || wakeup[i]))))

proctype client(byte i) {
end:
    do
    :: atomic { state[i] == OUT ->
        d_step { ask(i) };
        if
        :: copies > 0 -> copies--; copy[i] = true; sent_twice[i] = true
        :: true
        fi
    }
    :: d_step { state[i] == WAITING && wakeup[i] -> wakeup[i] = false; woken(i) }
    :: d_step { state[i] == WAITING && old_wakeup[i] ->
        old_wakeup[i] = false; when(!HAS(NEWER_ONLY), woken(i)) }
    :: d_step { state[i] == WAITING && LOOKS(i) -> look(i) }
    :: d_step { state[i] == WAITING && !subscribed[i] ->
        subscribed[i] = true; when(HAS(REJOIN), ask(i)) }
    :: d_step { late_answer[i] -> late_answer[i] = false; refused_age[i] = 0 }
    :: d_step { UNSURE(i) -> keep(i) }
    :: d_step { state[i] == HOLDING -> release(i); leave(i, DONE) }
    :: d_step { state[i] == DONE && wakeup[i] ->
        wakeup[i] = false; when(HAS(GHOST_CANCEL), cancel(i)) }
    od
}

/* ---- the world ---- */

proctype faults(byte i) {
end:
    do
    :: d_step { copy[i] -> copy[i] = false; acquire(i) }
    :: d_step { !quiet && state[i] == WAITING && cancels > 0 ->
        cancels--; cancel(i); leave(i, DONE) }
    :: d_step { !quiet && state[i] == WAITING && freezes > 0 -> freezes--; leave(i, FROZEN) }
    :: d_step { !quiet && (state[i] == WAITING || state[i] == HOLDING) && crashes > 0 ->
        crashes--; leave(i, DEAD); subscribed[i] = false }
    :: d_step { !quiet && state[i] == WAITING && breaks > 0 && subscribed[i] -> /* with messages */
        breaks--; subscribed[i] = false; wakeup[i] = false; old_wakeup[i] = false }
    od
}

#define AGES(i) ((state[i] == WAITING || UNSURE(i)) && refused_age[i] < CLAIM)
#define LAPSES (owner != 0 && !collected && HAS(GRANT_LAPSES))

inline tick() {
    for_all(when(AGES(k), refused_age[k]++));
    when(LAPSES, grant_age++);
    when(grant_age == CLAIM, missed[owner] = true; owner = 0; grant_age = 0)
}

active proctype time() {
end:
    do
    :: d_step { LAPSES || AGES(1) || AGES(2) || AGES(3) -> tick() }
    :: d_step { owner != 0 && state[owner] == FROZEN && collected -> owner = 0 } /* P3: its TTL */
    od
}

active proctype monitor() {
    atomic { run client(1); run client(2); run client(3);
        run faults(1); run faults(2); run faults(3) }
    quiet = true;
    do
    :: d_step { owner != 0 && state[owner] == DONE && !wakeup[owner] -> assert(false) } /* a leak */
    :: timeout -> /* nothing moves any more: nobody may be waiting still */
        assert(state[1] != WAITING && state[2] != WAITING && state[3] != WAITING); break
    od
}
