/* SPDX-License-Identifier: MIT
 * proc.c - other processes in a test; see proc.h.
 *
 * Output goes to files in the test's folder rather than through pipes: nothing has to pump it and
 * a program can never block on it.
 */
#include "harness/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/t.h"

/* The exit status as a shell tells it. */
static int shell_status(int status)
{
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* A process that has threads may be forked while one of them holds a lock of ASan's allocator: in
 * the child nobody gives it back, and the search for leaks at its end waits for it without end.
 * Then the child goes without that search. */
static void go_without(int sig)
{
    (void)sig;
    _exit(0);
}

static int count_threads(void)
{
    struct stat st;
    return stat("/proc/self/task", &st) == 0 ? (int)st.st_nlink - 2 : 1; /* ".", ".." */
}

/* ---- workers ---- */

struct workers {
    int n;
    void (*fn)(int index, void *arg);
    void *arg;
    struct worker {
        int pid;
        int killed; /* by us: no failure */
        int lives;
    } one[];
};

static void start_one(struct workers *w, int i)
{
    int threads = count_threads() > 1, life = w->one[i].lives++;
#ifdef __SANITIZE_THREAD__ /* which has a thread of its own */
    if (count_threads() > 2)
        t_left_out("ThreadSanitizer does not follow the children of a process with threads");
#endif
    w->one[i].killed = 0;
    w->one[i].pid = threads ? t_fork_among_threads() : t_fork();
    CHECK(w->one[i].pid >= 0);
    if (w->one[i].pid > 0)
        return;
    void (*fn)(int index, void *arg) = w->fn;
    void *arg = w->arg;
    free(w);
    t_random_split((uint64_t)i + 1 + (uint64_t)life * 1000);
    fn(i, arg);
    if (threads) {
        fflush(NULL);
        signal(SIGALRM, go_without);
        alarm(4);
    }
    exit(0);
}

struct workers *workers_start(int n, void (*fn)(int index, void *arg), void *arg)
{
    struct workers *w = calloc(1, sizeof *w + (size_t)n * sizeof w->one[0]);
    CHECK(w);
    w->n = n;
    w->fn = fn;
    w->arg = arg;
    for (int i = 0; i < n; i++)
        start_one(w, i);
    return w;
}

void workers_again(struct workers *w, int index)
{
    CHECK(w->one[index].killed);
    start_one(w, index);
}

int workers_pid(const struct workers *w, int index)
{
    return w->one[index].pid;
}

void workers_signal(struct workers *w, int index, int sig)
{
    CHECK(kill(w->one[index].pid, sig) == 0);
    if (sig == SIGKILL) {
        CHECK(waitpid(w->one[index].pid, NULL, 0) == w->one[index].pid);
        w->one[index].killed = 1;
    }
}

void workers_join(struct workers *w, int64_t limit_ms)
{
    int64_t begun = t_now_ms();
    int failed = 0;
    for (int i = 0; i < w->n; i++) {
        int status, pid = w->one[i].pid;
        if (w->one[i].killed)
            continue;
        while (waitpid(pid, &status, WNOHANG) == 0) {
            if (t_calm_ms(begun) > limit_ms)
                FAIL("worker %d of %d not done after %lld ms", i, w->n, (long long)limit_ms);
            t_sleep_ms(2);
        }
        if (status) {
            t_note("worker %d ended with status %d", i, shell_status(status));
            failed++;
        }
    }
    if (failed)
        FAIL("%d of %d workers failed", failed, w->n);
    free(w);
}

void workers_run(int n, void (*fn)(int index, void *arg), void *arg, int64_t limit_ms)
{
    workers_join(workers_start(n, fn, arg), limit_ms);
}

/* ---- programs ---- */

struct proc {
    struct proc *next;
    char *name;
    char *out_path, *err_path;
    char *out, *err;
    int pid;
    int in;     /* write end of its stdin, or -1 */
    int ended;
    int status; /* once ended, as a shell tells it */
};

static struct proc *all; /* so that nothing here counts as a leak */

static void use_fd(int fd, int as)
{
    if (fd < 0 || dup2(fd, as) < 0)
        _exit(126);
}

static void child(const struct proc *p, const char *const *argv, const struct proc_opts *o, int in)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    alarm(0);
    use_fd(in, 0);
    use_fd(open(p->out_path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600), 1);
    use_fd(open(p->err_path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600), 2);
    for (const char *const *e = o->env; e && *e; e++)
        putenv((char *)(uintptr_t)*e);
    if (o->own_session)
        setsid();
    if (o->dir && chdir(o->dir) != 0)
        _exit(126);
    execvp(argv[0], (char *const *)(uintptr_t)argv);
    fprintf(stderr, "%s: %s\n", argv[0], strerror(errno));
    _exit(127);
}

/* A descriptor for the program's stdin; the write end, if any, goes to p->in. */
static int make_stdin(struct proc *p, const struct proc_opts *o, int number)
{
    int ends[2];
    if (o->open_stdin) {
        CHECK(pipe2(ends, O_CLOEXEC) == 0);
        p->in = ends[1];
        return ends[0];
    }
    if (!o->input)
        return open("/dev/null", O_RDONLY | O_CLOEXEC);
    char *path = t_path("p%d.in", number);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    size_t len = strlen(o->input);
    CHECK(fd >= 0 && write(fd, o->input, len) == (ssize_t)len && lseek(fd, 0, SEEK_SET) == 0);
    free(path);
    return fd;
}

struct proc *proc_spawn(const char *const *argv, const struct proc_opts *opts)
{
    static const struct proc_opts none;
    static int count;
    const struct proc_opts *o = opts ? opts : &none;
    struct proc *p = calloc(1, sizeof *p);
    CHECK(p);
    p->next = all;
    all = p;
    p->in = -1;
    p->name = strdup(argv[0]);
    p->out_path = t_path("p%d.out", ++count);
    p->err_path = t_path("p%d.err", count);
    int in = make_stdin(p, o, count);
    p->pid = t_fork();
    CHECK(p->pid >= 0);
    if (p->pid == 0)
        child(p, argv, o, in);
    close(in);
    return p;
}

int proc_pid(const struct proc *p)
{
    return p->pid;
}

int proc_running(struct proc *p)
{
    int status;
    if (!p->ended && waitpid(p->pid, &status, WNOHANG) == p->pid) {
        p->ended = 1;
        p->status = shell_status(status);
    }
    return !p->ended;
}

int proc_wait(struct proc *p, int64_t limit_ms)
{
    int64_t begun = t_now_ms();
    while (proc_running(p)) {
        if (t_calm_ms(begun) > limit_ms)
            FAIL("%s not done after %lld ms; stdout \"%s\", stderr \"%s\"", p->name,
                 (long long)limit_ms, proc_out(p), proc_err(p));
        t_sleep_ms(2);
    }
    return p->status;
}

void proc_signal(struct proc *p, int sig)
{
    CHECK(!p->ended); /* the pid may be another process's by now */
    CHECK(kill(p->pid, sig) == 0);
}

void proc_write(struct proc *p, const char *text)
{
    CHECK(p->in >= 0 && write(p->in, text, strlen(text)) == (ssize_t)strlen(text));
}

void proc_close_stdin(struct proc *p)
{
    if (p->in >= 0)
        close(p->in);
    p->in = -1;
}

/* Older text stays valid: it is kept on a list. */
static const char *read_all(const char *path)
{
    static struct text {
        struct text *next;
        char s[];
    } *texts;
    size_t len = 0, size = 4096;
    struct text *t = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    for (ssize_t n = 1; n > 0; len += (size_t)n) {
        size = len + 4096;
        t = realloc(t, sizeof *t + size + 1);
        CHECK(t);
        n = fd < 0 ? 0 : read(fd, t->s + len, 4096);
        if (n < 0)
            n = 0;
    }
    if (fd >= 0)
        close(fd);
    t->s[len] = 0;
    t->next = texts;
    texts = t;
    return t->s;
}

const char *proc_out(struct proc *p)
{
    return read_all(p->out_path);
}

const char *proc_err(struct proc *p)
{
    return read_all(p->err_path);
}

struct proc *proc_run(const char *program, ...)
{
    const char *argv[64] = { program };
    va_list ap;
    va_start(ap, program);
    for (int n = 1; n < 63 && (argv[n] = va_arg(ap, const char *)); n++)
        ;
    va_end(ap);
    struct proc *p = proc_spawn(argv, NULL);
    proc_wait(p, 30000);
    return p;
}

const char *proc_holdfast(void)
{
    static char path[4200];
    const char *env = getenv("HOLDFAST");
    if (env && *env)
        return env;
    snprintf(path, sizeof path, "%s/../../holdfast", t_program_dir());
    return path;
}
