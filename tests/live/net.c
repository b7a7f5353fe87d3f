/* SPDX-License-Identifier: MIT
 * net.c - every way to reach a server, every way to be refused, and connections that break.
 */
#define LIVE_SCRIPTS
#include <dirent.h>
#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/acl.h"
#include "harness/live.h"
#include "harness/proxy.h"
#include "harness/sockets.h"
#include "harness/waiting.h"

static void cycle(const char *url, hf_client_opts o)
{
    hf_client *c = client_with(url, o);
    hf_lock *m = lock_of(c, "a", 5000);
    lock_now(m);
    unlock_now(m);
    hf_lock_free(m);
    hf_client_free(c);
}

/* The open must fail with want, and within the time; its message says part. */
static void refused(const char *url, hf_client_opts o, hf_err want, const char *part)
{
    hf_client *c = NULL;
    o.size = sizeof o;
    if (!o.timeout_ms)
        o.timeout_ms = 3000;
    int64_t start = t_now_ms();
    CHECK_HF(hf_client_open(url, &o, &c, &err), want);
    CHECK_TOOK(t_now_ms() - start, 0, o.timeout_ms + 3000);
    CHECK(!c);
    CHECK_CONTAINS(err.message, part);
    CHECK(!strstr(err.message, "s3cret"));
}

TEST(reached_by_unix_socket_and_by_tcp)
{
    struct server *s = server_start_opts(&(struct server_opts){ .tcp = 1 });
    cycle(server_url(s), (hf_client_opts){ 0 });
    cycle(server_tcp_url(s), (hf_client_opts){ 0 });
    char url[100];
    snprintf(url, sizeof url, "redis://localhost:%d/0?timeout=2s", server_port(s));
    cycle(url, (hf_client_opts){ 0 });
    hf_client *c = client_at(server_url(s), 0);
    CHECK_STR(hf_client_url(c), server_url(s));
    hf_client_free(c);
    setenv("HOLDFAST_URL", server_url(s), 1);
    cycle(NULL, (hf_client_opts){ 0 });
}

/* As cron and systemd start programs: without a variable of ours. */
TEST(reached_by_the_file_of_the_machine)
{
    struct server *s = server_start_opts(&(struct server_opts){ 0 });
    char path[200], url[200];
    snprintf(path, sizeof path, "%s/conf", t_dir());
    FILE *f = fopen(path, "w");
    CHECK(f && fprintf(f, "# all of us\nurl = %s\nprefix = p:\n", server_url(s)) > 0);
    CHECK_INT(fclose(f), 0);
    CHECK_INT(chmod(path, 0644), 0);
    unsetenv("HOLDFAST_URL");
    CHECK_HF(hf_url_default(url, sizeof url, &err), HF_OK);
    CHECK_STR(url, "");
    setenv("HOLDFAST_CONFIG", path, 1);
    CHECK_HF(hf_url_default(url, sizeof url, &err), HF_OK);
    CHECK_STR(url, server_url(s));
    CHECK_HF(hf_url_default(url, 5, &err), HF_ELIMIT);
    cycle(NULL, (hf_client_opts){ 0 });
    setenv("HOLDFAST_URL", "unix:///nowhere", 1); /* wins over it */
    refused(NULL, (hf_client_opts){ 0 }, HF_ECONN, "/nowhere");
    CHECK_HF(hf_url_default(url, sizeof url, &err), HF_OK);
    CHECK_STR(url, "unix:///nowhere");
    unsetenv("HOLDFAST_URL");
    CHECK_INT(chmod(path, 0666), 0);
    refused(NULL, (hf_client_opts){ 0 }, HF_ECONFIG, "chmod go-w");
}

TEST(a_file_of_the_machine_that_is_too_large_is_refused)
{
    struct server *s = server_start_opts(&(struct server_opts){ 0 });
    const char *path = keep_text("%s/conf", t_dir());
    FILE *f = fopen(path, "w");
    CHECK(f && fprintf(f, "url = %s\n#", server_url(s)) > 0);
    for (long n = ftell(f); n < 65536; n++)
        CHECK(fputc('x', f) == 'x');
    CHECK_INT(fclose(f), 0);
    CHECK_INT(chmod(path, 0644), 0);
    unsetenv("HOLDFAST_URL");
    setenv("HOLDFAST_CONFIG", path, 1);
    cycle(NULL, (hf_client_opts){ 0 }); /* as large as it may be */
    f = fopen(path, "a");
    CHECK(f && fputc('x', f) == 'x' && fclose(f) == 0);
    refused(NULL, (hf_client_opts){ 0 }, HF_ECONFIG, "it is too large");
}

TEST(a_file_of_the_machine_that_belongs_to_another_user_is_refused)
{
    if (geteuid() != 0)
        LEFT_OUT("needs root, who alone can give a file away");
    struct server *s = server_start_opts(&(struct server_opts){ 0 });
    const char *path = keep_text("%s/conf", t_dir());
    FILE *f = fopen(path, "w");
    CHECK(f && fprintf(f, "url = %s\n", server_url(s)) > 0);
    CHECK_INT(fclose(f), 0);
    CHECK_INT(chmod(path, 0644), 0);
    unsetenv("HOLDFAST_URL");
    setenv("HOLDFAST_CONFIG", path, 1);
    CHECK_INT(chown(path, 65534, (gid_t)-1), 0);
    refused(NULL, (hf_client_opts){ 0 }, HF_ECONFIG, "it belongs to another user");
    CHECK_INT(chown(path, 0, (gid_t)-1), 0);
    cycle(NULL, (hf_client_opts){ 0 });
}

struct opening {
    const char    *url;
    hf_client_opts o;
    hf_client     *c;
    hf_err         result;
};

static void *open_main(void *arg)
{
    struct opening *op = arg;
    op->result = hf_client_open(op->url, &op->o, &op->c, NULL);
    return NULL;
}

/* A program that starts before its server. */
TEST(open_waits_for_a_server_that_is_away)
{
    struct server *s = server_start_opts(&(struct server_opts){ 0 });
    struct logbook log = LOGBOOK;
    hf_client_opts o = { .size = sizeof o, .wait_ms = 600, .log = logbook_add, .log_arg = &log };
    hf_client *c = NULL;
    pthread_t thread;
    server_kill(s);
    int64_t start = t_now_ms();
    CHECK_HF(hf_client_open(server_url(s), &o, &c, &err), HF_ECONN);
    CHECK_TOOK(t_now_ms() - start, 450, 1500);
    CHECK_LOGGED(&log, "trying again");
    struct opening op = { .url = server_url(s), .o = o };
    op.o.wait_ms = HF_WAIT_FOREVER;
    CHECK_INT(pthread_create(&thread, NULL, open_main, &op), 0);
    t_sleep_ms(700);
    CHECK(!logbook_has(&log, "answers again"));
    server_restart(s);
    CHECK_INT(pthread_join(thread, NULL), 0);
    CHECK_INT(op.result, HF_OK);
    CHECK_LOGGED(&log, "answers again");
    hf_client_free(op.c);
    o.wait_ms = 0;
    server_kill(s);
    start = t_now_ms();
    CHECK_HF(hf_client_open(server_url(s), &o, &c, &err), HF_ECONN);
    CHECK_TOOK(t_now_ms() - start, 0, 400);
    o.wait_ms = -5;
    CHECK_HF(hf_client_open(server_url(s), &o, &c, &err), HF_EINVAL);
}

/* One that is there and silent costs no more time than was given. */
TEST(open_on_a_silent_server_takes_no_longer_than_it_was_given)
{
    struct server *s = server_start_opts(&(struct server_opts){ 0 });
    hf_client_opts o = { .size = sizeof o, .wait_ms = 500 };
    hf_client *c = NULL;
    server_freeze(s);
    int64_t start = t_now_ms();
    CHECK_HF(hf_client_open(server_url(s), &o, &c, &err), HF_ECONN);
    CHECK_TOOK(t_now_ms() - start, 450, 1500);
    CHECK_CONTAINS(err.message, "does not answer");
}

TEST(empty_url_is_refused)
{
    struct server *s = server_start_opts(&(struct server_opts){ 0 });
    setenv("HOLDFAST_URL", server_url(s), 1);
    refused("", (hf_client_opts){ 0 }, HF_ECONFIG, "the URL is empty");
    setenv("HOLDFAST_URL", "", 1);
    refused("", (hf_client_opts){ 0 }, HF_ECONFIG, "the URL is empty");
    refused(NULL, (hf_client_opts){ 0 }, HF_ECONFIG, "HOLDFAST_URL is set but empty");
    cycle(server_url(s), (hf_client_opts){ 0 }); /* what is given counts */
}

TEST(tls_is_verified_in_every_way)
{
    struct server *s = server_start_opts(&(struct server_opts){ .tls = 1 });
    const char *certs = server_make_certs();
    char url[600];
    int port = server_port(s);
    cycle(server_tls_url(s), (hf_client_opts){ 0 });
    snprintf(url, sizeof url, "rediss://localhost:%d?cacert=%s/ca.crt", port, certs);
    cycle(url, (hf_client_opts){ 0 });
    snprintf(url, sizeof url, "rediss://127.0.0.1:%d?cacert=%s/other.crt", port, certs);
    refused(url, (hf_client_opts){ 0 }, HF_EAUTH, "certificate");
    snprintf(url, sizeof url, "rediss://127.0.0.1:%d", port); /* the system's CAs */
    refused(url, (hf_client_opts){ 0 }, HF_EAUTH, "certificate");
    snprintf(url, sizeof url, "rediss://127.0.0.1:%d?cacert=%s/ca.crt&sni=wrong.example", port,
             certs);
    refused(url, (hf_client_opts){ 0 }, HF_EAUTH, "");
    snprintf(url, sizeof url, "rediss://127.0.0.1:%d?cacert=%s/missing.crt", port, certs);
    refused(url, (hf_client_opts){ 0 }, HF_ECONFIG, "missing.crt");
    /* Plain to a TLS port, and TLS to a plain one. */
    snprintf(url, sizeof url, "redis://127.0.0.1:%d", port);
    hf_client *c = NULL;
    hf_client_opts o = { .size = sizeof o, .timeout_ms = 2000 };
    CHECK(hf_client_open(url, &o, &c, &err) < 0);
    t_note("plain to TLS: %s", err.message);
    CHECK_CONTAINS(err.message, "if it speaks TLS, use rediss://");
    struct server *plain = server_start_opts(&(struct server_opts){ .tcp = 1 });
    snprintf(url, sizeof url, "rediss://127.0.0.1:%d?cacert=%s/ca.crt", server_port(plain), certs);
    CHECK(hf_client_open(url, &o, &c, &err) < 0);
    t_note("TLS to plain: %s", err.message);
}

TEST(tls_with_client_certificates)
{
    const char *args[] = { "--tls-auth-clients", "yes", NULL };
    struct server *s = server_start_opts(&(struct server_opts){ .tls = 1, .args = args });
    const char *certs = server_make_certs();
    char url[700];
    snprintf(url, sizeof url, "%s&cert=%s/client.crt&key=%s/client.key", server_tls_url(s), certs,
             certs);
    cycle(url, (hf_client_opts){ 0 });
    refused(server_tls_url(s), (hf_client_opts){ 0 }, HF_EAUTH, "certificate");
    snprintf(url, sizeof url, "%s&cert=%s/other.crt&key=%s/client.key", server_tls_url(s), certs,
             certs);
    refused(url, (hf_client_opts){ 0 }, HF_ECONFIG, "");
}

/* Locks, threads and breaks work over TLS as they do without. */
TEST(tls_connection_that_is_killed_is_made_anew)
{
    struct server *s = server_start_opts(&(struct server_opts){ .tls = 1 });
    hf_client *c = client_at(server_tls_url(s), 0);
    hf_lock *m = lock_of(c, "a", 5000);
    lock_now(m);
    for (int i = 0; i < 5; i++) {
        server_ask(s, "CLIENT KILL TYPE normal SKIPME yes");
        CHECK_HF(hf_lock_verify(m, &err), HF_OK);
    }
    unlock_now(m);
    hf_lock_free(m);
    hf_client_free(c);
}

TEST(tls_files_are_found_when_the_process_goes_to_another_folder)
{
    struct server *s = server_start_opts(&(struct server_opts){ .tls = 1 });
    char here[4096], url[300];
    CHECK(getcwd(here, sizeof here));
    CHECK_INT(chdir(server_make_certs()), 0);
    snprintf(url, sizeof url, "rediss://127.0.0.1:%d?cacert=ca.crt&cert=client.crt&key=client.key",
             server_port(s));
    hf_client *c = client_at(url, 0);
    hf_lock *m = lock_of(c, "a", 8000);
    lock_now(m);
    CHECK_INT(chdir("/"), 0);
    CHECK(server_int(s, "CLIENT KILL TYPE normal SKIPME yes") > 0);
    CHECK_HF(hf_lock_verify(m, &err), HF_OK);
    unlock_now(m);
    hf_lock_free(m);
    hf_client_free(c);
    CHECK_INT(chdir(here), 0);
}

TEST(passwords_from_every_place_and_wrong_ones_never_shown)
{
    struct server *s = server_start_opts(&(struct server_opts){ .requirepass = "s3cret@:/" });
    char url[300], *pass = t_path("pass");
    server_ask(s, "ACL SETUSER bob on >s3cret-bob ~* +@all");
    cycle(server_url(s), (hf_client_opts){ .password = "s3cret@:/" });
    snprintf(url, sizeof url, "unix://:s3cret%%40%%3a%%2f@%s", server_socket(s));
    cycle(url, (hf_client_opts){ 0 });
    snprintf(url, sizeof url, "unix://bob:s3cret-bob@%s", server_socket(s));
    cycle(url, (hf_client_opts){ 0 });
    snprintf(url, sizeof url, "unix://bob@%s", server_socket(s));
    cycle(url, (hf_client_opts){ .password = "s3cret-bob" });

    refused(server_url(s), (hf_client_opts){ 0 }, HF_EAUTH, "NOAUTH");
    refused(server_url(s), (hf_client_opts){ .password = "s3cret-wrong" }, HF_EAUTH, "WRONGPASS");
    refused(url, (hf_client_opts){ .password = "s3cret-wrong" }, HF_EAUTH, "WRONGPASS");
    setenv("HOLDFAST_PASSWORD", "s3cret@:/", 1);
    cycle(server_url(s), (hf_client_opts){ 0 });
    refused(server_url(s), (hf_client_opts){ .password = "s3cret-wrong" }, HF_EAUTH, "");
    unsetenv("HOLDFAST_PASSWORD");

    FILE *f = fopen(pass, "w");
    CHECK(f && fputs("s3cret@:/\n", f) >= 0 && fclose(f) == 0);
    CHECK_INT(chmod(pass, 0600), 0);
    snprintf(url, sizeof url, "%s?passfile=%s", server_url(s), pass);
    cycle(url, (hf_client_opts){ 0 });
    CHECK_INT(chmod(pass, 0644), 0);
    refused(url, (hf_client_opts){ 0 }, HF_ECONFIG, "pass");
    CHECK_INT(unlink(pass), 0);
    refused(url, (hf_client_opts){ 0 }, HF_ECONFIG, "pass");

    /* The URL that is shown has no password. */
    snprintf(url, sizeof url, "unix://bob:s3cret-bob@%s", server_socket(s));
    hf_client *c = client_at(url, 0);
    CHECK(!strstr(hf_client_url(c), "s3cret"));
    hf_client_free(c);
    free(pass);
}

/* The password is changed while a client is connected: later connections are refused, and say
 * so. */
TEST(a_password_that_stops_being_right_is_reported_not_retried_for_ever)
{
    struct server *s = server_start_opts(&(struct server_opts){ .requirepass = "one" });
    hf_client *c = client_with(server_url(s), (hf_client_opts){ .password = "one",
                                                                .timeout_ms = 3000 });
    hf_lock *m = lock_of(c, "a", 5000);
    lock_now(m);
    unlock_now(m);
    server_ask(s, "ACL SETUSER default resetpass >two");
    server_ask(s, "CLIENT KILL TYPE normal SKIPME yes");
    int64_t start = t_now_ms();
    CHECK_HF(hf_lock_acquire(m, 20000, NULL, &err), HF_EAUTH);
    CHECK_TOOK(t_now_ms() - start, 0, 10000);
    CHECK_INT(err.known, HF_KNOWN_UNCHANGED);
    hf_lock_free(m);
    hf_client_free(c);
}

TEST(database_numbers_are_separate)
{
    struct server *s = server_start(NULL);
    char url[200];
    snprintf(url, sizeof url, "%s?db=3", server_url(s));
    hf_client *c0 = client_at(server_url(s), 0), *c3 = client_at(url, 0);
    hf_lock *m0 = lock_of(c0, "a", 5000), *m3 = lock_of(c3, "a", 5000);
    lock_now(m0);
    lock_now(m3);
    CHECK_CONTAINS(server_info(s, "db3"), "keys=3");
    server_ask(s, "CLIENT KILL TYPE normal SKIPME yes");
    CHECK_HF(hf_lock_verify(m3, &err), HF_OK); /* selected again */
    unlock_now(m3);
    CHECK_HF(hf_lock_verify(m0, &err), HF_OK);
    snprintf(url, sizeof url, "%s?db=9999", server_url(s));
    refused(url, (hf_client_opts){ 0 }, HF_ECONFIG, "DB index");
    hf_lock_free(m0);
    hf_lock_free(m3);
    hf_client_free(c0);
    hf_client_free(c3);
}

TEST(nobody_there_is_said_at_once)
{
    char url[200];
    snprintf(url, sizeof url, "unix://%s/no.sock", t_dir());
    refused(url, (hf_client_opts){ 0 }, HF_ECONN, "no.sock");
    /* Nobody listens on this port. */
    int port = 0, fd = socket_bind(&port);
    snprintf(url, sizeof url, "redis://127.0.0.1:%d", port);
    refused(url, (hf_client_opts){ 0 }, HF_ECONN, "127.0.0.1");
    close(fd);
    char path[300];
    memset(path, 'x', sizeof path);
    path[299] = '\0';
    char big[400];
    snprintf(big, sizeof big, "unix:///%s", path);
    refused(big, (hf_client_opts){ 0 }, HF_ECONFIG, "too long");
}

/* Listens, and nobody ever accepts. */
static int deaf_tcp(char *url, size_t size, int fill)
{
    int port, fd = socket_listen(0, &port);
    socket_crowd(fd, fill);
    snprintf(url, size, "redis://127.0.0.1:%d", port);
    return fd;
}

TEST(connecting_and_greeting_run_into_their_deadline)
{
    char url[200], path[160];
    hf_client_opts o = { .timeout_ms = 500 };
    /* Accepted by the kernel, answered by nobody. */
    int fd = deaf_tcp(url, sizeof url, 0);
    refused(url, o, HF_ECONN, "");
    close(fd);
    /* Backlog full: the connection itself hangs. */
    fd = deaf_tcp(url, sizeof url, 8);
    refused(url, o, HF_ECONN, "127.0.0.1");
    t_note("%s", err.message);
    strcat(url, "?connect_timeout=200ms");
    int64_t start = t_now_ms();
    refused(url, (hf_client_opts){ .timeout_ms = 20000 }, HF_ECONN, "");
    CHECK_TOOK(t_now_ms() - start, 150, 5000);
    close(fd);
    /* The same with unix sockets. */
    snprintf(path, sizeof path, "%s/deaf", t_dir());
    fd = socket_listen_unix(0, path);
    snprintf(url, sizeof url, "unix://%s", path);
    refused(url, o, HF_ECONN, "");
    socket_crowd(fd, 8);
    refused(url, o, HF_ECONN, "deaf");
    /* TLS: connected, but no handshake comes. */
    fd = deaf_tcp(url, sizeof url, 0);
    char tls[300];
    snprintf(tls, sizeof tls, "rediss%s", url + 5);
    refused(tls, o, HF_ECONN, "");
}

/* ---- breaks ---- */

TEST(reconnects_by_itself_after_kill_restart_and_client_kill)
{
    struct server *s = server_start_opts(&(struct server_opts){ .aof = 1, .tcp = 1 });
    const char *urls[] = { server_url(s), server_tcp_url(s) };
    for (int k = 0; k < 2; k++) {
        hf_client *c = client_at(urls[k], 5000);
        hf_lock *m = lock_of(c, "a", 5000);
        uint64_t last = 0;
        for (int i = 0; i < 6; i++) {
            uint64_t f = lock_now(m);
            CHECK(f > last);
            last = f;
            if (i % 2 == 0) {
                CHECK(atoi(server_ask(s, "CLIENT KILL TYPE normal SKIPME yes")) >= 1);
            } else {
                server_kill(s);
                server_restart(s);
            }
            unlock_now(m);
        }
        hf_lock_free(m);
        hf_client_free(c);
    }
    CHECK_INT(server_int(s, "EXISTS lock:a"), 0);
}

TEST(a_server_that_is_down_gives_a_clear_error_in_time_and_no_SIGPIPE)
{
    struct server *s = server_start(NULL);
    signal(SIGPIPE, SIG_DFL); /* would end this process */
    hf_client *c = client_at(server_url(s), 1000);
    hf_lock *m = lock_of(c, "a", 5000);
    lock_now(m);
    unlock_now(m);
    server_kill(s);
    int64_t start = t_now_ms();
    hf_err e = hf_lock_try(m, NULL, &err);
    CHECK(e == HF_ECONN || e == HF_EUNSURE);
    CHECK_HF(hf_lock_try(m, NULL, &err), HF_ECONN);
    CHECK_INT(err.known, HF_KNOWN_UNCHANGED);
    CHECK_TOOK(t_now_ms() - start, 0, 4000);
    CHECK_HF(hf_owner_check(c, hf_str("a"), hf_str("x"), NULL, &err), HF_ECONN);
    server_restart(s);
    lock_now(m);
    hf_lock_free(m);
    hf_client_free(c);
}

/* HF_ETIMEDOUT would say that another owner holds it. */
TEST(waiting_for_a_server_that_is_down_is_never_called_busy)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 30);
    hf_lock *m = lock_of(c, "a", 5000);
    CHECK_EVENTUALLY(hf_lock_acquire(m, 10000, NULL, &err) == HF_OK, 20000);
    (void)!hf_lock_release(m, &err); /* a slow machine takes longer than its limit */
    server_kill(s);
    for (int i = 0; i < 12; i++) {
        hf_err e = hf_lock_acquire(m, 150 + (int64_t)t_random(100), NULL, &err);
        if (e != HF_ECONN && e != HF_EUNSURE)
            FAIL("the server is dead, yet: %s: %s", hf_err_name(e), err.message);
    }
    hf_lock_free(m);
    hf_client_free(c);
}

TEST(a_waiter_outlasts_a_restart_of_the_server)
{
    struct server *s = server_start_opts(&(struct server_opts){ .aof = 1 });
    hf_client *c = client_at(server_url(s), 0), *c2 = client_at(server_url(s), 0);
    hf_lock *a = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 1500, .no_renew = 1 });
    hf_lock *b = lock_of(c2, "a", 5000);
    uint64_t f = lock_now(a), g = 0;
    server_kill(s);
    server_restart(s);
    CHECK_HF(hf_lock_acquire(b, 20000, &g, &err), HF_OK);
    CHECK(g > f);
    hf_lock_free(a);
    hf_lock_free(b);
    hf_client_free(c);
    hf_client_free(c2);
}

TEST(a_half_open_connection_costs_at_most_the_time_limit)
{
    struct server *s = server_start(NULL);
    struct proxy *p = proxy_start_tcp(s);
    hf_client *c = client_at(proxy_url(p), 1200);
    hf_lock *m = lock_of(c, "a", 5000);
    lock_now(m);
    unlock_now(m);
    proxy_drop_replies(p); /* the peer is silent */
    int64_t start = t_now_ms();
    CHECK_HF(hf_lock_try(m, NULL, &err), HF_EUNSURE);
    CHECK_TOOK(t_now_ms() - start, 300, 4000);
    CHECK(proxy_dropped(p) > 0);
    proxy_pass(p);
    lock_now(m); /* over a new connection */
    CHECK(proxy_connections(p) >= 2);
    hf_lock_free(m);
    hf_client_free(c);
}

struct caller {
    hf_lock   *m;
    int64_t    wait_ms;
    hf_err     result;
    hf_error   error;
    pthread_t  thread;
    atomic_int done;
};

static void *caller_main(void *arg)
{
    struct caller *c = arg;
    c->result = hf_lock_acquire(c->m, c->wait_ms, NULL, &c->error);
    atomic_store(&c->done, 1);
    return NULL;
}

/* While one thread connects and greets, others must keep their requests: on a connection that is
 * not greeted (nor logged in) they would be lost, or answered in the greeting's place. */
TEST_TIMEOUT(calls_that_come_while_the_connection_is_being_greeted_return_in_time, 30)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 1500);
    struct caller t[6] = { 0 };
    for (int i = 0; i < 6; i++)
        t[i].m = lock_of(c, (char[]){ (char)('a' + i), 0 }, 5000);
    for (int round = 0; round < 3; round++) {
        server_ask(s, "CLIENT KILL TYPE normal SKIPME yes");
        t_sleep_ms(50);
        server_freeze(s); /* accepts connections, answers no greeting */
        for (int i = 0; i < 6; i++) {
            atomic_store(&t[i].done, 0);
            t[i].wait_ms = 300 + 200 * i;
            CHECK_INT(pthread_create(&t[i].thread, NULL, caller_main, &t[i]), 0);
            t_sleep_ms(20);
        }
        int64_t until = t_now_ms() + 6000;
        for (int i = 0; i < 6; i++)
            while (!atomic_load(&t[i].done)) {
                if (t_now_ms() > until)
                    FAIL("caller %d of 6 hangs long after its limit", i);
                t_sleep_ms(5);
            }
        server_thaw(s);
        for (int i = 0; i < 6; i++) {
            CHECK_INT(pthread_join(t[i].thread, NULL), 0);
            CHECK(t[i].result != HF_OK);
        }
    }
    for (int i = 0; i < 6; i++) {
        lock_now(t[i].m);
        hf_lock_free(t[i].m);
    }
    hf_client_free(c);
}

TEST(nobodys_request_travels_before_the_login)
{
    struct server *s = server_start_opts(&(struct server_opts){ .requirepass = "pw" });
    hf_client *c = client_with(server_url(s), (hf_client_opts){ .password = "pw",
                                                                .timeout_ms = 4000 });
    struct caller t[6] = { 0 };
    for (int i = 0; i < 6; i++) {
        t[i].m = lock_of(c, (char[]){ (char)('a' + i), 0 }, 5000);
        t[i].wait_ms = 3000;
    }
    for (int round = 0; round < 8; round++) {
        server_ask(s, "CLIENT KILL TYPE normal SKIPME yes");
        server_freeze(s); /* the login stands half-way for a while */
        for (int i = 0; i < 6; i++)
            CHECK_INT(pthread_create(&t[i].thread, NULL, caller_main, &t[i]), 0);
        t_sleep_ms(60);
        server_thaw(s);
        for (int i = 0; i < 6; i++) {
            CHECK_INT(pthread_join(t[i].thread, NULL), 0);
            if (t[i].result)
                FAIL("%s: %s", hf_err_name(t[i].result), t[i].error.message);
            unlock_now(t[i].m);
        }
    }
    for (int i = 0; i < 6; i++)
        hf_lock_free(t[i].m);
    hf_client_free(c);
}

/* ---- what the server refuses ---- */

TEST(OOM_is_a_clear_error_and_release_works_under_it)
{
    struct server *s = server_start(NULL);
    struct logbook log = LOGBOOK;
    hf_client *c = client_with(server_url(s), (hf_client_opts){ .log = logbook_add,
                                                                .log_arg = &log });
    hf_lock *held = lock_of(c, "held", 4000), *m = lock_of(c, "a", 4000);
    lock_now(held);
    lock_now(m);
    unlock_now(m);
    server_ask(s, "CONFIG SET maxmemory 1");
    CHECK_CONTAINS(server_ask(s, "SET x y"), "OOM"); /* the fault is real */
    CHECK_HF(hf_lock_try(m, NULL, &err), HF_ESERVER);
    CHECK_CONTAINS(err.message, "OOM");
    CHECK_CONTAINS(err.message, "maxmemory");
    CHECK_INT(err.known, HF_KNOWN_UNCHANGED);
    t_sleep_ms(4500); /* renewals work under it */
    CHECK_INT(hf_lock_is_held(held), 1);
    unlock_now(held);
    CHECK_INT(server_int(s, "EXISTS lock:held"), 0);
    server_ask(s, "CONFIG SET maxmemory 0");
    lock_now(m);
    hf_lock_free(m);
    hf_lock_free(held);
    hf_client_free(c);
    CHECK_INT(logbook_has(&log, "evict"), 0);
}

TEST(an_evicting_memory_policy_is_warned_about)
{
    const char *args[] = { "--maxmemory", "100mb", "--maxmemory-policy", "volatile-lru", NULL };
    struct server *s = server_start(args);
    struct logbook log = LOGBOOK;
    hf_client *c = client_with(server_url(s), (hf_client_opts){ .log = logbook_add,
                                                                .log_arg = &log });
    CHECK_LOGGED(&log, "volatile-lru");
    hf_client_free(c);
}

/* A command over a connection of its own: the first bytes of the reply. */
static void ask_alone(struct server *s, const char *command, const char *arg, char ret[16])
{
    redisContext *rc = redisConnectUnix(server_socket(s));
    redisReply *r = rc && !rc->err ? redisCommand(rc, command, arg) : NULL;
    snprintf(ret, 16, "%.15s", r && r->str ? r->str : "");
    if (r)
        freeReplyObject(r);
    if (rc)
        redisFree(rc);
}

static int answers(struct server *s, const char *begin)
{
    char got[16];
    ask_alone(s, "GET %s", "x", got);
    return strncmp(got, begin, strlen(begin)) == 0;
}

static void *busy_script(void *arg)
{
    char got[16];
    ask_alone(arg, "EVAL %s 0", "local t = redis.call('TIME')[1] * 1 "
              "while redis.call('TIME')[1] * 1 < t + 2 do end return 1", got);
    return NULL;
}

TEST(a_BUSY_script_is_waited_out)
{
    const char *args[] = { "--lua-time-limit", "20", NULL };
    struct server *s = server_start(args);
    hf_client *c = client_at(server_url(s), 8000);
    hf_lock *m = lock_of(c, "a", 10000);
    pthread_t t;
    CHECK_INT(pthread_create(&t, NULL, busy_script, s), 0);
    CHECK_EVENTUALLY(answers(s, "BUSY"), 1500);
    CHECK_HF(hf_lock_try(m, NULL, &err), HF_OK);
    CHECK_INT(pthread_join(t, NULL), 0);
    unlock_now(m);
    hf_lock_free(m);
    hf_client_free(c);
}

TEST(a_client_opened_during_a_BUSY_script_waits_it_out)
{
    const char *args[] = { "--lua-time-limit", "20", NULL };
    struct server *s = server_start(args);
    pthread_t t;
    CHECK_INT(pthread_create(&t, NULL, busy_script, s), 0);
    CHECK_EVENTUALLY(answers(s, "BUSY"), 1500);
    hf_client *late = NULL;
    hf_client_opts o = { .size = sizeof o, .timeout_ms = 8000 };
    CHECK_HF(hf_client_open(server_url(s), &o, &late, &err), HF_OK);
    CHECK_INT(pthread_join(t, NULL), 0);
    hf_client_free(late);
}

struct loading {
    struct server *s;
    hf_lock       *m;
    hf_err         verified, at_once, opened;
    hf_error       error;
    int            seen;
    int64_t        took_ms; /* the attempt without waiting */
};

static void *during_loading(void *arg)
{
    struct loading *l = arg;
    hf_client *late = NULL;
    hf_client_opts o = { .size = sizeof o, .timeout_ms = 10000 };
    for (int64_t until = t_now_ms() + 8000; !l->seen && t_now_ms() < until; t_sleep_ms(2))
        l->seen = answers(l->s, "LOADING");
    int64_t began = t_now_ms();
    l->at_once = hf_client_open(server_url(l->s), &o, &late, &l->error);
    l->took_ms = t_now_ms() - began;
    o.wait_ms = 10000;
    l->opened = hf_client_open(server_url(l->s), &o, &late, &l->error);
    l->verified = hf_lock_verify(l->m, &err);
    hf_client_free(late);
    return NULL;
}

TEST(LOADING_is_waited_out)
{
    server_needs(700, "loading-process-events-interval-bytes");
    const char *args[] = { "--key-load-delay", "400", "--loading-process-events-interval-bytes",
                           "1024", NULL };
    struct server *s = server_start_opts(&(struct server_opts){ .aof = 1, .args = args });
    hf_client *c = client_at(server_url(s), 10000);
    struct loading l = { .s = s, .m = lock_of(c, "a", 30000) };
    uint64_t f = lock_now(l.m);
    for (int i = 0; i < 2500; i++)
        server_ask(s, "SET filler:%d xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", i);
    server_kill(s);
    pthread_t t;
    CHECK_INT(pthread_create(&t, NULL, during_loading, &l), 0);
    server_restart(s);
    CHECK_INT(pthread_join(t, NULL), 0);
    CHECK(l.seen); /* it did say LOADING */
    CHECK_INT(l.at_once, HF_ECONN); /* nobody waits who did not ask for it */
    CHECK_TOOK(l.took_ms, 0, 5000); /* it is slow while it loads; the time-out is 10 s */
    CHECK_INT(l.verified, HF_OK);
    CHECK(hf_lock_fence(l.m) == f);
    if (l.opened)
        FAIL("a client opened while it loads: %s: %s", hf_err_name(l.opened), l.error.message);
    unlock_now(l.m);
    hf_lock_free(l.m);
    hf_client_free(c);
}

/* ---- rights ---- */

#define RIGHTS "+eval +evalsha +subscribe +ping +info +time +get +set +getrange +exists +incr "   \
               "+decr +del +type +pttl +pexpire +zadd +zcard +zrank +zrevrank +zrange "            \
               "+zrangebyscore +zrem +zpopmin +zscore +zremrangebyscore +zunionstore +publish "    \
               "+pubsub|numsub +hset +hget +hdel +hlen +hstrlen +xadd +xrevrange +scan "           \
               "+client|setname"
#define KEYS_OF_LOCK "~lock:* ~{lock:* resetchannels &lock:holdfast:s:*"

static char user_url[300];

static void set_user(struct server *s, const char *rights)
{
    char command[1000];
    snprintf(command, sizeof command, "ACL SETUSER u reset on >pw %s", rights);
    CHECK_STR(server_ask(s, command), "OK");
    snprintf(user_url, sizeof user_url, "unix://u:pw@%s", server_socket(s));
}

static char failed[700]; /* the first error of everything() */
#define STEP(call)                                                                        \
    do {                                                                                  \
        hf_err e_ = failed[0] ? HF_OK : (call);                                           \
        if (e_)                                                                           \
            snprintf(failed, sizeof failed, "%.60s: %s: %.500s", #call, hf_err_name(e_),  \
                     err.message);                                                        \
    } while (0)

static void every_kind(hf_client *c)
{
    hf_lock *r = lock_with(c, "r", (hf_lock_opts){ .ttl_ms = 5000 });
    hf_lock *permit = lock_with(c, "s", (hf_lock_opts){ .ttl_ms = 5000, .slots = 2 });
    hf_barrier_opts bo = { .size = sizeof bo, .leave = 1 };
    hf_latch *latch = NULL;
    hf_barrier *b = NULL;
    hf_election *el = NULL;
    hf_leader *leader = NULL;
    hf_sequence *q = NULL;
    uint64_t id;
    uint32_t left;
    STEP(hf_lock_acquire_shared(r, 1000, NULL, &err));
    STEP(hf_lock_verify(r, &err));
    STEP(hf_lock_release(r, &err));
    STEP(hf_lock_acquire(permit, 1000, NULL, &err));
    STEP(hf_semaphore_resize(c, hf_str("s"), 3, NULL, &err));
    STEP(hf_lock_release(permit, &err));
    STEP(hf_multi_acquire((hf_lock *[]){ r, permit }, 2, 1000, &err));
    STEP(hf_multi_release((hf_lock *[]){ r, permit }, 2, &err));
    STEP(hf_latch_open(c, hf_str("l"), NULL, &latch, &err));
    STEP(hf_latch_set(latch, 1, &err));
    STEP(hf_latch_count_down(latch, 1, &left, &err));
    STEP(hf_latch_wait(latch, 1000, &err));
    STEP(hf_barrier_open(c, hf_str("m"), 1, &bo, &b, &err));
    STEP(hf_barrier_wait(b, 1000, NULL, NULL, &err));
    STEP(hf_barrier_leave(b, 1000, &err));
    STEP(hf_election_open(c, hf_str("e"), NULL, &el, &err));
    STEP(hf_election_campaign(el, hf_str("v"), 1000, NULL, &err));
    STEP(hf_election_leader(c, hf_str("e"), &leader, &err));
    STEP(hf_election_resign(el, &err));
    STEP(hf_sequence_open(c, hf_str("q"), NULL, &q, &err));
    STEP(hf_sequence_next(q, &id, &err));
    hf_lock_free(r);
    hf_lock_free(permit);
    hf_latch_free(latch);
    hf_barrier_free(b);
    hf_leader_free(leader);
    hf_election_free(el);
    hf_sequence_free(q);
}

/* Everything the library can do, as user u; the first error, or NULL. */
static int any_past(const hf_past *p, void *arg)
{
    (void)p;
    (void)arg;
    return 0;
}

/* The locks are renewed, and recorded, after a third of their ttl. */
static const char *everything(struct server *s, int64_t ttl_ms)
{
    struct proxy *p = proxy_start(s);
    hf_client *c = NULL;
    char url[300];
    hf_client_opts o = { .size = sizeof o, .timeout_ms = 3000, .history = 5 };
    snprintf(url, sizeof url, "unix://u:pw@%s", proxy_url(p) + strlen("unix://"));
    failed[0] = '\0';
    STEP(hf_client_open(url, &o, &c, &err));
    if (!c)
        return failed;
    hf_lock *m = lock_of(c, "a", ttl_ms);
    hf_lock *own = lock_with(c, "b", (hf_lock_opts){ .ttl_ms = ttl_ms, .owner = hf_str("me") });
    STEP(hf_lock_acquire(m, 1000, NULL, &err));
    STEP(hf_lock_acquire(own, 1000, NULL, &err));
    STEP(hf_lock_verify(m, &err));
    STEP(hf_lock_extend(m, ttl_ms + 100, &err));
    t_sleep_ms(failed[0] ? 0 : ttl_ms / 3 + 150);
    STEP(hf_lock_verify(m, &err));
    hf_inspect_info *info = NULL;
    STEP(hf_inspect_lock(c, hf_str("a"), 0, &info, &err));
    if (info && !failed[0] && (!info->holders || info->holder[0]->pid != getpid()))
        snprintf(failed, sizeof failed, "no session record");
    hf_inspect_free(info);
    STEP(hf_history_read(c, hf_str("a"), any_past, NULL, &err));
    size_t n = 0;
    STEP(hf_owner_release_all(c, hf_str("nobody"), &n, &err));
    STEP(hf_lock_release(m, &err));
    STEP(hf_lock_release(own, &err));
    STEP(hf_owner_acquire(c, hf_str("a"), 20000, hf_str("x"), NULL, &err));
    STEP(hf_owner_extend(c, hf_str("a"), hf_str("x"), 20000, &err));
    STEP(hf_owner_release(c, hf_str("a"), hf_str("x"), &err));
    if (!failed[0] && server_int(s, "ZCARD {lock:a}:t") != 1)
        snprintf(failed, sizeof failed, "no tombstone after hf_owner_release");
    STEP(hf_guard_check(c, hf_str("r"), 5, &err));
    STEP(hf_guard_set(c, hf_str("lock:data"), hf_str("v"), 5, &err));
    /* A request in doubt: cancelled with a tombstone. */
    server_ask(s, "DEL {lock:a}:t");
    proxy_when(p, lua_sha[LUA_acquire]);
    proxy_cut_after(p, 0);
    STEP(hf_lock_acquire(m, 1000, NULL, &err));
    STEP(hf_lock_release(m, &err));
    if (!failed[0] && server_int(s, "ZCARD {lock:a}:t") != 1)
        snprintf(failed, sizeof failed, "no tombstone after a cut");
    STEP(hf_lock_acquire(m, 1000, NULL, &err)); /* with tombstones there: ZSCORE */
    STEP(hf_lock_release(m, &err));
    /* Waiting: a place in the queue, a look, a handover, and giving up. */
    if (!failed[0]) {
        struct locker w = { .m = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 5000 }),
                            .wait_ms = 5000 };
        struct locker out = { .m = lock_of(c, "a", 5000), .wait_ms = 5000 };
        hf_lock *first = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 5000 });
        STEP(hf_lock_acquire(first, 1000, NULL, &err));
        if (!failed[0] && !strstr(server_ask(s, "GET lock:a"), ":2500"))
            snprintf(failed, sizeof failed, "the server does not see our session");
        locker_start(&w);
        t_sleep_ms(100);
        locker_start(&out);
        t_sleep_ms(350); /* looked */
        hf_lock_cancel(out.m);
        CHECK_INT(pthread_join(out.thread, NULL), 0);
        if (!failed[0] && out.result != HF_ECANCELED)
            snprintf(failed, sizeof failed, "cancel: %s: %.500s", hf_err_name(out.result),
                     out.error.message);
        STEP(hf_lock_release(first, &err));
        CHECK_INT(pthread_join(w.thread, NULL), 0);
        if (!failed[0] && w.result)
            snprintf(failed, sizeof failed, "wait: %s: %.500s", hf_err_name(w.result),
                     w.error.message);
        hf_lock_free(first);
        hf_lock_free(w.m);
        hf_lock_free(out.m);
    }
    if (!failed[0])
        every_kind(c);
    server_ask(s, "SET " FENCE_KEY " 9007199254740000"); /* DECR */
    if (!failed[0] && hf_lock_try(m, NULL, &err) != HF_ECOUNTER)
        snprintf(failed, sizeof failed, "DECR: %s", err.message);
    hf_lock_free(m);
    hf_lock_free(own);
    hf_client_free(c);
    return failed[0] ? failed : NULL;
}

TEST(ACL_the_documented_minimum_is_enough)
{
    struct server *s = server_start(NULL);
    set_user(s, KEYS_OF_LOCK " " RIGHTS);
    CHECK_STR(everything(s, 4000), NULL);
    CHECK_STR(server_ask(s, "ACL LOG"), ""); /* nothing was tried that is not allowed */
}

TEST(ACL_docs_name_exactly_what_is_tested)
{
    CHECK_STR(acl_command("acl"), "ACL SETUSER holdfast reset on >pw " KEYS_OF_LOCK " " RIGHTS);
}

/* Each right taken away alone must be missed somewhere, or it is not part of a minimum. */
TEST_TIMEOUT(ACL_no_documented_right_is_superfluous, 180)
{
    server_needs(700, "rights for subcommands");
    struct server *s = server_start(NULL);
    char rights[] = RIGHTS, list[900], *save = NULL;
    int superfluous = 0;
    for (char *r = strtok_r(rights, " ", &save); r; r = strtok_r(NULL, " ", &save)) {
        server_ask(s, "FLUSHALL");
        snprintf(list, sizeof list, "%s %s -%s", KEYS_OF_LOCK, RIGHTS, r + 1);
        set_user(s, list);
        server_ask(s, "ACL LOG RESET");
        const char *why = everything(s, 1200);
        if (why && strstr(why, "its lease of")) { /* a slow machine, and nothing about the right */
            server_ask(s, "FLUSHALL");
            why = everything(s, 1200);
        }
        t_note("without %s: %s", r + 1, why ? why : "(nothing fails)");
        if (!why && server_ask(s, "ACL LOG")[0] == '\0') {
            t_note("%s is never used", r + 1);
            superfluous++;
        }
    }
    CHECK_INT(superfluous, 0);
}

TEST(ACL_a_missing_right_is_EAUTH_and_names_it)
{
    struct server *s = server_start(NULL);
    struct logbook log = LOGBOOK;
    set_user(s, KEYS_OF_LOCK " +@all -eval -evalsha");
    refused(user_url, (hf_client_opts){ .protocol = "script" }, HF_EAUTH, "eval");
    set_user(s, "~other:* +@all");
    refused(user_url, (hf_client_opts){ 0 }, HF_EAUTH, "");

    set_user(s, KEYS_OF_LOCK " " RIGHTS " -info");
    hf_client *c = client_with(user_url, (hf_client_opts){ .log = logbook_add, .log_arg = &log });
    CHECK_LOGGED(&log, "INFO"); /* degrades with a warning */
    hf_lock *m = lock_of(c, "a", 5000);
    lock_now(m);
    unlock_now(m);
    /* Inside a script: no lock may stay behind, and the error says what is missing. */
    set_user(s, KEYS_OF_LOCK " " RIGHTS " -set");
    server_ask(s, "CLIENT KILL TYPE normal SKIPME yes");
    hf_err e = hf_lock_try(m, NULL, &err);
    t_note("%s: %s", hf_err_name(e), err.message);
    CHECK_INT(e, HF_EAUTH);
    CHECK_INT(server_int(s, "EXISTS lock:a"), 0);
    hf_lock_free(m);
    hf_client_free(c);
}

/* ---- names of connections ---- */

/* How many lines of CLIENT LIST contain text. */
static int listed(struct server *s, const char *text)
{
    int n = 0;
    for (const char *p = server_ask(s, "CLIENT LIST"); (p = strstr(p, text)); p++)
        n++;
    return n;
}

TEST(every_connection_has_a_name)
{
    struct server *s = server_start(NULL);
    char want[300], host[200] = "";
    CHECK(gethostname(host, sizeof host - 1) == 0);
    hf_client *c = client_with(server_url(s), (hf_client_opts){ .program = "a b\n\xc3\xa4" });
    hf_lock *m = lock_of(c, "a", 5000);
    lock_now(m);
    snprintf(want, sizeof want, " name=holdfast:a_b___@%.50s:%ld ", host, (long)getpid());
    CHECK_EVENTUALLY(listed(s, want) == 2, 2000); /* requests, and the inbox */
    server_ask(s, "CLIENT KILL TYPE normal SKIPME yes");
    CHECK_HF(hf_lock_verify(m, &err), HF_OK);
    CHECK_EVENTUALLY(listed(s, want) == 2, 2000);
    unlock_now(m);
    hf_lock_free(m);
    hf_client_free(c);
}

TEST(a_name_that_is_not_allowed_is_done_without)
{
    struct server *s = server_start(NULL);
    const char *protocol[] = { "script", "transaction", "timestamp" };
    set_user(s, KEYS_OF_LOCK " +@all -client");
    for (int i = 0; i < 3; i++) {
        hf_client *c = client_with(user_url, (hf_client_opts){ .protocol = protocol[i] });
        hf_lock *m = lock_of(c, "a", 5000);
        lock_now(m);
        unlock_now(m);
        hf_lock_free(m);
        hf_client_free(c);
        CHECK_CONTAINS(server_ask(s, "ACL LOG"), "client"); /* it was tried */
        server_ask(s, "ACL LOG RESET");
    }
    CHECK_INT(listed(s, "name=holdfast"), 0);
}

/* The name, a look at the memory and the greeting leave together. */
TEST(a_fresh_connection_costs_one_round_trip)
{
    enum { ONE_WAY = 100 };
    struct server *s = server_start(NULL);
    struct proxy *p = proxy_start(s);
    proxy_delay(p, ONE_WAY);
    int64_t began = t_now_ms();
    hf_client *c = client_at(proxy_url(p), 0);
    int64_t took = t_now_ms() - began;
    CHECK_INT(listed(s, "name=holdfast"), 1);
    CHECK_TOOK(took, 2 * ONE_WAY, 2 * 2 * ONE_WAY - 1);
    hf_client_free(c);
}

/* ---- descriptors ---- */

TEST(every_descriptor_is_close_on_exec)
{
    struct server *s = server_start_opts(&(struct server_opts){ .tcp = 1, .tls = 1 });
    const char *urls[] = { server_url(s), server_tcp_url(s), server_tls_url(s) };
    char before[1024] = { 0 };
    DIR *d = opendir("/proc/self/fd");
    for (struct dirent *e; (e = readdir(d));)
        if (atoi(e->d_name) < 1024)
            before[atoi(e->d_name)] = 1;
    for (int i = 0; i < 3; i++) {
        hf_client *c = client_at(urls[i], 0);
        hf_lock *m = lock_of(c, "a", 5000);
        int fd, found = 0;
        CHECK_HF(hf_lock_fd(m, &fd, &err), HF_OK);
        lock_now(m);
        rewinddir(d);
        for (struct dirent *e; (e = readdir(d));) {
            fd = atoi(e->d_name);
            if (fd < 3 || before[fd] || fd == dirfd(d) || e->d_name[0] == '.')
                continue;
            found++;
            if (!(fcntl(fd, F_GETFD) & FD_CLOEXEC))
                FAIL("descriptor %d of %s survives exec", fd, urls[i]);
        }
        CHECK(found >= 6); /* connection, two alarms of two each, the event descriptor */
        hf_lock_free(m);
        hf_client_free(c);
    }
    closedir(d);
}

static int64_t cpu_ms(void)
{
    struct timespec t;
    CHECK_INT(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t), 0);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

TEST(a_question_to_replicas_that_never_left_keeps_nobody_busy)
{
    struct server *s = server_start(NULL);
    struct proxy *p = proxy_start(s);
    hf_client *c = client_with(proxy_url(p), (hf_client_opts){ .timeout_ms = 500, .replicas = 1 });
    hf_lock *m = lock_of(c, "a", 5000);
    CHECK(hf_lock_try(m, NULL, &err) != HF_OK);
    proxy_refuse(p);
    proxy_break(p);
    t_sleep_ms(100);
    CHECK(hf_lock_try(m, NULL, &err) != HF_OK);
    int64_t before = cpu_ms();
    t_sleep_ms(500);
    CHECK_RANGE(cpu_ms() - before, 0, 200);
    proxy_pass(p);
    hf_lock_free(m);
    hf_client_free(c);
}
