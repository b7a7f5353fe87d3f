/* renewal.pml - renewing against releasing: nothing of a token is left after its release.
 *
 * A client takes the lock twice, each time under a token; it renews while it holds, and releases.
 * Both go their own way: a renewal may be under way while the lock is released. A connection that
 * ends leaves its request behind, which may still arrive, at any time; a release is sent again.
 * Another client takes the lock when it is free. Time passes in ticks; anybody may be slow at any
 * time. How the lock is granted is the matter of queue.pml.
 */
#ifndef WITHOUT
#define WITHOUT 0 /* spin -DWITHOUT=NEVER_CREATES ... takes that rule away */
#endif
#define HAS(guard) (guard != WITHOUT)
#define NEVER_CREATES 1 /* a renewal that finds no lock makes none */
#define RENEWS_OWN 2    /* one that finds another token leaves it alone, and says so */
#define RELEASES_OWN 3  /* a release deletes the lock only if it has this token */
#define NEW_TOKEN 4     /* every grant has a new token */
#define STOP_FIRST 5    /* the holder stops believing before its release is sent */
#define LATE_ANSWER 6   /* the answer to a renewal counts only while it is held */
#define FROM_SENDING 7  /* 7 a lease counts from the sending of its request */
#define NO_IS_NO 8      /* "not ours" ends belief */

#define TTL 2
#define ROUNDS 2
#define OTHER (ROUNDS + 1)
#define when(condition, action) if :: (condition) -> action :: else fi

mtype = { OUT, HELD, FREEING, OVER };     /* the client */
mtype = { IDLE, SENT, OURS, NOT_OURS };   /* a request, and its answer */

/* On the server. */
byte owner, left;             /* 0: free; ticks of its lease */

/* The client. */
byte round = 1, mine;         /* its token */
byte sure;                    /* it believes for so many ticks */
mtype phase = OUT;
mtype renewal = IDLE, release = IDLE;
byte renewal_age;
bool freed[ROUNDS + 1];       /* by a release that was answered */

/* Left behind by a connection that ended. */
byte late_renewal, late_release; /* the token in it; 0: none */
byte cuts = 2;

/* Another client: its lease counts from its grant. */
byte other_sure, takes = 2;

/* ---- scripts ---- */

inline renew(token, answer) {
    answer = NOT_OURS;
    if
    :: owner == token || owner != 0 && !HAS(RENEWS_OWN) || owner == 0 && !HAS(NEVER_CREATES) ->
        when(owner == 0, owner = token);
        left = TTL; answer = OURS
    :: else
    fi;
    assert(owner == 0 || owner == OTHER || !freed[owner]) /* P8: nothing of it comes back */
}

inline free(token, answer) {
    answer = NOT_OURS;
    when(owner == token || owner != 0 && !HAS(RELEASES_OWN),
        owner = 0; left = 0; answer = OURS)
}

/* ---- the client ---- */

inline next_round() {
    sure = 0; renewal = IDLE; renewal_age = 0; release = IDLE;
    if
    :: round < ROUNDS -> round++; phase = OUT
    :: else -> phase = OVER
    fi
}

inline renewed() { /* its answer is here */
    if
    :: phase != HELD && HAS(LATE_ANSWER)
    :: (phase == HELD || !HAS(LATE_ANSWER)) && (renewal == OURS || !HAS(NO_IS_NO)) ->
        when(!HAS(FROM_SENDING), renewal_age = 0);
        when(TTL - renewal_age > sure, sure = TTL - renewal_age)
    :: else -> sure = 0
    fi;
    renewal = IDLE; renewal_age = 0
}

inline cut() { /* what was sent is still under way, and its answer will not be heard */
    cuts--;
    when(renewal == SENT, late_renewal = mine);
    when(release == SENT, late_release = mine);
    renewal = IDLE; renewal_age = 0;
    when(release != IDLE, release = SENT) /* again */
}

active proctype client() {
end:
    do
    :: d_step { phase == OUT && owner == 0 ->
        mine = (HAS(NEW_TOKEN) -> round : 1);
        owner = mine; left = TTL; sure = TTL; phase = HELD }
    :: d_step { phase == HELD && sure > 0 && renewal == IDLE -> renewal = SENT }
    :: d_step { renewal == OURS || renewal == NOT_OURS -> renewed() }
    :: d_step { phase == HELD && sure == 0 && renewal == IDLE -> next_round() } /* lost */
    :: d_step { phase == HELD -> phase = FREEING; release = SENT; when(HAS(STOP_FIRST), sure = 0) }
    :: d_step { phase == FREEING && (release == OURS || release == NOT_OURS) ->
        when(HAS(NEW_TOKEN), freed[round] = true);
        next_round() }
    :: d_step { cuts > 0 && (renewal != IDLE || release != IDLE) -> cut() }
    od
}

/* ---- the server, and the others ---- */

active proctype server() {
end:
    do
    :: d_step { renewal == SENT -> renew(mine, renewal) }
    :: d_step { release == SENT -> free(mine, release) }
    od
}

active proctype stragglers() {
    mtype unheard;
end:
    do
    :: d_step { late_renewal != 0 -> renew(late_renewal, unheard); late_renewal = 0; unheard = 0 }
    :: d_step { late_release != 0 -> free(late_release, unheard); late_release = 0; unheard = 0 }
    od
}

active proctype other() {
end:
    do
    :: d_step { owner == 0 && takes > 0 -> takes--; owner = OTHER; left = TTL; other_sure = TTL }
    :: d_step { owner == OTHER -> owner = 0; left = 0; other_sure = 0 }
    od
}

active proctype world() {
end:
    do
    :: d_step { owner != 0 || sure > 0 || other_sure > 0 || renewal == SENT ->
        when(left > 0, left--; when(left == 0, owner = 0));
        when(sure > 0, sure--);
        when(other_sure > 0, other_sure--);
        when(renewal != IDLE && renewal_age < TTL, renewal_age++) }
    :: d_step { sure > 0 && other_sure > 0 -> assert(false) }        /* P1: two believe */
    :: d_step { other_sure > 0 && owner != OTHER -> assert(false) }  /* P2: taken from another */
    od
}
