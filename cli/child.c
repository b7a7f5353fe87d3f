/* SPDX-License-Identifier: MIT
 * child.c - CMD: started in a process group of its own, watched, stopped as a whole.
 *
 *   RUNS -> STOPPED  [child_look]    STOPPED -> RUNS  [child_resume, child_look]
 *   any  -> GONE     [child_look]
 *
 * The child stays a zombie until child_reap(): as long as it is one, its process group's number
 * cannot be given to strangers, whom we or the guardian would then kill. */
#include "child.h"

#include "exitcode.h"
#include "platform.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* In the child, which runs in our own memory, on our own stack, while this thread stands still:
 * async-signal-safe calls only, and what it writes we find. */
static _Noreturn void child_main(struct child *c, char **argv, char **env, const struct signals *s,
                                 pid_t parent)
{
    setpgid(0, 0);
    /* Should we be killed, so is it; but only if that has not happened already. */
    platform_die_with_parent();
    if (getppid() != parent)
        _exit(EX_CANNOT_RUN);
    /* The guardian stands already. It sees no end of file before execvpe() closes our copy of its
     * pipe, so it always knows whom to kill. */
    guardian_group(&c->guardian, getpid());
    if (c->tty.eager)
        terminal_give(&c->tty, getpid());
    if (c->out_fd > 0 && dup2(c->out_fd, STDOUT_FILENO) < 0)
        _exit(EX_CANNOT_RUN);
    signals_restore(s);
    execvpe(argv[0], argv, env);
    c->exec_error = errno;
    _exit(c->exec_error == ENOENT ? EX_NOT_FOUND : EX_CANNOT_RUN);
}

/* fork() would copy our page tables only to throw them away; and afterwards each page that we
 * write would be copied. */
int child_start(struct child *c, char **argv, char **env, const struct signals *s,
                int64_t deadline_ms)
{
    pid_t parent = getpid();
    terminal_open(&c->tty);
    c->tty.given = c->tty.eager && terminal_foreground(&c->tty);
    if (guardian_start(&c->guardian, deadline_ms, c->back) != 0)
        return -1;
    pid_t pid = vfork(); /* NOLINT(clang-analyzer-security.insecureAPI.vfork) */
    if (pid == 0)
        child_main(c, argv, env, s, parent); /* NOLINT(clang-analyzer-unix.Vfork) */
    c->pid = pid;
    if (pid > 0)
        return 0;
    int saved = errno;
    guardian_dismiss(&c->guardian);
    guardian_wait(&c->guardian);
    errno = saved;
    return -1;
}

static void gone(struct child *c, const siginfo_t *si)
{
    int exited = si->si_code == CLD_EXITED;
    c->state = CHILD_GONE;
    c->killed_by = exited ? 0 : si->si_status;
    c->status = exited ? si->si_status : EX_SIGNAL + si->si_status;
}

int child_look(struct child *c)
{
    siginfo_t si;
    enum child_state before = c->state;
    if (c->state == CHILD_GONE)
        return 0;
    memset(&si, 0, sizeof si);
    while (waitid(P_PID, (id_t)c->pid, &si, WSTOPPED | WCONTINUED | WNOHANG) == 0 && si.si_pid) {
        c->state = si.si_code == CLD_CONTINUED ? CHILD_RUNS : CHILD_STOPPED;
        c->stop_signal = si.si_status;
        memset(&si, 0, sizeof si);
    }
    memset(&si, 0, sizeof si);
    if (waitid(P_PID, (id_t)c->pid, &si, WEXITED | WNOHANG | WNOWAIT) == 0 && si.si_pid)
        gone(c, &si);
    return c->state != before;
}

int child_signal(struct child *c, int sig)
{
    return kill(-c->pid, sig);
}

int child_group_left(struct child *c)
{
    /* The zombie counts as a member, so it has to go first. The number stays taken as long as the
     * group has another member. */
    if (!c->reaped)
        c->reaped = waitpid(c->pid, NULL, WNOHANG) == c->pid;
    while (waitpid(-c->pid, NULL, WNOHANG) > 0)
        ; /* as process 1 of a container we inherit the orphans */
    return platform_group_alive(c->pid);
}

int child_suspend(struct child *c)
{
    sigset_t pending;
    int had_terminal = c->tty.given;
    terminal_take(&c->tty, c->pid);
    /* Ctrl-Z in the terminal was meant for the whole job, of which we may be only a part. */
    signals_stop(c->stop_signal, had_terminal);
    return sigpending(&pending) == 0 && sigismember(&pending, SIGCONT) == 1;
}

void child_resume(struct child *c)
{
    if (c->state == CHILD_GONE)
        return;
    if (c->tty.eager)
        terminal_give(&c->tty, c->pid);
    child_signal(c, SIGCONT);
    c->state = CHILD_RUNS;
}

void child_finish(struct child *c)
{
    if (c->left_alive)
        guardian_dismiss(&c->guardian); /* it would give the locks back */
    else
        guardian_child_gone(&c->guardian);
    c->had_terminal = c->tty.given;
    terminal_take(&c->tty, c->pid);
    terminal_close(&c->tty);
}

void child_reap(struct child *c, int released)
{
    if (c->pid <= 0)
        return;
    if (released) {
        guardian_dismiss(&c->guardian);
        guardian_wait(&c->guardian);
    }
    if (!c->reaped && !c->left_alive)
        while (waitpid(c->pid, NULL, 0) < 0 && errno == EINTR)
            ;
    c->reaped = 1;
}

void child_pass_interrupt(const struct child *c, const struct signals *s)
{
    int sig = c->killed_by;
    if (!c->had_terminal || (sig != SIGINT && sig != SIGQUIT) || !sigismember(&s->wanted, sig))
        return;
    if (sig == SIGQUIT)
        platform_no_core(); /* the core file worth having is CMD's */
    kill(0, sig);
    signals_restore(s);
}
