/* SPDX-License-Identifier: MIT
 * base.c - errors, options, durations, the heap, parking and the fork guard, without a server.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/backoff.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/forkguard.h"
#include "base/heap.h"
#include "base/opts.h"
#include "base/park.h"
#include "base/random.h"
#include "harness/t.h"

TEST(err_every_code_has_a_name_a_text_and_its_own_value)
{
    static const hf_err codes[] = {
#define CODE(name, value, known, text) HF_##name,
        HF_ERR_MAP(CODE)
#undef CODE
    };
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        CHECK_INT(codes[i], -(long long)i);
        CHECK(strncmp(hf_err_name(codes[i]), "HF_", 3) == 0);
        CHECK(strlen(hf_err_text(codes[i])) > 3);
        for (size_t j = 0; j < i; j++)
            CHECK(strcmp(hf_err_name(codes[i]), hf_err_name(codes[j])) != 0);
    }
    CHECK_STR(hf_err_name((hf_err)-9999), "HF_?");
    CHECK_INT(hf_err_known((hf_err)12345), HF_KNOWN_NOTHING);
    CHECK_INT(hf_err_known(HF_EUNSURE), HF_KNOWN_NOTHING);
    CHECK_INT(hf_err_known(HF_ELOST), HF_KNOWN_NOT_HELD);
    CHECK_STR(hf_version(), HF_VERSION);
}

TEST(opts_of_callers_that_know_fewer_or_more_of_them)
{
    struct {
        size_t size;
        long   old, newer, newest;
    } given = { sizeof given, 1, 2, 0 };
    struct {
        size_t size;
        long   old, newer;
    } known;
    hf_error err = { 0 };
    CHECK_INT(opts_copy(&known, sizeof known, &given, "hf_some_opts", &err), HF_OK);
    CHECK(known.old == 1 && known.newer == 2);
    given.size = sizeof given.size + sizeof given.old;
    CHECK_INT(opts_copy(&known, sizeof known, &given, "hf_some_opts", &err), HF_OK);
    CHECK(known.old == 1 && known.newer == 0);
    CHECK_INT(opts_copy(&known, sizeof known, NULL, "hf_some_opts", &err), HF_OK);
    CHECK(known.old == 0 && known.newer == 0);
    given.size = 0;
    CHECK_INT(opts_copy(&known, sizeof known, &given, "hf_some_opts", &err), HF_EINVAL);
    CHECK_STR(err.message, "hf_some_opts.size is 0: set it to sizeof(hf_some_opts)");
    given.size = (size_t)-1;
    CHECK_INT(opts_copy(&known, sizeof known, &given, "hf_some_opts", &err), HF_EINVAL);
    given.size = sizeof given.size + 5; /* within a field */
    CHECK_INT(opts_copy(&known, sizeof known, &given, "hf_some_opts", &err), HF_EINVAL);
    given.size = sizeof given;
    given.newest = 3; /* a wish that cannot be fulfilled */
    CHECK_INT(opts_copy(&known, sizeof known, &given, "hf_some_opts", &err), HF_EINVAL);
    CHECK_CONTAINS(err.message, "is not 0");
}

TEST(err_messages_are_cut_never_overrun)
{
    hf_error e;
    char big[2000];
    memset(big, 'x', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    CHECK_INT(err_set(&e, HF_EINVAL, "%s", big), HF_EINVAL);
    CHECK_INT((long long)strlen(e.message), sizeof e.message - 1);
    err_prefix(&e, "%s", big);
    CHECK_INT((long long)strlen(e.message), sizeof e.message - 1);
    err_set(&e, HF_EINVAL, "why");
    err_prefix(&e, "context");
    CHECK_STR(e.message, "context: why");
    CHECK_INT(err_set(NULL, HF_EBUSY, "x"), HF_EBUSY);
    err_prefix(NULL, "x");
    CHECK_INT(err_known(&e, HF_ESERVER, HF_KNOWN_NOTHING), HF_ESERVER);
    CHECK_INT(e.known, HF_KNOWN_NOTHING);
}

TEST(err_quote_makes_any_bytes_printable_and_fits)
{
    unsigned char data[300];
    for (int round = 0; round < 2000; round++) {
        size_t n = t_random(sizeof data), size = 16 + t_random(100);
        for (size_t i = 0; i < n; i++)
            data[i] = (unsigned char)t_random(256);
        char *buf = malloc(size); /* exactly: ASan watches its end */
        err_quote(buf, size, data, n);
        size_t len = strlen(buf);
        CHECK(len >= 2 && len < size && buf[0] == '"' && buf[len - 1] == '"');
        for (size_t i = 0; i < len; i++)
            CHECK(buf[i] >= 0x20 && buf[i] < 0x7f);
        free(buf);
    }
    char buf[64];
    CHECK_STR(err_quote(buf, sizeof buf, "a\"\\\n\0z", 6), "\"a\\x22\\x5c\\x0a\\x00z\"");
    CHECK_STR(err_quote(buf, 16, "aaaaaaaaaaaaaaaaaaaaaaaaa", 25), "\"aaaaaaaaaa...\"");
}

TEST(err_plain_shows_letters_and_nothing_that_moves_a_cursor)
{
    static const char *const shown[] = { "plain", "Gr\u00fc\u00dfe", "\u4e2d\u6587", "\u20ac",
                                         "\U0001f512", "\u0627", "\ud7ff", "\ue000" };
    static const struct {
        const char *text, *want;
    } hidden[] = {
        { "a\tb", "a\\x09b" }, { "\x7f", "\\x7f" }, { "\xff", "\\xff" },
        { "\xc2\x9b", "\\xc2\\x9b" },                         /* a control of 8 bits */
        { "\xe2\x80\x8b", "\\xe2\\x80\\x8b" },               /* no width */
        { "\xe2\x80\xae", "\\xe2\\x80\\xae" },               /* turns the direction */
        { "\xe2\x81\xa6", "\\xe2\\x81\\xa6" }, { "\xd8\x9c", "\\xd8\\x9c" },
        { "\xef\xbb\xbf", "\\xef\\xbb\\xbf" },
        { "\xc0\x80", "\\xc0\\x80" },                         /* longer than need be */
        { "\xe0\x80\xaf", "\\xe0\\x80\\xaf" }, { "\xf0\x80\x80\xaf", "\\xf0\\x80\\x80\\xaf" },
        { "\xed\xa0\x80", "\\xed\\xa0\\x80" },               /* half of a pair */
        { "\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80" },     /* beyond the last */
        { "\xf5\x80\x80\x80", "\\xf5\\x80\\x80\\x80" },
        { "\xe4\xb8", "\\xe4\\xb8" }, { "\xe4x\xad", "\\xe4x\\xad" }, /* cut */
    };
    char buf[64], few[15] = "";
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++)
        CHECK_STR(err_plain(buf, sizeof buf, shown[i], strlen(shown[i])), shown[i]);
    for (size_t i = 0; i < sizeof hidden / sizeof *hidden; i++)
        CHECK_STR(err_plain(buf, sizeof buf, hidden[i].text, strlen(hidden[i].text)),
                  hidden[i].want);
    CHECK_STR(err_plain(buf, 16, "aaaaaaaaaaaaaaaaaaaaaaaaa", 25), "aaaaaaaaaaaa...");
    CHECK_STR(err_plain(few, sizeof few, "a", 1), "");
    CHECK_STR(err_quote(few, sizeof few, "a", 1), "");
    CHECK_STR(few, "");
}

TEST(every_word_for_a_state_is_another_and_none_is_missing)
{
    CHECK_STR(hf_err_text((hf_err)-9999), "unknown error");
    CHECK_STR(hf_known_text((hf_known)77), "unknown");
    CHECK_STR(hf_state_text((hf_state)77), "unknown");
    CHECK_STR(hf_loss_text((hf_loss)77), "unknown");
    for (int i = HF_KNOWN_AS_ASKED; i <= HF_KNOWN_NOTHING; i++)
        for (int j = HF_KNOWN_AS_ASKED; j <= i; j++)
            CHECK_INT(strcmp(hf_known_text((hf_known)i), hf_known_text((hf_known)j)) == 0, i == j);
    for (int i = HF_STATE_FREE; i <= HF_STATE_LOST; i++)
        for (int j = HF_STATE_FREE; j <= i; j++)
            CHECK_INT(strcmp(hf_state_text((hf_state)i), hf_state_text((hf_state)j)) == 0, i == j);
    CHECK(strcmp(hf_loss_text(HF_LOSS_NONE), hf_loss_text(HF_LOSS_EXPIRED)) != 0);
}

TEST(durations)
{
    static const struct {
        const char *text;
        int64_t     ms;
    } good[] = {
        { "500ms", 500 }, { "10s", 10000 }, { "10", 10000 }, { "5m", 300000 }, { "2h", 7200000 },
        { "1d", 86400000 }, { "1.5", 1500 }, { "0.5s", 500 }, { "0", 0 }, { "0ms", 0 },
        { "0.0001s", 1 }, { "1.5h", 5400000 }, { "0.25d", 21600000 }, { "0.001s", 1 },
        { "1.0005s", 1001 }, { "36525d", INT64_C(3155760000000) }, { "0001s", 1000 },
        { "1h30m", 5400000 }, { "1w", 604800000 }, { "1d12h", 129600000 }, { "1m0.5s", 60500 },
    };
    static const char *const bad[] = { "", " ", "s", "ms", "-1", "-1s", "+1", "1 s", " 1", "1s ",
                                       "1x", "1.", ".5", "1.5.5", "1e3", "0x10", "inf", "nan",
                                       "1S", "1mss", "30m1h", "1h1h", "1h30", "1h ", "1hm", "5218w",
                                       "36526d", "99999999999999999999", "9223372036854775807d",
                                       "3155760000001ms", "1\n", "\xd9\xa1s" };
    int64_t ms;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        ms = -7;
        if (hf_duration_parse(good[i].text, &ms, NULL) || ms != good[i].ms)
            FAIL("\"%s\" gave %lld", good[i].text, (long long)ms);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ms = -7;
        if (hf_duration_parse(bad[i], &ms, NULL) != HF_EINVAL || ms != -7)
            FAIL("\"%s\" was taken for %lld", bad[i], (long long)ms);
    }
    CHECK_INT(hf_duration_parse(NULL, &ms, NULL), HF_EINVAL);
    CHECK_INT(hf_duration_parse("1s", NULL, NULL), HF_EINVAL);
}

TEST(heap_gives_the_earliest_whatever_is_put_moved_and_removed)
{
    enum { N = 200 };
    struct heap h = { 0 };
    static struct heap_node n[N];
    CHECK(!heap_first(&h));
    CHECK_INT(heap_reserve(&h, N), 0);
    for (int round = 0; round < 20000; round++) {
        struct heap_node *x = &n[t_random(N)];
        if (t_random(3))
            heap_put(&h, x, (int64_t)t_random(1000));
        else
            heap_remove(&h, x);
        struct heap_node *want = NULL;
        size_t in = 0;
        for (int i = 0; i < N; i++) {
            in += n[i].at != 0;
            if (n[i].at && (!want || n[i].due_ms < want->due_ms))
                want = &n[i];
        }
        CHECK(h.len == in);
        CHECK(!want == !heap_first(&h));
        if (want)
            CHECK_INT(heap_first(&h)->due_ms, want->due_ms);
    }
    heap_clear(&h);
    CHECK(!heap_first(&h));
}

struct parking {
    struct park p;
    atomic_int  done, go;
};

static void *wakes(void *arg)
{
    struct parking *k = arg;
    for (int i = 0; i < 2000; i++) {
        while (!atomic_load(&k->go))
            ;
        atomic_store(&k->go, 0);
        park_wake(&k->p);
    }
    park_finish(&k->p);
    return NULL;
}

TEST(park_no_wake_up_is_lost)
{
    struct parking k = { 0 };
    pthread_t t;
    CHECK_INT(pthread_create(&t, NULL, wakes, &k), 0);
    for (int i = 0; i < 2000; i++) {
        int64_t start = t_now_ms();
        atomic_store(&k.go, 1);
        while (atomic_load(&k.go))
            park_wait(&k.p, clock_now_ms() + 20000);
        CHECK_TOOK(t_now_ms() - start, 0, 10000); /* not by running into the limit */
    }
    while (!park_finished(&k.p))
        park_wait(&k.p, clock_now_ms() + 20000);
    park_wait(&k.p, clock_now_ms() + 20000); /* returns at once from now on */
    CHECK_INT(pthread_join(t, NULL), 0);
}

TEST(park_ends_at_its_deadline_and_keeps_a_wake_that_came_first)
{
    struct park p = { 0 };
    int64_t start = t_now_ms();
    park_wait(&p, clock_now_ms() + 60);
    CHECK_TOOK(t_now_ms() - start, 55, 3000);
    park_wait(&p, clock_now_ms() - 5); /* past already */
    park_wake(&p);
    start = t_now_ms();
    park_wait(&p, clock_now_ms() + 10000);
    CHECK_TOOK(t_now_ms() - start, 0, 3000);
    CHECK_INT(park_finished(&p), 0);
}

TEST(park_a_nudge_lets_it_return_and_is_no_wake_up)
{
    struct park p = { 0 };
    park_nudge(&p); /* before the wait: the next one returns */
    CHECK_INT(park_wait(&p, clock_now_ms() + 10000), 0);
    park_nudge(&p);
    park_wake(&p); /* what comes behind it counts */
    CHECK_INT(park_wait(&p, clock_now_ms() + 10000), 1);
    park_wake(&p);
    park_nudge(&p); /* and what was there before it is not lost */
    CHECK_INT(park_wait(&p, clock_now_ms() + 10000), 1);
    CHECK_INT(park_wait(&p, clock_now_ms() + 20), 0); /* none is left over */
    park_nudge(&p);
    CHECK(park_listen(&p, 0)); /* for who polls it is nothing */
    CHECK(park_unlisten(&p));
    park_finish(&p);
    park_nudge(&p);
    CHECK_INT(park_finished(&p), 1);
    CHECK_INT(park_wait(&p, clock_now_ms() + 10000), 1);
}

TEST(a_nonce_comes_once_also_in_a_forked_child)
{
    enum { N = 200 };
    char (*nonce)[17] = mmap(NULL, 2 * N * 17, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                             -1, 0);
    CHECK(nonce != MAP_FAILED);
    CHECK_INT(random_nonce(nonce[0]), 0); /* some are in stock when it forks */
    pid_t child = fork();
    for (int i = child ? 1 : N; i < (child ? N : 2 * N); i++)
        if (random_nonce(nonce[i]))
            _exit(1);
    if (!child)
        _exit(0);
    int status;
    CHECK_INT(waitpid(child, &status, 0), child);
    CHECK_INT(status, 0);
    for (int i = 0; i < 2 * N; i++) {
        CHECK_INT(strspn(nonce[i], "0123456789abcdef"), 16);
        for (int k = 0; k < i; k++)
            CHECK(strcmp(nonce[i], nonce[k]) != 0);
    }
    munmap(nonce, 2 * N * 17);
}

static uint64_t rung(int fd)
{
    uint64_t n = 0;
    return read(fd, &n, sizeof n) == (ssize_t)sizeof n ? n : 0;
}

TEST(park_a_wake_rings_the_bell_of_who_listens_and_of_nobody_else)
{
    struct park p = { 0 };
    int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    CHECK(fd >= 0);
    CHECK(park_listen(&p, fd));
    CHECK(park_unlisten(&p));
    CHECK(park_listen(&p, fd));
    park_wake(&p);
    park_wake(&p);
    CHECK_INT((long long)rung(fd), 1);
    CHECK(!park_unlisten(&p)); /* a wake came, and is used up */
    CHECK(park_listen(&p, fd));
    CHECK(park_unlisten(&p));
    park_wake(&p);
    CHECK(!park_listen(&p, fd)); /* the same, earlier */
    CHECK(park_listen(&p, fd));
    park_finish(&p);
    CHECK_INT((long long)rung(fd), 1);
    CHECK(!park_unlisten(&p));
    CHECK(!park_listen(&p, fd));
    CHECK(park_finished(&p));
    CHECK_INT((long long)rung(fd), 0);
    close(fd);
}

TEST(clock_add_stops_at_never)
{
    CHECK(clock_add(INT64_MAX, 1) == CLOCK_NEVER);
    CHECK(clock_add(5, INT64_MAX) == CLOCK_NEVER);
    CHECK_INT(clock_add(5, 7), 12);
    int64_t a = clock_now_ms();
    clock_sleep_until(a + 20);
    CHECK_RANGE(clock_now_ms() - a, 20, 3000);
    clock_sleep_until(a - 1000);
}

TEST(backoff_doubles_up_to_its_end_and_varies_by_half)
{
    struct backoff b = { 0 };
    for (int64_t step = 5; step < 200; step *= 2)
        CHECK_RANGE(backoff_next(&b, 5, 200), step / 2, step);
    for (int i = 0; i < 100; i++)
        CHECK_RANGE(backoff_next(&b, 5, 200), 100, 200);
    b = (struct backoff){ 0 };
    CHECK_RANGE(backoff_next(&b, 5, 200), 2, 5);
    b = (struct backoff){ 0 };
    for (int i = 0; i < 5; i++)
        CHECK_RANGE(backoff_next(&b, 7, 7), 3, 7);
}

TEST(forkguard_closes_in_the_child_and_raises_the_generation)
{
    unsigned before = forkguard_generation();
    int fds[40];
    for (int i = 0; i < 40; i++) {
        fds[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
        CHECK(fds[i] >= 0);
        CHECK_INT(forkguard_add(fds[i]), 0);
    }
    forkguard_close(fds[7]);
    CHECK_INT(fcntl(fds[7], F_GETFD), -1);
    int mine = open("/dev/null", O_RDONLY | O_CLOEXEC); /* gets the number 7 had */
    CHECK_INT(mine, fds[7]);
    forkguard_close(mine); /* not registered: not touched */
    CHECK(fcntl(mine, F_GETFD) >= 0);
    pid_t pid = fork();
    if (pid == 0) {
        int ok = forkguard_generation() != before && fcntl(mine, F_GETFD) >= 0;
        for (int i = 0; i < 40; i++)
            ok = ok && (i == 7 || fcntl(fds[i], F_GETFD) == -1);
        _exit(ok ? 0 : 1);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK_INT(status, 0);
    CHECK_INT(forkguard_generation(), before);
    for (int i = 0; i < 40; i++)
        if (i != 7) {
            CHECK(fcntl(fds[i], F_GETFD) >= 0);
            forkguard_close(fds[i]);
        }
    close(mine);
}
