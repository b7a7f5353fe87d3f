/* SPDX-License-Identifier: MIT
 * embedded.c - the private server that is there without set-up: one, ours alone, hard to lose.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <hiredis/hiredis.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "harness/server.h"
#include "harness/t.h"
#include "embedded/ensure.h"

/* ---- helpers ---- */

static char dir[128], sock[160];

/* The folder of this test's server: it does not exist yet. */
static void place(void)
{
    const char *program = getenv("HF_TEST_SERVER");
    if (program && !getenv("HOLDFAST_SERVER"))
        setenv("HOLDFAST_SERVER", program, 1);
    snprintf(dir, sizeof dir, "%s/e", t_dir());
    snprintf(sock, sizeof sock, "%s/redis.sock", dir);
}

static void must(hf_err e, const hf_error *err)
{
    if (e)
        FAIL("%s: %s", hf_err_name(e), err->message);
}

static hf_err ensure_within(int64_t ms, hf_error *err)
{
    struct limit lim = { .at_ms = clock_now_ms() + ms };
    char *socket = NULL;
    hf_err e = embedded_ensure(dir, &lim, NULL, &socket, err);
    if (!e)
        CHECK_STR(socket, sock);
    mem_free(socket);
    return e;
}

static void ensure(void)
{
    hf_error err = { 0 };
    must(ensure_within(10000, &err), &err);
}

static hf_server_info status(void)
{
    hf_error err = { 0 };
    hf_server_info info = { .size = sizeof info };
    must(hf_server_status(dir, &info, &err), &err);
    return info;
}

static void stop(void)
{
    hf_error err = { 0 };
    must(hf_server_stop(dir, &err), &err);
}

/* One question, by hiredis and not by the code under test; the text lives until the next one. */
static const char *ask(const char *command)
{
    static char text[256];
    redisContext *c = redisConnectUnix(sock);
    CHECK(c && !c->err);
    redisReply *r = redisCommand(c, command);
    CHECK(r);
    snprintf(text, sizeof text, "%s", r->str ? r->str : "(nil)");
    if (r->type == REDIS_REPLY_INTEGER)
        snprintf(text, sizeof text, "%lld", r->integer);
    if (r->type == REDIS_REPLY_ARRAY && r->elements == 2)
        snprintf(text, sizeof text, "%s", r->element[1]->str);
    freeReplyObject(r);
    redisFree(c);
    return text;
}

static ssize_t slurp(const char *path, char *buf, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, buf, size - 1);
    if (fd >= 0)
        close(fd);
    buf[n > 0 ? n : 0] = '\0';
    return n;
}

/* How many processes have the folder in their command line. */
static int servers(void)
{
    int n = 0;
    DIR *proc = opendir("/proc");
    CHECK(proc);
    for (struct dirent *e; (e = readdir(proc));) {
        char path[300], line[4096];
        if (atoi(e->d_name) <= 0)
            continue;
        snprintf(path, sizeof path, "/proc/%s/cmdline", e->d_name);
        ssize_t len = slurp(path, line, sizeof line);
        n += len > 0 && memmem(line, (size_t)len, dir, strlen(dir)) != NULL;
    }
    closedir(proc);
    return n;
}

static void kill_server(void)
{
    pid_t pid = (pid_t)status().pid;
    CHECK(pid > 1);
    CHECK_INT(kill(pid, SIGKILL), 0);
    /* A dying process has no command line any more while its socket still listens. */
    CHECK_EVENTUALLY(servers() == 0 && !status().running, 5000);
}

static int exit_of(pid_t pid)
{
    int st;
    CHECK_INT(waitpid(pid, &st, 0), pid);
    return WIFEXITED(st) ? WEXITSTATUS(st) : -1;
}

/* ---- one server ---- */

TEST(twenty_processes_starting_at_once_give_one_server)
{
    enum { N = 20 };
    int gate[2], out[2];
    pid_t pids[N];

    place();
    CHECK(pipe(gate) == 0 && pipe(out) == 0);
    for (int i = 0; i < N; i++) {
        pids[i] = t_fork();
        CHECK(pids[i] >= 0);
        if (pids[i] == 0) {
            char c;
            close(gate[1]);
            if (read(gate[0], &c, 1) != 0)
                _exit(1);
            ensure();
            int64_t pid = status().pid;
            _exit(write(out[1], &pid, sizeof pid) == sizeof pid ? 0 : 1);
        }
    }
    close(gate[1]); /* all at once */
    int64_t first = 0;
    for (int i = 0; i < N; i++) {
        int64_t pid = 0;
        CHECK_INT(exit_of(pids[i]), 0);
        CHECK_INT(read(out[0], &pid, sizeof pid), sizeof pid);
        first = first ? first : pid;
        CHECK_INT(pid, first);
    }
    char path[200], text[32];
    snprintf(path, sizeof path, "%s/server.pid", dir);
    CHECK(slurp(path, text, sizeof text) > 0);
    CHECK_INT(atoll(text), first);
    CHECK_INT(servers(), 1);
    stop();
}

TEST(starters_killed_at_any_moment_never_leave_two_servers)
{
    place();
    for (int round = 0; round < 25; round++) {
        pid_t pid = t_fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            ensure();
            _exit(0);
        }
        int64_t until = t_now_ns() + (int64_t)t_random(20000) * 1000;
        while (t_now_ns() < until)
            ;
        kill(pid, SIGKILL);
        CHECK(waitpid(pid, NULL, 0) == pid);
        ensure();
        CHECK_INT(servers(), 1);
        kill_server();
    }
}

TEST(a_server_whose_socket_was_deleted_gets_no_second_one_beside_it)
{
    hf_error err = { 0 };
    place();
    ensure();
    pid_t pid = (pid_t)status().pid;
    CHECK_INT(unlink(sock), 0);
    CHECK_INT(ensure_within(200, &err), HF_ECONN);
    CHECK_CONTAINS(err.message, "socket is gone");
    char text[32];
    snprintf(text, sizeof text, "process %d", (int)pid);
    CHECK_CONTAINS(err.message, text);
    CHECK_INT(servers(), 1);
    CHECK_INT(kill(pid, SIGKILL), 0);
    ensure();
    CHECK_INT(servers(), 1);
    stop();
}

TEST(a_stuck_starter_is_waited_for_until_the_deadline)
{
    hf_error err = { 0 };
    char path[200];
    place();
    ensure();
    stop();
    snprintf(path, sizeof path, "%s/lock", dir);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0 && flock(fd, LOCK_EX) == 0);
    int64_t before = t_now_ms();
    CHECK_INT(ensure_within(150, &err), HF_ECONN);
    CHECK_TOOK(t_now_ms() - before, 140, 2000);
    CHECK_CONTAINS(err.message, "another process is starting");
    CHECK_INT(servers(), 0);
    close(fd);
}

/* ---- ours alone ---- */

TEST(folder_is_private_and_there_is_no_tcp_port)
{
    struct stat st;
    place();
    umask(0);
    snprintf(dir, sizeof dir, "%s/a/b/e", t_dir()); /* what is missing above it is made too */
    snprintf(sock, sizeof sock, "%s/redis.sock", dir);
    ensure();
    CHECK(lstat(dir, &st) == 0 && S_ISDIR(st.st_mode));
    CHECK_INT(st.st_mode & 07777, 0700);
    char *above = t_path("a");
    CHECK(lstat(above, &st) == 0);
    CHECK_INT(st.st_mode & 07777, 0700);
    free(above);
    CHECK(lstat(sock, &st) == 0 && S_ISSOCK(st.st_mode));
    CHECK_INT(st.st_mode & 077, 0);
    CHECK_STR(ask("CONFIG GET port"), "0");
    CHECK_STR(ask("CONFIG GET appendonly"), "yes");
    CHECK_STR(ask("CONFIG GET appendfsync"), "no");
    CHECK_STR(ask("CONFIG GET maxmemory-policy"), "noeviction");
    CHECK_STR(ask("CONFIG GET save"), "");
    stop();
}

static void refused(const char *part)
{
    hf_error err = { 0 };
    hf_server_info info = { .size = sizeof info };
    CHECK_INT(ensure_within(5000, &err), HF_ECONFIG);
    CHECK_CONTAINS(err.message, part);
    CHECK_CONTAINS(err.message, "embedded:DIR");
    CHECK_INT(hf_server_status(dir, &info, &err), HF_ECONFIG);
    CHECK_INT(hf_server_stop(dir, NULL), HF_ECONFIG);
    CHECK_INT(servers(), 0);
}

TEST(a_folder_that_is_a_link_is_refused_and_untouched)
{
    place();
    char *real = t_path("real"), *slash = NULL;
    CHECK(mkdir(real, 0700) == 0 && symlink(real, dir) == 0);
    refused("symbolic link");
    CHECK_INT(rmdir(real), 0); /* nothing was put into it */
    CHECK_INT(mkdir(real, 0700), 0);
    CHECK(asprintf(&slash, "%s/", dir) > 0); /* "link/" is the link as well */
    CHECK_INT(hf_server_start(slash, NULL, NULL), HF_ECONFIG);
    CHECK_INT(rmdir(real), 0);
    free(real);
    free(slash);
}

TEST(a_folder_that_is_open_to_others_is_refused_and_untouched)
{
    struct stat st;
    place();
    CHECK(mkdir(dir, 0700) == 0 && chmod(dir, 0750) == 0);
    refused("chmod 700");
    CHECK(stat(dir, &st) == 0);
    CHECK_INT(st.st_mode & 07777, 0750);
    CHECK_INT(rmdir(dir), 0);
}

TEST(a_folder_that_is_a_file_is_refused_and_untouched)
{
    char text[16];
    place();
    int fd = open(dir, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && write(fd, "mine", 4) == 4);
    close(fd);
    refused("not a folder");
    CHECK_INT(slurp(dir, text, sizeof text), 4);
    CHECK_STR(text, "mine");
    snprintf(dir, sizeof dir, "%s/e/below", t_dir());
    refused("Not a directory");
}

TEST(a_folder_of_another_user_is_refused_and_untouched)
{
    if (geteuid() != 0)
        SKIP("needs root");
    place();
    CHECK(mkdir(dir, 0700) == 0 && chown(dir, 65534, 65534) == 0);
    refused("user id 65534");
    CHECK_INT(rmdir(dir), 0);
}

/* Who may rename it puts another one there while locks are held in it. */
TEST(a_folder_that_others_could_replace_is_refused_and_not_made)
{
    char *above = t_path("above"), *link = t_path("link");
    place();
    CHECK(mkdir(above, 0700) == 0 && symlink(above, link) == 0);
    snprintf(dir, sizeof dir, "%s/e", above);
    snprintf(sock, sizeof sock, "%s/redis.sock", dir);
    static const mode_t open_to[] = { 0777, 0770, 0722, 0702 };
    for (size_t i = 0; i < sizeof open_to / sizeof *open_to; i++) {
        CHECK_INT(chmod(above, open_to[i]), 0);
        refused("others may write");
        CHECK(access(dir, F_OK) != 0);
    }
    CHECK_INT(mkdir(dir, 0700), 0); /* one that is there already, too; and by another name */
    refused("others may write");
    snprintf(dir, sizeof dir, "%s/e", link);
    refused("others may write");
    CHECK_INT(chmod(above, 0755), 0);
    snprintf(dir, sizeof dir, "%s/e/f/g", link); /* not by its parent alone */
    CHECK_INT(chmod(above, 0777), 0);
    refused("others may write");
    snprintf(dir, sizeof dir, "%s/e", above);
    CHECK_INT(chmod(above, 01777), 0); /* sticky, as /tmp is */
    ensure();
    stop();
    free(above);
    free(link);
}

TEST(a_folder_below_one_of_another_user_is_refused_and_not_made)
{
    if (geteuid() != 0)
        SKIP("needs root");
    char *above = t_path("above"), *link = t_path("link");
    place();
    CHECK(mkdir(above, 0755) == 0 && chown(above, 65534, 65534) == 0);
    snprintf(dir, sizeof dir, "%s/e", above);
    refused("user id 65534");
    CHECK(access(dir, F_OK) != 0);
    /* A link of his, to what is ours. */
    CHECK(chown(above, 0, 0) == 0 && symlink(above, link) == 0);
    snprintf(dir, sizeof dir, "%s/e", link);
    snprintf(sock, sizeof sock, "%s/redis.sock", dir);
    CHECK_INT(lchown(link, 65534, 65534), 0);
    refused("user id 65534");
    CHECK_INT(lchown(link, 0, 0), 0);
    ensure();
    stop();
    free(above);
    free(link);
}

TEST(a_server_of_another_user_is_not_used)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    hf_error err = { 0 };
    if (geteuid() != 0)
        SKIP("needs root");
    place();
    CHECK_INT(mkdir(dir, 0700), 0);
    memcpy(a.sun_path, sock, strlen(sock));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&a, sizeof a) == 0);
    CHECK_INT(seteuid(65534), 0);
    CHECK_INT(listen(fd, 8), 0); /* the peer is who listens */
    CHECK_INT(seteuid(0), 0);
    CHECK_INT(ensure_within(1000, &err), HF_EAUTH);
    CHECK_CONTAINS(err.message, "user id 65534");
    CHECK_INT(hf_server_stop(dir, &err), HF_EAUTH);
    close(fd);
}

TEST(the_default_folder_goes_by_the_user_and_not_by_the_environment)
{
    char *a = NULL, *b = NULL, *c = NULL, want[64];
    uid_t me = geteuid();
    setenv("XDG_RUNTIME_DIR", t_dir(), 1);
    setenv("TMPDIR", t_dir(), 1);
    CHECK_INT(embedded_dir(NULL, &a, NULL), HF_OK);
    clearenv();
    CHECK_INT(embedded_dir(NULL, &b, NULL), HF_OK);
    CHECK_STR(a, b);
    if (me == 0) {
        CHECK(strcmp(a, "/run/holdfast") == 0 || strcmp(a, "/tmp/holdfast-0") == 0);
        CHECK_INT(seteuid(65534), 0);
    }
    CHECK_INT(embedded_dir("", &c, NULL), HF_OK);
    snprintf(want, sizeof want, "/tmp/holdfast-%lu", (unsigned long)geteuid());
    CHECK_STR(c, want);
    CHECK_INT(seteuid(me), 0); /* the leak check needs it */
    mem_free(a);
    mem_free(b);
    mem_free(c);
}

TEST(a_relative_folder_is_made_absolute)
{
    char *got = NULL;
    place();
    CHECK_INT(chdir(t_dir()), 0);
    CHECK_INT(embedded_dir("e//", &got, NULL), HF_OK);
    CHECK_STR(got, dir);
    mem_free(got);
    hf_error err = { 0 };
    hf_server_info info = { .size = sizeof info };
    must(hf_server_start("e", &info, &err), &err);
    CHECK_STR(info.dir, dir);
    CHECK_STR(info.socket, sock);
    CHECK_INT(chdir("/"), 0);
    CHECK_INT(status().running, 1);
    CHECK_INT(embedded_dir("e", &got, NULL), HF_OK);
    CHECK_STR(got, "/e");
    mem_free(got);
    stop();
}

TEST(a_path_too_long_for_a_socket_is_refused)
{
    hf_error err = { 0 };
    char longest[200], *path = NULL;
    memset(longest, 'x', sizeof longest);
    longest[0] = '/';
    longest[96] = '\0'; /* 96 + 11 for the name + 1 = sizeof sun_path */
    CHECK_INT(embedded_socket(longest, &path, &err), HF_OK);
    CHECK_INT(strlen(path), 107);
    mem_free(path);
    longest[96] = 'x';
    longest[97] = '\0';
    path = NULL;
    CHECK_INT(embedded_socket(longest, &path, &err), HF_ECONFIG);
    CHECK(!path);
    CHECK_CONTAINS(err.message, "97 bytes");
    CHECK_INT(hf_server_start(longest, NULL, NULL), HF_ECONFIG);
    CHECK(access(longest, F_OK) != 0); /* and not even made */
}

/* ---- hard to lose ---- */

TEST(after_kill_the_next_client_starts_it_and_nothing_is_lost)
{
    place();
    ensure();
    CHECK_STR(ask("SET x y PX 60000"), "OK");
    int64_t first = status().pid;
    kill_server();
    CHECK_INT(access(sock, F_OK), 0); /* the socket's file stays behind and is no obstacle */
    CHECK_INT(status().running, 0);
    ensure();
    CHECK(status().pid != first);
    CHECK_STR(ask("GET x"), "y");
    CHECK_RANGE(atoll(ask("PTTL x")), 1, 60000);
    stop();
    ensure();
    CHECK_STR(ask("GET x"), "y"); /* an orderly stop loses nothing either */
    stop();
}

TEST(a_torn_end_of_its_file_is_no_obstacle)
{
    server_needs(700, "a folder for the append-only file");
    char pattern[200];
    glob_t files;
    struct stat st;
    place();
    ensure();
    CHECK_STR(ask("SET x y PX 60000"), "OK");
    CHECK_STR(ask("SET torn away"), "OK");
    kill_server();
    snprintf(pattern, sizeof pattern, "%s/appendonlydir/*.incr.aof", dir);
    CHECK_INT(glob(pattern, 0, NULL, &files), 0);
    const char *last = files.gl_pathv[files.gl_pathc - 1];
    CHECK_INT(stat(last, &st), 0);
    CHECK_INT(truncate(last, st.st_size - 5), 0);
    globfree(&files);
    ensure();
    CHECK_STR(ask("GET x"), "y");
    CHECK_STR(ask("GET torn"), "(nil)");
    stop();
}

TEST(a_file_that_cannot_be_loaded_is_reported_with_the_servers_own_words)
{
    server_needs(700, "a folder for the append-only file");
    hf_error err = { 0 };
    char path[200];
    place();
    ensure();
    stop();
    snprintf(path, sizeof path, "%s/appendonlydir/appendonly.aof.manifest", dir);
    int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
    CHECK(fd >= 0 && write(fd, "nonsense\n", 9) == 9);
    close(fd);
    CHECK_INT(ensure_within(5000, &err), HF_ECONN);
    CHECK_CONTAINS(err.message, "ended at once");
    CHECK_CONTAINS(err.message, "AOF manifest");
    CHECK_INT(servers(), 0);
}

TEST(the_server_outlives_its_starter_and_its_process_group)
{
    place();
    pid_t pid = t_fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        setpgid(0, 0);
        ensure();
        pause();
    }
    CHECK_EVENTUALLY(access(sock, F_OK) == 0 && status().running, 10000);
    pid_t server = (pid_t)status().pid;
    CHECK(getpgid(server) != pid);
    CHECK(getsid(server) != getsid(0));
    CHECK_INT(kill(-pid, SIGHUP), 0);
    kill(-pid, SIGKILL);
    CHECK_INT(waitpid(pid, NULL, 0), pid);
    t_sleep_ms(50);
    CHECK_STR(ask("PING"), "PONG");
    CHECK_INT(status().pid, server);
    stop();
}

/* ---- how it runs ---- */

static void *idle(void *arg)
{
    (void)arg;
    pause();
    return NULL;
}

/* The caller has threads, blocked and ignored signals, a secret, an open file, no standard
 * descriptors: nothing of it may show in the server, and no child may be left to the caller. */
static void start_oddly(const char *secret)
{
    sigset_t some;
    pthread_t thread;
    sigfillset(&some);
    sigprocmask(SIG_SETMASK, &some, NULL);
    signal(SIGTERM, SIG_IGN);
    setenv("HOLDFAST_PASSWORD", "opensesame", 1);
    if (open(secret, O_RDWR | O_CREAT, 0600) < 0 || pthread_create(&thread, NULL, idle, NULL))
        _exit(2);
    close(0);
    close(1);
    close(2);
    if (ensure_within(10000, NULL) != HF_OK)
        _exit(3);
    _exit(waitpid(-1, NULL, 0) == -1 && errno == ECHILD ? 0 : 4);
}

static void check_descriptors(pid_t server, const char *secret)
{
    char path[300], link[300];
    int life = 0;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)server);
    DIR *fds = opendir(path);
    CHECK(fds);
    for (struct dirent *e; (e = readdir(fds));) {
        ssize_t n = readlinkat(dirfd(fds), e->d_name, link, sizeof link - 1);
        if (n <= 0)
            continue;
        link[n] = '\0';
        CHECK(strcmp(link, secret) != 0);
        life += strcmp(link, dir) == 0;
        if (atoi(e->d_name) == 0)
            CHECK_STR(link, "/dev/null");
    }
    closedir(fds);
    CHECK_INT(life, 1);
}

TEST(the_server_has_nothing_of_its_starters)
{
    char path[64], text[4096], *secret = t_path("secret");
    place();
    pid_t pid = t_fork();
    CHECK(pid >= 0);
    if (pid == 0)
        start_oddly(secret);
    CHECK_INT(exit_of(pid), 0);
    pid_t server = (pid_t)status().pid;
    check_descriptors(server, secret);
    snprintf(path, sizeof path, "/proc/%d/environ", (int)server);
    ssize_t n = slurp(path, text, sizeof text);
    CHECK(n >= 0 && !memmem(text, (size_t)n, "opensesame", 10));
    snprintf(path, sizeof path, "/proc/%d/status", (int)server);
    CHECK(slurp(path, text, sizeof text) > 0);
    CHECK_CONTAINS(text, "SigBlk:\t0000000000000000");
    CHECK_INT(kill(server, SIGTERM), 0); /* which its starter ignored */
    CHECK_EVENTUALLY(!status().running, 5000);
    free(secret);
}

TEST(no_server_program_is_said_with_what_to_do)
{
    hf_error err = { 0 };
    place();
    setenv("PATH", "/nowhere", 1);
    setenv("HOLDFAST_SERVER", "no-such-server", 1);
    CHECK_INT(ensure_within(5000, &err), HF_ECONN);
    CHECK_CONTAINS(err.message, "\"no-such-server\"");
    CHECK_CONTAINS(err.message, "apt-get install redis-server");
    CHECK_CONTAINS(err.message, "HOLDFAST_URL");
    setenv("HOLDFAST_SERVER", t_dir(), 1); /* a folder is no program */
    CHECK_INT(hf_server_start(dir, NULL, &err), HF_ECONN);
    CHECK_CONTAINS(err.message, "a program that can be run");
}

TEST(a_server_that_cannot_run_is_reported_at_once)
{
    hf_error err = { 0 };
    char *program = t_path("broken");
    int64_t before = t_now_ms();
    place();
    setenv("HOLDFAST_SERVER", "false", 1);
    CHECK_INT(hf_server_start(dir, NULL, &err), HF_ECONN);
    CHECK_CONTAINS(err.message, "ended at once");
    int fd = open(program, O_WRONLY | O_CREAT | O_CLOEXEC, 0700);
    CHECK(fd >= 0 && write(fd, "#!/no/such/shell\n", 17) == 17);
    close(fd);
    setenv("HOLDFAST_SERVER", program, 1);
    CHECK_INT(hf_server_start(dir, NULL, &err), HF_ECONN);
    CHECK_CONTAINS(err.message, "run it: No such file");
    CHECK_TOOK(t_now_ms() - before, 0, 5000);
    unsetenv("HOLDFAST_SERVER");
    ensure(); /* nothing is left in the way */
    stop();
    free(program);
}

TEST(a_poor_path_is_enough)
{
    place();
    setenv("PATH", "/nowhere:relative", 1);
    unsetenv("HOLDFAST_SERVER");
    ensure();
    stop();
}

/* ---- by hand ---- */

TEST(start_status_and_stop_tell_the_truth_and_may_be_repeated)
{
    hf_error err = { 0 };
    hf_server_info a = { .size = sizeof a }, b = { .size = sizeof b };
    place();
    CHECK_INT(hf_server_stop(dir, NULL), HF_OK); /* nothing there, nothing made */
    a = status();
    CHECK_INT(a.running, 0);
    CHECK_INT(a.pid, 0);
    CHECK_STR(a.dir, dir);
    CHECK(access(dir, F_OK) != 0);

    must(hf_server_start(dir, &a, &err), &err);
    must(hf_server_start(dir, &b, &err), &err);
    CHECK_INT(a.running, 1);
    CHECK_INT(a.pid, b.pid);
    CHECK_RANGE(a.uptime_s, 0, 10);
    CHECK_STR(a.socket, sock);
    CHECK(strncmp(a.version, "redis ", 6) == 0 || strncmp(a.version, "valkey ", 7) == 0);
    CHECK(strchr(a.version, '.') && !strchr(a.version, '\r'));
    CHECK_INT(kill((pid_t)a.pid, 0), 0);

    stop();
    CHECK_EVENTUALLY(servers() == 0, 1000);
    CHECK_INT(status().running, 0);
    stop();
}

TEST(an_older_callers_smaller_struct_is_not_overrun)
{
    hf_server_info info;
    place();
    ensure();
    memset(&info, 0x55, sizeof info);
    info.size = offsetof(hf_server_info, uptime_s);
    CHECK_INT(hf_server_status(dir, &info, NULL), HF_OK);
    CHECK_INT(info.running, 1);
    CHECK(info.pid > 1);
    CHECK_INT(info.size, offsetof(hf_server_info, uptime_s));
    CHECK_INT(info.uptime_s, INT64_C(0x5555555555555555));
    CHECK_INT(info.dir[0], 0x55);
    info.size = 0;
    CHECK_INT(hf_server_status(dir, &info, NULL), HF_EINVAL);
    CHECK_INT(hf_server_status(dir, NULL, NULL), HF_EINVAL);
    CHECK_INT(hf_server_start(dir, NULL, NULL), HF_OK);
    stop();
}
