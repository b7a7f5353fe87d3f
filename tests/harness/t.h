/* SPDX-License-Identifier: MIT
 * t.h - the test framework: one process per test, TAP on stdout.
 *
 *     #include "harness/t.h"
 *     TEST(name_says_the_promise) { CHECK_INT(1 + 1, 2); }
 *
 * A file is a program; main() is in t.c. `prog [TEXT]` runs the tests whose name contains TEXT.
 * Each test is a forked process under an alarm, so a crash or a hang fails that test alone, and
 * nothing that it started outlives it. A failed check ends the test (from a forked worker: the
 * worker) at once. SEED=N repeats a random run; T_PART=2/3 runs every third test, from the second
 * on.
 */
#ifndef HARNESS_T_H
#define HARNESS_T_H

#include <stddef.h>
#include <stdint.h>

/* Which sanitizer this is built with: gcc says it by macros, clang by features. */
#ifdef __has_feature
#define T_FEATURE(x) __has_feature(x)
#else
#define T_FEATURE(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || T_FEATURE(address_sanitizer)
#define T_ADDRESS_SANITIZER 1
#else
#define T_ADDRESS_SANITIZER 0
#endif
#if defined(__SANITIZE_THREAD__) || T_FEATURE(thread_sanitizer)
#define T_THREAD_SANITIZER 1
#else
#define T_THREAD_SANITIZER 0
#endif

struct t_test {
    const char    *name;
    void         (*run)(void);
    int            seconds; /* the time limit */
    int            line;    /* tests run in the order in which they are written */
    struct t_test *next;
};
void t_register(struct t_test *t);
const struct t_test *t_current(void); /* the one that runs: it may be the first part of more */

#define TEST(name) TEST_TIMEOUT(name, 60)
#define TEST_TIMEOUT(name, seconds)                                                       \
    static void test_##name(void);                                                        \
    __attribute__((constructor)) static void register_##name(void)                        \
    {                                                                                     \
        static struct t_test t = { #name, test_##name, seconds, __LINE__, NULL };         \
        t_register(&t);                                                                   \
    }                                                                                     \
    static void test_##name(void)

/* Each prints what it got, what it wanted and where, and ends the process. Arguments are evaluated
 * once. CHECK_STR takes NULL on either side; CHECK_RANGE includes both ends. */
#define CHECK(cond)                                                                       \
    do {                                                                                  \
        if (!(cond))                                                                      \
            t_fail(__FILE__, __LINE__, "CHECK(%s)", #cond);                               \
    } while (0)
#define CHECK_INT(got, want) t_check_int(__FILE__, __LINE__, #got, (got), (want))
#define CHECK_STR(got, want) t_check_str(__FILE__, __LINE__, #got, (got), (want))
#define CHECK_MEM(got, gotlen, want, wantlen)                                             \
    t_check_mem(__FILE__, __LINE__, #got, (got), (gotlen), (want), (wantlen))
#define CHECK_RANGE(value, low, high)                                                     \
    t_check_range(__FILE__, __LINE__, #value, (value), (low), (high))
#define CHECK_CONTAINS(text, part) t_check_contains(__FILE__, __LINE__, #text, (text), (part))

/* Time that passed until now, such as t_now_ms() - begun. The lower bound is strict. The upper one
 * is for a machine that has a core for everybody who wants to run: see t_calm_ms(). */
#define CHECK_TOOK(ms, low, high) t_check_took(__FILE__, __LINE__, #ms, (ms), (low), (high))

/* Try cond every 5 ms until it is true; fail when it is not after ms, by t_calm_ms(). */
#define CHECK_EVENTUALLY(cond, ms)                                                        \
    do {                                                                                  \
        int64_t t_begun_ = t_now_ms();                                                    \
        while (!(cond)) {                                                                 \
            if (t_calm_ms(t_begun_) > (ms))                                               \
                t_fail(__FILE__, __LINE__, "CHECK_EVENTUALLY(%s) not within %lld ms",     \
                       #cond, (long long)(ms));                                           \
            t_sleep_ms(5);                                                                \
        }                                                                                 \
    } while (0)

#define FAIL(...) t_fail(__FILE__, __LINE__, __VA_ARGS__)
#define SKIP(reason) t_skip(reason)
/* What it needs is optional, and not here: does not count, and does not fail CI. */
#define LEFT_OUT(reason) t_left_out(reason)

__attribute__((noreturn, format(printf, 3, 4)))
void t_fail(const char *file, int line, const char *fmt, ...);
__attribute__((noreturn)) void t_skip(const char *reason);
__attribute__((noreturn)) void t_left_out(const char *reason);
void t_check_int(const char *file, int line, const char *expr, long long got, long long want);
void t_check_str(const char *file, int line, const char *expr, const char *got, const char *want);
void t_check_mem(const char *file, int line, const char *expr, const void *got, size_t gotlen,
                 const void *want, size_t wantlen);
void t_check_range(const char *file, int line, const char *expr, long long value, long long low,
                   long long high);
void t_check_took(const char *file, int line, const char *expr, long long ms, long long low,
                  long long high);
void t_check_contains(const char *file, int line, const char *expr, const char *text,
                      const char *part);

/* A line of diagnosis in the test's output. */
__attribute__((format(printf, 1, 2))) void t_note(const char *fmt, ...);

/* The test's own folder, removed after it. Files named "log" below it are printed on failure. */
const char *t_dir(void);
/* "DIR/rest", where rest is formatted; yours to free. */
__attribute__((format(printf, 1, 2))) char *t_path(const char *fmt, ...);
/* DIR of the program itself: build/asan/tests/unit. */
const char *t_program_dir(void);

uint64_t t_seed(void);
uint64_t t_random(uint64_t n); /* 0 .. n-1, the same sequence for the same seed; any thread */
void t_random_split(uint64_t n); /* another sequence for each n: for forked workers */

int64_t t_now_ms(void); /* CLOCK_MONOTONIC */
int64_t t_now_ns(void);
/* The time since then, a moment that t_now_ms() told. What passed while somebody on this machine
 * waited for a core (/proc/pressure/cpu) counts a tenth, as everything does where the system does
 * not tell. So a limit is tight where the machine is calm, and says nothing where it is not. */
int64_t t_calm_ms(int64_t since_ms);
int64_t t_cpu_ms(void); /* what this process has used so far */
void t_sleep_ms(int64_t ms);

/* fork() for the harness itself: flushed, and the child dies with its parent thread. Call it from
 * a thread that lives on: the main thread. */
int t_fork(void);

/* The same for a child that goes on in our memory, which ASan's allocator is not made for while
 * another thread is in it: when all others sleep. */
int t_fork_among_threads(void);

#endif
