/* SPDX-License-Identifier: MIT
 * async_more.c - everything else without blocking: shared locks, several at once, latches,
 * barriers, elections, values that one computes, owner ids, looking, and opening a client. Each is
 * answered once, by who dispatches, as the blocking call would have answered.
 */
#define LIVE_SCRIPTS
#include "harness/fleet.h"
#include "harness/waiting.h"

struct answer {
    int       calls;
    hf_err    result;
    char      message[200];
    pthread_t thread;
};

static void note(hf_err result, const hf_error *e, void *arg)
{
    struct answer *a = arg;
    CHECK((result == HF_OK) == !e);
    CHECK(!e || (e->message[0] && e->code == result));
    a->calls++;
    a->result = result;
    a->thread = pthread_self();
    snprintf(a->message, sizeof a->message, "%s", e ? e->message : "");
}

static int64_t longest_ms; /* that one dispatch took */

static size_t turn(hf_client *c, int wait_ms)
{
    int fd;
    CHECK_HF(hf_client_fd(c, &fd, &err), HF_OK);
    struct pollfd p = { .fd = fd, .events = POLLIN };
    if (poll(&p, 1, wait_ms) != 1)
        return 0;
    int64_t begun = t_now_ms();
    size_t n = hf_client_dispatch(c);
    if (t_now_ms() - begun > longest_ms)
        longest_ms = t_now_ms() - begun;
    return n;
}

static void await(hf_client *c, const struct answer *a)
{
    int64_t until = t_now_ms() + 20000;
    while (!a->calls) {
        if (t_now_ms() > until)
            FAIL("no answer within 20 s");
        turn(c, 100);
    }
    CHECK_INT(a->calls, 1);
    CHECK(pthread_equal(a->thread, pthread_self()));
}

/* Begun: it is answered with this, once. */
#define ANSWERED(c, a, want)                                                              \
    do {                                                                                  \
        await((c), (a));                                                                  \
        if ((a)->result != (want))                                                        \
            FAIL("got %s (%s), want %s", hf_err_name((a)->result), (a)->message,          \
                 hf_err_name(want));                                                      \
        *(a) = (struct answer){ 0 };                                                      \
    } while (0)
/* Begin it, and wait for the answer. */
#define CALL(c, a, call, want)                                                            \
    do {                                                                                  \
        CHECK_HF((call), HF_OK);                                                          \
        CHECK_INT((a)->calls, 0);                                                         \
        ANSWERED((c), (a), (want));                                                       \
    } while (0)

static hf_latch *latch_of(hf_client *c, const char *name)
{
    hf_latch *lt = NULL;
    CHECK_HF(hf_latch_open(c, hf_str(name), NULL, &lt, &err), HF_OK);
    return lt;
}

static hf_barrier *barrier_of(hf_client *c, const char *name, uint32_t parties, int leave)
{
    hf_barrier *b = NULL;
    hf_barrier_opts o = { .size = sizeof o, .leave = leave };
    CHECK_HF(hf_barrier_open(c, hf_str(name), parties, &o, &b, &err), HF_OK);
    return b;
}

static hf_election *candidate_of(hf_client *c, const char *name)
{
    hf_election *el = NULL;
    hf_election_opts o = { .size = sizeof o, .ttl_ms = 30000 };
    CHECK_HF(hf_election_open(c, hf_str(name), &o, &el, &err), HF_OK);
    return el;
}

/* Two clients at one server: ours, and another program's. */
struct scene {
    struct server *s;
    hf_client     *c, *other;
    struct answer  a;
};

static struct scene scene(void)
{
    struct scene sc = { .s = server_start(NULL) };
    sc.c = client_at(server_url(sc.s), 0);
    sc.other = client_at(server_url(sc.s), 0);
    return sc;
}

static void scene_end(struct scene *sc)
{
    CHECK_INT(sc->a.calls, 0);
    CHECK_INT((long long)turn(sc->c, 20), 0);
    hf_client_free(sc->c);
    hf_client_free(sc->other);
    check_only_ttls(sc->s);
}

/* ---- a lock ---- */

TEST(sharing_and_downgrading)
{
    struct scene sc = scene();
    hf_client *c = sc.c;
    struct answer *a = &sc.a;
    hf_lock *m = lock_of(c, "a", 30000), *o = lock_of(sc.other, "a", 30000);
    hf_lock *owned = lock_with(c, "a", (hf_lock_opts){ .owner = hf_str("me") });
    CHECK_HF(hf_lock_acquire_shared_async(owned, 0, note, a, &err), HF_EINVAL);
    CHECK_HF(hf_lock_acquire_shared_async(m, -2, note, a, &err), HF_EINVAL);
    CHECK_HF(hf_lock_acquire_shared_async(m, 0, NULL, a, &err), HF_EINVAL);
    CALL(c, a, hf_lock_downgrade_async(m, note, a, &err), HF_ENOTHELD);
    CALL(c, a, hf_lock_acquire_shared_async(m, 0, note, a, &err), HF_OK);
    CHECK(hf_lock_fence(m));
    CHECK_HF(hf_lock_acquire_shared(o, 0, NULL, &err), HF_OK); /* two readers */
    CALL(c, a, hf_lock_release_async(m, note, a, &err), HF_OK);
    unlock_now(o);

    lock_now(o);
    CALL(c, a, hf_lock_acquire_shared_async(m, 0, note, a, &err), HF_EBUSY);
    CALL(c, a, hf_lock_acquire_shared_async(m, 50, note, a, &err), HF_ETIMEDOUT);
    CHECK_HF(hf_lock_acquire_shared_async(m, 20000, note, a, &err), HF_OK);
    LOOP_QUEUE(c, sc.s, "a", 1);
    CHECK_HF(hf_lock_verify_async(m, note, a, &err), HF_EINVAL); /* it is in use */
    CHECK_HF(hf_lock_release(m, &err), HF_EINVAL);
    CHECK_HF(hf_lock_verify(m, &err), HF_EINVAL);
    CHECK_HF(hf_lock_extend(m, 5000, &err), HF_EINVAL);
    CHECK_HF(hf_lock_detach(m, 0, &err), HF_EINVAL);
    CHECK_HF(hf_lock_downgrade(m, &err), HF_EINVAL);
    CHECK_HF(hf_multi_release(&m, 1, &err), HF_EINVAL);
    CHECK_HF(hf_lock_downgrade(o, &err), HF_OK);
    ANSWERED(c, a, HF_OK);
    CALL(c, a, hf_lock_release_async(m, note, a, &err), HF_OK);
    unlock_now(o);

    lock_now(o);
    CHECK_HF(hf_lock_acquire_shared_async(m, HF_WAIT_FOREVER, note, a, &err), HF_OK);
    LOOP_QUEUE(c, sc.s, "a", 1);
    hf_lock_cancel(m);
    ANSWERED(c, a, HF_ECANCELED);
    unlock_now(o);

    CALL(c, a, hf_lock_acquire_async(m, 0, note, a, &err), HF_OK);
    uint64_t fence = hf_lock_fence(m);
    CHECK_HF(hf_lock_acquire_shared(o, 0, NULL, &err), HF_EBUSY);
    CALL(c, a, hf_lock_downgrade_async(m, note, a, &err), HF_OK);
    CHECK(hf_lock_fence(m) == fence);
    CHECK_HF(hf_lock_acquire_shared(o, 0, NULL, &err), HF_OK);
    CALL(c, a, hf_lock_downgrade_async(m, note, a, &err), HF_OK); /* it is shared */
    unlock_now(o);
    CALL(c, a, hf_lock_release_async(m, note, a, &err), HF_OK);
    hf_lock_free(m);
    hf_lock_free(o);
    hf_lock_free(owned);
    scene_end(&sc);
}

TEST(verifying_and_detaching)
{
    struct scene sc = scene();
    hf_client *c = sc.c;
    struct answer *a = &sc.a;
    hf_lock *m = lock_of(c, "a", 30000), *o = lock_of(sc.other, "a", 30000);
    CALL(c, a, hf_lock_verify_async(m, note, a, &err), HF_ENOTHELD);
    CALL(c, a, hf_lock_detach_async(m, 5000, note, a, &err), HF_ENOTHELD);
    CHECK_HF(hf_lock_detach_async(m, 1, note, a, &err), HF_EINVAL);
    lock_now(m);
    CALL(c, a, hf_lock_verify_async(m, note, a, &err), HF_OK);
    server_ask(sc.s, "DEL lock:a");
    CALL(c, a, hf_lock_verify_async(m, note, a, &err), HF_ELOST);
    CHECK_INT(hf_lock_state(m), HF_STATE_LOST);
    CALL(c, a, hf_lock_detach_async(m, 5000, note, a, &err), HF_ELOST);
    CALL(c, a, hf_lock_release_async(m, note, a, &err), HF_ELOST);
    lock_now(m);
    CALL(c, a, hf_lock_detach_async(m, 90000, note, a, &err), HF_OK);
    CHECK_INT(hf_lock_is_held(m), 0);
    CHECK_INT((long long)hf_lock_fence(m), 0);
    CHECK_RANGE(server_int(sc.s, "PTTL lock:a"), 80000, 90000);
    CHECK_HF(hf_lock_try(o, NULL, &err), HF_EBUSY);
    hf_lock_free(m);
    CHECK_HF(hf_lock_try(o, NULL, &err), HF_EBUSY); /* it outlives the handle, */
    hf_inspect_info *info;
    CALL(c, a, hf_inspect_lock_async(c, hf_str("a"), 0, &info, note, a, &err), HF_OK);
    CHECK_INT((long long)info->holders, 1);
    CHECK_INT(info->holder[0]->pid, getpid()); /* and is known */
    hf_inspect_free(info);
    server_ask(sc.s, "DEL lock:a");
    hf_lock_free(o);
    scene_end(&sc);
}

/* ---- several at once ---- */

TEST(several_at_once)
{
    struct scene sc = scene();
    hf_client *c = sc.c;
    struct answer *a = &sc.a;
    hf_lock *m[] = { lock_of(c, "b", 30000), lock_of(c, "a", 30000), lock_of(c, "c", 30000) };
    hf_lock *o = lock_of(sc.other, "b", 30000), *twice[] = { m[0], m[0] };
    hf_lock *strange[] = { m[0], o };
    CHECK_HF(hf_multi_acquire_async(m, 0, 0, note, a, &err), HF_EINVAL);
    CHECK_HF(hf_multi_acquire_async(twice, 2, 0, note, a, &err), HF_EINVAL);
    CHECK_HF(hf_multi_acquire_async(strange, 2, 0, note, a, &err), HF_EINVAL);
    CHECK_HF(hf_multi_acquire_async(m, 3, -5, note, a, &err), HF_EINVAL);
    CHECK_HF(hf_multi_release_async(strange, 2, note, a, &err), HF_EINVAL);
    CALL(c, a, hf_multi_release_async(m, 3, note, a, &err), HF_ENOTHELD);
    for (int n = 1; n <= 3; n += 2) {
        CALL(c, a, hf_multi_acquire_async(m, (size_t)n, 0, note, a, &err), HF_OK);
        for (int i = 0; i < n; i++)
            CHECK_INT(hf_lock_is_held(m[i]), 1);
        CHECK_HF(hf_multi_acquire_async(m, (size_t)n, 0, note, a, &err), HF_EINVAL); /* held */
        CALL(c, a, hf_multi_release_async(m, (size_t)n, note, a, &err), HF_OK);
        CHECK_INT(server_int(sc.s, "EXISTS lock:a lock:b lock:c"), 0);

        lock_now(o);
        CALL(c, a, hf_multi_acquire_async(m, (size_t)n, 0, note, a, &err), HF_EBUSY);
        CALL(c, a, hf_multi_acquire_async(m, (size_t)n, 60, note, a, &err), HF_ETIMEDOUT);
        CHECK_INT(server_int(sc.s, "EXISTS lock:a lock:c"), 0);
        CHECK_HF(hf_multi_acquire_async(m, (size_t)n, 20000, note, a, &err), HF_OK);
        LOOP_QUEUE(c, sc.s, "b", 1);
        CHECK_INT(server_int(sc.s, "EXISTS lock:a lock:c"), 0); /* nothing is held idly */
        CHECK_HF(hf_lock_acquire_async(m[n - 1], 0, note, a, &err), HF_EINVAL);
        CHECK_HF(hf_multi_acquire(m, (size_t)n, 0, &err), HF_EINVAL);
        unlock_now(o);
        ANSWERED(c, a, HF_OK);
        CALL(c, a, hf_multi_release_async(m, (size_t)n, note, a, &err), HF_OK);

        lock_now(o);
        for (int one = 0; one < 2; one++) { /* all of them, or the one that is waited for */
            CHECK_HF(hf_multi_acquire_async(m, (size_t)n, HF_WAIT_FOREVER, note, a, &err), HF_OK);
            LOOP_QUEUE(c, sc.s, "b", 1);
            hf_multi_cancel(m, one ? 1 : (size_t)n);
            ANSWERED(c, a, HF_ECANCELED);
            CHECK_INT(queue_of(sc.s, "b"), 0);
        }
        unlock_now(o);
    }
    CALL(c, a, hf_multi_acquire_async(m, 3, 0, note, a, &err), HF_OK); /* no cancel is left over */
    server_ask(sc.s, "DEL lock:a");
    CALL(c, a, hf_multi_release_async(m, 3, note, a, &err), HF_ELOST);
    CHECK_INT(server_int(sc.s, "EXISTS lock:a lock:b lock:c"), 0); /* the others all the same */
    for (int i = 0; i < 3; i++)
        hf_lock_free(m[i]);
    hf_lock_free(o);
    scene_end(&sc);
}

/* ---- latch ---- */

TEST(latches)
{
    struct scene sc = scene();
    hf_client *c = sc.c;
    struct answer *a = &sc.a;
    hf_latch *lt = latch_of(c, "a"), *o = latch_of(sc.other, "a");
    uint32_t left = 77, total = 77;
    CHECK_HF(hf_latch_set_async(lt, 0, note, a, &err), HF_EINVAL);
    CHECK_HF(hf_latch_count_down_async(lt, 0, NULL, note, a, &err), HF_EINVAL);
    CHECK_HF(hf_latch_wait_async(lt, -2, note, a, &err), HF_EINVAL);
    CALL(c, a, hf_latch_count_async(lt, &left, &total, note, a, &err), HF_ENOTSET);
    CALL(c, a, hf_latch_count_down_async(lt, 1, &left, note, a, &err), HF_ENOTSET);
    CHECK_INT(left, 77); /* results are left alone */
    CALL(c, a, hf_latch_wait_async(lt, 0, note, a, &err), HF_EBUSY);
    CALL(c, a, hf_latch_set_async(lt, 3, note, a, &err), HF_OK);
    CALL(c, a, hf_latch_set_async(lt, 3, note, a, &err), HF_EBUSY);
    CALL(c, a, hf_latch_count_down_async(lt, 1, &left, note, a, &err), HF_OK);
    CHECK_INT(left, 2);
    CALL(c, a, hf_latch_count_async(lt, &left, &total, note, a, &err), HF_OK);
    CHECK(left == 2 && total == 3);
    CALL(c, a, hf_latch_wait_async(lt, 0, note, a, &err), HF_EBUSY);
    CALL(c, a, hf_latch_wait_async(lt, 80, note, a, &err), HF_ETIMEDOUT);

    CHECK_HF(hf_latch_wait_async(lt, 20000, note, a, &err), HF_OK);
    LOOP_EVENTUALLY(c, server_int(sc.s, "ZCARD {lock:a}:l") == 1, 10000);
    CHECK_HF(hf_latch_count_async(lt, &left, NULL, note, a, &err), HF_EINVAL);
    CHECK_HF(hf_latch_wait(lt, 0, &err), HF_EINVAL);
    CHECK_HF(hf_latch_count_down(o, 2, NULL, &err), HF_OK);
    int64_t begun = t_now_ms();
    ANSWERED(c, a, HF_OK);
    CHECK_TOOK(t_now_ms() - begun, 0, 700); /* rung, not by looking once in a while */
    CALL(c, a, hf_latch_wait_async(lt, 0, note, a, &err), HF_OK);

    CALL(c, a, hf_latch_reset_async(lt, 5, note, a, &err), HF_OK);
    CHECK_HF(hf_latch_wait_async(lt, HF_WAIT_FOREVER, note, a, &err), HF_OK);
    LOOP_EVENTUALLY(c, server_int(sc.s, "ZCARD {lock:a}:l") == 1, 10000);
    CHECK_HF(hf_latch_reset(o, 2, &err), HF_OK);
    ANSWERED(c, a, HF_EBROKEN);
    CHECK_HF(hf_latch_wait_async(lt, HF_WAIT_FOREVER, note, a, &err), HF_OK);
    LOOP_EVENTUALLY(c, server_int(sc.s, "ZCARD {lock:a}:l") == 1, 10000);
    hf_latch_cancel(lt);
    ANSWERED(c, a, HF_ECANCELED);
    CHECK_INT(server_int(sc.s, "EXISTS {lock:a}:l"), 0);
    server_ask(sc.s, "DEL lock:a");
    server_ask(sc.s, "LPUSH lock:a x");
    CALL(c, a, hf_latch_wait_async(lt, 5000, note, a, &err), HF_ETYPE);
    server_ask(sc.s, "DEL lock:a");
    hf_latch_free(lt);
    hf_latch_free(o);
    scene_end(&sc);
}

/* ---- barrier ---- */

TEST(barriers)
{
    struct scene sc = scene();
    hf_client *c = sc.c;
    struct answer a[3] = { 0 };
    hf_barrier *b[3], *o = barrier_of(sc.other, "a", 4, 0);
    uint32_t index[3];
    uint64_t generation[3] = { 0 }, last = 0;
    for (int i = 0; i < 3; i++)
        b[i] = barrier_of(c, "a", 3, 1);
    CHECK_HF(hf_barrier_wait_async(b[0], -2, NULL, NULL, note, a, &err), HF_EINVAL);
    CHECK_HF(hf_barrier_leave_async(b[0], 0, note, a, &err), HF_ENOTHELD);
    CALL(c, a, hf_barrier_wait_async(b[0], 0, NULL, NULL, note, a, &err), HF_EBUSY);
    CALL(c, a, hf_barrier_wait_async(b[0], 80, NULL, NULL, note, a, &err), HF_ETIMEDOUT);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 3; i++)
            CHECK_HF(hf_barrier_wait_async(b[i], 20000, &index[i], &generation[i], note, &a[i],
                                           &err), HF_OK);
        CHECK_HF(hf_barrier_wait_async(b[0], 0, NULL, NULL, note, a, &err), HF_EINVAL);
        for (int i = 0; i < 3; i++)
            ANSWERED(c, &a[i], HF_OK);
        CHECK(generation[0] > last && generation[1] == generation[0]);
        CHECK_INT(index[0] + index[1] + index[2], 3);
        last = generation[0];
        CHECK_HF(hf_barrier_wait_async(b[0], 0, NULL, NULL, note, a, &err), HF_EINVAL); /* inside */
        for (int i = 0; i < 3; i++)
            CHECK_HF(hf_barrier_leave_async(b[i], 20000, note, &a[i], &err), HF_OK);
        for (int i = 0; i < 3; i++)
            ANSWERED(c, &a[i], HF_OK);
    }
    /* One gives up: broken for the other. */
    for (int i = 0; i < 2; i++)
        CHECK_HF(hf_barrier_wait_async(b[i], HF_WAIT_FOREVER, &index[i], NULL, note, &a[i], &err),
                 HF_OK);
    LOOP_EVENTUALLY(c, server_int(sc.s, "ZCARD {lock:a}:h") == 2, 10000);
    CHECK_HF(hf_barrier_wait(o, 0, NULL, NULL, &err), HF_EINVAL); /* another number */
    hf_barrier_cancel(b[1]);
    ANSWERED(c, &a[1], HF_ECANCELED);
    ANSWERED(c, &a[0], HF_EBROKEN);
    CHECK_HF(hf_barrier_wait_async(b[0], HF_WAIT_FOREVER, NULL, NULL, note, a, &err), HF_OK);
    LOOP_EVENTUALLY(c, server_int(sc.s, "EXISTS {lock:a}:h") == 1, 10000);
    hf_barrier_cancel(b[0]);
    ANSWERED(c, a, HF_ECANCELED);
    for (int i = 0; i < 3; i++)
        hf_barrier_free(b[i]);
    hf_barrier_free(o);
    scene_end(&sc);
}

/* ---- election ---- */

TEST(elections)
{
    struct scene sc = scene();
    hf_client *c = sc.c;
    struct answer *a = &sc.a, w = { 0 };
    hf_election *el = candidate_of(c, "a"), *o = candidate_of(sc.other, "a");
    hf_leader *l = NULL, *now = NULL;
    hf_bytes name = hf_str("a");
    uint64_t term = 0, before;
    char *value = malloc(HF_LEADER_VALUE_MAX + 1);
    memset(value, 'x', HF_LEADER_VALUE_MAX + 1);
    hf_bytes large = { value, HF_LEADER_VALUE_MAX + 1 };
    CHECK_HF(hf_election_campaign_async(el, large, 0, NULL, note, a, &err), HF_EINVAL);
    CHECK_HF(hf_election_campaign_async(el, hf_str("v"), -2, NULL, note, a, &err), HF_EINVAL);
    CALL(c, a, hf_election_resign_async(el, note, a, &err), HF_ENOTHELD);
    CALL(c, a, hf_election_set_value_async(el, hf_str("v"), note, a, &err), HF_ENOTHELD);
    CALL(c, a, hf_election_leader_async(c, name, &l, note, a, &err), HF_OK);
    CHECK_INT(l->leads, 0);

    CHECK_HF(hf_election_observe_async(c, name, l, 20000, &now, note, &w, &err), HF_OK);
    hf_leader_free(l); /* it was copied */
    LOOP_EVENTUALLY(c, server_int(sc.s, "ZCARD {lock:a}:l") == 1, 10000);
    char first[] = "first";
    CHECK_HF(hf_election_campaign_async(el, hf_str(first), 0, &term, note, a, &err), HF_OK);
    memset(first, '?', 5); /* as was this */
    ANSWERED(c, a, HF_OK);
    ANSWERED(c, &w, HF_OK);
    CHECK(term && term == hf_election_term(el) && hf_election_is_leader(el));
    CHECK_INT(now->leads, 1);
    CHECK(now->term == term);
    while (!now->value) { /* seen between the lock and its value */
        hf_leader *next = NULL;
        CALL(c, a, hf_election_observe_async(c, name, now, 20000, &next, note, a, &err), HF_OK);
        hf_leader_free(now);
        now = next;
    }
    CHECK_STR(now->value, "first");
    CHECK_INT(now->party->pid, getpid());
    CALL(c, a, hf_election_observe_async(c, name, now, 60, &l, note, a, &err), HF_ETIMEDOUT);
    CALL(c, a, hf_election_observe_async(c, name, now, 0, &l, note, a, &err), HF_ETIMEDOUT);
    CALL(c, a, hf_election_set_value_async(el, hf_str("second"), note, a, &err), HF_OK);
    CALL(c, a, hf_election_observe_async(c, name, now, 5000, &l, note, a, &err), HF_OK);
    CHECK_STR(l->value, "second");
    hf_leader_free(l);
    hf_leader_free(now);
    CALL(c, a, hf_election_campaign_async(el, hf_str("third"), 0, &term, note, a, &err), HF_OK);
    CHECK_HF(hf_election_campaign(o, hf_str("v"), 0, NULL, &err), HF_EBUSY);
    CALL(c, a, hf_election_resign_async(el, note, a, &err), HF_OK);
    CHECK_INT(server_int(sc.s, "EXISTS lock:a {lock:a}:v"), 0);

    before = term;
    CHECK_HF(hf_election_campaign(o, hf_str("o"), 0, NULL, &err), HF_OK);
    CALL(c, a, hf_election_campaign_async(el, hf_str("v"), 0, NULL, note, a, &err), HF_EBUSY);
    CHECK_HF(hf_election_campaign_async(el, hf_str("v"), 20000, &term, note, a, &err), HF_OK);
    LOOP_QUEUE(c, sc.s, "a", 1);
    CHECK_HF(hf_election_resign_async(el, note, a, &err), HF_EINVAL);
    CHECK_HF(hf_lock_extend_async(hf_election_lock(el), 1000, note, a, &err), HF_EINVAL);
    CHECK_HF(hf_election_resign(o, &err), HF_OK);
    ANSWERED(c, a, HF_OK);
    CHECK(term > before + 1);
    server_ask(sc.s, "DEL lock:a");
    CALL(c, a, hf_election_set_value_async(el, hf_str("v"), note, a, &err), HF_ELOST);
    CHECK_HF(hf_election_campaign(o, hf_str("o"), 0, NULL, &err), HF_OK);
    CHECK_HF(hf_election_campaign_async(el, hf_str("v"), HF_WAIT_FOREVER, NULL, note, a, &err),
             HF_OK);
    LOOP_QUEUE(c, sc.s, "a", 1);
    hf_lock_cancel(hf_election_lock(el));
    ANSWERED(c, a, HF_ECANCELED);
    CHECK_INT(queue_of(sc.s, "a"), 0);
    free(value);
    hf_election_free(el);
    hf_election_free(o);
    scene_end(&sc);
}

/* ---- once ---- */

struct work {
    atomic_int calls, go;
    hf_err     says;
    pthread_t  thread;
};

static hf_err work(void *arg, hf_lock *m, hf_bytes *ret_value, hf_error *reterr)
{
    struct work *w = arg;
    w->thread = pthread_self();
    atomic_fetch_add(&w->calls, 1);
    while (!atomic_load(&w->go))
        t_sleep_ms(1);
    CHECK_INT(hf_lock_is_held(m), 1);
    *ret_value = hf_str("made");
    if (w->says)
        snprintf(reterr->message, sizeof reterr->message, "no luck");
    return w->says;
}

static int threads_named(const char *name)
{
    int n = 0;
    char command[100];
    snprintf(command, sizeof command, "cat /proc/%d/task/*/comm 2>/dev/null", (int)getpid());
    FILE *f = popen(command, "r");
    char line[64];
    while (f && fgets(line, sizeof line, f))
        n += strncmp(line, name, strlen(name)) == 0;
    if (f)
        pclose(f);
    return n;
}

TEST(values_that_one_computes)
{
    struct scene sc = scene();
    hf_client *c = sc.c;
    struct answer *a = &sc.a, second = { 0 };
    hf_once_opts o = { .size = sizeof o, .ttl_ms = 60000 };
    struct work w = { .go = 0 }, never = { .go = 1 };
    hf_bytes name = hf_str("a");
    hf_lock *m = lock_of(c, "a", 30000), *other = lock_of(sc.other, "a", 30000);
    hf_value *v = NULL, *u = NULL, *had = NULL;
    CHECK_HF(hf_once_get_async(c, name, NULL, note, a, &err), HF_EINVAL);
    CHECK_HF(hf_once_compute_async(c, name, NULL, 0, work, &w, &v, note, a, &err), HF_EINVAL);
    CHECK_HF(hf_once_compute_async(c, name, &o, -2, work, &w, &v, note, a, &err), HF_EINVAL);
    CALL(c, a, hf_once_get_async(c, name, &v, note, a, &err), HF_OK);
    CHECK(!v);
    CALL(c, a, hf_once_put_async(c, name, m, hf_str("x"), 1000, 0, note, a, &err), HF_ENOTHELD);
    lock_now(m);
    char bytes[] = "put";
    CHECK_HF(hf_once_put_async(c, name, m, hf_str(bytes), 60000, 0, note, a, &err), HF_OK);
    memset(bytes, '?', 3);
    ANSWERED(c, a, HF_OK);
    CALL(c, a, hf_once_get_async(c, name, &v, note, a, &err), HF_OK);
    CHECK_STR(v->data, "put");
    hf_value_free(v);
    server_ask(sc.s, "DEL lock:a {lock:a}:c");
    CALL(c, a, hf_once_put_async(c, name, m, hf_str("x"), 60000, 0, note, a, &err), HF_ELOST);
    CHECK_HF(hf_lock_release(m, &err), HF_ELOST);
    CALL(c, a, hf_once_drop_async(c, name, note, a, &err), HF_OK);
    CALL(c, a, hf_once_get_async(c, name, &v, note, a, &err), HF_OK);
    CHECK(!v);

    /* One computes, in a thread of the library, and the other waits without one. */
    CHECK_EVENTUALLY(threads_named("hf-compute") == 0, 10000);
    CHECK_HF(hf_once_compute_async(c, name, &o, 20000, work, &w, &v, note, a, &err), HF_OK);
    LOOP_EVENTUALLY(c, atomic_load(&w.calls) == 1, 10000);
    CHECK(!pthread_equal(w.thread, pthread_self()));
    CHECK_HF(hf_once_compute_async(c, name, &o, 20000, work, &never, &u, note, &second, &err),
             HF_OK);
    LOOP_QUEUE(c, sc.s, "a", 1);
    CHECK_INT(threads_named("hf-compute"), 1);
    hf_once_opts hasty = o;
    CALL(c, a, hf_once_compute_async(c, name, &hasty, 0, work, &never, &had, note, a, &err),
         HF_EBUSY);
    atomic_store(&w.go, 1);
    ANSWERED(c, a, HF_OK);
    ANSWERED(c, &second, HF_OK);
    CHECK_INT(threads_named("hf-compute"), 0);
    CHECK_STR(v->data, "made");
    CHECK(v->computed && v->cached && !u->computed);
    CHECK_STR(u->data, "made");
    CHECK_INT(atomic_load(&never.calls), 0);
    hf_value_free(v);
    hf_value_free(u);

    /* What it says is told, and nothing is cached. */
    o.refresh = 1;
    w.says = HF_ENOTSUP;
    CALL(c, a, hf_once_compute_async(c, name, &o, 0, work, &w, &v, note, a, &err), HF_ENOTSUP);
    /* Ended by another client, that lets go. */
    lock_now(other);
    w.says = HF_OK;
    CHECK_HF(hf_once_compute_async(c, name, &o, 20000, work, &w, &v, note, a, &err), HF_OK);
    LOOP_QUEUE(c, sc.s, "a", 1);
    unlock_now(other);
    ANSWERED(c, a, HF_OK);
    hf_value_free(v);
    CHECK_INT(server_int(sc.s, "EXISTS lock:a"), 0);
    hf_lock_free(m);
    hf_lock_free(other);
    scene_end(&sc);
}

/* ---- owner ids, and looking ---- */

TEST(owner_ids_and_looking)
{
    struct scene sc = scene();
    hf_client *c = sc.c;
    struct answer *a = &sc.a;
    hf_bytes name = hf_str("a"), me = hf_str("me"), you = hf_str("you"), none = { "", 0 };
    uint64_t fence = 0;
    int64_t left = 0;
    hf_inspect_info *info = NULL;
    CHECK_HF(hf_owner_acquire_async(c, name, 1, me, NULL, note, a, &err), HF_EINVAL);
    CHECK_HF(hf_owner_release_async(c, name, none, note, a, &err), HF_EINVAL);
    CALL(c, a, hf_owner_release_async(c, name, me, note, a, &err), HF_ENOTOWNER);
    CALL(c, a, hf_owner_acquire_async(c, name, 30000, me, &fence, note, a, &err), HF_OK);
    CHECK(fence);
    CALL(c, a, hf_owner_acquire_async(c, name, 30000, you, &fence, note, a, &err), HF_EBUSY);
    CALL(c, a, hf_owner_check_async(c, name, me, &left, note, a, &err), HF_OK);
    CHECK_RANGE(left, 20000, 30000);
    CALL(c, a, hf_owner_extend_async(c, name, me, 90000, note, a, &err), HF_OK);
    CHECK_RANGE(server_int(sc.s, "PTTL lock:a"), 80000, 90000);
    CALL(c, a, hf_owner_check_async(c, name, you, &left, note, a, &err), HF_ENOTOWNER);
    hf_lock *w = lock_of(sc.other, "a", 30000);
    struct locker l = { .m = w, .wait_ms = 20000 };
    locker_start(&l);
    CHECK_QUEUE(sc.s, "a", 1);
    CALL(c, a, hf_inspect_lock_async(c, name, 0, &info, note, a, &err), HF_OK);
    CHECK(info->holders == 1 && info->waiters == 1);
    CHECK_STR(info->holder[0]->owner, "me");
    hf_inspect_free(info);
    CALL(c, a, hf_owner_release_async(c, name, me, note, a, &err), HF_OK);
    locker_join(&l, HF_OK);
    unlock_now(w);
    CALL(c, a, hf_inspect_lock_async(c, name, 0, &info, note, a, &err), HF_OK);
    CHECK_INT((long long)info->holders, 0);
    hf_inspect_free(info);
    CHECK_HF(hf_inspect_lock_async(c, none, 0, &info, note, a, &err), HF_EINVAL);
    hf_lock_free(w);
    scene_end(&sc);
}

TEST(guards_and_the_size_of_a_semaphore)
{
    struct scene sc = scene();
    hf_client *c = sc.c;
    struct answer *a = &sc.a;
    unsigned old = 77;
    char value[] = "value", key[] = "key";
    CHECK_HF(hf_guard_check_async(c, hf_str("r"), 0, note, a, &err), HF_EINVAL);
    CALL(c, a, hf_guard_check_async(c, hf_str("r"), 7, note, a, &err), HF_OK);
    CALL(c, a, hf_guard_check_async(c, hf_str("r"), 6, note, a, &err), HF_ESTALE);
    CHECK_HF(hf_guard_set_async(c, hf_str(key), hf_str(value), 7, note, a, &err), HF_OK);
    memset(value, '?', 5);
    memset(key, '?', 3);
    ANSWERED(c, a, HF_OK);
    CHECK_STR(server_ask(sc.s, "GET key"), "value");
    CALL(c, a, hf_guard_set_async(c, hf_str("key"), hf_str("x"), 6, note, a, &err), HF_ESTALE);
    CHECK_STR(server_ask(sc.s, "GET key"), "value");
    server_ask(sc.s, "DEL key {key}:guard lock:holdfast:guard:r");

    CHECK_HF(hf_semaphore_resize_async(c, hf_str("s"), 0, &old, note, a, &err), HF_EINVAL);
    CALL(c, a, hf_semaphore_resize_async(c, hf_str("s"), 3, &old, note, a, &err), HF_OK);
    CHECK_INT(old, 0);
    CALL(c, a, hf_semaphore_resize_async(c, hf_str("s"), 5, &old, note, a, &err), HF_OK);
    CHECK_INT(old, 3);
    hf_lock *m = lock_of(sc.other, "t", 30000);
    lock_now(m);
    CALL(c, a, hf_semaphore_resize_async(c, hf_str("t"), 5, &old, note, a, &err), HF_EBUSY);
    hf_lock_free(m);
    scene_end(&sc);
}

/* ---- opening a client ---- */

TEST(a_client_is_opened_without_blocking)
{
    struct server *s = server_start(NULL);
    struct answer a = { 0 };
    hf_client *c = NULL;
    char info[] = "mine", url[200];
    hf_client_opts o = { .size = sizeof o, .info = info, .timeout_ms = 4000 };
    hf_lock *m = NULL;
    snprintf(url, sizeof url, "%s", server_url(s));
    CHECK_HF(hf_client_open_async("nonsense://", NULL, &c, note, &a, &err), HF_ECONFIG);
    CHECK_HF(hf_client_open_async(url, &o, NULL, note, &a, &err), HF_EINVAL);
    CHECK_HF(hf_client_open_async(url, &o, &c, NULL, &a, &err), HF_EINVAL);
    CHECK(!c);
    CHECK_HF(hf_client_open_async(url, &o, &c, note, &a, &err), HF_OK);
    memset(info, '?', 4);
    memset(url, '?', sizeof url - 1);
    CHECK_INT(a.calls, 0);
    CHECK_HF(hf_lock_open(c, hf_str("a"), NULL, &m, &err), HF_EINVAL); /* not yet */
    CHECK_STR(hf_client_url(c), "");
    ANSWERED(c, &a, HF_OK);
    CHECK_STR(hf_client_url(c), server_url(s));
    CHECK_EVENTUALLY(threads_named("hf-open") == 0, 10000); /* it told that before it ended */
    m = lock_of(c, "a", 30000);
    CALL(c, &a, hf_lock_acquire_async(m, 0, note, &a, &err), HF_OK);
    hf_inspect_info *found = NULL;
    for (;; hf_inspect_free(found)) { /* it is written soon after the grant */
        CALL(c, &a, hf_inspect_lock_async(c, hf_str("a"), 0, &found, note, &a, &err), HF_OK);
        if (found->holder[0]->info)
            break;
    }
    CHECK_STR(found->holder[0]->info, "mine");
    CALL(c, &a, hf_lock_detach_async(m, 30000, note, &a, &err), HF_OK);
    hf_inspect_free(found);
    hf_lock_free(m);
    hf_client_free(c);
}

TEST(a_client_that_cannot_be_opened_is_told_and_freed)
{
    struct server *s = server_start(NULL);
    struct answer a = { 0 };
    hf_client *c = NULL;
    hf_lock *m = NULL;
    hf_client_opts o = { .size = sizeof o, .timeout_ms = 800 };
    CHECK_HF(hf_client_open_async("unix:///nowhere/at/all.sock", &o, &c, note, &a, &err), HF_OK);
    ANSWERED(c, &a, HF_ECONN);
    CHECK_HF(hf_lock_open(c, hf_str("a"), NULL, &m, &err), HF_EINVAL);
    CHECK_HF(hf_latch_open(c, hf_str("a"), NULL, (hf_latch **)&m, &err), HF_EINVAL);
    hf_client_free(c);

    server_freeze(s);
    longest_ms = 0;
    CHECK_HF(hf_client_open_async(server_url(s), &o, &c, note, &a, &err), HF_OK);
    await(c, &a);
    CHECK(a.result == HF_ECONN || a.result == HF_EUNSURE);
    CHECK_TOOK(longest_ms, 0, 500);
    hf_client_free(c);

    /* Freed in the middle of it. */
    o.timeout_ms = 20000;
    for (int round = 0; round < 3; round++) {
        a = (struct answer){ 0 };
        CHECK_HF(hf_client_open_async(server_url(s), &o, &c, note, &a, &err), HF_OK);
        if (round)
            t_sleep_ms(round * 60);
        CHECK_INT((long long)hf_client_dispatch(c), 0);
        int64_t begun = t_now_ms();
        hf_client_free(c);
        CHECK_TOOK(t_now_ms() - begun, 0, 5000);
        CHECK_INT(a.calls, 1);
        CHECK_INT(a.result, HF_ECANCELED);
    }
    server_thaw(s);
    a = (struct answer){ 0 };
    CHECK_HF(hf_client_open_async(server_url(s), &o, &c, note, &a, &err), HF_OK);
    CHECK_EVENTUALLY(threads_named("hf-open") == 0, 5000); /* opened, and nobody was told */
    hf_client_free(c);
    CHECK_INT(a.calls, 1);
}

/* ---- all of them at once ---- */

enum { SHARED, MULTI, LATCH, BARRIER, CAMPAIGN, OBSERVE, COMPUTE, KINDS };
static const char *const kind_name[KINDS] = { "shared", "multi", "latch", "barrier", "campaign",
                                              "observe", "compute" };

/* One of each that waits for something that others hold, or do not do. */
struct waits {
    hf_lock     *m[3];
    hf_latch    *lt;
    hf_barrier  *b;
    hf_election *el;
    hf_leader   *leader, *seen;
    hf_value    *value;
    struct work  work;
    struct answer a[KINDS];
};

static void begin_all(struct waits *w, hf_client *c, int64_t wait_ms)
{
    hf_once_opts o = { .size = sizeof o, .ttl_ms = 60000 };
    *w = (struct waits){ .m = { lock_of(c, "lock", 30000), lock_of(c, "lock", 30000),
                                lock_of(c, "free", 30000) },
                         .lt = latch_of(c, "latch"), .b = barrier_of(c, "barrier", 2, 0),
                         .el = candidate_of(c, "election") };
    CHECK_HF(hf_election_leader(c, hf_str("election"), &w->seen, &err), HF_OK);
    CHECK_HF(hf_lock_acquire_shared_async(w->m[0], wait_ms, note, &w->a[SHARED], &err),
             HF_OK);
    CHECK_HF(hf_multi_acquire_async(w->m + 1, 2, wait_ms, note, &w->a[MULTI], &err), HF_OK);
    CHECK_HF(hf_latch_wait_async(w->lt, wait_ms, note, &w->a[LATCH], &err), HF_OK);
    CHECK_HF(hf_barrier_wait_async(w->b, wait_ms, NULL, NULL, note, &w->a[BARRIER], &err), HF_OK);
    CHECK_HF(hf_election_campaign_async(w->el, hf_str("v"), wait_ms, NULL, note, &w->a[CAMPAIGN],
                                        &err), HF_OK);
    CHECK_HF(hf_election_observe_async(c, hf_str("election"), w->seen, wait_ms, &w->leader, note,
                                       &w->a[OBSERVE], &err), HF_OK);
    CHECK_HF(hf_once_compute_async(c, hf_str("lock"), &o, wait_ms, work, &w->work, &w->value, note,
                                   &w->a[COMPUTE], &err), HF_OK);
}

static void free_handles(struct waits *w)
{
    for (int i = 0; i < 3; i++)
        hf_lock_free(w->m[i]);
    hf_latch_free(w->lt);
    hf_barrier_free(w->b);
    hf_election_free(w->el);
    hf_leader_free(w->seen);
}

static int all_wait(struct server *s)
{
    return queue_of(s, "lock") == 3 && queue_of(s, "election") == 1
           && server_int(s, "ZCARD {lock:latch}:l") == 1
           && server_int(s, "EXISTS {lock:barrier}:h") == 1
           && server_int(s, "ZCARD {lock:election}:l") == 1;
}

TEST(P9_freeing_the_client_ends_every_kind_of_request_and_leaves_nothing)
{
    struct server *s = server_start(NULL);
    hf_client *other = client_at(server_url(s), 0);
    hf_lock *held = lock_of(other, "lock", 60000);
    hf_election *leader = candidate_of(other, "election");
    struct waits w;
    lock_now(held);
    CHECK_HF(hf_election_campaign(leader, hf_str("o"), 0, NULL, &err), HF_OK);
    for (int round = 0; round < 3; round++) {
        hf_client *c = client_at(server_url(s), 3000);
        begin_all(&w, c, HF_WAIT_FOREVER);
        if (round == 0)
            LOOP_EVENTUALLY(c, all_wait(s), 10000);
        if (round == 1)
            turn(c, 5);
        int64_t begun = t_now_ms();
        hf_client_free(c);
        CHECK_TOOK(t_now_ms() - begun, 0, 4000);
        for (int i = 0; i < KINDS; i++) {
            CHECK_INT(w.a[i].calls, 1);
            if (w.a[i].result != HF_ECANCELED)
                FAIL("round %d, %s: %s (%s)", round, kind_name[i], hf_err_name(w.a[i].result),
                     w.a[i].message);
        }
        CHECK(!w.leader && !w.value);
        CHECK_INT(atomic_load(&w.work.calls), 0);
        free_handles(&w);
        CHECK_INT(queue_of(s, "lock") + queue_of(s, "election"), 0);
        CHECK_INT(server_int(s, "EXISTS lock:free {lock:latch}:l {lock:election}:l"), 0);
    }
    CHECK_HF(hf_lock_verify(held, &err), HF_OK);
    hf_lock_free(held);
    hf_election_free(leader);
    hf_client_free(other);
    check_only_ttls(s);
}

TEST(freeing_the_client_waits_for_a_computation_that_is_under_way)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 3000);
    hf_once_opts o = { .size = sizeof o, .ttl_ms = 60000 };
    struct work w = { .go = 0 };
    struct answer a = { 0 };
    hf_value *v = NULL;
    CHECK_HF(hf_once_compute_async(c, hf_str("a"), &o, 0, work, &w, &v, note, &a, &err), HF_OK);
    LOOP_EVENTUALLY(c, atomic_load(&w.calls) == 1, 10000);
    CHECK_INT(a.calls, 0);
    atomic_store(&w.go, 1);
    hf_client_free(c);
    CHECK_INT(a.calls, 1);
    CHECK_INT(a.result, HF_OK); /* it was ours, and is cached */
    CHECK_STR(v->data, "made");
    hf_value_free(v);
    CHECK_INT(server_int(s, "EXISTS lock:a"), 0);
}

TEST(a_frozen_server_never_keeps_a_dispatch)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 1000), *opening = NULL;
    struct waits w;
    struct answer more[6] = { 0 };
    uint32_t left;
    hf_inspect_info *info = NULL;
    hf_value *v = NULL;
    hf_lock *held = lock_of(c, "held", 60000), *left_behind = lock_of(c, "left", 60000);
    hf_lock *locks[] = { lock_of(c, "x", 60000), lock_of(c, "y", 60000) };
    hf_latch *lt = latch_of(c, "other");
    hf_client_opts o = { .size = sizeof o, .timeout_ms = 1000 };
    CHECK_HF(hf_multi_acquire(locks, 2, 0, &err), HF_OK);
    lock_now(held);
    lock_now(left_behind);
    begin_all(&w, c, 1200); /* some begin before it freezes, and some do not */
    server_freeze(s);
    longest_ms = 0;
    CHECK_HF(hf_lock_verify_async(held, note, &more[0], &err), HF_OK);
    CHECK_HF(hf_lock_detach_async(left_behind, 5000, note, &more[1], &err), HF_OK);
    CHECK_HF(hf_multi_release_async(locks, 2, note, &more[2], &err), HF_OK);
    CHECK_HF(hf_latch_count_async(lt, &left, NULL, note, &more[3], &err), HF_OK);
    CHECK_HF(hf_inspect_lock_async(c, hf_str("held"), 0, &info, note, &more[4], &err), HF_OK);
    CHECK_HF(hf_once_get_async(c, hf_str("q"), &v, note, &more[5], &err), HF_OK);
    struct answer opened = { 0 };
    CHECK_HF(hf_client_open_async(server_url(s), &o, &opening, note, &opened, &err), HF_OK);
    int64_t begun = t_now_ms();
    for (int all = 0; !all && t_now_ms() - begun < 20000;) {
        turn(c, 20);
        turn(opening, 1);
        all = opened.calls;
        for (int i = 0; i < KINDS; i++)
            all &= w.a[i].calls;
        for (int i = 0; i < 6; i++)
            all &= more[i].calls;
    }
    t_note("answered in %lld ms, the longest dispatch took %lld ms",
           (long long)(t_now_ms() - begun), (long long)longest_ms);
    CHECK_TOOK(longest_ms, 0, 300);
    CHECK(opened.calls == 1 && opened.result != HF_OK);
    for (int i = 0; i < KINDS; i++) {
        CHECK_INT(w.a[i].calls, 1);
        if (i != SHARED && i != MULTI && i != CAMPAIGN && i != COMPUTE) /* those may have got it */
            CHECK(w.a[i].result != HF_OK);
    }
    for (int i = 0; i < 6; i++) {
        CHECK_INT(more[i].calls, 1);
        if (more[i].result != HF_EUNSURE && more[i].result != HF_ECONN)
            FAIL("%d: %s (%s)", i, hf_err_name(more[i].result), more[i].message);
    }
    server_thaw(s);
    hf_client_free(opening);
    hf_client_free(c);
    free_handles(&w);
    hf_leader_free(w.leader);
    hf_value_free(w.value);
    hf_lock_free(held);
    hf_lock_free(left_behind);
    hf_lock_free(locks[0]);
    hf_lock_free(locks[1]);
    hf_latch_free(lt);
}

/* ---- without scripts ---- */

TEST(by_transactions_it_is_the_same)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_with(server_url(s), (hf_client_opts){ .protocol = "transaction" });
    hf_client *other = client_at(server_url(s), 0);
    struct answer a = { 0 };
    hf_lock *m[] = { lock_of(c, "a", 30000), lock_of(c, "b", 30000) };
    hf_lock *o = lock_of(other, "b", 30000);
    hf_once_opts opts = { .size = sizeof opts, .ttl_ms = 60000 };
    struct work w = { .go = 1 };
    hf_value *v = NULL;
    CALL(c, &a, hf_multi_acquire_async(m, 2, 0, note, &a, &err), HF_OK);
    CALL(c, &a, hf_lock_verify_async(m[0], note, &a, &err), HF_OK);
    CALL(c, &a, hf_multi_release_async(m, 2, note, &a, &err), HF_OK);
    lock_now(o);
    CHECK_HF(hf_multi_acquire_async(m, 2, 20000, note, &a, &err), HF_OK);
    for (int64_t until = t_now_ms() + 100; t_now_ms() < until;)
        turn(c, 10);
    CHECK_INT(a.calls, 0);
    unlock_now(o);
    ANSWERED(c, &a, HF_OK);
    CALL(c, &a, hf_multi_release_async(m, 2, note, &a, &err), HF_OK);
    CALL(c, &a, hf_lock_acquire_shared_async(m[0], 0, note, &a, &err), HF_OK);
    CALL(c, &a, hf_lock_release_async(m[0], note, &a, &err), HF_OK);
    CALL(c, &a, hf_once_compute_async(c, hf_str("a"), &opts, 0, work, &w, &v, note, &a, &err),
         HF_OK);
    CHECK_STR(v->data, "made");
    hf_value_free(v);
    hf_lock_free(m[0]);
    hf_lock_free(m[1]);
    hf_lock_free(o);
    hf_client_free(c);
    hf_client_free(other);
}

/* Who did nothing for a while does not know whether its master still is the master: a call that
 * must not wait cannot ask, so it uses no old connection. */
TEST(SEN2_through_sentinels_after_a_while_of_nothing)
{
    struct fleet *f = fleet_start(NULL);
    hf_client *c = client_at(f->url, 0);
    hf_lock *m = lock_of(c, "a", 30000);
    long long before = 0;
    for (int round = 0; round < 2; round++) {
        struct answer a = { 0 }, b = { 0 };
        CHECK_HF(hf_lock_acquire_async(m, 30000, note, &a, &err), HF_OK);
        ANSWERED(c, &a, HF_OK);
        long long now = atoll(server_info(f->node[0], "total_connections_received"));
        CHECK(round == 0 || now > before);
        CHECK_HF(hf_lock_release_async(m, note, &b, &err), HF_OK);
        ANSWERED(c, &b, HF_OK);
        before = atoll(server_info(f->node[0], "total_connections_received"));
        t_sleep_ms(round == 0 ? 2500 : 0); /* longer than they are believed */
    }
    hf_lock_free(m);
    hf_client_free(c);
}
