/* message.pml - a message is a hint, not an authority (rules 11 and 14).
 *
 * A client uses its tokens one after the other: it tries, or waits in the queue; then it holds,
 * releases or detaches. Another client takes and releases the same lock. A third party may publish
 * to the client's channel, and knows tokens, names and numbers. What it knows of nonces is its
 * rank: nothing (PUBLISHER), those in the messages that the server has sent (LISTENER), or those of
 * all who wait (READER). What it sends and what is heard is one step: it forgets nothing, so the
 * last moment to send is the best. Time is the matter of queue.pml: belief ends before a window.
 */
#ifndef WITHOUT
#define WITHOUT 0 /* spin -DWITHOUT=NONCE ... takes that rule away */
#endif
#define HAS(guard) (guard != WITHOUT)
#define NONCE 1         /* 14 a waiter believes only who names the nonce of its place */
#define FIRST_COUNTS 2  /* 14 and of several messages the first */
#define NEW_NONCE 3     /* 14 a new place has a new nonce */
#define PLAUSIBLE 4     /* 11 a number far from the ticket is not believed */
#define CONFIRM 5       /* 11 with ?confirm=1 the server is asked before anything is believed */
#define KEEPER_ASKS 6   /* 11 else it is asked afterwards, and its answer counts */
#define KEEPS_PLACE 7   /* 11 who was told a lie stays where it stands */
#define ASTRAY 8        /* 14 a hand-over to a token that is done is given back ... */
#define ASTRAY_QUEUED 9 /* 14 ... only if that token ever stood in a queue, */
#define ASTRAY_NONCE 10 /* 14 by the nonce of its place, */
#define ASTRAY_KEY 11   /* 14 for its own lock, */
#define ASTRAY_NUMBER 12 /* 14 under a number above that of its own grant, */
#define ASTRAY_HELD 13  /* 14 not while it is held: */
#define FROM_GRANT 14   /* 14 from the moment at which it no longer waits */
#define UNTIL_FREED 15  /* 14 until the server has answered its release; */
#define FORGET_LEFT 16  /* 14 and never when it was detached */

#define T 2                /* tokens */
#define OTHER (T + 1)      /* the other client, as an owner */
#define when(condition, action) if :: (condition) -> action :: else fi

mtype = { PUBLISHER, LISTENER, READER }; /* what the third party may do */
mtype = { NO_NUMBER, OLD, TRUE_ONE, NEAR, FAR }; /* below the ticket; of the own grant; above it */
mtype = { OUT, TRY_SENT, TRY_ANSWERED, WAITING, TAKING, HELD, FREEING, OVER };

mtype rank;
bool confirm;              /* ?confirm=1 */
byte lies = 3, takes = 2, lapses = 1, failovers = 1; /* what may still happen */

/* On the server. */
byte owner;                /* a token, OTHER, or 0: free */
bool queued;               /* the present token stands in the queue */
byte ghost;                /* after a failover: a token that is done stands in it again */
bool collected;            /* claimed, or not handed over at all */

/* The client. */
byte cur = 1;              /* its present token */
mtype phase = OUT;
bool registered;           /* who waits, so a message is its to believe */
bool served[T + 1];        /* it was waited for, with this nonce: a message may still come */
bool gone[T + 1];          /* and it is not held any more, as far as that record says */
bool done[T + 1], left[T + 1]; /* released, or given up by ourselves; detached */
bool stood[T + 1];         /* ever had a nonce; else it is empty, and everybody knows that */
mtype told = NO_NUMBER;    /* by a message that is believed */
mtype fence = NO_NUMBER;   /* of what is held */
bool believes, confirmed;
bool fresh;                /* its refusal is: what was handed over since has not lapsed */
bool lied_to;              /* a claim has failed: see what the server says */

/* Messages of the server that are under way, and what the third party knows. */
bool mail[T + 1], old_mail[T + 1], ghost_mail[T + 1];
bool handed_back[T + 1];   /* it really was handed over after it was done */
bool knows[T + 1], knew[T + 1]; /* the nonce of its place; of an earlier place */

#define TRUSTED (rank != READER || confirm) /* what is promised in full */

/* ---- scripts ---- */

inline hand_on() { /* to who is first in the queue */
    collected = false;
    if
    :: ghost != 0 -> owner = ghost; ghost_mail[ghost] = true; handed_back[ghost] = true;
        when(rank != PUBLISHER, knows[ghost] = true); ghost = 0
    :: ghost == 0 && queued -> owner = cur; queued = false; mail[cur] = true;
        when(rank != PUBLISHER, knows[cur] = true)
    :: else -> owner = 0
    fi
}

inline believe(number, sure) {
    believes = true; confirmed = sure; fence = number; phase = TAKING;
    assert(owner == cur || !TRUSTED);       /* P1 */
    assert(number == TRUE_ONE || !TRUSTED); /* P4 */
    assert(number != FAR && number != OLD)
}

inline join() { /* or take it, if it is free */
    stood[cur] = true;
    when(HAS(NEW_NONCE), knew[cur] = knew[cur] || knows[cur]; knows[cur] = false);
    when(mail[cur], old_mail[cur] = true; mail[cur] = false);
    told = NO_NUMBER;
    if
    :: owner == 0 && ghost == 0 -> owner = cur; collected = true; believe(TRUE_ONE, true)
    :: else -> queued = true; fresh = true; when(owner == 0, hand_on())
    fi
}

inline cancel(i, own_key, forged) { /* because of a message */
    assert(own_key);                    /* nothing is written that we did not ask for */
    assert(done[i]);                    /* nothing is given up that is under way, held or left */
    assert(!forged || knows[i] || knew[i]); /* who may only publish makes us write nothing */
    assert(forged || handed_back[i]);   /* nor does an old message */
    when(owner == i, hand_on())
}

/* ---- the client ---- */

inline end_of_token() {
    when(cur == T, phase = OVER);
    when(cur < T, cur++; phase = OUT)
}

inline give_up_held() { /* it is done with it: by its own will, or because the server said so */
    believes = false; confirmed = false; fence = NO_NUMBER; done[cur] = true; gone[cur] = true;
    queued = false;
    when(owner == cur, hand_on());
    end_of_token()
}

inline claim(number) {
    if
    :: owner == cur && number == TRUE_ONE -> collected = true; believe(TRUE_ONE, true)
    :: else -> lied_to = true
    fi
}

inline look() { /* after a claim that failed; or because nothing was heard */
    if
    :: owner == cur -> lied_to = false; claim(TRUE_ONE)
    :: owner != cur && queued && (HAS(KEEPS_PLACE) || !lied_to) -> lied_to = false
    :: else -> lied_to = false;
        assert(!queued); /* P6: it loses its place */
        join()
    fi
}

inline hear(i, number, right_nonce, own_key, forged) {
    if
    :: i == cur && registered ->
        when((right_nonce || !HAS(NONCE)) && own_key &&
            (told == NO_NUMBER || !HAS(FIRST_COUNTS)), told = number)
    :: else ->
        when(HAS(ASTRAY) && (served[i] || !stood[i] && !HAS(ASTRAY_QUEUED)) &&
            (right_nonce || !HAS(ASTRAY_NONCE)) && (own_key || !HAS(ASTRAY_KEY)) &&
            (number == NEAR || number == FAR || !HAS(ASTRAY_NUMBER)) &&
            (gone[i] || !HAS(ASTRAY_HELD)),
            cancel(i, own_key, forged))
    fi
}

inline stop_waiting() {
    when(registered, served[cur] = true; gone[cur] = !HAS(FROM_GRANT));
    registered = false; told = NO_NUMBER
}

inline let_go(as) { /* nothing is believed any more */
    believes = false; confirmed = false; fence = NO_NUMBER; phase = as
}

inline detach() {
    let_go(HELD);
    when(HAS(FORGET_LEFT), served[cur] = false);
    gone[cur] = true; left[cur] = true;
    end_of_token()
}

#define CAN_BE(number) (number == TRUE_ONE || number == NEAR || \
    number != NO_NUMBER && !HAS(PLAUSIBLE))

proctype client() {
end:
    do
    :: d_step { phase == OUT -> phase = TRY_SENT }
    :: d_step { phase == OUT -> phase = WAITING; registered = true; join() }
    :: d_step { phase == TRY_SENT -> phase = TRY_ANSWERED;
        when(owner == 0 && ghost == 0, owner = cur; collected = true) }
    :: d_step { phase == TRY_ANSWERED ->
        if
        :: owner == cur -> believe(TRUE_ONE, true)
        :: else -> done[cur] = true; end_of_token()
        fi }
    :: d_step { phase == WAITING && told != NO_NUMBER && !CAN_BE(told) ->
        told = NO_NUMBER; look() }
    :: d_step { phase == WAITING && CAN_BE(told) -> claim(told); told = NO_NUMBER }
    :: d_step { phase == WAITING && CAN_BE(told) && fresh && (!confirm || !HAS(CONFIRM)) ->
        believe(told, false); told = NO_NUMBER } /* at once */
    :: d_step { phase == WAITING && (lied_to || owner == cur) -> look() }
    :: d_step { phase == WAITING && owner != cur && !queued -> lied_to = true; look() }
    :: d_step { phase == TAKING && registered -> stop_waiting() }
    :: d_step { phase == TAKING && !registered -> gone[cur] = false; phase = HELD }
    :: d_step { phase == HELD && !confirmed && HAS(KEEPER_ASKS) ->
        if
        :: owner == cur && fence == TRUE_ONE -> confirmed = true; collected = true
        :: else -> give_up_held()
        fi }
    :: d_step { phase == HELD && !confirmed && !HAS(KEEPER_ASKS) -> confirmed = true }
    :: d_step { phase == HELD && confirmed -> let_go(FREEING); gone[cur] = !HAS(UNTIL_FREED) }
    :: d_step { phase == FREEING -> give_up_held() } /* the server has released it */
    :: d_step { phase == HELD && confirmed -> detach() }
    :: d_step { confirmed && owner != cur -> assert(false) } /* P1: what the server confirmed */
    od
}

proctype inbox(byte i) { /* messages of the server */
end:
    do
    :: d_step { old_mail[i] -> old_mail[i] = false; hear(i, OLD, !HAS(NEW_NONCE), true, false) }
    :: d_step { !old_mail[i] && mail[i] -> mail[i] = false; hear(i, TRUE_ONE, true, true, false) }
    :: d_step { ghost_mail[i] -> ghost_mail[i] = false; hear(i, NEAR, true, true, false) }
    od
}

/* ---- the others ---- */

proctype other() {
end:
    do
    :: d_step { owner == 0 && takes > 0 && !queued && ghost == 0 ->
        takes--; owner = OTHER; collected = true }
    :: d_step { owner == OTHER -> hand_on() }
    :: d_step { owner == 0 && (queued || ghost != 0) -> hand_on() } /* somebody looked */
    od
}

/* Who has heard a message can only send after it, on the same channel. */
#define KNOWN(i) (!stood[i] || knows[i] && (rank == READER || !mail[i] && !ghost_mail[i]))

proctype third(byte i) { /* it may not have the true number yet, and may have any other */
    bool right, own;
    mtype number;
end:
    do
    :: atomic { lies > 0 ->
        lies--;
        if
        :: KNOWN(i) -> right = true
        :: right = false
        fi;
        if
        :: own = true
        :: own = false
        fi;
        if
        :: number = NEAR
        :: number = FAR
        fi;
        d_step { hear(i, number, right, own, true) };
        right = false; own = false; number = NO_NUMBER
    }
    :: d_step { rank == READER && i == cur && queued && !knows[i] -> knows[i] = true }
    od
}

proctype world() {
end:
    do
    :: d_step { lapses > 0 && owner == cur && phase == WAITING -> /* it missed its window */
        lapses--; owner = OTHER; collected = true; fresh = false }
    :: d_step { owner != 0 && owner <= T && left[owner] -> hand_on() } /* its TTL has ended */
    :: d_step { failovers > 0 && served[1] && done[1] && owner != 1 ->
        failovers--; ghost = 1 } /* to a replica that has not seen it leave the queue */
    od
}

init {
    atomic {
        if
        :: rank = PUBLISHER
        :: rank = LISTENER
        :: rank = READER
        fi;
        if
        :: confirm = true
        :: confirm = false
        fi;
        run client(); run inbox(1); run inbox(2); run other(); run third(1); run third(2);
        run world()
    }
    timeout -> /* nothing moves any more */
        assert(phase != WAITING);
        assert(owner == 0 || owner == OTHER || !done[owner]) /* owned by nobody */
}
