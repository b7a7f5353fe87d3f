/* SPDX-License-Identifier: MIT
 * launch.c - start redis-server or valkey-server as a process of its own.
 *
 * The caller may have many threads, so between fork and exec only async-signal-safe calls are
 * made and everything they need is prepared before. _Fork() rather than fork(): the program's own
 * atfork handlers have no business here, and ours would close the descriptor that the server is
 * to inherit.
 */
#include "embedded/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/process.h"
#include "net/stream.h"

#define USUAL_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#define LOG_MAX    (1024 * 1024) /* a larger log begins anew at the next start */

enum { FD_NOTES = 3, FD_LIFE = 4, FD_FREE = CLAIM_FD + 1 }; /* the server's descriptors */

/* What the processes on the way say through the pipe. */
struct note {
    pid_t       pid;
    int         failed; /* errno */
    const char *step;   /* a literal: good in the parent too, which is the same program */
};

struct plan {
    const char *program, *dir, *log;
    char      **argv;
    int         log_flags;
    int         notes_fd, life_fd, claim_fd;
};

/* ---- which program ---- */

static int is_program(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

/* Look for name along a list like $PATH. Relative entries do not count: what they mean depends on
 * where the caller happens to stand. */
static int find_along(const char *list, const char *name, char path[PATH_MAX])
{
    while (list && *list) {
        size_t len = strcspn(list, ":");
        if (*list == '/'
            && snprintf(path, PATH_MAX, "%.*s/%s", (int)len, list, name) < PATH_MAX
            && is_program(path))
            return 1;
        list += len + (list[len] == ':');
    }
    return 0;
}

/* Cron's $PATH is poor, so the usual places are tried after it. Links are kept: Debian's
 * redis-server is one, to a program that goes by its name. */
static int find_program(const char *name, char path[PATH_MAX])
{
    if (strchr(name, '/')) {
        char here[PATH_MAX] = "";
        if (*name != '/' && !getcwd(here, sizeof here))
            return 0;
        return snprintf(path, PATH_MAX, "%s%s%s", here, *here ? "/" : "", name) < PATH_MAX
               && is_program(path);
    }
    return find_along(process_getenv("PATH"), name, path) || find_along(USUAL_PATH, name, path);
}

static hf_err choose_program(char path[PATH_MAX], hf_error *reterr)
{
    const char *named = process_getenv("HOLDFAST_SERVER");
    if (named && *named) {
        char q[160];
        if (find_program(named, path))
            return HF_OK;
        return err_set(reterr, HF_ECONN,
                       "the embedded server cannot be started: HOLDFAST_SERVER is %s, which is not "
                       "a program that can be run; unset it and `apt-get install redis-server`, or "
                       "use a server elsewhere with --url or HOLDFAST_URL",
                       err_quote(q, sizeof q, named, strlen(named)));
    }
    if (find_program("redis-server", path) || find_program("valkey-server", path))
        return HF_OK;
    return err_set(reterr, HF_ECONN,
                   "the embedded server cannot be started: neither redis-server nor valkey-server "
                   "is installed; `apt-get install redis-server`, or use a server elsewhere with "
                   "--url or HOLDFAST_URL");
}

/* ---- from fork to exec: async-signal-safe calls only ---- */

static void tell(const struct plan *p, const char *step)
{
    struct note n = { .pid = getpid(), .failed = step ? errno : 0, .step = step };
    while (write(p->notes_fd, &n, sizeof n) < 0 && errno == EINTR)
        ;
}

static void give_up(const struct plan *p, const char *step) __attribute__((noreturn));
static void give_up(const struct plan *p, const char *step)
{
    tell(p, step);
    _exit(127);
}

/* What a parent ignores or blocks, a child would ignore and block for ever. */
static void reset_signals(void)
{
    struct sigaction standard = { .sa_handler = SIG_DFL };
    sigset_t none;

    for (int sig = 1; sig < NSIG; sig++)
        sigaction(sig, &standard, NULL); /* fails for KILL, STOP and libc's own */
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Any of our descriptors may have a low number, since a caller may have closed its own. */
static int move_up(int fd)
{
    return fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 16);
}

/* Standard input is empty, output goes to the log (complaints about arguments come that way), and
 * all else but the three descriptors is closed. */
static void arrange_descriptors(struct plan *p)
{
    int notes = move_up(p->notes_fd);
    int life = move_up(p->life_fd);
    int claim = move_up(p->claim_fd);
    if (notes < 0 || life < 0 || claim < 0)
        give_up(p, "fcntl");
    p->notes_fd = notes;
    int in = move_up(open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (in < 0)
        give_up(p, "open /dev/null");
    int out = move_up(open(p->log, p->log_flags, 0600));
    if (out < 0)
        give_up(p, "open its log");
    if (dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0 || dup2(life, FD_LIFE) < 0
        || dup2(claim, CLAIM_FD) < 0 || dup3(notes, FD_NOTES, O_CLOEXEC) < 0)
        give_up(p, "dup2");
    p->notes_fd = FD_NOTES;
    process_close_from(FD_FREE);
}

static void become_server(struct plan *p) __attribute__((noreturn));
static void become_server(struct plan *p)
{
    /* The server must not differ by who started it: a login shell's secrets, locale and preloaded
     * libraries stay behind. */
    static char path[] = "PATH=" USUAL_PATH;
    static char *const environment[] = { path, NULL };

    tell(p, NULL);
    umask(077);
    arrange_descriptors(p);
    if (chdir(p->dir) != 0)
        give_up(p, "enter its folder");
    reset_signals();
    execve(p->program, p->argv, environment);
    give_up(p, "run it");
}

/* Twice: the server is not the caller's child, and no session leader that could get a terminal. */
static void detach(struct plan *p) __attribute__((noreturn));
static void detach(struct plan *p)
{
    setsid();
    pid_t pid = _Fork();
    if (pid < 0)
        give_up(p, "fork");
    if (pid == 0)
        become_server(p);
    _exit(0);
}

/* ---- the caller's side ---- */

/* Until the pipe ends: the program runs then, or whoever should run it has ended. One that is not
 * that far when the limit is over has the folder's lock: nobody starts a second one meanwhile. */
static hf_err hear(int fd, const struct plan *p, const struct limit *lim, pid_t *ret_pid,
                   hf_error *reterr)
{
    struct note n;
    pid_t pid = 0;
    char q[160];

    err_quote(q, sizeof q, p->program, strlen(p->program));
    while (stream_poll(fd, POLLIN, lim)) {
        ssize_t got = read(fd, &n, sizeof n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got != (ssize_t)sizeof n)
            break;
        pid = n.pid;
        if (n.step)
            return err_set(reterr, HF_ECONN,
                           "the embedded server %s cannot be started: %s: %s", q, n.step,
                           strerror(n.failed));
    }
    if (pid == 0 && limit_over(lim))
        return err_set(reterr, HF_ECONN, "the embedded server %s was not started in time: try "
                       "again, or allow more time", q);
    if (pid == 0)
        return err_set(reterr, HF_ESYS, "the embedded server %s was killed while it started", q);
    *ret_pid = pid;
    return HF_OK;
}

/* Fork with every signal blocked, so that no handler of the caller's runs in the child. */
static hf_err start_detached(struct plan *p, const struct limit *lim, pid_t *ret_pid,
                             hf_error *reterr)
{
    int ends[2];
    sigset_t all, old;

    if (pipe2(ends, O_CLOEXEC) != 0)
        return err_set(reterr, HF_ESYS, "no pipe can be made: %s", strerror(errno));
    p->notes_fd = ends[1];
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    pid_t pid = _Fork();
    if (pid == 0)
        detach(p);
    int why = errno;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    close(ends[1]);
    hf_err e;
    if (pid < 0) {
        e = err_set(reterr, HF_ESYS, "no process can be made for the embedded server: %s",
                    strerror(why));
    } else {
        e = hear(ends[0], p, lim, ret_pid, reterr);
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    close(ends[0]);
    return e;
}

hf_err launch_server(struct launch *l, const struct limit *lim, hf_error *reterr)
{
    char program[PATH_MAX], log[PATH_MAX], pidfile[PATH_MAX];
    struct stat st;

    hf_err e = choose_program(program, reterr);
    if (e)
        return e;
    snprintf(log, sizeof log, "%s/server.log", l->dir);
    snprintf(pidfile, sizeof pidfile, "%s/server.pid", l->dir);

    /* The first argument is an option, so no configuration file is read. Each reply follows the
     * write() of what it tells, so the append-only file survives kill -9; waiting for the disk
     * would only help in a power cut, which ends every holder on this machine anyway. */
    const char *argv[] = {
        program, "--port", "0", "--unixsocket", l->socket, "--unixsocketperm", "700",
        "--dir", l->dir, "--logfile", log, "--pidfile", pidfile, "--loglevel", "notice",
        "--daemonize", "no", "--save", "", "--appendonly", "yes", "--appendfsync", "no",
        "--aof-load-truncated", "yes", "--auto-aof-rewrite-min-size", "32mb",
        "--maxmemory", "0", "--maxmemory-policy", "noeviction", NULL
    };
    int large = stat(log, &st) == 0 && st.st_size > LOG_MAX;
    l->log_from = stat(log, &st) == 0 && !large ? st.st_size : 0;

    struct plan p = { .program = program, .dir = l->dir, .log = log, .life_fd = l->life_fd,
                      .claim_fd = l->claim_fd };
    p.argv = (char **)argv;
    p.log_flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | (large ? O_TRUNC : 0);
    return start_detached(&p, lim, &l->pid, reterr);
}

/* ---- what it left behind ---- */

static bool disk_is_full(const char *dir)
{
    struct statvfs fs;
    return statvfs(dir, &fs) == 0 && (fs.f_bavail == 0 || (fs.f_files > 0 && fs.f_favail == 0));
}

const char *launch_last_words(const struct launch *l, char *buf, size_t size)
{
    char path[PATH_MAX], tail[2048];
    struct stat st;
    ssize_t n = -1;

    snprintf(path, sizeof path, "%s/server.log", l->dir);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd >= 0 && fstat(fd, &st) == 0) {
        off_t from = st.st_size - (off_t)sizeof tail;
        n = pread(fd, tail, sizeof tail, from > l->log_from ? from : l->log_from);
    }
    if (fd >= 0)
        close(fd);
    while (n > 0 && (tail[n - 1] == '\n' || tail[n - 1] == '\r' || tail[n - 1] == ' '))
        n--;
    if (n <= 0) {
        const char *none = disk_is_full(l->dir) ? "(nothing: the disk is full)" : "(nothing)";
        return err_quote(buf, size, none, strlen(none));
    }
    const char *line = memrchr(tail, '\n', (size_t)n);
    line = line ? line + 1 : tail;
    return err_quote(buf, size, line, (size_t)(tail + n - line));
}

long launch_pid_in(const char *dir)
{
    char path[PATH_MAX], text[32] = "";

    snprintf(path, sizeof path, "%s/server.pid", dir);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return 0;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    return n > 0 ? strtol(text, NULL, 10) : 0;
}
