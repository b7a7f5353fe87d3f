/* break.pml - a holder is told to let go, and the lock passes (rules 32 to 34).
 *
 * The first client holds the lock and renews it. An operator reads its number, and breaks it some
 * time later: perhaps when another client has the lock already. The holder may hear of it, or be
 * stopped for as long as it likes; answers may come late or never. A third party may publish to
 * its channel. The lock passes to the next client when it is released, or when its ttl has ended
 * on the server. --now, which asks nobody, is outside: there two believers are the price.
 */
#ifndef WITHOUT
#define WITHOUT 0 /* spin -DWITHOUT=BY_FENCE ... takes that rule away */
#endif
#define HAS(guard) (guard != WITHOUT)
#define LEASE_STAYS 1  /* 29 a break writes a mark, and leaves the lock and its ttl alone */
#define BY_FENCE 2     /* 29 the mark is for one number */
#define MARK_LASTS 3   /* 29 and outlasts the lease */
#define KEEP_REFUSES 4 /* 30 whoever asks under that number is refused, and told */
#define STOP_FIRST 5   /* 30 it stops believing before it gives the lock back, */
#define RELEASE_OWN 6  /* 30 and gives back only what is its own */
#define HINT_ASKS 7    /* 31 a message makes the holder ask, and decides nothing */
#define FROM_SENDING 8 /* 7 a lease counts from the sending of its request */

#define TTL 2
#define END 9 /* of time */
#define NEVER 255
#define when(condition, action) if :: (condition) -> action :: else fi

mtype = { IDLE, SENT, SAID_YES, SAID_NO, SAID_BROKEN }; /* a renewal of the first client */

byte now;
byte lies = 1, breaks = 2, lost_answers = 1; /* what may still happen */

/* On the server: who has the lock, 0 nobody, until when; the mark. */
byte owner = 1, ends = TTL;
byte mark, mark_ends;
byte marked_at = NEVER;

/* The first client. */
bool believes = true, told, hinted, gave_back;
byte until = TTL, sent;
mtype ask = IDLE;

/* The next one, and the operator. */
bool next_believes;
byte next_until;
byte seen; /* the number that the operator has read */

#define MARKED(who) (mark != 0 && (mark == who || !HAS(BY_FENCE)))

inline check() {
    assert(!(believes && next_believes));   /* P1 */
    assert(!next_believes || owner == 2);   /* P2: what was not broken is not lost */
    assert(marked_at == NEVER || owner != 1 || now <= marked_at + TTL) /* it passes in time */
}

proctype time() {
end:
    do
    :: d_step { now < END ->
        now++;
        when(believes && now >= until, believes = false);
        when(next_believes && now >= next_until, next_believes = false);
        when(mark != 0 && now >= mark_ends, mark = 0);
        when(owner != 0 && now >= ends, owner = 0);
        check() }
    od
}

proctype holder() {
end:
    do
    :: d_step { believes && ask == IDLE && !told -> ask = SENT; sent = now; hinted = false }
    :: d_step { ask == SENT ->
        if
        :: MARKED(1) && HAS(KEEP_REFUSES) -> ask = SAID_BROKEN
        :: !(MARKED(1) && HAS(KEEP_REFUSES)) && owner == 1 -> ends = now + TTL; ask = SAID_YES
        :: else -> ask = SAID_NO
        fi }
    :: d_step { ask == SAID_YES -> ask = IDLE; /* what has ended has ended */
        when(believes, until = (HAS(FROM_SENDING) -> sent : now) + TTL); check() }
    :: d_step { ask == SAID_NO -> ask = IDLE; believes = false }
    :: d_step { ask == SAID_BROKEN -> ask = IDLE; told = true;
        assert(marked_at != NEVER);
        when(HAS(STOP_FIRST), believes = false) }
    :: d_step { ask != IDLE && lost_answers > 0 -> /* or its request */
        lost_answers--; ask = IDLE }
    :: d_step { told && !gave_back -> gave_back = true; /* its program has ended its work */
        when(owner == 1 || !HAS(RELEASE_OWN), owner = 0); check() }
    :: d_step { gave_back -> believes = false }
    :: d_step { hinted && !HAS(HINT_ASKS) -> hinted = false; believes = false; told = true;
        assert(marked_at != NEVER) } /* nobody loses a lock by a lie */
    od
}

proctype next() {
end:
    do
    :: d_step { owner == 0 -> owner = 2; ends = now + TTL;
        next_believes = true; next_until = now + TTL; check() }
    :: d_step { next_believes -> /* renews */
        assert(!MARKED(2) || seen == 2); /* nobody is broken for another */
        when(owner == 2 && !MARKED(2), ends = now + TTL; next_until = now + TTL) }
    od
}

proctype operator() {
end:
    do
    :: d_step { owner != 0 && breaks > 0 -> seen = owner }
    :: d_step { seen != 0 && breaks > 0 -> breaks--;
        if
        :: owner == seen ->
            mark = seen;
            mark_ends = (HAS(MARK_LASTS) -> ends + 1 : now + 1);
            when(seen == 1 && marked_at == NEVER, marked_at = now);
            when(seen == 1, hinted = true); /* the message that goes with it */
            when(!HAS(LEASE_STAYS), owner = 0)
        :: else
        fi }
    :: d_step { lies > 0 -> lies--; hinted = true } /* a third party */
    od
}

init {
    atomic { run time(); run holder(); run next(); run operator() }
}
