/* SPDX-License-Identifier: MIT
 * t.c - the test framework's runner and checks.
 *
 * The runner is the subreaper of everything a test starts. When the test's process has ended,
 * whatever is left below the runner is killed by pid, so a server that was daemonized is found
 * too. Should the runner itself be killed, PDEATHSIG ends the test and the test's own children.
 */
#include "harness/t.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_SKIP = 77, EXIT_LEFT_OUT = 78, LOG_TAIL = 8000 };

static struct t_test *tests;
static const struct t_test *current;
static uint64_t seed;
static atomic_uint_fast64_t random_state;
static char dir[64];
static char *skip_reason; /* shared with the test's process */
enum { REASON_MAX = 256 };

void t_register(struct t_test *t)
{
    struct t_test **at = &tests;
    while (*at && (*at)->line < t->line)
        at = &(*at)->next;
    t->next = *at;
    *at = t;
}

const struct t_test *t_current(void)
{
    return current;
}

/* ---- checks ---- */

void t_fail(const char *file, int line, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    flockfile(stdout);
    printf("# %s:%d: ", file, line);
    vprintf(fmt, ap);
    printf("\n");
    funlockfile(stdout);
    va_end(ap);
    fflush(stdout);
    _exit(1); /* no leak check: a test cut short leaks */
}

__attribute__((noreturn)) static void stop_early(const char *reason, int status)
{
    snprintf(skip_reason, REASON_MAX, "%s", reason);
    fflush(stdout);
    _exit(status);
}

void t_skip(const char *reason)
{
    stop_early(reason, EXIT_SKIP);
}

void t_left_out(const char *reason)
{
    stop_early(reason, EXIT_LEFT_OUT);
}

void t_note(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    flockfile(stdout);
    printf("# ");
    vprintf(fmt, ap);
    printf("\n");
    funlockfile(stdout);
    va_end(ap);
}

void t_check_int(const char *file, int line, const char *expr, long long got, long long want)
{
    if (got != want)
        t_fail(file, line, "%s: got %lld, want %lld", expr, got, want);
}

void t_check_range(const char *file, int line, const char *expr, long long value, long long low,
                   long long high)
{
    if (value < low || value > high)
        t_fail(file, line, "%s: got %lld, want %lld to %lld", expr, value, low, high);
}

void t_check_took(const char *file, int line, const char *expr, long long ms, long long low,
                  long long high)
{
    long long calm = ms > high ? t_calm_ms(t_now_ms() - ms) : ms;
    if (ms < low || calm > high)
        t_fail(file, line, "%s: got %lld (%lld on a calm machine), want %lld to %lld", expr, ms,
               calm, low, high);
}

void t_check_str(const char *file, int line, const char *expr, const char *got, const char *want)
{
    if (got == want || (got && want && strcmp(got, want) == 0))
        return;
    t_fail(file, line, "%s:\n#   got  \"%s\"\n#   want \"%s\"", expr, got ? got : "(NULL)",
           want ? want : "(NULL)");
}

void t_check_contains(const char *file, int line, const char *expr, const char *text,
                      const char *part)
{
    if (!text || !strstr(text, part))
        t_fail(file, line, "%s:\n#   got  \"%s\"\n#   want within it \"%s\"", expr,
               text ? text : "(NULL)", part);
}

static void print_hex(const char *what, const unsigned char *p, size_t len)
{
    printf("#   %s %zu bytes:", what, len);
    for (size_t i = 0; i < len && i < 64; i++)
        printf(" %02x", p[i]);
    printf("%s\n", len > 64 ? " ..." : "");
}

void t_check_mem(const char *file, int line, const char *expr, const void *got, size_t gotlen,
                 const void *want, size_t wantlen)
{
    if (gotlen == wantlen && (gotlen == 0 || memcmp(got, want, gotlen) == 0))
        return;
    print_hex("got ", got, gotlen);
    print_hex("want", want, wantlen);
    t_fail(file, line, "%s differs", expr);
}

/* ---- random numbers ---- */

uint64_t t_seed(void)
{
    return seed;
}

/* splitmix64: any seed will do, 0 included. */
uint64_t t_random(uint64_t n)
{
    const uint64_t step = UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = atomic_fetch_add(&random_state, step) + step;
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    z ^= z >> 31;
    return n ? z % n : z;
}

void t_random_split(uint64_t n)
{
    random_state = seed + n * UINT64_C(0xd1342543de82ef95);
}

/* ---- time, and how much the machine had to do ---- */

int64_t t_now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

/* Notes of how long somebody had waited for a core until then, by the system's count. They are
 * taken by t_now_ms(), so there is one of the moment at which a test began to measure. A note that
 * another thread overwrites meanwhile makes a limit wrong by a few ms, and nothing else. */
enum { NOTES = 8192, NOTE_EVERY_MS = 20, BUSY_COUNTS = 10 };
static struct {
    _Atomic int64_t at_ms, waited_ms;
} notes[NOTES];
static _Atomic unsigned noted;
static int pressure_fd = -1;

static void open_pressure(void)
{
    int fd = open("/proc/pressure/cpu", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    pressure_fd = fcntl(fd, F_DUPFD_CLOEXEC, 300); /* out of the way of tests that count them */
    close(fd);
}

/* -1: it does not tell. */
static int64_t waited_ms(void)
{
    char text[256];
    /* NOLINTBEGIN(bugprone-signal-handler): neither locks nor allocates anything */
    ssize_t n = pressure_fd < 0 ? -1 : pread(pressure_fd, text, sizeof text - 1, 0);
    if (n <= 0)
        return -1;
    text[n] = '\0';
    char *total = strncmp(text, "some ", 5) == 0 ? strstr(text, "total=") : NULL;
    return total ? strtoll(total + 6, NULL, 10) / 1000 : -1;
    /* NOLINTEND(bugprone-signal-handler) */
}

static void note(int64_t now_ms)
{
    unsigned n = atomic_load(&noted);
    if (n && now_ms - atomic_load(&notes[(n - 1) % NOTES].at_ms) < NOTE_EVERY_MS)
        return;
    int64_t waited = waited_ms();
    if (waited < 0 || !atomic_compare_exchange_strong(&noted, &n, n + 1))
        return;
    atomic_store(&notes[n % NOTES].waited_ms, waited);
    atomic_store(&notes[n % NOTES].at_ms, now_ms);
}

int64_t t_calm_ms(int64_t since_ms)
{
    int64_t passed = t_now_ns() / 1000000 - since_ms, waited = waited_ms();
    unsigned n = atomic_load(&noted), oldest = n > NOTES ? n - NOTES + 1 : 0;
    if (waited < 0 || n == oldest)
        return passed / BUSY_COUNTS;
    while (--n > oldest && atomic_load(&notes[n % NOTES].at_ms) > since_ms)
        ;
    int64_t busy = waited - atomic_load(&notes[n % NOTES].waited_ms);
    if (busy > passed)
        busy = passed;
    return passed - busy + busy / BUSY_COUNTS;
}

int64_t t_now_ms(void)
{
    int64_t now = t_now_ns() / 1000000;
    note(now);
    return now;
}

int64_t t_cpu_ms(void)
{
    struct rusage u;
    CHECK_INT(getrusage(RUSAGE_SELF, &u), 0);
    return (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000
           + (u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1000;
}

void t_sleep_ms(int64_t ms)
{
    struct timespec ts = { ms / 1000, ms % 1000 * 1000000 };
    while (nanosleep(&ts, &ts) && errno == EINTR)
        ;
}

/* ---- folders and processes ---- */

const char *t_dir(void)
{
    return dir;
}

char *t_path(const char *fmt, ...)
{
    char rest[256], *path = NULL;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(rest, sizeof rest, fmt, ap);
    va_end(ap);
    if (asprintf(&path, "%s/%s", dir, rest) < 0)
        FAIL("no memory");
    return path;
}

const char *t_program_dir(void)
{
    static char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    CHECK(n > 0);
    path[n] = 0;
    *strrchr(path, '/') = 0;
    return path;
}

int t_fork(void)
{
    fflush(stdout);
    fflush(stderr);
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) /* it died before the line above */
            _exit(1);
    }
    return pid;
}

static int other_threads_sleep(void)
{
    int asleep = 1;
    DIR *d = opendir("/proc/self/task");
    CHECK(d);
    for (struct dirent *e; (e = readdir(d));) {
        char path[300], text[200] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/stat", e->d_name);
        FILE *f = e->d_name[0] == '.' || atoi(e->d_name) == getpid() ? NULL : fopen(path, "r");
        if (!f)
            continue;
        if (fgets(text, sizeof text, f) && strrchr(text, ')') && strrchr(text, ')')[2] != 'S')
            asleep = 0;
        fclose(f);
    }
    closedir(d);
    return asleep;
}

int t_fork_among_threads(void)
{
    CHECK_EVENTUALLY(other_threads_sleep(), 20000);
    return t_fork();
}

/* ---- the runner ---- */

/* Kill every child of this process, orphans of the test's included, and wait for them. */
static void kill_leftovers(void)
{
    for (int round = 0; round < 100; round++) {
        int status, left = 0;
        while (waitpid(-1, &status, WNOHANG) > 0)
            ;
        DIR *d = opendir("/proc");
        for (struct dirent *e; d && (e = readdir(d));) {
            char path[300], stat[512];
            int pid = atoi(e->d_name), ppid;
            snprintf(path, sizeof path, "/proc/%d/stat", pid);
            int fd = pid > 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
            ssize_t n = fd < 0 ? -1 : read(fd, stat, sizeof stat - 1);
            if (fd >= 0)
                close(fd);
            if (n <= 0)
                continue;
            stat[n] = 0;
            char *p = strrchr(stat, ')'); /* the name before it may hold anything */
            if (p && sscanf(p, ") %*c %d", &ppid) == 1 && ppid == getpid()) {
                kill(pid, SIGKILL);
                left++;
            }
        }
        if (d)
            closedir(d);
        if (!left)
            return;
        t_sleep_ms(1);
    }
}

/* The last bytes of every file named "log" in the test's folder. */
static int print_log(const char *path, const struct stat *st, int type, struct FTW *at)
{
    if (type != FTW_F || strcmp(path + at->base, "log") != 0)
        return 0;
    FILE *f = fopen(path, "r");
    if (!f)
        return 0;
    if (st->st_size > LOG_TAIL)
        fseek(f, -LOG_TAIL, SEEK_END);
    printf("# --- %s\n", path);
    for (char line[1024]; fgets(line, sizeof line, f);)
        printf("# %s%s", line, strchr(line, '\n') ? "" : "\n");
    fclose(f);
    return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st, (void)type, (void)at;
    remove(path);
    return 0;
}

static void make_dir(void)
{
    /* Short, because unix socket paths end at 107 bytes. */
    const char *tmp = getenv("TMPDIR");
    snprintf(dir, sizeof dir, "%s/hft.XXXXXX", tmp && strlen(tmp) < 40 ? tmp : "/tmp");
    if (!mkdtemp(dir)) {
        perror(dir);
        exit(1);
    }
}

static int64_t begun_ms, limit_ms;

/* A test has its time on a calm machine, and four times as much on any. */
static void look_at_limit(int sig)
{
    if (t_calm_ms(begun_ms) < limit_ms && t_now_ns() / 1000000 - begun_ms < 4 * limit_ms) {
        alarm(1);
    } else {
        signal(sig, SIG_DFL);
        raise(sig);
    }
}

static int run_one(const struct t_test *t)
{
    int status;
    make_dir();
    skip_reason[0] = 0;
    pid_t pid = t_fork();
    if (pid == 0) {
        random_state = seed;
        limit_ms = 1000 * (int64_t)t->seconds;
        begun_ms = t_now_ms();
        signal(SIGALRM, look_at_limit);
        current = t;
        alarm((unsigned)t->seconds);
        t->run();
        exit(0); /* and so the leak check */
    }
    while (waitpid(pid, &status, 0) < 0)
        ;
    kill_leftovers();
    return status;
}

enum { PASSED, FAILED, SKIPPED, OMITTED, RESULTS };

static int report(const struct t_test *t, int number, int status, long long ms)
{
    int said = skip_reason[0] != 0; /* holdfast ends with the same numbers, for other reasons */
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        printf("ok %d - %s (%lld ms)\n", number, t->name, ms);
        return PASSED;
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SKIP && said) {
        printf("ok %d - %s # SKIP %s\n", number, t->name, skip_reason);
        return SKIPPED;
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_LEFT_OUT && said) {
        printf("ok %d - %s # left out: %s\n", number, t->name, skip_reason);
        return OMITTED;
    }
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
        printf("# not finished after %d s\n", t->seconds);
    else if (WIFSIGNALED(status))
        printf("# ended by signal %d (%s)\n", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else if (WEXITSTATUS(status) != 1)
        printf("# ended with status %d\n", WEXITSTATUS(status));
    nftw(dir, print_log, 16, FTW_PHYS);
    printf("not ok %d - %s (%lld ms; SEED=%llu)\n", number, t->name, ms,
           (unsigned long long)seed);
    return FAILED;
}

/* The embedded servers of a test are the same program as its others. */
static void use_test_server(void)
{
    const char *program = getenv("HF_TEST_SERVER");
    if (program && *program)
        setenv("HOLDFAST_SERVER", program, 0);
}

static int part = 1, parts = 1;

/* T_PART=2/3: every third test, from the second on. Not for those that run this program again. */
static void read_part(void)
{
    const char *env = getenv("T_PART");
    if (env && (sscanf(env, "%d/%d", &part, &parts) != 2 || part < 1 || part > parts)) {
        fprintf(stderr, "T_PART=%s: want a number, /, and how many parts there are\n", env);
        exit(1);
    }
    unsetenv("T_PART");
}

static int in_part(int index)
{
    return index % parts == part - 1;
}

int main(int argc, char **argv)
{
    const char *pattern = argc > 1 ? argv[1] : "", *env = getenv("SEED");
    int count = 0, index = 0, result[RESULTS] = { 0 };

    setvbuf(stdout, NULL, _IOLBF, 0);
    signal(SIGPIPE, SIG_DFL);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    use_test_server();
    read_part();
    open_pressure();
    setenv("HOLDFAST_CONFIG", "/dev/null", 1); /* not what this machine has */
    skip_reason = mmap(NULL, REASON_MAX, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (env && *env)
        seed = strtoull(env, NULL, 10);
    else if (getrandom(&seed, 4, 0) != 4) /* 4 bytes: short enough to type */
        return 1;

    for (struct t_test *t = tests; t; t = t->next)
        count += strstr(t->name, pattern) && in_part(index++);
    printf("1..%d\n", count);
    count = index = 0;
    for (struct t_test *t = tests; t; t = t->next) {
        if (!strstr(t->name, pattern) || !in_part(index++))
            continue;
        int64_t start = t_now_ms();
        int status = run_one(t);
        result[report(t, ++count, status, t_now_ms() - start)]++;
        nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    }
    printf("# passed %d failed %d skipped %d\n", result[PASSED], result[FAILED], result[SKIPPED]);
    return result[FAILED] ? 1 : 0;
}
