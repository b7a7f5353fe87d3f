/* SPDX-License-Identifier: MIT
 * hostile.c - P10: whatever is on the server, in a name, or in a reply: a clear error, never a
 * crash, never a stolen lock, and foreign data is left as it was.
 */
#include <stdatomic.h>
#include <sys/socket.h>

#include "harness/fake.h"
#include "harness/keep.h"
#include "harness/live.h"
#include "harness/sockets.h"

/* ---- data on the server ---- */

TEST(P10_a_key_of_another_type_is_refused_and_left_alone)
{
    static const char *const wrong[] = { "LPUSH lock:a x", "HSET lock:a f v", "SADD lock:a x",
                                         "ZADD lock:a 1 x", "XADD lock:a * f v" };
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *m = lock_of(c, "a", 20000);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        server_ask(s, wrong[i]);
        CHECK_HF(hf_lock_try(m, NULL, &err), HF_ETYPE);
        CHECK_CONTAINS(err.message, "\"a\"");
        CHECK_INT(err.known, HF_KNOWN_UNCHANGED);
        CHECK_HF(hf_lock_acquire(m, 5000, NULL, &err), HF_ETYPE); /* waiting would not help */
        CHECK_HF(hf_owner_acquire(c, hf_str("a"), 1000, hf_str("me"), NULL, &err), HF_ETYPE);
        CHECK_HF(hf_owner_release(c, hf_str("a"), hf_str("me"), &err), HF_ENOTOWNER);
        CHECK_HF(hf_owner_extend(c, hf_str("a"), hf_str("me"), 1000, &err), HF_ENOTOWNER);
        CHECK_HF(hf_owner_check(c, hf_str("a"), hf_str("me"), NULL, &err), HF_ENOTOWNER);
        hf_inspect_info *info = NULL;
        CHECK_HF(hf_inspect_lock(c, hf_str("a"), 0, &info, &err), HF_OK);
        CHECK_STR(info->kind, "wrong type");
        hf_inspect_free(info);
        CHECK_INT(server_int(s, "PTTL lock:a"), -1);
        server_ask(s, "DEL lock:a");
    }
    CHECK_HF(hf_lock_try(m, NULL, &err), HF_OK);
    hf_lock_free(m);
    hf_client_free(c);
}

TEST(P10_a_lock_without_a_ttl_is_repaired_not_stolen)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *m = lock_of(c, "a", 1000);
    server_ask(s, "SET lock:a legacy"); /* SETNX, and it died before EXPIRE */
    CHECK_HF(hf_lock_try(m, NULL, &err), HF_EBUSY);
    CHECK_INT(server_int(s, "PTTL lock:a"), -1); /* who only tries changes nothing */
    CHECK_HF(hf_lock_acquire(m, 900, NULL, &err), HF_ETIMEDOUT);
    CHECK_STR(server_ask(s, "GET lock:a"), "legacy");
    CHECK_RANGE(server_int(s, "PTTL lock:a"), 1, 10000);
    server_ask(s, "PEXPIRE lock:a 100");
    CHECK_HF(hf_lock_acquire(m, 5000, NULL, &err), HF_OK); /* cannot block for ever */
    hf_lock_free(m);
    hf_client_free(c);
}

/* What stands under the name of a lock and is none, as others may leave it there. */
static void put_foreign(struct server *s, char long_one[1001])
{
    memset(long_one, 'x', 1000);
    long_one[1000] = '\0';
    server_ask(s, "SET long %s", long_one);
    server_ask(s, "SET latch latch.3.5:1700000000000001:0");
    server_ask(s, "SET barrier barrier.3.1:1700000000000001:0");
    server_ask(s, "SET other:holdfast:fence 1700000000000001"); /* of the prefix other: */
    server_ask(s, "SET other:holdfast:guard:x 1700000000000001");
    server_ask(s, "SET data precious");
}

/* S6: a request that is refused changes nothing of others. */
TEST(S6_nobody_puts_an_expiry_on_the_data_of_others)
{
    static const char *const none[] = { "long", "latch", "barrier", "other:holdfast:fence",
                                        "other:holdfast:guard:x" };
    static const char *const protocol[] = { "script", "transaction", "timestamp" };
    struct server *s = server_start(NULL);
    char long_one[1001];
    put_foreign(s, long_one);
    for (size_t p = 0; p < sizeof protocol / sizeof *protocol; p++) {
        hf_client *c = client_with(server_url(s), (hf_client_opts){ .prefix = "",
                                                                   .protocol = protocol[p] });
        hf_lock *d = lock_of(c, "data", 20000);
        CHECK(hf_lock_try(d, NULL, &err));
        CHECK_INT(server_int(s, "PTTL data"), -1); /* who only tries */
        for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
            hf_lock *m = lock_of(c, none[i], 20000);
            CHECK(hf_lock_try(m, NULL, &err));
            CHECK(hf_lock_acquire(m, 600, NULL, &err)); /* the queue is looked after meanwhile */
            if (server_int(s, "PTTL %s", none[i]) != -1)
                FAIL("%s got an expiry by %s", none[i], protocol[p]);
            hf_lock_free(m);
        }
        hf_lock_free(d);
        hf_client_free(c);
    }
    CHECK_STR(server_ask(s, "GET long"), long_one);
    for (int i = 0; i < 2; i++) {
        hf_client *c = client_with(i ? url_with(server_url(s), "repair=off") : server_url(s),
                                   (hf_client_opts){ .prefix = "", .no_repair = !i });
        hf_lock *m = lock_of(c, "data", 20000);
        hf_lock *r = lock_with(c, "data", (hf_lock_opts){ .ttl_ms = 20000, .slots = 3 });
        CHECK_HF(hf_lock_acquire(m, 600, NULL, &err), HF_ETIMEDOUT);
        CHECK_HF(hf_lock_acquire(r, 600, NULL, &err), HF_ETIMEDOUT);
        CHECK_INT(server_int(s, "PTTL data"), -1);
        hf_lock_free(m);
        hf_lock_free(r);
        hf_client_free(c);
    }
}

TEST(P10_foreign_tokens_are_respected)
{
    static const char *const foreign[] = {
        "x", "00000000000000000000000000000001.1:5:0", "550e8400-e29b-41d4-a716-446655440000",
        "1700000000.123", "shared.1:5:0", ":::", "\xff\xfe", "%s%n%s", "0", "token:5:0",
    };
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *m = lock_of(c, "a", 1000);
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        server_ask(s, "SET lock:a %s PX 60000", foreign[i]);
        CHECK_HF(hf_lock_try(m, NULL, &err), HF_EBUSY);
        CHECK_HF(hf_owner_acquire(c, hf_str("a"), 1000, hf_str(foreign[i]), NULL, &err),
                 i == 1 || i == 4 ? HF_EINVAL : HF_EBUSY);
        CHECK_STR(server_ask(s, "GET lock:a"), foreign[i]);
        CHECK_RANGE(server_int(s, "PTTL lock:a"), 50000, 60000);
        hf_inspect_info *info = NULL;
        CHECK_HF(hf_inspect_lock(c, hf_str("a"), 0, &info, &err), HF_OK);
        CHECK_INT((long long)info->holders, 1);
        hf_inspect_free(info);
    }
    hf_lock_free(m);
    hf_client_free(c);
}

TEST(P10_huge_values_cost_nothing)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *m = lock_of(c, "a", 20000);
    server_ask(s, "SETRANGE lock:a 100000000 x"); /* 100 MB of NUL */
    server_ask(s, "PEXPIRE lock:a 60000");
    CHECK_HF(hf_lock_try(m, NULL, &err), HF_EBUSY);
    hf_inspect_info *info = NULL;
    CHECK_HF(hf_inspect_lock(c, hf_str("a"), 0, &info, &err), HF_OK);
    CHECK_STR(info->kind, "foreign");
    hf_inspect_free(info);
    CHECK_HF(hf_owner_release(c, hf_str("a"), hf_str("x"), &err), HF_ENOTOWNER);
    CHECK_INT(server_int(s, "STRLEN lock:a"), 100000001);
    server_ask(s, "DEL lock:a");

    /* A lock of ours whose value grew under our hands is not ours any more. */
    lock_now(m);
    server_ask(s, "SETRANGE lock:a 1000000 x");
    CHECK_HF(hf_lock_verify(m, &err), HF_ELOST);
    CHECK_HF(hf_lock_release(m, &err), HF_ELOST);
    CHECK_INT(server_int(s, "STRLEN lock:a"), 1000001);
    server_ask(s, "DEL lock:a");

    /* Tombstones and own of hostile kinds. */
    server_ask(s, "SET {lock:a}:t x");
    CHECK_HF(hf_lock_try(m, NULL, &err), HF_ETYPE);
    server_ask(s, "DEL {lock:a}:t");
    hf_lock *o = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 20000, .owner = hf_str("me") });
    server_ask(s, "HSET {lock:a}:own f v");
    lock_now(o);
    unlock_now(o);
    CHECK_INT(server_int(s, "EXISTS lock:a {lock:a}:own"), 0);
    hf_lock_free(m);
    hf_lock_free(o);
    hf_client_free(c);
}

/* ---- names and prefixes ---- */

TEST(P10_names_of_any_bytes_lock_their_own_key)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0), *c2 = client_at(server_url(s), 0);
    char longest[1024];
    memset(longest, 'n', sizeof longest);
    const hf_bytes names[] = {
        { "\0", 1 }, { "a\0b", 3 }, { "\r\n", 2 }, { "*1\r\n$8\r\nFLUSHALL\r\n", 18 },
        { " ", 1 }, { "a b", 3 }, { "-h", 2 }, { "\xff\xfe", 2 }, { "*", 1 }, { "[a-z]?", 6 },
        { "{", 1 }, { "}", 1 }, { "{}", 2 }, { "}{", 2 }, { "{tag}name", 9 }, { "x{tag}", 6 },
        { "%s%n", 4 }, { "\x1b[31m", 5 }, { "..", 2 }, { "\\", 1 }, { "\"", 1 }, { longest, 1024 },
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        hf_lock *a = NULL, *b = NULL;
        CHECK_HF(hf_lock_open(c, names[i], NULL, &a, &err), HF_OK);
        CHECK_HF(hf_lock_open(c2, names[i], NULL, &b, &err), HF_OK);
        lock_now(a);
        CHECK_HF(hf_lock_try(b, NULL, &err), HF_EBUSY);
        for (const char *p = err.message; *p; p++) /* fit for a terminal and a log */
            CHECK((unsigned char)*p >= 0x20 && (unsigned char)*p < 0x7f);
        char key[1100] = "lock:";
        memcpy(key + 5, names[i].data, names[i].len);
        CHECK_INT(server_int(s, "EXISTS %b", key, names[i].len + 5), 1);
        CHECK_HF(hf_lock_verify(a, &err), HF_OK);
        CHECK_HF(hf_owner_check(c2, names[i], hf_str(hf_lock_owner(a)), NULL, &err), HF_OK);
        unlock_now(a);
        CHECK_INT(server_int(s, "EXISTS %b", key, names[i].len + 5), 0);
        hf_lock *own = NULL;
        hf_lock_opts o = { .size = sizeof o, .owner = hf_str("me") };
        CHECK_HF(hf_lock_open(c, names[i], &o, &own, &err), HF_OK);
        lock_now(own);
        unlock_now(own);
        hf_lock_free(a);
        hf_lock_free(b);
        hf_lock_free(own);
    }
    hf_client_free(c);
    hf_client_free(c2); /* and their records, if one was held for long enough to be written down */
    CHECK_STR(server_keys(s), ONLY_OURS);
}

TEST(P10_names_that_are_empty_too_long_reserved_or_colliding_are_refused)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_client *bare = client_with(server_url(s), (hf_client_opts){ .prefix = "" });
    hf_client *tagged = client_with(server_url(s), (hf_client_opts){ .prefix = "{t}" });
    char big[1025];
    memset(big, 'x', sizeof big);
    const struct {
        hf_client *c;
        hf_bytes   name;
        const char *says;
    } bad[] = {
        { c, { "", 0 }, "empty" }, { c, { NULL, 5 }, "empty" }, { c, { big, 1025 }, "1025 bytes" },
        { c, hf_str("holdfast:"), "reserved" }, { c, hf_str("holdfast:fence"), "reserved" },
        { c, hf_str("holdfast:x"), "reserved" }, { c, hf_str("{a}:t"), "another lock's" },
        { c, hf_str("x{a}y:own"), "another lock's" }, { bare, hf_str("{a}:t"), "another lock's" },
        { bare, hf_str("{a}:own"), "another lock's" }, { bare, hf_str("{a}:q"), "another lock's" },
        { bare, hf_str("{a}"), "another lock's" }, { bare, hf_str("{a}:r:7"), "another lock's" },
        { bare, hf_str("holdfast:fence"), "reserved" }, { tagged, hf_str("a:t"), "another lock's" },
        { bare, hf_str("{a}:guard"), "another lock's" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        hf_lock *m = NULL;
        hf_inspect_info *info = NULL;
        CHECK_HF(hf_lock_open(bad[i].c, bad[i].name, NULL, &m, &err), HF_EINVAL);
        CHECK_CONTAINS(err.message, bad[i].says);
        CHECK(!m);
        CHECK_HF(hf_owner_acquire(bad[i].c, bad[i].name, 1000, hf_str("x"), NULL, &err), HF_EINVAL);
        CHECK_HF(hf_owner_release(bad[i].c, bad[i].name, hf_str("x"), &err), HF_EINVAL);
        CHECK_HF(hf_inspect_lock(bad[i].c, bad[i].name, 0, &info, &err), HF_EINVAL);
    }
    hf_client_free(c);
    hf_client_free(bare);
    hf_client_free(tagged);
}

/* Two different names, held at once by different owners, with companions. */
TEST(P1_different_names_never_share_a_companion)
{
    static const char *const pairs[][2] = { { "a}b", "{a}b}" }, { "a", "{a" }, { "a", "a}" },
                                            { "{}a", "{{}a}" }, { "{a", "{{a}" } };
    struct server *s = server_start(NULL);
    hf_client *c = client_with(server_url(s), (hf_client_opts){ .prefix = "" });
    int tried = 0;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        hf_lock *x = NULL, *y = NULL;
        hf_lock_opts o = { .size = sizeof o, .ttl_ms = 5000, .owner = hf_str("me") };
        if (!hf_lock_open(c, hf_str(pairs[i][0]), &o, &x, &err)
            && !hf_lock_open(c, hf_str(pairs[i][1]), &o, &y, &err)) {
            tried++;
            lock_now(x);
            lock_now(y);
            if (hf_lock_verify(x, &err) != HF_OK || hf_lock_verify(y, &err) != HF_OK)
                FAIL("the locks \"%s\" and \"%s\" disturb each other", pairs[i][0], pairs[i][1]);
            unlock_now(x);
            unlock_now(y);
        } /* else refused: as good */
        hf_lock_free(x);
        hf_lock_free(y);
    }
    CHECK(tried > 0);
    hf_client_free(c);
}

TEST(P10_hostile_prefixes)
{
    static const char *const prefixes[] = { "", ":", "a b:", "\r\n", "*", "[x]?\\", "{tag}:", "{",
                                            "}", "\xff", "%s%n:", "holdfast:" };
    struct server *s = server_start(NULL);
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        hf_client *c = client_with(server_url(s), (hf_client_opts){ .prefix = prefixes[i] });
        hf_lock *m = lock_of(c, "n", 5000);
        lock_now(m);
        CHECK_INT(server_int(s, "EXISTS %sn", prefixes[i]), 1);
        size_t n = 0;
        CHECK_HF(hf_owner_release_all(c, hf_str(hf_lock_owner(m)), &n, &err), HF_OK);
        CHECK_INT((long long)n, 1);
        hf_lock_free(m);
        hf_client_free(c);
        server_ask(s, "FLUSHALL");
    }
    char big[300];
    memset(big, 'p', sizeof big);
    big[257] = '\0';
    hf_client *c = NULL;
    hf_client_opts o = { .size = sizeof o, .prefix = big };
    CHECK_HF(hf_client_open(server_url(s), &o, &c, &err), HF_ECONFIG);
    big[256] = '\0';
    CHECK_HF(hf_client_open(server_url(s), &o, &c, &err), HF_OK);
    hf_lock *m = lock_of(c, "n", 5000);
    lock_now(m);
    hf_lock_free(m);
    hf_client_free(c);
}

/* ---- a server that lies ---- */

/* Answers the greeting as a server does, and everything else with the bytes it is given. */
struct fake {
    char        url[200];
    const char *hello, *answer; /* NULL answer: close */
    size_t      answer_len;
    const char *only;           /* the bytes are for requests that contain this; NULL: all */
    atomic_long connections, answered;
};

#define HELLO_OK "*2\r\n:0\r\n:0\r\n"

static int contains(const char *buf, size_t n, const char *part)
{
    return memmem(buf, n, part, strlen(part)) != NULL;
}

static int answer_with(void *arg, int fd, char *buf, size_t n)
{
    struct fake *f = arg;
    hf_bytes a = { f->answer, f->answer_len };
    if (contains(buf, n, "local listening"))
        a = hf_str(f->hello);
    else if (contains(buf, n, "$4\r\nINFO\r\n"))
        a = hf_str("$0\r\n\r\n");
    else if (f->only && !contains(buf, n, f->only))
        a = hf_str(":1700000000000001\r\n");
    else
        atomic_fetch_add(&f->answered, 1);
    return a.data && send(fd, a.data, a.len, MSG_NOSIGNAL) >= 0 ? 0 : -1;
}

static struct fake *fake_start(const char *hello, const char *answer, size_t len)
{
    static int count;
    struct fake *f = keep_block(calloc(1, sizeof *f));
    const char *path = keep_text("%s/f%d", t_dir(), ++count);
    snprintf(f->url, sizeof f->url, "unix://%s", path);
    f->hello = hello;
    f->answer = answer;
    f->answer_len = len;
    fake_serve(socket_listen_unix(64, path), answer_with, f, &f->connections);
    return f;
}

/* With a timeout so short that lies cost little; on a busy machine even the greeting can take
 * longer than that, so it is tried again. */
static hf_client *client_of(struct fake *f, int64_t timeout_ms)
{
    hf_client_opts o = { .size = sizeof o, .timeout_ms = timeout_ms };
    hf_client *c = NULL;
    CHECK_EVENTUALLY(hf_client_open(f->url, &o, &c, &err) == HF_OK, 10000);
    return c;
}

#define BYTES(text) { text, sizeof(text) - 1 }
static const hf_bytes lies[] = {
    BYTES(":0\r\n"), BYTES(":-1\r\n"), BYTES("+OK\r\n"), BYTES("$3\r\nabc\r\n"), BYTES("*0\r\n"),
    BYTES("*1\r\n:-99\r\n"), BYTES("*1\r\n*1\r\n:1\r\n"), BYTES("$-1\r\n"), BYTES("*-1\r\n"),
    BYTES("-ERR no\r\n"), BYTES("-\r\n"), BYTES("-ERR \x1b[31m\x07%s%n\r\n"),
    BYTES("-NOSCRIPT\r\n"), BYTES("*4294967295\r\n"), BYTES("*100000\r\n"),
    BYTES("$1073741824\r\n"), BYTES("$-2\r\n"),
    BYTES("*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n"),
    BYTES("HTTP/1.1 400 Bad Request\r\n"), BYTES("%1\r\n+a\r\n+b\r\n"),
    BYTES(">2\r\n+message\r\n+x\r\n"), BYTES("_\r\n"), BYTES("\0\0\0\0"),
    BYTES(":99999999999999999999999999\r\n"), BYTES(":1x\r\n"),
    BYTES("*3\r\n:-1\r\n$1\r\nx\r\n:5\r\n"),
    BYTES("*1\r\n$2\r\n-1\r\n"), BYTES("\r\n"), BYTES("$5\r\nab\r\n"),
};

TEST(P10_lies_in_reply_to_an_acquire_are_never_a_grant)
{
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        struct fake *f = fake_start(HELLO_OK, lies[i].data, lies[i].len);
        hf_client *c = client_of(f, 40);
        hf_lock *m = lock_of(c, "a", 5000);
        int tries = 0;
        do { /* again only when the time was over before the request was read */
            int64_t start = t_now_ms();
            if (hf_lock_try(m, NULL, &err) == HF_OK)
                FAIL("reply %zu was taken for a grant", i);
            CHECK_TOOK(t_now_ms() - start, 0, 5000);
        } while (atomic_load(&f->answered) == 0 && ++tries < 100);
        CHECK(atomic_load(&f->answered) > 0);
        CHECK_INT(hf_lock_is_held(m), 0);
        CHECK(err.message[0]);
        for (const char *p = err.message; *p; p++)
            CHECK((unsigned char)*p >= 0x20 && (unsigned char)*p < 0x7f);
        hf_lock_free(m);
        hf_client_free(c);
    }
}

TEST(P10_lies_in_reply_to_other_requests_crash_nothing)
{
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        struct fake *f = fake_start(HELLO_OK, lies[i].data, lies[i].len);
        hf_client *c = client_of(f, 20);
        int tries = 0;
        do {
            hf_inspect_info *info = NULL;
            if (hf_inspect_lock(c, hf_str("a"), 0, &info, &err) == HF_OK)
                hf_inspect_free(info);
            CHECK(hf_owner_release(c, hf_str("a"), hf_str("id"), &err) != HF_OK
                  || memcmp(lies[i].data, "*", 1) != 0);
            (void)!hf_guard_check(c, hf_str("a"), 5, &err);
        } while (atomic_load(&f->answered) == 0 && ++tries < 100);
        CHECK(atomic_load(&f->answered) > 0);
        hf_client_free(c);
    }
}

TEST(P10_lies_in_reply_to_the_greeting_are_an_error_or_harmless)
{
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        if (memchr(lies[i].data, 0, lies[i].len))
            continue;
        const char *hello = keep_text("%.*s", (int)lies[i].len, (const char *)lies[i].data);
        struct fake *f = fake_start(hello, NULL, 0);
        hf_client *c = NULL;
        hf_client_opts o = { .size = sizeof o, .timeout_ms = 100 };
        hf_err e = hf_client_open(f->url, &o, &c, &err);
        CHECK(e == HF_OK ? c != NULL : c == NULL && err.message[0]);
        hf_client_free(c);
    }
}

TEST(P10_lies_in_reply_to_a_renewal_end_in_a_loss_at_the_latest_with_the_lease)
{
    long answered = 0;
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        struct fake *f = fake_start(HELLO_OK, lies[i].data, lies[i].len);
        f->only = "renew";
        hf_client *c = client_of(f, 40);
        hf_lock *m = lock_of(c, "a", 150);
        CHECK_EVENTUALLY(hf_lock_try(m, NULL, &err) == HF_OK, 10000);
        CHECK_EVENTUALLY(hf_lock_state(m) == HF_STATE_LOST, 3000);
        answered += atomic_load(&f->answered);
        hf_lock_free(m);
        hf_client_free(c);
    }
    CHECK(answered > 10); /* on a busy machine a lease may end before its renewal is sent */
}

/* Reconnect with back-off: a server that greets and then hangs up is not hammered. */
TEST(a_server_that_hangs_up_on_every_request_is_not_hammered)
{
    struct fake *f = fake_start(HELLO_OK, NULL, 0);
    hf_client *c = client_at(f->url, 1000);
    hf_lock *m = lock_of(c, "a", 5000);
    long before = atomic_load(&f->connections);
    CHECK_HF(hf_lock_try(m, NULL, &err), HF_EUNSURE);
    long made = atomic_load(&f->connections) - before;
    t_note("%ld connections in 1 s", made);
    CHECK_RANGE(made, 2, 150);
    hf_lock_free(m);
    hf_client_free(c);
}
