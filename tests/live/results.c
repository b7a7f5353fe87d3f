/* SPDX-License-Identifier: MIT
 * results.c - F1, A2 to A5: no call gives a result that the header does not list, nor takes longer
 * than it may, whatever state the server is in.
 *
 * The lists are read from include/holdfast.h itself: the errors that the comment of a call names,
 * those of the calls that it refers to ("as hf_lock_acquire()"), and those that it says every call
 * may return.
 */
#include "harness/waiting.h"

/* ---- what the header lists ------------------------------------------------------------------- */

static const struct { const char *name; hf_err code; } errors[] = {
#define ENTRY(name, value, known, text) { "HF_" #name, HF_##name },
    HF_ERR_MAP(ENTRY)
#undef ENTRY
};

static char *header; /* the whole file */

static void read_header(void)
{
    FILE *f = fopen("include/holdfast.h", "r");
    CHECK(f);
    header = keep_block(malloc(200000));
    CHECK(header);
    size_t n = fread(header, 1, 199999, f);
    CHECK(n > 10000 && n < 199999);
    header[n] = '\0';
    fclose(f);
}

static int is_word(char c)
{
    return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/* Bit -code for each error that is named in the text. */
static uint64_t named(const char *text, const char *end)
{
    uint64_t set = 0;
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        size_t len = strlen(errors[i].name);
        for (const char *p = text; (p = strstr(p, errors[i].name)) && p < end; p += len)
            if (!is_word(p[len]))
                set |= UINT64_C(1) << -errors[i].code;
    }
    return set;
}

/* The comment that a declaration has, alone or together with those before it. */
static const char *comment_of(const char *call, const char **ret_end)
{
    char text[80];
    const char *at = header, *end, *begin;
    snprintf(text, sizeof text, " %s(", call);
    do {
        at = strstr(at + 1, text);
        if (!at)
            FAIL("%s is not declared", call);
        for (begin = at; begin[-1] != '\n'; begin--)
            ;
    } while (strncmp(begin, "HF_API", 6) != 0);
    end = begin;
    while (strncmp(end - 3, "*/\n", 3) != 0) {
        if (end[-1] == '\n' && end[-2] == '\n')
            FAIL("%s has no comment", call);
        end--;
    }
    for (begin = end; strncmp(begin, "/*", 2) != 0; begin--)
        ;
    *ret_end = end;
    return begin;
}

static uint64_t listed(const char *call, int depth)
{
    const char *end, *text = comment_of(call, &end);
    uint64_t set = named(text, end);
    for (const char *p = text; depth < 4 && (p = strstr(p, "s hf_")) && p < end; p++) {
        char other[80];
        if ((p[-1] == 'a' || p[-1] == 'A') && sscanf(p + 2, "%79[a-z_](", other) == 1)
            set |= listed(other, depth + 1);
    }
    return set;
}

static uint64_t for_all(void)
{
    const char *begin = strstr(header, "Beyond that, every call"), *end;
    CHECK(begin && (end = strstr(begin, "No call returns anything else")));
    return named(begin, end) | 1; /* HF_OK */
}

/* ---- the calls ------------------------------------------------------------------------------ */

enum { TIMEOUT_MS = 300, WAIT_MS = 150, LATE_MS = 2500, HELD = 8 };

struct kit {
    struct server *s;
    hf_client     *c;
    hf_lock       *free_one, *held[HELD], *pair[2], *reader, *writer, *permit;
    hf_election   *el, *leader;
    hf_latch      *latch, *unset;
    hf_barrier    *barrier;
    hf_sequence   *sequence;
};

static int see(const hf_inspect_info *info, void *arg)
{
    (void)info;
    (void)arg;
    return 0;
}

static hf_err compute(void *arg, hf_lock *lock, hf_bytes *ret_value, hf_error *reterr)
{
    (void)arg;
    (void)lock;
    (void)reterr;
    *ret_value = hf_str("v");
    return HF_OK;
}

static hf_change change(void *arg, hf_bytes old, hf_bytes *ret_new)
{
    (void)arg;
    (void)old;
    *ret_new = hf_str("new");
    return HF_CHANGE_SET;
}

static hf_err inspect(struct kit *k)
{
    hf_inspect_info *info = NULL;
    hf_err e = hf_inspect_lock(k->c, hf_str("a"), 0, &info, &err);
    if (!e)
        hf_inspect_free(info);
    return e;
}

static hf_err ask_why(struct kit *k)
{
    hf_why_info *why = NULL;
    hf_err e = hf_why(k->c, hf_str("a"), 0, &why, &err);
    if (!e)
        hf_why_free(why);
    return e;
}

static hf_err once_compute(struct kit *k)
{
    hf_value *v = NULL;
    hf_once_opts o = { .size = sizeof o, .ttl_ms = 1000 };
    hf_err e = hf_once_compute(k->c, hf_str("once"), &o, WAIT_MS, compute, NULL, &v, &err);
    if (!e)
        hf_value_free(v);
    return e;
}

static hf_err once_get(struct kit *k)
{
    hf_value *v = NULL;
    hf_err e = hf_once_get(k->c, hf_str("once"), &v, &err);
    if (!e)
        hf_value_free(v);
    return e;
}

static hf_err leader(struct kit *k)
{
    hf_leader *who = NULL;
    hf_err e = hf_election_leader(k->c, hf_str("el"), &who, &err);
    if (!e)
        hf_leader_free(who);
    return e;
}

static hf_err observe(struct kit *k)
{
    hf_leader nobody = { .leads = 0 }, *who = NULL;
    hf_err e = hf_election_observe(k->c, hf_str("nobody"), &nobody, WAIT_MS, &who, &err);
    if (!e)
        hf_leader_free(who);
    return e;
}

static hf_err open_client(struct kit *k)
{
    hf_client *c = NULL;
    hf_client_opts o = { .size = sizeof o, .timeout_ms = TIMEOUT_MS };
    hf_err e = hf_client_open(server_url(k->s), &o, &c, &err);
    if (!e)
        hf_client_free(c);
    return e;
}

/* Whoever holds it. */
static hf_err break_now(struct kit *k)
{
    hf_break_opts o = { .size = sizeof o, .wait_ms = WAIT_MS / 2 };
    return hf_break(k->c, hf_str("h7"), hf_lock_fence(k->held[7]), &o, NULL, &err);
}

/* Each by the name that the header declares. */
#define CALLS(X)                                                                             \
    X(hf_client_open, open_client(k))                                                        \
    X(hf_lock_try, hf_lock_try(k->free_one, NULL, &err))                                     \
    X(hf_lock_acquire, hf_lock_acquire(k->free_one, WAIT_MS, NULL, &err))                    \
    X(hf_lock_acquire_shared, hf_lock_acquire_shared(k->reader, WAIT_MS, NULL, &err))        \
    X(hf_lock_acquire, hf_lock_acquire(k->permit, WAIT_MS, NULL, &err))                      \
    X(hf_lock_extend, hf_lock_extend(k->held[0], 20000, &err))                               \
    X(hf_lock_verify, hf_lock_verify(k->held[1], &err))                                      \
    X(hf_lock_downgrade, hf_lock_downgrade(k->writer, &err))                                 \
    X(hf_lock_detach, hf_lock_detach(k->held[2], 5000, &err))                                \
    X(hf_lock_release, hf_lock_release(k->held[3], &err))                                    \
    X(hf_semaphore_resize, hf_semaphore_resize(k->c, hf_str("sem2"), 3, NULL, &err))         \
    X(hf_multi_acquire, hf_multi_acquire(k->pair, 2, WAIT_MS, &err))                         \
    X(hf_multi_acquire, hf_multi_acquire(k->pair, 2, 0, &err))                               \
    X(hf_multi_release, hf_multi_release(k->held + 4, 2, &err))                              \
    X(hf_inspect_lock, inspect(k))                                                           \
    X(hf_why, ask_why(k))                                                                    \
    X(hf_inspect_list, hf_inspect_list(k->c, NULL, 0, see, NULL, &err))                      \
    X(hf_owner_acquire, hf_owner_acquire(k->c, hf_str("o"), 5000, hf_str("me"), NULL, &err)) \
    X(hf_owner_check, hf_owner_check(k->c, hf_str("o"), hf_str("me"), NULL, &err))           \
    X(hf_owner_extend, hf_owner_extend(k->c, hf_str("o"), hf_str("me"), 9000, &err))         \
    X(hf_owner_release, hf_owner_release(k->c, hf_str("o"), hf_str("me"), &err))             \
    X(hf_owner_release_all, hf_owner_release_all(k->c, hf_str("me"), NULL, &err))            \
    X(hf_break, break_now(k))                                                                \
    X(hf_ask, hf_ask(k->c, hf_str("h7"), 0, "please", NULL, NULL, &err))                     \
    X(hf_guard_check, hf_guard_check(k->c, hf_str("g"), 7, &err))                            \
    X(hf_guard_set, hf_guard_set(k->c, hf_str("gs"), hf_str("v"), 7, &err))                  \
    X(hf_election_campaign, hf_election_campaign(k->el, hf_str("v"), WAIT_MS, NULL, &err))   \
    X(hf_election_set_value, hf_election_set_value(k->leader, hf_str("w"), &err))            \
    X(hf_election_leader, leader(k))                                                         \
    X(hf_election_observe, observe(k))                                                       \
    X(hf_election_resign, hf_election_resign(k->leader, &err))                               \
    X(hf_latch_set, hf_latch_set(k->latch, 3, &err))                                         \
    X(hf_latch_reset, hf_latch_reset(k->latch, 3, &err))                                     \
    X(hf_latch_count_down, hf_latch_count_down(k->latch, 1, NULL, &err))                     \
    X(hf_latch_count_down, hf_latch_count_down(k->unset, 1, NULL, &err))                     \
    X(hf_latch_count, hf_latch_count(k->latch, NULL, NULL, &err))                            \
    X(hf_latch_wait, hf_latch_wait(k->latch, WAIT_MS, &err))                                 \
    X(hf_latch_wait, hf_latch_wait(k->latch, 0, &err))                                       \
    X(hf_barrier_wait, hf_barrier_wait(k->barrier, WAIT_MS, NULL, NULL, &err))               \
    X(hf_barrier_leave, hf_barrier_leave(k->barrier, WAIT_MS, &err))                         \
    X(hf_once_compute, once_compute(k))                                                      \
    X(hf_once_get, once_get(k))                                                              \
    X(hf_once_put, hf_once_put(k->c, hf_str("h6"), k->held[6], hf_str("v"), 1000, 0, &err))  \
    X(hf_once_drop, hf_once_drop(k->c, hf_str("once"), &err))                                \
    X(hf_update_run, hf_update_run(k->c, hf_str("u"), NULL, change, NULL, &err))             \
    X(hf_sequence_next, hf_sequence_next(k->sequence, &(uint64_t){ 0 }, &err))               \
    X(hf_client_release_all, hf_client_release_all(k->c, NULL, &err))

/* ---- states ---------------------------------------------------------------------------------- */

static const char *const held_name[HELD] = { "h0", "h1", "h2", "h3", "h4", "h5", "h6", "h7" };

static long results; /* that were compared */
static uint64_t seen; /* which they were */
static int      wrong;

static void judge(const char *call, hf_err e, int64_t took_ms)
{
    uint64_t may = listed(call, 0) | for_all(), bit = UINT64_C(1) << -e;
    results++;
    seen |= bit;
    int late = took_ms > WAIT_MS + TIMEOUT_MS + LATE_MS;
    if (!(may & bit))
        t_note("%s() gave %s (%s), which the header does not list", call, hf_err_name(e),
               err.message);
    if (late)
        t_note("%s() gave %s after %lld ms", call, hf_err_name(e), (long long)took_ms);
    wrong += late || !(may & bit);
}

/* What a protocol cannot do stays NULL: calls with it are HF_EINVAL. */
#define OPEN(name, ...) judge(#name, name(k->c, __VA_ARGS__, &err), 0)

static void kit_open(struct kit *k, const char *url)
{
    k->c = client_at(url, TIMEOUT_MS);
    for (int i = 0; i < HELD; i++)
        lock_now(k->held[i] = lock_with(k->c, held_name[i], KEPT));
    k->free_one = lock_with(k->c, "a", KEPT);
    k->pair[0] = lock_with(k->c, "p", KEPT);
    k->pair[1] = lock_with(k->c, "q", KEPT);
    k->reader = lock_with(k->c, "rw", KEPT);
    lock_now(k->writer = lock_with(k->c, "w", KEPT));
    hf_lock_opts sem = hf_semaphore(2);
    k->permit = lock_with(k->c, "sem", sem);
    hf_sequence_opts one = { .size = sizeof one, .block = 1 };
    OPEN(hf_election_open, hf_str("el"), NULL, &k->el);
    OPEN(hf_election_open, hf_str("led"), NULL, &k->leader);
    OPEN(hf_latch_open, hf_str("latch"), NULL, &k->latch);
    OPEN(hf_latch_open, hf_str("unset"), NULL, &k->unset);
    OPEN(hf_barrier_open, hf_str("barrier"), 2, NULL, &k->barrier);
    OPEN(hf_sequence_open, hf_str("seq"), &one, &k->sequence);
    if (k->leader)
        CHECK_HF(hf_election_campaign(k->leader, hf_str("v"), 5000, NULL, &err), HF_OK);
}

static void kit_close(struct kit *k)
{
    for (int i = 0; i < HELD; i++)
        hf_lock_free(k->held[i]);
    hf_lock_free(k->free_one);
    hf_lock_free(k->pair[0]);
    hf_lock_free(k->pair[1]);
    hf_lock_free(k->reader);
    hf_lock_free(k->writer);
    hf_lock_free(k->permit);
    hf_election_free(k->el);
    hf_election_free(k->leader);
    hf_latch_free(k->latch);
    hf_latch_free(k->unset);
    hf_barrier_free(k->barrier);
    hf_sequence_free(k->sequence);
    hf_client_free(k->c);
}

static void call_all(struct kit *k)
{
    int64_t begun;
    hf_err e;
#define DO(name, expression)                 \
    begun = t_now_ms();                      \
    err.message[0] = '\0';                   \
    e = (expression);                        \
    judge(#name, e, t_now_ms() - begun);
    CALLS(DO)
#undef DO
}

/* In that state all calls are made; at least one of them must have given what the state causes. */
static void in_state(void (*enter)(struct kit *k), void (*leave)(struct kit *k), const char *url,
                     struct server *s, hf_err want)
{
    struct kit k = { .s = s };
    read_header();
    kit_open(&k, url);
    seen = 0;
    enter(&k);
    call_all(&k);
    if (leave)
        leave(&k);
    kit_close(&k);
    t_note("%ld results", results);
    CHECK_INT(wrong, 0);
    CHECK(results >= 40);
    if (!(seen & UINT64_C(1) << -want))
        FAIL("no call gave %s: was the state what it should be?", hf_err_name(want));
}

static void here(void (*enter)(struct kit *k), void (*leave)(struct kit *k), hf_err want)
{
    struct server *s = server_start(NULL);
    in_state(enter, leave, server_url(s), s, want);
}

static void fine(struct kit *k)
{
    (void)k;
}

static void freeze(struct kit *k)
{
    server_freeze(k->s);
}

static void thaw(struct kit *k)
{
    server_thaw(k->s);
}

static void die(struct kit *k)
{
    server_kill(k->s);
}

static void fill(struct kit *k)
{
    CHECK_STR(server_ask(k->s, "CONFIG SET maxmemory-policy noeviction"), "OK");
    CHECK_STR(server_ask(k->s, "CONFIG SET maxmemory 1"), "OK");
}

static void empty(struct kit *k)
{
    CHECK_STR(server_ask(k->s, "CONFIG SET maxmemory 0"), "OK");
}

static void forget_all(struct kit *k)
{
    server_ask(k->s, "FLUSHALL");
}

static void make_replica(struct kit *k)
{
    CHECK_STR(server_ask(k->s, "REPLICAOF 127.0.0.1 1"), "OK"); /* nobody is there */
}

static void make_master(struct kit *k)
{
    CHECK_STR(server_ask(k->s, "REPLICAOF NO ONE"), "OK");
}

static void take_rights(struct kit *k)
{
    CHECK_STR(server_ask(k->s, "ACL SETUSER app -@all +info +client"), "OK");
}

static void take_password(struct kit *k)
{
    CHECK_STR(server_ask(k->s, "ACL SETUSER app resetpass >other"), "OK");
    CHECK(server_int(k->s, "CLIENT KILL USER app") > 0);
}

static void spoil_counter(struct kit *k)
{
    server_ask(k->s, "DEL " FENCE_KEY);
    CHECK_INT(server_int(k->s, "LPUSH " FENCE_KEY " x"), 1);
    server_ask(k->s, "SET lock:holdfast:n:seq x");
    server_ask(k->s, "SET {lock:seq}:n x");
}

static void spoil_keys(struct kit *k)
{
    static const char *const name[] = { "a", "p", "rw", "sem", "sem2", "o", "el", "led", "latch",
                                        "unset", "barrier", "once", "h0", "h1", "h3", "w" };
    for (size_t i = 0; i < sizeof name / sizeof name[0]; i++) {
        server_ask(k->s, "DEL lock:%s", name[i]);
        CHECK_INT(server_int(k->s, "LPUSH lock:%s x", name[i]), 1);
    }
    server_ask(k->s, "DEL {lock:once}:c");
    server_ask(k->s, "SET {lock:once}:c x");
    server_ask(k->s, "LPUSH u x");
}

static void take_all(struct kit *k)
{
    static const char *const name[] = { "a", "p", "rw", "sem", "sem2", "o", "el", "once" };
    for (size_t i = 0; i < sizeof name / sizeof name[0]; i++)
        CHECK_STR(server_ask(k->s, "SET lock:%s stranger PX 60000", name[i]), "OK");
}

static void block_with_a_script(struct kit *k)
{
    CHECK_STR(server_ask(k->s, "CONFIG SET busy-reply-threshold 1"), "OK");
    struct server *s = k->s;
    if (t_fork_among_threads() == 0) {
        server_ask(s, "EVAL %s 0", "while true do end");
        _exit(0);
    }
    CHECK_EVENTUALLY(strstr(server_ask(s, "GET x") ? server_ask(s, "GET x") : "", "BUSY"), 10000);
}

static void end_script(struct kit *k)
{
    server_ask(k->s, "SCRIPT KILL");
}

static const char *app_url(struct server *s)
{
    CHECK_STR(server_ask(s, "ACL SETUSER app on >pw ~* &* +@all"), "OK");
    return keep_text("unix://app:pw@%s", server_url(s) + strlen("unix://"));
}

TEST(results_of_a_server_that_is_well)
{
    here(fine, NULL, HF_OK);
}

TEST(results_of_locks_of_others)
{
    here(take_all, NULL, HF_EBUSY);
}

TEST(results_of_a_frozen_server)
{
    here(freeze, thaw, HF_EUNSURE);
}

TEST(results_of_a_dead_server)
{
    here(die, NULL, HF_ECONN);
}

TEST(results_of_a_full_server)
{
    here(fill, empty, HF_ESERVER);
}

TEST(results_of_a_server_that_lost_everything)
{
    here(forget_all, NULL, HF_ELOST);
}

TEST(results_of_a_replica)
{
    here(make_replica, make_master, HF_ESERVER);
}

TEST(results_of_a_spoiled_counter)
{
    here(spoil_counter, NULL, HF_ECOUNTER);
}

TEST(results_of_spoiled_keys)
{
    here(spoil_keys, NULL, HF_ETYPE);
}

TEST(results_of_a_server_that_runs_a_script)
{
    here(block_with_a_script, end_script, HF_ESERVER);
}

TEST(results_without_rights)
{
    struct server *s = server_start(NULL);
    in_state(take_rights, NULL, app_url(s), s, HF_EAUTH);
}

TEST(results_of_a_wrong_password)
{
    struct server *s = server_start(NULL);
    in_state(take_password, NULL, app_url(s), s, HF_EAUTH);
}

TEST(results_of_the_protocol_transaction)
{
    struct server *s = server_start(NULL);
    in_state(take_all, NULL, url_with(server_url(s), "protocol=transaction"), s, HF_EBUSY);
}

TEST(results_of_a_full_server_of_the_protocol_transaction)
{
    struct server *s = server_start(NULL);
    in_state(fill, empty, url_with(server_url(s), "protocol=transaction"), s, HF_ESERVER);
}

TEST(results_of_spoiled_keys_of_the_protocol_transaction)
{
    struct server *s = server_start(NULL);
    in_state(spoil_keys, NULL, url_with(server_url(s), "protocol=transaction"), s, HF_ETYPE);
}
