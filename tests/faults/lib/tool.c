/* SPDX-License-Identifier: MIT
 * tool.c - the command that `holdfast run` runs, and how the tool must end.
 */
#include "faults/lib/tool.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "harness/t.h"

/* ---- the command ---- */

enum { BEAT_MS = 2, HANDLED = 20 /* and the signal: what it ends with */ };

static volatile sig_atomic_t told;

static void note_signal(int sig)
{
    told = sig;
}

static void choose_manner(int manner)
{
    static const int sigs[] = { SIGTERM, SIGINT, SIGHUP, SIGQUIT };
    struct sigaction sa = { .sa_handler = manner == HANDLES ? note_signal : SIG_IGN };
    for (int i = 0; i < 4 && manner != DIES; i++)
        sigaction(sigs[i], &sa, NULL);
}

static void rest(void)
{
    nanosleep(&(struct timespec){ .tv_nsec = BEAT_MS * 1000000L }, NULL);
}

/* One more in the group. It has the lock on the file, too: that is free when both are gone. */
static pid_t start_family(void)
{
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    while (!told)
        rest();
    _exit(0);
}

/* Nothing can end it otherwise any more, but for kill -9: what the note says is what it does. */
static _Noreturn void finish(struct note *n, pid_t family)
{
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    if (family > 0) {
        kill(family, SIGKILL);
        waitpid(family, NULL, 0);
    }
    int status = told ? HANDLED + told : n->code;
    atomic_store(&n->got, told);
    atomic_store(&n->status, status);
    atomic_store(&n->ended_ns, t_now_ns());
    atomic_store(&n->ended, 1);
    _exit(status);
}

struct note *tool_note(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(struct note)) != 0)
        return NULL;
    void *p = mmap(NULL, sizeof(struct note), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return p == MAP_FAILED ? NULL : p;
}

_Noreturn void tool_command(const char *path, const char *witness)
{
    int64_t begun = t_now_ns(), now = begun;
    const char *fence = getenv("HOLDFAST_FENCE");
    struct note *n = tool_note(path);
    int fd = open(witness, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (!n || fd < 0 || !fence)
        _exit(99); /* no status of ours: the judge finds it */
    atomic_store(&n->witness, flock(fd, LOCK_EX | LOCK_NB) != 0);
    atomic_store(&n->began_ns, begun);
    atomic_store(&n->beat_ns, begun);
    atomic_store(&n->fence, strtoull(fence, NULL, 10));
    atomic_store(&n->pid, getpid());
    choose_manner(n->manner);
    pid_t family = n->family ? start_family() : 0;
    atomic_store(&n->ready, 1);
    while (!told && (now < begun + n->run_ms * INT64_C(1000000) || atomic_load(&n->hold))) {
        rest();
        now = t_now_ns();
        atomic_store(&n->beat_ns, now);
    }
    finish(n, family);
}

/* ---- how the tool must end (holdfast(1), EXIT STATUS) ---- */

enum { EX_UNAVAILABLE = 69, EX_BUSY = 75, EX_LOST = 79, BY_SIGNAL = 128 };

/* It was granted nothing, or was told to end before it could start the command. */
static const char *without_command(const struct outcome *o)
{
    if (o->sig && o->status == BY_SIGNAL + o->sig)
        return NULL;
    int unanswered = o->status == EX_UNAVAILABLE && o->told_silent;
    if (o->limited && o->stage < TAKEN && (o->status == EX_BUSY || unanswered))
        return NULL;
    return o->sig ? "the command did not begin, and the status is not 128 and the signal"
                  : "the command did not begin, and nobody told it to end";
}

/* The command ended by itself, and said with what. */
static const char *with_status(const struct outcome *o)
{
    if (o->got && o->got != o->sig)
        return "the command got a signal that nobody sent";
    return o->status == o->code ? NULL : "not the status of the command";
}

/* It ended without a word. */
static const char *with_signal(const struct outcome *o)
{
    if (!o->sig || o->status != BY_SIGNAL + o->sig)
        return "the command was killed, and the status does not say by what was sent";
    if (o->manner != DIES && o->was_ready)
        return "the command was killed by a signal that it handles or ignores";
    return NULL;
}

const char *tool_judge(const struct outcome *o)
{
    if (!o->exited && o->sig == SIGKILL && o->status == SIGKILL)
        return NULL;
    if (!o->exited && o->sig == o->status && o->stage == STARTS)
        return o->began ? "died of a signal while the command ran" : NULL;
    if (!o->exited)
        return "died of a signal that it has to read";
    if (o->sig == SIGKILL && o->sure)
        return "was killed, and ended by itself";
    if (o->taken_away && o->status != EX_LOST)
        return "its lock was taken away, and the status is not 79";
    if (o->status == EX_LOST)
        return o->told_lost ? NULL : "the status is 79, and nothing is said of a loss";
    if (!o->began)
        return without_command(o);
    return o->ended ? with_status(o) : with_signal(o);
}
