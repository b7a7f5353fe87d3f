/* SPDX-License-Identifier: MIT
 * clocks.c - rows about clocks that jump: the servers' (by a preloaded library), the clients' (by
 * the clock_gettime() of this program), and machines that slept.
 */
#include <errno.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>

#include "faults/lib/matrix.h"

/* ---- the clients' clocks ---- */

static struct seat *own; /* of this process; NULL: the driver */

int clock_gettime(clockid_t id, struct timespec *ts)
{
    if (syscall(SYS_clock_gettime, id, ts) != 0)
        return -1;
    int64_t ahead = !own                    ? 0
                    : id == CLOCK_REALTIME  ? atomic_load(&own->real_ns)
                    : id == CLOCK_BOOTTIME  ? atomic_load(&own->boot_ns)
                                            : 0;
    int64_t ns = (int64_t)ts->tv_sec * 1000000000 + ts->tv_nsec + ahead;
    ts->tv_sec = ns / 1000000000;
    ts->tv_nsec = ns % 1000000000;
    if (own && ahead)
        atomic_fetch_add_explicit(&own->signals, 1, memory_order_relaxed);
    return 0;
}

/* Who sleeps until a moment of that clock means the clock that it sees. */
static struct timespec unshifted(const struct timespec *at)
{
    int64_t ns = (int64_t)at->tv_sec * 1000000000 + at->tv_nsec
                 - (own ? atomic_load(&own->boot_ns) : 0);
    ns = ns < 1 ? 1 : ns;
    return (struct timespec){ ns / 1000000000, ns % 1000000000 };
}

int clock_nanosleep(clockid_t id, int flags, const struct timespec *at, struct timespec *left)
{
    struct timespec t = id == CLOCK_BOOTTIME && flags & TIMER_ABSTIME ? unshifted(at) : *at;
    return syscall(SYS_clock_nanosleep, id, flags, &t, left) == 0 ? 0 : errno;
}

/* The library has only timers of the boot clock. */
int timerfd_settime(int fd, int flags, const struct itimerspec *at, struct itimerspec *old)
{
    struct itimerspec t = *at;
    if (flags & TFD_TIMER_ABSTIME && (at->it_value.tv_sec || at->it_value.tv_nsec))
        t.it_value = unshifted(&at->it_value);
    return (int)syscall(SYS_timerfd_settime, fd, flags, &t, old);
}

static void use_seat(struct run *r, int index)
{
    own = &r->b->seat[index];
}

__attribute__((constructor)) static void enter(void)
{
    crowd_enters = use_seat;
}

static long shifted_reads(const struct run *r)
{
    long n = 0;
    for (int i = 0; i < CROWD; i++)
        n += atomic_load(&r->b->seat[i].signals);
    return n;
}

/* The wall clocks of all clients jump an hour, or come back. Nothing may change; nobody may even
 * have looked, so the proof is that they would have seen it. */
static int client_wall_clock(struct run *r)
{
    int64_t hour = INT64_C(3600000000000), by[] = { hour, -hour, 50000000, 0 };
    int64_t ahead = by[r->mark++ % 4];
    for (int i = 0; i < CROWD; i++)
        atomic_store(&r->b->seat[i].real_ns, ahead);
    crowd_go_on(r, 20);
    return 1;
}

/* A machine that slept for three leases: only its boot clock has run on. Those of the servers have
 * not, which no real sleep does: to this client those of a quorum that it greeted before seem older
 * than the others, so all of them must be too old for that to matter. */
static int client_slept(struct run *r)
{
    int lock = run_any_lock(), i = crowd_hold(r, lock);
    if (i < 0)
        return 0;
    crowd_freeze(r, i);
    int held = crowd_phase(r, i) == HOLDING;
    long before = shifted_reads(r);
    atomic_fetch_add(&r->b->seat[i].boot_ns, 3 * r->want.ttl_ms * 1000000);
    crowd_thaw(r, i);
    crowd_let_go(r);
    crowd_go_on(r, 3);
    return held && shifted_reads(r) > before;
}

/* ---- the servers' ---- */

static int64_t real_us(void)
{
    struct timespec ts;
    CHECK(syscall(SYS_clock_gettime, CLOCK_REALTIME, &ts) == 0);
    return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

/* So far its clock is ahead at least, and at most. */
static void compare_clocks(struct server *s, int64_t *ret_least_ms, int64_t *ret_most_ms)
{
    int64_t before = real_us();
    const char *said = server_ask(s, "TIME");
    int64_t after = real_us();
    char *end;
    int64_t us = strtoll(said, &end, 10) * 1000000;
    us += strtoll(end, NULL, 10);
    *ret_least_ms = (us - after) / 1000;
    *ret_most_ms = (us - before) / 1000 + 1;
}

/* One server's clock jumps; the next time it comes back, which counts if it was away. */
static int server_clock(struct run *r)
{
    static struct server *away;
    static int was_away;
    const int64_t by[] = { 3600000, -3600000, 60000, -60000 };
    int64_t least, most;
    if (t_random(2))
        crowd_hold(r, run_any_lock());
    if (away) {
        server_clock_shift(away, 0);
        struct server *s = away;
        away = NULL;
        t_sleep_ms(r->topo == 'Q' ? r->want.ttl_ms : 200);
        compare_clocks(s, &least, &most);
        return was_away && least < 30000 && most > -30000;
    }
    int64_t ms = by[t_random(4)];
    away = run_server(r, run_any_lock());
    server_clock_shift(away, ms);
    compare_clocks(away, &least, &most);
    t_sleep_ms(r->topo == 'Q' ? r->want.ttl_ms : 200);
    return was_away = ms > 0 ? least > ms / 2 : most < ms / 2;
}

/* Steps of 50 ms, as an impatient time daemon makes them. */
static int small_steps(struct run *r)
{
    struct server *s = run_server(r, run_any_lock());
    int seen = 0;
    for (int i = 1; i <= 10; i++) {
        int64_t least, most;
        server_clock_shift(s, i % 2 ? 50 : 0);
        compare_clocks(s, &least, &most);
        seen += i % 2 && least > 0;
        t_sleep_ms(20);
    }
    return seen > 0;
}

/* A clock that runs too fast by so many thousandths, for two seconds. */
static int run_fast(struct run *r, int thousandths)
{
    static struct server *fast;
    static int64_t ahead, begun;
    int64_t least, most;
    if (!fast) {
        fast = run_server(r, 0);
        begun = t_now_ms();
    }
    if (t_random(2))
        crowd_hold(r, run_any_lock());
    int64_t until = t_now_ms() + 2000, before = ahead;
    while (t_now_ms() < until) {
        ahead = (t_now_ms() - begun) * thousandths / 1000;
        server_clock_shift(fast, ahead);
        t_sleep_ms(2);
    }
    compare_clocks(fast, &least, &most);
    return ahead > before && least > before / 2;
}

static int run_fast_within(struct run *r)
{
    return run_fast(r, 7);
}

static int run_fast_beyond(struct run *r)
{
    return run_fast(r, 50);
}

static const struct row rows[] = {
    { "client_clock", "the clients' wall clocks jump an hour", "SFCQ", "S", 4, 20,
      .inject = client_wall_clock },
    { "client_slept", "a client's machine slept for three ttls", "SFCQ", "S", 3, 25,
      .may = MAY_PASS | MAY_LATE, .want = { .quarantine = "quarantine=2s" },
      .prepare = run_outlast_quarantine, .inject = client_slept },
    { "server_clock", "a server's clock jumps an hour or a minute", "SCQ", "S", 4, 24,
      .out = "SCQ", .may = MAY_PASS | MAY_LOSE | MAY_FAIL, .want = { .clockshim = 1 },
      .inject = server_clock },
    { "server_steps", "a server's clock steps by 50 ms", "SCQ", "Q", 3, 30, .out = "SC",
      .may = MAY_PASS | MAY_LOSE, .want = { .clockshim = 1 }, .inject = small_steps },
    { "server_fast", "a server's clock is 0.7 % too fast", "SQ", "", 0, 20,
      .may = MAY_PASS, .want = { .clockshim = 1 }, .inject = run_fast_within },
    { "server_faster", "a server's clock is 5 % too fast", "SQ", "", 0, 20, .out = "SQ",
      .may = MAY_PASS | MAY_LOSE | MAY_FAIL, .want = { .clockshim = 1 },
      .inject = run_fast_beyond },
};
ROWS(rows)
