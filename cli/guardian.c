/* SPDX-License-Identifier: MIT
 * guardian.c - a small process that ends the child's group when we cannot.
 *
 * PR_SET_PDEATHSIG reaches the direct child alone, and nothing of ours runs when we are killed
 * with -9 or stopped. So the guardian, in a session of its own, holds one end of a pipe:
 *   end of file without good-bye   we died: the whole group is killed, and then the locks are given
 *                                  back (giveback.c)
 *   the deadline passes            we are stopped or stuck, nobody renews, the lease ends:
 *                                  the whole group is killed; unless we have stopped ourselves,
 *                                  with the group, and nothing of it runs: then a later deadline
 *                                  counts
 *   good-bye                       it ends
 * When CMD has ended it still stands, until the locks are released: if we leave before that,
 * because the server does not answer in time, it gives them back.
 * It stands before the group is started, and learns of the group from who starts in it.
 * The deadline is in a page of memory that both see: whenever the guardian looks, it sees the
 * newest one, and it looks just before it kills. */
#include "guardian.h"

#include "clock.h"
#include "giveback.h"
#include "platform.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <sys/wait.h>
#include <unistd.h>

#define VANISH_MS 2000 /* how long a killed group may take to vanish */
#define LOOK_MS   5
#define SUSPENDED_LOOK_MS 100 /* how long somebody else may have continued a stopped group */

struct guardian_page {
    _Atomic pid_t   pgid; /* 0: nothing has been started yet, or CMD has ended */
    _Atomic int64_t deadline_ms;
    _Atomic int64_t suspended_ms; /* the one that counts while the group is stopped; 0: none */
    atomic_int      killed; /* because of the deadline */
};

enum word {
    GOODBYE = 'g',
    SOONER = 's',     /* the deadline is an earlier one than before */
    CMD_GONE = 'e',   /* nobody is to be killed any more */
};

/* Keep nothing of the caller's open but stderr, and that only while there is something to say: who
 * reads our output waits for its end of file. Only async-signal-safe calls, here and below: other
 * threads were running when we were forked. */
static int detach(int fd)
{
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    setsid();
    int null = open("/dev/null", O_RDWR);
    for (int i = 0; i <= 1; i++)
        if (dup2(null, i) < 0)
            close(i);
    if (dup2(fd, 3) < 0)
        _exit(1);
    platform_close_range(4, ~0u);
    platform_name("holdfast-guard");
    return 3;
}

/* holdfast is gone, and with it its exit status: this line is all that can be said. Nobody may keep
 * us with a pipe that is full. */
static void tell_death(void)
{
    static const char text[] = "holdfast: holdfast itself was killed: CMD and all of its process "
                               "group were killed too\n";
    struct pollfd p = { .fd = STDERR_FILENO, .events = POLLOUT };
    if (poll(&p, 1, 0) == 1 && (p.revents & POLLOUT) != 0) {
        ssize_t n = write(STDERR_FILENO, text, sizeof text - 1);
        (void)n;
    }
}

/* Who reads it need not wait for the rest. */
static void close_stderr(void)
{
    dup2(STDOUT_FILENO, STDERR_FILENO);
}

/* We are the only ones left. The locks are given back when nothing of the group is there any more,
 * not even a process that cannot be killed right now; else their grace has to do. */
static void holdfast_died(pid_t pgid, const struct giveback *back)
{
    const struct timespec pause = { .tv_nsec = LOOK_MS * 1000000L };
    int64_t until = clock_now_ms() + VANISH_MS;
    if (pgid) {
        kill(-pgid, SIGKILL);
        tell_death();
    }
    close_stderr();
    while (back && clock_now_ms() < until) {
        if (!pgid || !platform_group_alive(pgid)) {
            giveback_run(back);
            break;
        }
        nanosleep(&pause, NULL);
    }
    _exit(0);
}

/* The deadline has passed. When is it to be looked at again? 0: not at all. */
static int64_t put_off(struct guardian_page *page, pid_t pgid, int64_t now)
{
    int64_t until = atomic_load(&page->suspended_ms);
    if (!pgid)
        return now + LOOK_MS; /* nothing is to be killed yet; what is about to start is, then */
    if (now >= until || !platform_group_stopped(pgid))
        return 0;
    return now + SUSPENDED_LOOK_MS < until ? now + SUSPENDED_LOOK_MS : until;
}

static void guard(int fd, struct guardian_page *page, const struct giveback *back)
{
    fd = detach(fd);
    int timer = clock_timer();
    int64_t done_for = NEVER; /* a deadline that was acted on */
    int64_t again = 0;        /* one that passed is looked at again then */
    struct pollfd p[] = { { .fd = fd, .events = POLLIN }, { .fd = timer, .events = POLLIN } };
    for (;;) {
        int64_t deadline = atomic_load(&page->deadline_ms);
        if (again > deadline && deadline != done_for)
            clock_timer_set(timer, again);
        else
            clock_timer_set(timer, deadline == done_for ? NEVER : deadline);
        if (poll(p, 2, -1) < 0)
            continue;
        if (p[0].revents) {
            char word;
            ssize_t n = read(fd, &word, 1);
            if (n == 1 && word == GOODBYE)
                _exit(0);
            if (n == 1 && word == CMD_GONE)
                close_stderr();
            if (n == 0)
                holdfast_died(atomic_load(&page->pgid), back);
            continue;
        }
        /* However late we wake up, and whatever we planned for: what counts is the newest one. */
        deadline = atomic_load(&page->deadline_ms);
        int64_t now = clock_now_ms();
        pid_t pgid = atomic_load(&page->pgid);
        if (now < deadline || deadline == done_for || (again = put_off(page, pgid, now)))
            continue;
        atomic_store(&page->killed, 1);
        kill(-pgid, SIGKILL);
        done_for = deadline;
    }
}

static void *new_page(void)
{
    void *page = mmap(NULL, sizeof(struct guardian_page), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return page == MAP_FAILED ? NULL : page;
}

static void free_page(struct guardian *g)
{
    int saved = errno;
    munmap(g->page, sizeof *g->page);
    g->page = NULL;
    errno = saved;
}

int guardian_start(struct guardian *g, int64_t deadline_ms, const struct giveback *back)
{
    int fds[2];
    g->killed = 0;
    g->page = new_page();
    if (!g->page)
        return -1;
    if (pipe2(fds, O_CLOEXEC) != 0) {
        free_page(g);
        return -1;
    }
    atomic_store(&g->page->deadline_ms, deadline_ms);
    g->pid = fork();
    if (g->pid == 0) {
        close(fds[1]);
        guard(fds[0], g->page, back);
    }
    int saved = errno;
    close(fds[0]);
    g->fd = fds[1];
    if (g->pid > 0) {
        fcntl(g->fd, F_SETFL, O_NONBLOCK);
        return 0;
    }
    close(g->fd);
    g->fd = -1;
    errno = saved;
    free_page(g);
    return -1;
}

void guardian_group(struct guardian *g, pid_t pgid)
{
    atomic_store(&g->page->pgid, pgid);
}

static void tell(struct guardian *g, char word)
{
    ssize_t n = write(g->fd, &word, 1);
    (void)n; /* should somebody have killed it, there is nobody to tell */
}

void guardian_deadline(struct guardian *g, int64_t deadline_ms)
{
    if (deadline_ms < atomic_exchange(&g->page->deadline_ms, deadline_ms))
        tell(g, SOONER);
}

void guardian_suspended(struct guardian *g, int64_t until_ms)
{
    atomic_store(&g->page->suspended_ms, until_ms);
}

int guardian_killed(const struct guardian *g)
{
    return g->page ? atomic_load(&g->page->killed) : g->killed;
}

void guardian_child_gone(struct guardian *g)
{
    if (g->pid <= 0 || g->fd < 0)
        return;
    atomic_store(&g->page->pgid, 0);
    atomic_store(&g->page->deadline_ms, NEVER);
    tell(g, CMD_GONE);
}

void guardian_dismiss(struct guardian *g)
{
    if (g->pid <= 0 || g->fd < 0)
        return;
    tell(g, GOODBYE);
    close(g->fd);
    g->fd = -1;
}

void guardian_wait(struct guardian *g)
{
    if (g->pid <= 0)
        return;
    while (waitpid(g->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    g->pid = 0;
    g->killed = atomic_load(&g->page->killed);
    free_page(g);
}
