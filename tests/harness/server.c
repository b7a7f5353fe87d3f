/* SPDX-License-Identifier: MIT
 * server.c - real servers for tests; see server.h.
 */
#include "harness/server.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <hiredis/hiredis.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/keep.h"
#include "harness/sockets.h"
#include "harness/t.h"

enum { ARGS_MAX = 192, START_MS = 10000, REPLY_S = 40 };

struct server {
    struct server_opts opts;
    const char *args[ARGS_MAX]; /* the command line, kept for server_restart() */
    int nargs;
    int pid, frozen;
    int port, tls_port;
    char *dir, *socket, *url, *tcp_url, *tls_url;
    volatile int64_t *clock; /* the shim's offsets: see clockshim.c */
    volatile int64_t *disk;  /* see diskshim.c */
    redisContext *conn;
    int conn_pid;            /* who opened it: a forked worker opens its own */
    redisContext *monitor;
    char *monitor_text;
    size_t monitor_len;
};

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static int count;

/* ---- starting ---- */

static const char *binary(void)
{
    const char *env = getenv("HF_TEST_SERVER");
    if (env && *env)
        return env;
    return system("command -v redis-server >/dev/null") == 0 ? "redis-server" : "valkey-server";
}

/* 602 of Redis 6.2 or of a Valkey that says so; by its own word, before it is started. */
static int version_of(const char *program)
{
    static char asked[512];
    static int answer;
    int major = 0, minor = 0;
    char line[256] = "";
    if (strcmp(asked, program) == 0)
        return answer;
    FILE *p = popen(keep_text("'%s' --version", program), "r");
    if (p) {
        const char *v = fgets(line, sizeof line, p) ? strstr(line, "v=") : NULL;
        if (v)
            (void)sscanf(v, "v=%d.%d", &major, &minor);
        pclose(p);
    }
    answer = major * 100 + minor;
    snprintf(asked, sizeof asked, "%s", program);
    return answer;
}

/* Of its two wrong options it names the first that it does not understand. */
static int has_tls(const char *program)
{
    char line[256];
    int known = 1;
    FILE *p = popen(keep_text("'%s' --tls-port 0 --port none 2>&1", program), "r");
    while (p && fgets(line, sizeof line, p))
        if (strstr(line, "'tls-port"))
            known = 0;
    if (p)
        pclose(p);
    return known;
}

void server_needs(int version, const char *what)
{
    int has = version_of(binary());
    if (has < version)
        t_left_out(keep_text("%s of a server since %d.%d; this is %d.%d", what, version / 100,
                             version % 100, has / 100, has % 100));
}

static void add(struct server *s, const char *arg)
{
    CHECK(s->nargs < ARGS_MAX - 1);
    s->args[s->nargs++] = arg;
}

static void add2(struct server *s, const char *name, const char *value)
{
    add(s, name);
    add(s, value);
}

static void build_args(struct server *s)
{
    const char *tls = s->opts.tls ? server_make_certs() : NULL;
    s->nargs = 0;
    add(s, s->opts.program ? s->opts.program : binary());
    if (tls && !has_tls(s->args[0]))
        t_left_out("a server that was built with TLS");
    if (s->opts.sentinel) { /* it writes to its file what it learns */
        add(s, keep_text("%s/sentinel.conf", s->dir));
        add(s, "--sentinel");
    }
    add2(s, "--port", keep_text("%d", s->port));
    add2(s, "--bind", server_host(s));
    if (s->opts.place) /* nobody else is there */
        add2(s, "--protected-mode", "no");
    add2(s, "--unixsocket", s->socket);
    add2(s, "--dir", s->dir);
    add2(s, "--logfile", "log");
    if (!s->opts.sentinel)
        add2(s, "--save", "");
    if (!s->opts.sentinel) {
        if (version_of(s->args[0]) >= 700) /* before, nobody had to allow it */
            add2(s, "--enable-debug-command", "yes"); /* DEBUG SLEEP and its like, for faults */
        add2(s, "--repl-diskless-sync-delay", "0");
        add2(s, "--appendonly", s->opts.aof ? "yes" : "no");
        add2(s, "--appendfsync", "no");
    }
    if (s->opts.cluster)
        add2(s, "--cluster-enabled", "yes");
    if (s->opts.requirepass)
        add2(s, "--requirepass", s->opts.requirepass);
    if (tls) {
        add2(s, "--tls-port", keep_text("%d", s->tls_port));
        add2(s, "--tls-ca-cert-file", keep_text("%s/ca.crt", tls));
        add2(s, "--tls-cert-file", keep_text("%s/server.crt", tls));
        add2(s, "--tls-key-file", keep_text("%s/server.key", tls));
        add2(s, "--tls-auth-clients", "optional");
    }
    for (const char *const *a = s->opts.args; a && *a; a++)
        add(s, *a);
    s->args[s->nargs] = NULL;
}

/* In the child: preload what shifts its clocks, and what lets its disk hang. */
static void use_shims(const struct server *s)
{
    char preload[9000], file[256];
    int n = 0;
    if (s->opts.clockshim) {
        n += snprintf(preload, sizeof preload, "%s/../clockshim.so", t_program_dir());
        snprintf(file, sizeof file, "%s/clock", s->dir);
        setenv("CLOCKSHIM", file, 1);
    }
    if (s->opts.diskshim) {
        n += snprintf(preload + n, sizeof preload - (size_t)n, "%s%s/../diskshim.so", n ? ":" : "",
                      t_program_dir());
        snprintf(file, sizeof file, "%s/disk", s->dir);
        setenv("DISKSHIM", file, 1);
    }
    if (n)
        setenv("LD_PRELOAD", preload, 1);
}

/* A page that a shim in the server has mapped too. */
static volatile int64_t *share(const struct server *s, const char *name)
{
    int fd = open(keep_text("%s/%s", s->dir, name), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && ftruncate(fd, 4096) == 0);
    volatile int64_t *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(page != MAP_FAILED);
    close(fd);
    return page;
}

static redisContext *dial(const struct server *s)
{
    struct timeval limit = { REPLY_S, 0 };
    redisContext *c = redisConnectUnixWithTimeout(s->socket, limit);
    CHECK(c);
    redisSetTimeout(c, limit);
    if (!c->err && s->opts.requirepass)
        freeReplyObject(redisCommand(c, "AUTH %s", s->opts.requirepass));
    return c;
}

/* 1 = it answers, 0 = not yet, -1 = it has ended. Any reply but "loading" counts: with an ACL even
 * PING may be refused. */
static int is_up(struct server *s)
{
    if (waitpid(s->pid, NULL, WNOHANG) == s->pid) {
        s->pid = 0;
        return -1;
    }
    redisContext *c = dial(s);
    redisReply *r = c->err ? NULL : redisCommand(c, "PING");
    int up = r && !(r->type == REDIS_REPLY_ERROR && strncmp(r->str, "LOADING", 7) == 0);
    if (r)
        freeReplyObject(r);
    redisFree(c);
    return up;
}

static void launch(struct server *s)
{
    unlink(s->socket);
    s->pid = t_fork();
    CHECK(s->pid >= 0);
    if (s->pid == 0) {
        sigset_t none;
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        alarm(0);
        int null = open("/dev/null", O_RDWR);
        dup2(null, 0);
        dup2(null, 1);
        use_shims(s);
        if (s->opts.place && setns(s->opts.place->ns, CLONE_NEWNET) != 0)
            _exit(126);
        execvp(s->args[0], (char *const *)s->args);
        fprintf(stderr, "# %s: %s\n", s->args[0], strerror(errno));
        _exit(127);
    }
}

int server_await(struct server *s)
{
    int64_t begun = t_now_ms();
    for (;;) {
        int up = is_up(s);
        if (up)
            return up > 0 ? 0 : -1;
        if (t_calm_ms(begun) > START_MS)
            FAIL("%s does not answer after %d ms", s->args[0], START_MS);
        t_sleep_ms(5);
    }
}

static void write_conf(const struct server *s, const char *name, const char *lines)
{
    FILE *f = fopen(keep_text("%s/%s", s->dir, name), "w");
    CHECK(f && fputs(lines, f) >= 0 && fclose(f) == 0);
}

struct server *server_start_opts(const struct server_opts *opts)
{
    struct server *s = keep_block(calloc(1, sizeof *s));
    s->opts = *opts;
    s->dir = keep_text("%s/s%d", t_dir(), ++count);
    s->socket = keep_text("%s/sock", s->dir);
    s->url = keep_text("unix://%s", s->socket);
    CHECK(mkdir(s->dir, 0700) == 0);
    if (opts->clockshim)
        s->clock = share(s, "clock");
    if (opts->diskshim)
        s->disk = share(s, "disk");
    if (opts->sentinel)
        write_conf(s, "sentinel.conf", opts->sentinel);
    if (opts->cluster)
        write_conf(s, "nodes.conf", opts->cluster);
    for (int try = 0; try < 5; try++) { /* another process may have taken the port meanwhile */
        int given = opts->port;
        s->port = opts->tcp ? (given ? given : socket_free_port()) : 0;
        s->tls_port = opts->tls ? (given ? given : socket_free_port()) : 0;
        s->tcp_url = keep_text("redis://%s:%d", server_host(s), s->port);
        s->tls_url = keep_text("rediss://127.0.0.1:%d?cacert=%s/tls/ca.crt", s->tls_port, t_dir());
        build_args(s);
        launch(s);
        if (opts->no_wait || server_await(s) == 0)
            return s;
        if (given || (!opts->tcp && !opts->tls))
            break;
    }
    FAIL("%s ended at once: see its log", s->args[0]);
}

struct server *server_start(const char *const *args)
{
    struct server_opts o = { .args = args };
    return server_start_opts(&o);
}

static const char certs_sh[] =
    "set -e; mkdir -p \"$1\"; cd \"$1\"; key='-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes'\n"
    "for n in ca other; do\n"
    "  openssl req -x509 $key -keyout $n.key -out $n.crt -days 2 -subj /CN=holdfast-test-$n\n"
    "done\n"
    "for n in server client; do\n"
    "  openssl req -new $key -keyout $n.key -out $n.csr -subj /CN=$n\n"
    "  printf 'subjectAltName=IP:127.0.0.1,DNS:localhost\\n' > $n.ext\n"
    "  openssl x509 -req -in $n.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 \\\n"
    "    -extfile $n.ext -out $n.crt\n"
    "done\n";

const char *server_make_certs(void)
{
    const char *dir = keep_text("%s/tls", t_dir());
    if (access(dir, F_OK) == 0)
        return dir;
    int status, pid = t_fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        const char *log = keep_text("%s/openssl.out", t_dir());
        int fd = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        dup2(fd, 1);
        dup2(fd, 2);
        execlp("sh", "sh", "-c", certs_sh, "certs", dir, (char *)NULL);
        _exit(127);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    if (status)
        FAIL("openssl could not make certificates: see %s/openssl.out", t_dir());
    return dir;
}

/* ---- what it is ---- */

const char *server_url(const struct server *s)
{
    return s->url;
}

const char *server_socket(const struct server *s)
{
    return s->socket;
}

const char *server_tcp_url(const struct server *s)
{
    CHECK(s->opts.tcp);
    return s->tcp_url;
}

const char *server_tls_url(const struct server *s)
{
    CHECK(s->opts.tls);
    return s->tls_url;
}

const char *server_host(const struct server *s)
{
    return s->opts.place ? s->opts.place->host : "127.0.0.1";
}

int server_port(const struct server *s)
{
    return s->port ? s->port : s->tls_port;
}

int server_pid(const struct server *s)
{
    return s->pid;
}

/* ---- faults ---- */

static void forget_connections(struct server *s)
{
    pthread_mutex_lock(&mu);
    if (s->conn)
        redisFree(s->conn);
    s->conn = NULL;
    if (s->monitor)
        redisFree(s->monitor);
    s->monitor = NULL;
    pthread_mutex_unlock(&mu);
}

void server_kill(struct server *s)
{
    if (s->pid > 0) {
        CHECK(kill(s->pid, SIGKILL) == 0);
        CHECK(waitpid(s->pid, NULL, 0) == s->pid);
    }
    s->pid = s->frozen = 0;
    forget_connections(s);
}

void server_lead(struct server *s)
{
    int n = 0;
    for (int i = 0; i < s->nargs; i++)
        if (strcmp(s->args[i], "--replicaof") == 0)
            i += 2; /* host and port */
        else
            s->args[n++] = s->args[i];
    s->args[s->nargs = n] = NULL;
}

void server_restart(struct server *s)
{
    server_kill(s);
    launch(s);
    if (server_await(s) != 0)
        FAIL("%s ended at once after a restart: see its log", s->args[0]);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st, (void)type, (void)at;
    return remove(path);
}

void server_empty(struct server *s)
{
    static const char *const data[] = { "appendonlydir", "appendonly.aof", "dump.rdb" };
    server_kill(s);
    for (size_t i = 0; i < sizeof data / sizeof *data; i++) {
        const char *path = keep_text("%s/%s", s->dir, data[i]);
        nftw(path, remove_one, 8, FTW_DEPTH | FTW_PHYS);
        CHECK(access(path, F_OK) != 0); /* the fault: nothing is there that it could load */
    }
    server_restart(s);
    if (!s->opts.cluster) /* there a replica may have its master's data at once */
        CHECK_STR(server_keys(s), "");
}

static int times_in_log(struct server *s, const char *part)
{
    int n = 0;
    for (const char *at = server_log(s); (at = strstr(at, part)); at++)
        n++;
    return n;
}

int server_tear(struct server *s, int bytes)
{
    glob_t found;
    struct stat st;
    int before = times_in_log(s, "Truncating the AOF");
    server_kill(s);
    CHECK_INT(glob(keep_text("%s/appendonlydir/*.incr.aof", s->dir), 0, NULL, &found), 0);
    const char *path = found.gl_pathv[found.gl_pathc - 1];
    CHECK(stat(path, &st) == 0);
    if (st.st_size > bytes)
        CHECK_INT(truncate(path, st.st_size - bytes), 0);
    globfree(&found);
    server_restart(s);
    return times_in_log(s, "Truncating the AOF") > before;
}

void server_set_sentinel(struct server *s, const char *lines)
{
    server_kill(s);
    write_conf(s, "sentinel.conf", lines);
    server_restart(s);
}

void server_freeze(struct server *s)
{
    int status;
    CHECK(kill(s->pid, SIGSTOP) == 0);
    CHECK(waitpid(s->pid, &status, WUNTRACED) == s->pid);
    CHECK(WIFSTOPPED(status));
    s->frozen = 1;
}

void server_thaw(struct server *s)
{
    CHECK(kill(s->pid, SIGCONT) == 0);
    s->frozen = 0;
}

int server_is_frozen(const struct server *s)
{
    return s->frozen;
}

void server_clock_shift(struct server *s, int64_t ms)
{
    CHECK(s->clock);
    s->clock[0] = ms * 1000000;
}

void server_disk_delay(struct server *s, int ms)
{
    CHECK(s->disk);
    s->disk[0] = ms;
}

int server_disk_delayed(const struct server *s)
{
    CHECK(s->disk);
    return (int)s->disk[1];
}

/* ---- which program ---- */

const char *server_program(const char *name)
{
    const char *list = getenv("PATH");
    while (list && *list) {
        size_t len = strcspn(list, ":");
        const char *path = keep_text("%.*s/%s", (int)len, list, name);
        if (access(path, X_OK) == 0)
            return path;
        list += len + (list[len] == ':');
    }
    return NULL;
}

static int knows(const char *program, const char *command)
{
    struct server *s = server_start_opts(&(struct server_opts){ .program = program });
    const char *about = server_ask(s, "COMMAND INFO %s", command);
    server_kill(s);
    return strncmp(about, command, strlen(command)) == 0;
}

int server_knows(const char *command)
{
    static char asked[32];
    static int answer;
    if (strcmp(asked, command) != 0) {
        answer = knows(binary(), command);
        snprintf(asked, sizeof asked, "%s", command);
    }
    return answer;
}

const char *server_use_one_that_knows(const char *command)
{
    const char *named = getenv("HF_TEST_SERVER"), *program = binary();
    if (!knows(program, command))
        program = named && *named ? NULL : server_program("valkey-server");
    if (!program || !knows(program, command))
        return NULL;
    setenv("HF_TEST_SERVER", program, 1);
    setenv("HOLDFAST_SERVER", program, 1);
    return program;
}

/* ---- questions ---- */

struct out {
    char *p;
    size_t len;
};

static void put(struct out *o, const char *p, size_t len)
{
    o->p = realloc(o->p, o->len + len + 1);
    CHECK(o->p);
    if (len)
        memcpy(o->p + o->len, p, len);
    o->len += len;
    o->p[o->len] = 0;
}

static void put_reply(struct out *o, const redisReply *r)
{
    char number[32];
    switch (r->type) {
    case REDIS_REPLY_INTEGER:
        snprintf(number, sizeof number, "%lld", r->integer);
        put(o, number, strlen(number));
        break;
    case REDIS_REPLY_ARRAY:
        for (size_t i = 0; i < r->elements; i++) {
            if (i)
                put(o, "\n", 1);
            put_reply(o, r->element[i]);
        }
        put(o, "", 0);
        break;
    case REDIS_REPLY_NIL:
        put(o, "(nil)", 5);
        break;
    default:
        put(o, r->str, r->len);
    }
}

/* hiredis would be killed by a connection that the server has closed, as one that changes its role
 * does. Only here: what is tested has to see to itself. */
static void pipe_signal(int block)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    if (!block)
        sigtimedwait(&set, NULL, &(struct timespec){ 0 });
    pthread_sigmask(block ? SIG_BLOCK : SIG_UNBLOCK, &set, NULL);
}

/* The reply, never NULL: a server that does not answer fails the test. A connection that broke
 * since the last question is opened anew, once. */
static redisReply *ask(struct server *s, const char *fmt, va_list ap)
{
    redisReply *r = NULL;
    char why[128] = "";
    pthread_mutex_lock(&mu);
    pipe_signal(1);
    for (int try = 0; try < 2 && !r; try++) {
        va_list args;
        if (!s->conn || s->conn_pid != getpid()) {
            if (s->conn)
                redisFree(s->conn); /* only closes our copy; the parent's goes on */
            s->conn = dial(s);
            s->conn_pid = getpid();
        }
        va_copy(args, ap);
        r = s->conn->err ? NULL : redisvCommand(s->conn, fmt, args);
        va_end(args);
        if (!r) {
            snprintf(why, sizeof why, "%s", s->conn->errstr);
            redisFree(s->conn);
            s->conn = NULL;
        }
    }
    pipe_signal(0);
    pthread_mutex_unlock(&mu);
    if (!r)
        FAIL("no reply to \"%s\" from %s: %s", fmt, s->url, why);
    return r;
}

static const char *ask_text(struct server *s, size_t *ret_len, const char *fmt, va_list ap)
{
    struct out o = { 0 };
    redisReply *r = ask(s, fmt, ap);
    if (r->type != REDIS_REPLY_NIL) {
        put_reply(&o, r);
        keep_block(o.p);
    }
    freeReplyObject(r);
    if (ret_len)
        *ret_len = o.len;
    return o.p;
}

const char *server_ask(struct server *s, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    const char *t = ask_text(s, NULL, fmt, ap);
    va_end(ap);
    return t;
}

const char *server_ask_bytes(struct server *s, size_t *ret_len, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    const char *t = ask_text(s, ret_len, fmt, ap);
    va_end(ap);
    return t;
}

long long server_int(struct server *s, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    redisReply *r = ask(s, fmt, ap);
    va_end(ap);
    if (r->type != REDIS_REPLY_INTEGER)
        FAIL("\"%s\": not an integer: %s", fmt, r->str ? r->str : "(nil or array)");
    long long n = r->integer;
    freeReplyObject(r);
    return n;
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

const char *server_keys(struct server *s)
{
    return server_keys_but(s, NULL);
}

const char *server_keys_but(struct server *s, const char *prefix)
{
    char *all = keep_block(strdup(server_ask(s, "KEYS *"))), *rest = all;
    size_t n = 0;
    const char *line[4096];
    struct out o = { 0 };
    while (rest && *rest) {
        CHECK(n < sizeof line / sizeof *line);
        line[n] = strsep(&rest, "\n");
        n += !prefix || strncmp(line[n], prefix, strlen(prefix)) != 0;
    }
    qsort(line, n, sizeof *line, by_bytes);
    put(&o, "", 0);
    for (size_t i = 0; i < n; i++) {
        if (i)
            put(&o, "\n", 1);
        put(&o, line[i], strlen(line[i]));
    }
    return keep_block(o.p);
}

const char *server_info(struct server *s, const char *field)
{
    const char *info = server_ask(s, "INFO everything");
    const char *want = keep_text("\n%s:", field), *at = strstr(info, want);
    if (!at)
        return NULL;
    at += strlen(want);
    return keep_text("%.*s", (int)strcspn(at, "\r\n"), at);
}

const char *server_log(struct server *s)
{
    struct out o = { 0 };
    char buf[4096];
    FILE *f = fopen(keep_text("%s/log", s->dir), "r");
    CHECK(f);
    put(&o, "", 0);
    for (size_t n; (n = fread(buf, 1, sizeof buf, f)) > 0;)
        put(&o, buf, n);
    fclose(f);
    return keep_block(o.p);
}

/* ---- MONITOR ---- */

void server_monitor_start(struct server *s)
{
    if (!s->monitor)
        s->monitor = dial(s);
    redisReply *r = s->monitor->err ? NULL : redisCommand(s->monitor, "MONITOR");
    CHECK(r && r->type == REDIS_REPLY_STATUS);
    freeReplyObject(r);
    server_monitor_clear(s);
}

void server_monitor_clear(struct server *s)
{
    if (s->monitor_text)
        server_monitor_text(s); /* what is under way belongs to before */
    free(s->monitor_text);
    s->monitor_text = calloc(1, 1);
    s->monitor_len = 0;
}

/* The server executes our marker after everything earlier, so its line ends the reading. */
const char *server_monitor_text(struct server *s)
{
    static int markers;
    struct out o = { s->monitor_text, s->monitor_len };
    const char *marker = keep_text("end-of-monitor-%d", ++markers);
    CHECK(s->monitor);
    server_ask(s, "ECHO %s", marker);
    for (int done = 0; !done;) {
        redisReply *r = NULL;
        if (redisGetReply(s->monitor, (void **)&r) != REDIS_OK)
            FAIL("MONITOR: %s", s->monitor->errstr);
        done = strstr(r->str, marker) != NULL;
        if (!done) {
            put(&o, r->str, r->len);
            put(&o, "\n", 1);
        }
        freeReplyObject(r);
    }
    s->monitor_text = o.p;
    s->monitor_len = o.len;
    return keep_text("%s", o.p);
}

int server_monitor_count(struct server *s, const char *part)
{
    int n = 0;
    char *line, *rest = keep_block(strdup(server_monitor_text(s)));
    while ((line = strsep(&rest, "\n")))
        n += strstr(line, part) != NULL;
    return n;
}
