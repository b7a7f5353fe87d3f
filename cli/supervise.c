/* SPDX-License-Identifier: MIT
 * supervise.c - CMD runs, the lock is held: the event loop of `run` and `once`.
 *
 *   RUNS -> TERM_SENT   [stop]       lock lost or about to be, --max-run, --on-ask release
 *   RUNS -> KILL_SENT   [stop]       the same with --on-lost kill, or no time left
 *   TERM_SENT -> KILL_SENT [check_times]  --kill-after, or the lease's end comes near
 * The loop ends when CMD is gone and its output passed on; after a stop, when its whole process
 * group is gone. What KILL does not end, for it belongs to another user or hangs in the kernel,
 * keeps the lock: it is renewed until that has gone, or is left to its lease, never given back. */
#include "supervise.h"

#include "asked.h"
#include "clock.h"
#include "exitcode.h"
#include "giveback.h"
#include "deadline.h"
#include "message.h"
#include "platform.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum phase { RUNS, TERM_SENT, KILL_SENT };

struct run {
    struct child      *c;
    const struct opts *o;
    struct deadline       deadline;
    struct taken      *t;
    struct asked       asked;
    int                signal_fd, timer_fd;
    enum phase         phase;
    int                stop_code;
    int64_t            max_run_at_ms, kill_at_ms, vanish_by_ms;
    int                told_left;  /* the user knows that something was not ended by KILL */
    struct capture    *cap;       /* of its output; NULL: it has our own */
    struct pollfd     *cap_poll;
    int                end_signal; /* the last one that told us to end; 0: none */
    int                suspended; /* we have stopped ourselves, or at least tried to */
};

/* How long a killed group may take to vanish before we say that it does not. */
#define VANISH_MS 2000
#define LOOK_MS   10
#define SELDOM_MS 500 /* when it may take hours */

static void kill_group(struct run *r)
{
    r->phase = KILL_SENT;
    r->vanish_by_ms = clock_now_ms() + VANISH_MS;
    child_signal(r->c, SIGKILL);
}

/* End CMD and all of its group; code is what we shall exit with. */
static void stop(struct run *r, int code, int at_once)
{
    int64_t now = clock_now_ms(), kill_at = now + r->o->kill_after_ms;
    if (r->deadline.lost) /* else there is time */
        kill_at = deadline_kill_at_ms(&r->deadline, now, r->o->kill_after_ms);
    if (r->phase == RUNS)
        r->stop_code = code;
    if (r->phase == RUNS || kill_at < r->kill_at_ms)
        r->kill_at_ms = kill_at;
    if (at_once || r->kill_at_ms <= now) {
        kill_group(r);
        return;
    }
    if (r->phase == RUNS) {
        r->phase = TERM_SENT;
        child_signal(r->c, SIGTERM);
        child_signal(r->c, SIGCONT); /* a stopped process would not see it */
    }
}

/* We and CMD have been stopped together, and now somebody continues us. What happened meanwhile is
 * asked before CMD may run a single instruction. */
static void resume(struct run *r)
{
    r->suspended = 0;
    deadline_woke(&r->deadline);
    deadline_renew(&r->deadline, r->o->ttl_ms);
    if (r->c->state != CHILD_GONE && deadline_check(&r->deadline)) {
        stop(r, EX_LOST, r->o->on_lost == LOST_KILL || r->deadline.loss != HF_LOSS_NONE);
    } else {
        guardian_deadline(&r->c->guardian, deadline_last_ms(&r->deadline));
        guardian_suspended(&r->c->guardian, 0);
        child_resume(r->c);
    }
}

/* Whoever stops a job on purpose wants to find it again. Nothing of it may run meanwhile: then
 * not the grace counts but the lease, which is renewed once more. */
static void suspend(struct run *r)
{
    r->suspended = 1;
    child_signal(r->c, SIGSTOP); /* also those of the group that ignore what stopped CMD */
    guardian_suspended(&r->c->guardian, deadline_suspended_ms(&r->deadline, r->o->ttl_ms));
}

static void child_stopped(struct run *r)
{
    struct child *c = r->c;
    int sig = c->stop_signal, wants_terminal = sig == SIGTTIN || sig == SIGTTOU;
    if (wants_terminal && !c->tty.given && terminal_give(&c->tty, c->pid)) {
        child_resume(c);
        return;
    }
    /* SIGSTOP that did not come from a terminal is somebody who wants CMD to pause, and will
     * continue CMD, not us: the lock stays held. */
    if (sig == SIGSTOP && !c->tty.given)
        return;
    suspend(r);
    if (!child_suspend(c) && !wants_terminal)
        resume(r);
}

/* Not ours to decide: what CMD does with it is CMD's business. */
static void forward(struct run *r, int sig)
{
    if (sig == SIGCONT && (r->suspended || r->c->state == CHILD_STOPPED))
        resume(r);
    else if (r->c->state != CHILD_GONE)
        child_signal(r->c, sig);
    if (sig == SIGHUP || sig == SIGINT || sig == SIGQUIT || sig == SIGTERM) {
        r->c->told_to_end = 1;
        r->end_signal = sig;
    }
}

/* Pass output on. Once we have been told to end, no reader that stands still keeps us from it. */
static void pass_on(struct run *r)
{
    int gone = r->c->state == CHILD_GONE;
    int stuck = r->cap_poll[1].fd >= 0 && !r->cap_poll[1].revents;
    capture_step(r->cap, r->cap_poll, gone);
    if (!gone || !stuck || !r->end_signal)
        return;
    capture_abandon(r->cap);
    if (r->stop_code == 0)
        r->stop_code = EX_SIGNAL + r->end_signal;
}

static void read_signals(struct run *r)
{
    for (int sig; (sig = platform_signal_read(r->signal_fd));) {
        if (sig != SIGCHLD)
            forward(r, sig);
        else if (child_look(r->c) && r->c->state == CHILD_STOPPED && r->phase == RUNS)
            child_stopped(r);
    }
}

/* Somebody asks for the lock. */
static void check_asked(struct run *r)
{
    int sig;
    enum asked_what what = asked_check(&r->asked, r->t, r->o, &sig);
    if (r->c->state == CHILD_GONE || r->phase != RUNS)
        return;
    if (what == ASKED_SIGNAL)
        child_signal(r->c, sig);
    if (what == ASKED_RELEASE)
        stop(r, EX_LOST, 0);
}

/* We had no processor when the time was over, and it did what we should have done. */
static void killed_by_guardian(struct run *r)
{
    deadline_tell_killed(&r->deadline);
    r->deadline.lost = 1;
    r->stop_code = EX_LOST;
    r->phase = KILL_SENT;
    r->vanish_by_ms = clock_now_ms() + VANISH_MS;
}

static void check_times(struct run *r)
{
    int64_t now = clock_now_ms();
    deadline_woke(&r->deadline);
    if (r->c->state == CHILD_GONE && r->phase == RUNS && r->c->killed_by == SIGKILL
        && guardian_killed(&r->c->guardian))
        killed_by_guardian(r);
    if (r->c->state == CHILD_GONE && r->phase == RUNS) {
        deadline_ignore(&r->deadline);
        r->deadline.end_ms = NEVER; /* nobody is to be killed for it any more */
    } else if (deadline_check(&r->deadline)) {
        stop(r, EX_LOST, r->o->on_lost == LOST_KILL);
    }
    check_asked(r);
    if (r->phase == RUNS && now >= r->max_run_at_ms && r->c->state != CHILD_GONE) {
        char t[32];
        msg_error_about("CMD has run for %s (--max-run): stopping it",
                  text_duration(t, sizeof t, r->o->max_run_ms));
        stop(r, EX_MAX_RUN, 0);
    }
    if (r->phase == TERM_SENT && now >= r->kill_at_ms)
        kill_group(r);
}

/* KILL was sent, and CMD or something of its group is still there. Is there a reason to wait on?
 * Not without the lock, and not for somebody who wants us to end. */
static int give_up(struct run *r)
{
    int leave = r->deadline.lost || r->end_signal;
    if (r->phase != KILL_SENT || clock_now_ms() < r->vanish_by_ms)
        return 0;
    if (leave || !r->told_left)
        msg_error_about("CMD or processes that it has started cannot be ended%s",
                        leave ? ", and are still there" : ": the lock stays held until they are "
                                                          "gone");
    r->told_left = 1;
    r->c->left_alive = leave;
    return leave;
}

static int over(struct run *r)
{
    if (r->phase == KILL_SENT)
        child_look(r->c); /* we may have stood still since we were told */
    if (r->c->state != CHILD_GONE)
        return give_up(r);
    if (r->phase == RUNS)
        return !r->cap || capture_done(r->cap);
    return !child_group_left(r->c) || give_up(r);
}

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void set_timer(struct run *r)
{
    int64_t next = deadline_next_ms(&r->deadline);
    if (r->phase == RUNS && r->c->state != CHILD_GONE)
        next = earlier(next, r->max_run_at_ms);
    else if (r->phase == TERM_SENT)
        next = earlier(next, r->kill_at_ms);
    /* Nobody tells us when the rest of the group goes, or that CMD does not. */
    if (r->c->state == CHILD_GONE || r->phase == KILL_SENT)
        next = earlier(next, clock_now_ms() + (r->told_left ? SELDOM_MS : LOOK_MS));
    clock_timer_set(r->timer_fd, next);
    guardian_deadline(&r->c->guardian, deadline_last_ms(&r->deadline));
}

static void loop(struct run *r, struct pollfd *p, nfds_t n)
{
    for (;;) {
        check_times(r);
        if (over(r))
            return;
        set_timer(r);
        if (r->cap)
            capture_poll(r->cap, r->cap_poll);
        poll(p, n, -1);
        if (r->cap)
            pass_on(r);
        read_signals(r);
    }
}

/* What the world gets to know. */
static int result(const struct run *r)
{
    struct child *c = r->c;
    if (c->exec_error)
        return c->exec_error == ENOENT ? EX_NOT_FOUND : EX_CANNOT_RUN;
    c->lost = r->stop_code == EX_LOST;
    return r->stop_code ? r->stop_code : c->status;
}

/* The descriptors to wait on; lock descriptors follow the first two, those of the capture are the
 * last. NULL: out of memory. */
static struct pollfd *poll_set(struct run *r, const struct taken *t, nfds_t *ret_n)
{
    struct pollfd *p = calloc(4 + t->n, sizeof *p);
    nfds_t n = 0;
    if (!p)
        return NULL;
    p[n++] = (struct pollfd){ .fd = r->signal_fd, .events = POLLIN };
    p[n++] = (struct pollfd){ .fd = r->timer_fd, .events = POLLIN };
    for (size_t i = 0; i < t->n; i++) {
        int fd;
        if (hf_lock_fd(t->lock[i].m, &fd, NULL) == HF_OK)
            p[n++] = (struct pollfd){ .fd = fd, .events = POLLIN };
    }
    r->cap_poll = p + n;
    *ret_n = r->cap ? n + 2 : n;
    return p;
}

static int start_and_watch(struct run *r, struct taken *t, const struct signals *s, char **argv,
                           char **env)
{
    nfds_t n = 0;
    struct pollfd *p = poll_set(r, t, &n);
    if (!p || r->signal_fd < 0 || r->timer_fd < 0
        || child_start(r->c, argv, env, s, deadline_last_ms(&r->deadline)) != 0) {
        msg_error("cannot start a process: %s", strerror(errno));
        free(p);
        return EX_SYSTEM;
    }
    if (r->o->max_run_ms != GIVEN_NOT)
        r->max_run_at_ms = clock_now_ms() + r->o->max_run_ms;
    loop(r, p, n);
    free(p);
    child_finish(r->c);
    if (r->c->exec_error)
        msg_error("cannot run %s: %s", argv[0], strerror(r->c->exec_error));
    return result(r);
}

int supervise(struct child *c, struct taken *t, const struct opts *o, const struct signals *s,
              char **argv, char **env)
{
    return supervise_captured(c, t, o, s, argv, env, NULL);
}

int supervise_captured(struct child *c, struct taken *t, const struct opts *o,
                       const struct signals *s, char **argv, char **env, struct capture *cap)
{
    struct run r = { .c = c, .o = o, .t = t, .cap = cap, .max_run_at_ms = NEVER };
    c->out_fd = cap ? cap->out : 0;
    r.signal_fd = signals_fd(s, signals_running);
    r.timer_fd = clock_timer();
    deadline_start(&r.deadline, t, o);
    c->back = giveback_new(t, o);
    int code = start_and_watch(&r, t, s, argv, env);
    c->back = giveback_free(c->back);
    if (r.signal_fd >= 0)
        close(r.signal_fd);
    if (r.timer_fd >= 0)
        close(r.timer_fd);
    return code;
}
