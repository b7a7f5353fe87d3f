/* SPDX-License-Identifier: MIT
 * tx.c - operations without scripts, against a server that is in memory: how their waits end, and
 * what they make of replies that no server gives.
 */
#include "exec/tx.h"

#include <stdlib.h>

#include "base/seam.h"
#include "exec/transaction.h"
#include "harness/t.h"

/* ---- the simulated time and server ---- */

static int64_t now_ms;
static atomic_int stop;
static int64_t stop_at_ms; /* 0: never */

static int64_t sim_now(void)
{
    return now_ms;
}

static void sim_sleep_until(int64_t at_ms, const void *on)
{
    (void)on;
    if (at_ms > now_ms)
        now_ms = at_ms;
    if (stop_at_ms && now_ms >= stop_at_ms)
        atomic_store(&stop, 1);
}

static int sim_random(void *buf, size_t n)
{
    memset(buf, 7, n);
    return 0;
}

static const struct seam simulated = { .now_ms = sim_now, .sleep_until = sim_sleep_until,
                                       .random = sim_random };

static struct {
    const char *says;   /* first; it does not wait for questions */
    const char *always; /* then this, over and over; NULL: nothing */
    size_t      read;
    size_t      at_once;
    bool        takes_nothing;
    char        asked[4096];
    size_t      asked_len;
} server;

static ssize_t read_now(struct stream *s, void *buf, size_t n)
{
    (void)s;
    size_t first = strlen(server.says), i = 0;
    for (; i < n && i < server.at_once; i++, server.read++) {
        if (server.read < first)
            ((char *)buf)[i] = server.says[server.read];
        else if (server.always)
            ((char *)buf)[i] = server.always[(server.read - first) % strlen(server.always)];
        else
            break;
    }
    return (ssize_t)i;
}

static ssize_t read_soon(struct stream *s, void *buf, size_t n)
{
    clock_sleep_until(clock_now_ms() + 1);
    return read_now(s, buf, n);
}

static ssize_t take(struct stream *s, const struct iovec *iov, int n)
{
    (void)s;
    CHECK_INT(n, 1);
    if (server.takes_nothing) {
        clock_sleep_until(clock_now_ms() + 1);
        return 0;
    }
    size_t room = sizeof server.asked - 1 - server.asked_len;
    size_t kept = iov->iov_len < room ? iov->iov_len : room;
    memcpy(server.asked + server.asked_len, iov->iov_base, kept);
    server.asked_len += kept;
    return (ssize_t)iov->iov_len;
}

static void let_go(struct stream *s, int reset)
{
    (void)s, (void)reset;
}

static const struct stream_ops ops = {
    .read = read_soon, .read_now = read_now, .writev = take, .close = let_go,
};

/* One attempt at an operation. */
struct scene {
    struct stream stream;
    struct link   link;
    struct op     op;
    struct tx     x;
    hf_error      err;
};

static struct scene *begin(const char *says, const char *always, size_t at_once)
{
    struct scene *sc = calloc(1, sizeof *sc);
    now_ms = 1000000;
    stop_at_ms = 0;
    atomic_store(&stop, 0);
    seam_set(&simulated);
    memset(&server, 0, sizeof server);
    server.says = says;
    server.always = always;
    server.at_once = at_once;
    sc->stream = (struct stream){ .ops = &ops, .fd = -1 };
    CHECK_INT(link_init(&sc->link), 0);
    sc->link.stream = &sc->stream;
    sc->op.deadline_ms = now_ms + 5000;
    sc->op.stop = &stop;
    sc->x = (struct tx){ .l = &sc->link, .op = &sc->op, .reterr = &sc->err };
    return sc;
}

static void end(struct scene *sc)
{
    tx_end(&sc->x);
    reply_free(sc->op.reply);
    link_clear(&sc->link);
    free(sc);
    seam_set(NULL);
}

/* ---- waits ---- */

TEST(a_reply_that_comes_byte_by_byte_ends_by_the_deadline)
{
    struct scene *sc = begin("$100000\r\n", "x", 1);
    tx_ask(&sc->x, S("GET"), S("a"));
    CHECK(!tx_read(&sc->x));
    CHECK_INT(sc->x.e, HF_ECONN);
    CHECK_RANGE(now_ms, 1005000, 1005100);
    end(sc);
}

TEST(a_reply_that_comes_byte_by_byte_ends_when_stopped)
{
    struct scene *sc = begin("$100000\r\n", "x", 1);
    stop_at_ms = now_ms + 300;
    tx_ask(&sc->x, S("GET"), S("a"));
    CHECK(!tx_read(&sc->x));
    CHECK_INT(sc->x.e, HF_ECANCELED);
    CHECK_RANGE(now_ms, 1000300, 1000400);
    end(sc);
}

TEST(a_pause_ends_when_stopped_and_does_not_begin_past_the_deadline)
{
    struct scene *sc = begin("", NULL, 1);
    CHECK(tx_pause(&sc->op, 100));
    CHECK_INT(now_ms, 1000100);
    CHECK(!tx_pause(&sc->op, 4900));
    CHECK_INT(now_ms, 1000100);
    stop_at_ms = now_ms + 50;
    CHECK(!tx_pause(&sc->op, 3000));
    CHECK_RANGE(now_ms, 1000150, 1000200);
    end(sc);
}

TEST(an_exec_without_an_answer_is_in_doubt_and_one_that_was_refused_is_not)
{
    struct scene *sc = begin("+OK\r\n+QUEUED\r\n", NULL, 1000);
    tx_multi(&sc->x);
    tx_ask(&sc->x, S("DEL"), S("a"));
    CHECK_INT(tx_exec(&sc->x), TX_FAILED);
    CHECK(sc->x.committing);
    end(sc);
    sc = begin("+OK\r\n+QUEUED\r\n-LOADING wait\r\n", NULL, 1000);
    tx_multi(&sc->x);
    tx_ask(&sc->x, S("DEL"), S("a"));
    CHECK_INT(tx_exec(&sc->x), TX_FAILED);
    CHECK(!sc->x.committing && sc->x.answered);
    CHECK_INT(sc->x.verdict, SERVER_RETRY);
    end(sc);
    sc = begin("+OK\r\n+QUEUED\r\n*-1\r\n", NULL, 1000);
    tx_multi(&sc->x);
    tx_ask(&sc->x, S("DEL"), S("a"));
    CHECK_INT(tx_exec(&sc->x), TX_CONFLICT);
    end(sc);
}

/* ---- answers ---- */

static struct scope scope = { .counter = "holdfast:fence", .reign = "holdfast:reign" };
static struct lock_keys keys;
static struct grant held;
static struct op_take take_it;

static void name_keys(void)
{
    keys.key[KEY_LOCK] = S("lock:a");
    keys.key[KEY_OWN] = S("{lock:a}:own");
    keys.key[KEY_TOMB] = S("{lock:a}:t");
    keys.key[KEY_QUEUE] = S("{lock:a}:q");
    keys.key[KEY_ABSENT] = S("{lock:a}:absent");
    keys.scope = &scope;
    held = (struct grant){ .keys = &keys, .token = "0123.1", .fence = 1700000000000001 };
    take_it = (struct op_take){ .keys = &keys, .token = "0123.1", .ttl_ms = 1000, .nonce = "" };
}

TEST(who_holds_it_is_told_with_what_stands_there)
{
    name_keys();
    struct scene *sc = begin("+OK\r\n$-1\r\n$5\r\nother\r\n$0\r\n\r\n:700\r\n", NULL, 1000);
    sc->op.take = take_it;
    CHECK_INT(transaction_acquire(&sc->x), TX_ANSWERED);
    CHECK_INT(sc->op.got.taken.code, ANSWER_BUSY);
    CHECK_INT(sc->op.got.taken.left_ms, 700);
    CHECK_STR(sc->op.got.taken.value.data, "other");
    CHECK_CONTAINS(server.asked, "{lock:a}:own");
    end(sc);
}

TEST(a_lock_that_is_ours_is_released_and_another_is_left_alone)
{
    name_keys();
    struct scene *sc = begin("+OK\r\n$25\r\n0123.1:1700000000000001:0\r\n$0\r\n\r\n"
                             "+OK\r\n+QUEUED\r\n*1\r\n:1\r\n", NULL, 1000);
    sc->op.release.grant = &held;
    CHECK_INT(transaction_release(&sc->x), TX_ANSWERED);
    CHECK(sc->op.got.held);
    CHECK_CONTAINS(server.asked, "DEL");
    end(sc);
    sc = begin("+OK\r\n$25\r\n0123.2:1700000000000001:0\r\n$0\r\n\r\n", NULL, 1000);
    sc->op.release.grant = &held;
    CHECK_INT(transaction_release(&sc->x), TX_ANSWERED);
    CHECK(!sc->op.got.held);
    CHECK(!strstr(server.asked, "DEL"));
    end(sc);
}

/* ---- replies that no server gives ---- */

static enum verdict verdict;
static uint64_t fence;
static struct op_lease lease;
static const char *const field[] = { "host", "pid" };
static const struct op_field field_of = { .name = "host", .value = { "x", 1 } };
static const struct op_entry entry_of = { .name = "w7", .age_ms = 5 };

static void ask(struct op *op, int which)
{
    switch (which) {
    case OP_acquire: op->take = take_it; break;
    case OP_share:
        op->take = take_it;
        op->take.weight = 1;
        op->take.limit = 2;
        break;
    case OP_acquire_all: op->acquire_all = (struct op_acquire_all){ 1, &take_it, &fence }; break;
    case OP_release:
    case OP_unshare: op->release.grant = &held; break;
    case OP_downgrade: op->downgrade = (struct op_downgrade){ &held, 1000, NULL }; break;
    case OP_cancel:
        op->cancel = (struct op_cancel){ .keys = &keys, .token = held.token, .remember_ms = 1000 };
        break;
    case OP_keep:
        lease = (struct op_lease){ .grant = &held, .ttl_ms = 1000 };
        op->keep = (struct op_keep){ .mode = KEEP_SET, .n = 1, .each = &lease,
                                     .verdicts = &verdict };
        break;
    case OP_by_owner:
        op->by_owner = (struct op_by_owner){ .keys = &keys, .act = OWNER_RELEASE, .id = S("abc") };
        break;
    case OP_inspect: op->inspect = (struct op_inspect){ &keys, 10 }; break;
    case OP_resize: op->resize = (struct op_resize){ &keys, 3 }; break;
    case OP_record:
        op->record = (struct op_record){ S("r"), 1000, 1, &field_of, 1, &entry_of };
        break;
    case OP_recall: op->recall = (struct op_recall){ S("r"), 2, field }; break;
    case OP_scan: op->scan = (struct op_scan){ "lock:", "0", "*", 100, false }; break;
    case OP_guard: op->guard = (struct op_guard){ .guard = S("g"), .fence = "12" }; break;
    case OP_sequence: op->sequence = (struct op_sequence){ S("s"), 10, 1, 0, true }; break;
    case OP_store:
        op->store = (struct op_store){ &keys, S("v"), S("abc"), 12, 1000, 2000, S("value") };
        break;
    case OP_value: op->value = (struct op_value){ S("v"), false, 100 }; break;
    case OP_resolve: op->resolve = (struct op_resolve){ S("m"), 1, 1000 }; break;
    default: FAIL("no such operation: %d", which);
    }
}

TEST(replies_that_make_no_sense_are_survived)
{
    static const struct {
        int id;
        enum outcome (*run)(struct tx *x);
    } all[] = {
        { OP_acquire, transaction_acquire },   { OP_release, transaction_release },
        { OP_cancel, transaction_cancel },     { OP_keep, transaction_keep },
        { OP_by_owner, transaction_by_owner }, { OP_acquire_all, transaction_acquire_all },
        { OP_share, transaction_share },       { OP_unshare, transaction_unshare },
        { OP_downgrade, transaction_downgrade }, { OP_resize, transaction_resize },
        { OP_inspect, transaction_inspect },   { OP_record, transaction_record },
        { OP_recall, transaction_recall },     { OP_scan, transaction_scan },
        { OP_guard, transaction_guard },       { OP_sequence, transaction_sequence },
        { OP_store, transaction_store },       { OP_value, transaction_value },
        { OP_resolve, transaction_resolve },     { OP_acquire, timestamp_acquire },
        { OP_release, timestamp_release },     { OP_cancel, timestamp_cancel },
        { OP_keep, timestamp_keep },           { OP_by_owner, timestamp_by_owner },
    };
    static const char *const reply[] = {
        ":1\r\n", ":-1\r\n", ":-2\r\n", ":1700000000000009\r\n", "$-1\r\n", "$0\r\n\r\n",
        "$3\r\nabc\r\n", "$8\r\n0123.1:5\r\n", "$17\r\nshared.2.1:1700:0\r\n", "+OK\r\n", "*0\r\n",
        "*-1\r\n", "*2\r\n:1\r\n:2\r\n", "*2\r\n$-1\r\n*1\r\n:1\r\n", "*3\r\n*0\r\n:1\r\n+x\r\n",
        "*2\r\n$10\r\n1800000000\r\n$3\r\n123\r\n", "-WRONGTYPE no\r\n",
        "*2\r\n$3\r\nabc\r\n$17\r\n1700000000000.123\r\n", "-ERR no\r\n",
    };
    enum { FIRST = 12, ROUNDS = 300 };
    size_t n = sizeof reply / sizeof reply[0];
    char says[FIRST * 64];
    name_keys();
    for (size_t i = 0; i < ROUNDS * sizeof all / sizeof all[0]; i++) {
        says[0] = '\0';
        for (size_t k = t_random(FIRST + 1); k > 0; k--)
            strcat(says, reply[t_random(n - 1)]); /* the last one ends it too soon */
        struct scene *sc = begin(says, reply[t_random(n)], 1000);
        ask(&sc->op, all[i / ROUNDS].id);
        enum outcome o = all[i / ROUNDS].run(&sc->x);
        CHECK(o != TX_FAILED || sc->x.e != HF_OK);
        CHECK(o == TX_ANSWERED || !sc->op.reply);
        end(sc);
    }
}
