/* SPDX-License-Identifier: MIT
 * tool_run.c - one run of `holdfast run` after another: started, watched, hit by a signal, judged.
 *
 * Whatever becomes of the tool or of its command, the process that started it inherits what is left
 * over, and goes on only when nothing is.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "faults/lib/matrix.h"
#include "faults/lib/tool.h"

#define MS INT64_C(1000000)

enum {
    LOOK_MS = 2, STUCK_MS = 60000, WORDS = 4000,
    SLACK_MS = 5000,  /* the sanitizer's search for leaks, at the end of the tool, can take that */
    IGNORED_MS = 20,  /* so long a command runs on that ignores what it gets */
    ENDS_MS = 500,    /* a wait that is told to end; holdfast(1) */
    LEAVES_MS = 1000, /* the way out */
};

const int tool_signals[TOOL_SIGNALS] = { SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGKILL };
struct tool *tool;

/* ---- one run of the tool ---- */

struct plan {
    int        sig;   /* index; -1: none */
    enum stage stage; /* sent when it has come so far, and then after a moment */
    int64_t    moment_ns;
    int64_t    wait_ms; /* -1: as long as it takes; 0: -n */
};

struct job {
    struct run  *r;
    int          index, lock, err_fd;
    struct plan  plan;
    struct note *n;
    pid_t        pid;
    int64_t      begun_ns, stage_ns, sent_ns, gone_ns;
    enum stage   stage;
    int          over, status; /* as waitpid() tells */
    int          counted;      /* as a grant */
    struct outcome o;
    char         words[WORDS]; /* what it has said */
    size_t       len;
};

static void most(atomic_llong *of, int64_t value)
{
    long long seen = atomic_load(of);
    while (value > seen && !atomic_compare_exchange_weak(of, &seen, value))
        ;
}

enum { ARGS = 20 };

static void make_args(const struct job *j, const char **argv)
{
    const struct setup *w = &j->r->want;
    const char *first[] = { proc_holdfast(), "run", "-v", "--url", j->r->url, "--ttl",
                            keep_text("%lldms", (long long)w->ttl_ms), "--grace",
                            keep_text("%lldms", (long long)w->grace_ms) };
    int n = sizeof first / sizeof first[0];
    memcpy(argv, first, sizeof first);
    if (j->plan.wait_ms == 0)
        argv[n++] = "-n";
    if (j->plan.wait_ms > 0) {
        argv[n++] = "-w";
        argv[n++] = keep_text("%lldms", (long long)j->plan.wait_ms);
    }
    argv[n++] = j->r->name[j->lock];
    argv[n++] = "--";
    argv[n++] = keep_text("%s/tool", t_program_dir());
    argv[n] = NULL;
    setenv(TOOL_NOTE, keep_text("%s/note%d", t_dir(), j->index), 1);
    setenv(TOOL_WITNESS, keep_text("%s/witness%d", t_dir(), j->lock), 1);
}

/* In a child that runs in our memory. It dies with us, and has no terminal. Whoever runs the tests
 * by nohup, or in the background of a script, ignores signals that are to be seen here. */
static _Noreturn void become_tool(const char *const *argv, int null, int err_fd, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    setsid();
    for (int i = 0; i < TOOL_SIGNALS; i++)
        signal(tool_signals[i], SIG_DFL);
    if (dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(err_fd, 2) < 0)
        _exit(126);
    execv(argv[0], (char *const *)(uintptr_t)argv);
    _exit(127);
}

static void start(struct job *j)
{
    int fd[2], null = open("/dev/null", O_RDWR | O_CLOEXEC);
    const char *argv[ARGS];
    pid_t parent = getpid();
    make_args(j, argv);
    CHECK(null >= 0 && pipe2(fd, O_CLOEXEC) == 0 && fcntl(fd[0], F_SETFL, O_NONBLOCK) == 0);
    j->err_fd = fd[0];
    j->begun_ns = j->stage_ns = t_now_ns();
    j->pid = vfork(); /* fork() would copy page tables, which are large under ASan */
    if (j->pid == 0)
        become_tool(argv, null, fd[1], parent);
    CHECK(j->pid > 0);
    close(fd[1]);
    close(null);
}

static void read_words(struct job *j)
{
    for (ssize_t n; (n = read(j->err_fd, j->words + j->len, WORDS - 1 - j->len)) > 0;)
        j->len += (size_t)n;
    j->words[j->len] = '\0';
}

static enum stage stage_of(const struct job *j)
{
    if (atomic_load(&j->n->ended))
        return ENDS;
    if (atomic_load(&j->n->pid))
        return RUNS;
    if (strstr(j->words, " taken, fence "))
        return TAKEN;
    return strstr(j->words, "connected to ") ? WAITS : STARTS;
}

static void look(struct job *j)
{
    static const int phases[STAGES] = { ASKING, ASKING, ASKING, HOLDING, RELEASING };
    struct seat *st = &j->r->b->seat[j->index];
    read_words(j);
    enum stage now = stage_of(j);
    if (now != j->stage) {
        j->stage = now;
        j->stage_ns = t_now_ns();
        atomic_store(&st->phase, phases[now]);
    }
    if (now >= RUNS && !j->counted) {
        j->counted = 1;
        atomic_fetch_add(&j->r->b->got[j->lock], 1);
    }
}

/* It is a child of ours, so its number is its own until it is waited for. */
static int is_alive(pid_t pid)
{
    siginfo_t si = { 0 };
    CHECK(waitid(P_PID, (id_t)pid, &si, WEXITED | WNOHANG | WNOWAIT) == 0);
    return si.si_pid == 0;
}

/* Proven if it is alive afterwards, or has died of it, and was at that stage before and after. */
static void send(struct job *j)
{
    struct outcome *o = &j->o;
    j->sent_ns = t_now_ns();
    if (!is_alive(j->pid))
        return;
    o->stage = stage_of(j);
    o->was_ready = atomic_load(&j->n->ready);
    o->sig = tool_signals[j->plan.sig];
    CHECK(kill(j->pid, o->sig) == 0);
    o->sure = o->sig != SIGKILL && is_alive(j->pid);
    read_words(j);
    if (stage_of(j) != o->stage)
        j->plan.sig = -1; /* it went on meanwhile: not to be counted */
}

static void hold_or_not(struct job *j)
{
    int64_t now = t_now_ns();
    int hold = atomic_load(&j->r->b->keep[j->lock]);
    if (j->plan.sig >= 0 && j->plan.stage == RUNS && !j->sent_ns)
        hold = 1;
    if (j->sent_ns && now < j->sent_ns + STUCK_MS * MS && j->o.stage == RUNS)
        hold = j->n->manner != IGNORES || now < j->sent_ns + IGNORED_MS * MS;
    atomic_store(&j->n->hold, hold);
}

/* Whatever is left over of it has become ours. 1: nothing is. */
static int reap(struct job *j)
{
    for (;;) {
        int status;
        pid_t pid = waitpid(-1, &status, WNOHANG);
        if (pid < 0)
            CHECK(errno == ECHILD);
        if (pid <= 0)
            return pid < 0;
        if (pid == j->pid) {
            j->over = 1;
            j->status = status;
        }
        if (!j->gone_ns && (pid == j->pid || pid == atomic_load(&j->n->pid)))
            j->gone_ns = pid == j->pid && WIFSIGNALED(status) ? 0 : t_now_ns();
    }
}

static void watch(struct job *j)
{
    int64_t over_ms = 0;
    while (!reap(j)) {
        struct pollfd p = { .fd = j->err_fd, .events = POLLIN };
        poll(&p, 1, LOOK_MS);
        if (p.revents & (POLLHUP | POLLERR))
            t_sleep_ms(LOOK_MS);
        look(j);
        if (j->plan.sig >= 0 && !j->sent_ns && !j->over && j->stage >= j->plan.stage
            && t_now_ns() >= j->stage_ns + j->plan.moment_ns)
            send(j);
        hold_or_not(j);
        if (j->over && !over_ms)
            over_ms = t_now_ms();
        if (over_ms && t_calm_ms(over_ms) > STUCK_MS) {
            atomic_fetch_add(&j->r->b->leaks, 1);
            FAIL("I6: processes are left %d ms after the end of holdfast: %s", STUCK_MS, j->words);
        }
    }
    look(j);
    if (!j->gone_ns)
        j->gone_ns = t_now_ns();
}

/* ---- what became of it ---- */

/* 0: it was not. */
static int64_t taken_away_ns(const struct job *j)
{
    long run = atomic_load(&tool->one[j->index].over) + 1;
    return atomic_load(&tool->one[j->index].of_run) == run
               ? atomic_load(&tool->one[j->index].taken_away_ns) : 0;
}

static void fill_outcome(struct job *j)
{
    struct outcome *o = &j->o;
    struct note *n = j->n;
    o->exited = WIFEXITED(j->status);
    o->status = o->exited ? WEXITSTATUS(j->status) : WTERMSIG(j->status);
    if (o->sig == SIGKILL && o->exited)
        o->sig = 0; /* too late */
    o->limited = j->plan.wait_ms >= 0;
    o->taken_away = taken_away_ns(j) != 0;
    o->told_lost = strstr(j->words, " lost: ") || strstr(j->words, "killed when its time ended");
    o->told_silent = strstr(j->words, " answer") != NULL;
    o->manner = n->manner;
    o->began = atomic_load(&n->pid) != 0;
    o->ended = atomic_load(&n->ended);
    o->code = atomic_load(&n->status);
    o->got = atomic_load(&n->got);
}

static void complain(struct job *j, const char *what)
{
    static const char *const stages[] = { "starts", "waits", "taken", "runs", "ends" };
    const struct outcome *o = &j->o;
    if (atomic_fetch_add(&j->r->b->wrong, 1) == 0)
        snprintf(j->r->b->first_error, sizeof j->r->b->first_error, "%s", what);
    t_note("%s: %s %d after signal %d at \"%s\", %lld ms after its start; command: manner %d, "
           "began %d, ended %d with %d; it said: %s", what, o->exited ? "exit" : "died of",
           o->status, o->sig, stages[o->stage],
           j->sent_ns ? (long long)((j->sent_ns - j->begun_ns) / MS) : -1, o->manner, o->began,
           o->ended, o->code, j->words);
}

/* The last that is known of the command. */
static int64_t command_end(const struct job *j)
{
    return atomic_load(j->o.ended ? &j->n->ended_ns : &j->n->beat_ns);
}

/* By t_calm_ms() as well, for it is said of a machine that has a core for everybody. */
static void in_time(struct job *j, const char *what, int64_t from, int64_t to, int64_t limit_ms)
{
    int64_t took = (to - from) / MS;
    if (took > limit_ms && t_calm_ms(from / MS) > limit_ms
        && atomic_fetch_add(&j->r->b->late, 1) < 5)
        t_note("I7: %s ended %lld ms after the fault, and not %lld: %s", what, (long long)took,
               (long long)limit_ms, j->words);
}

/* Killed, or without its lock: the command ends within the grace, and then the rest. Told to end:
 * as holdfast(1) says. */
static void judge_time(struct job *j)
{
    int64_t taken_away = taken_away_ns(j);
    int64_t from = taken_away ? taken_away : j->o.sig ? j->sent_ns : 0;
    int64_t grace = j->r->want.grace_ms;
    int bereft = taken_away || j->o.sig == SIGKILL;
    if (!from)
        return;
    most(&tool->gone_ns[taken_away ? (int)STAGES : (int)j->o.stage], j->gone_ns - from);
    in_time(j, "holdfast", from, j->gone_ns,
            SLACK_MS + (bereft ? grace : j->o.stage < TAKEN ? ENDS_MS : LEAVES_MS));
    if (!bereft || !j->o.began)
        return;
    most(&tool->command_ns, command_end(j) - from);
    in_time(j, "the command", from, command_end(j), grace + SLACK_MS / 10);
}

/* It has the lock for as long as it runs: that is what the tool promises. */
static void record(struct job *j)
{
    struct note *n = j->n;
    struct board *b = j->r->b;
    uint64_t fence = atomic_load(&n->fence);
    if (!j->o.began)
        return;
    struct grant *g = history_grant(j->r->h, (uint32_t)j->lock, (uint32_t)j->index, fence,
                                    j->begun_ns, INT64_MAX / 2);
    g->returned = atomic_load(&n->began_ns);
    g->release = command_end(j);
    g->stopped = j->o.sig == SIGKILL;
    if (j->o.exited && j->o.status == 79) {
        g->lost_at = g->release;
        g->lost = HF_LOSS_TAKEN; /* for the count alone */
    }
    int w = atomic_load(&n->witness) ? atomic_fetch_add(&b->witnesses, 1) : WITNESSES;
    if (w < WITNESSES) {
        b->witness[w].lock = j->lock;
        b->witness[w].client = (unsigned)j->index;
        b->witness[w].at = g->returned;
    }
}

static void conclude(struct job *j)
{
    const struct outcome *o = &j->o;
    fill_outcome(j);
    const char *what = tool_judge(o);
    if (what)
        complain(j, what);
    judge_time(j);
    record(j);
    atomic_fetch_add(&tool->runs, 1);
    atomic_fetch_add(&j->r->b->calls, 1);
    if (o->exited && o->status == 69)
        atomic_fetch_add(&tool->unanswered, 1);
    int died_of_it = !o->exited && o->status == o->sig;
    if (o->sig && j->plan.sig >= 0 && (o->sure || died_of_it)) {
        atomic_fetch_add(&tool->hit[j->plan.sig][o->stage], 1);
        atomic_fetch_add(&tool->proven, 1);
    }
}

/* ---- plans, and turns ---- */

static int64_t choose_wait(void)
{
    uint64_t x = t_random(16);
    return x == 0 ? 0 : x < 3 ? 200 + (int64_t)t_random(1500) : -1;
}

static struct plan no_signal(void)
{
    return (struct plan){ .sig = -1, .wait_ms = choose_wait() };
}

/* Every signal at every stage in turn, and one in nine is let alone. */
static struct plan some_signal(void)
{
    unsigned k = atomic_fetch_add(&tool->next, 1);
    struct plan p = no_signal();
    if (t_random(9) == 0)
        return p;
    p.sig = (int)(k % TOOL_SIGNALS);
    p.stage = (enum stage)(k / TOOL_SIGNALS % STAGES);
    p.moment_ns = (int64_t)t_random((p.stage == ENDS ? 5 : p.stage == TAKEN ? 20 : 60) * MS);
    return p;
}

static void set_note(struct job *j, int family)
{
    struct note *n = j->n;
    memset(n, 0, sizeof *n);
    n->manner = (int)t_random(MANNERS);
    n->family = family;
    n->code = (int)t_random(20);
    n->run_ms = (int)t_random(20);
}

/* Any, but none is left alone: the driver may want all of them to be held at the same time. */
static int choose_lock(struct run *r)
{
    int lock = (int)t_random(LOCKS);
    for (int k = 0; k < LOCKS; k++) {
        int busy = 0;
        for (int i = 0; i < CROWD; i++)
            busy |= crowd_phase(r, i) != IDLE && crowd_lock(r, i) == k;
        if (!busy)
            lock = k;
    }
    return lock;
}

static void turn(struct run *r, int index, struct plan p)
{
    struct job j = { .r = r, .index = index, .plan = p, .n = tool->note[index],
                     .lock = choose_lock(r) };
    struct seat *st = &r->b->seat[index];
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 });
    /* A forwarded signal reaches all of them, but only the command is waited for then. */
    set_note(&j, (p.sig < 0 || tool_signals[p.sig] == SIGKILL) && t_random(2));
    atomic_store(&st->lock, j.lock);
    atomic_store(&st->since_ns, t_now_ns());
    atomic_store(&st->phase, ASKING);
    start(&j);
    watch(&j);
    close(j.err_fd);
    conclude(&j);
    atomic_store(&st->phase, IDLE);
    atomic_fetch_add(&tool->one[index].over, 1);
}

void tool_signalled_turn(struct run *r, int index)
{
    turn(r, index, some_signal());
}

void tool_quiet_turn(struct run *r, int index)
{
    turn(r, index, no_signal());
}

void tool_prepare(struct run *r)
{
    tool = shared_memory(sizeof *tool);
    r->want.grace_ms = r->want.grace_ms ? r->want.grace_ms : r->want.ttl_ms / 2;
    for (int i = 0; i < CROWD; i++) {
        tool->note[i] = tool_note(keep_text("%s/note%d", t_dir(), i));
        CHECK(tool->note[i]);
    }
}
