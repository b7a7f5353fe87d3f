/* SPDX-License-Identifier: MIT
 * why_server.c - hf_why(): what a server does or cannot do, each brought about for real.
 */
#include <sys/stat.h>
#include <unistd.h>

#include "harness/why.h"

TEST(a_server_that_takes_no_writes)
{
    struct server *s = server_start_opts(&(struct server_opts){ .tcp = 1 });
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *m = lock_of(c, "held", 20000), *n = lock_of(c, "new", 20000);
    lock_now(m);
    check_why(c, "new", "free", "free now");

    server_ask(s, "CONFIG SET maxmemory 1");
    check_why(c, "new", "out-of-memory", "maxmemory is used up");
    check_why(c, "held", "out-of-memory", "held by ");
    CHECK_HF(hf_lock_try(n, NULL, &err), HF_ESERVER); /* it is so */
    CHECK_STR(hf_why_error(&err, NULL), "out-of-memory");
    server_ask(s, "CONFIG SET maxmemory 0");
    check_why(c, "new", "free", "free now");

    server_ask(s, "CONFIG SET min-replicas-to-write 1");
    check_why(c, "new", "read-only", "too few replicas");
    CHECK_HF(hf_lock_try(n, NULL, &err), HF_ESERVER);
    CHECK_STR(hf_why_error(&err, NULL), "read-only");
    server_ask(s, "CONFIG SET min-replicas-to-write 0");

    const char *follow[] = { "--replicaof", "127.0.0.1", keep_text("%d", server_port(s)), NULL };
    server_ask(s, "CONFIG SET repl-diskless-sync-delay 0");
    struct server *r = server_start(follow);
    hf_client *eye = client_at(server_url(r), 0);
    CHECK_EVENTUALLY(is_cause(eye, "new", "read-only"), 20000);
    check_why(eye, "new", "read-only", "it is a replica");
    hf_client_free(eye);

    unlock_now(m);
    hf_lock_free(m);
    hf_lock_free(n);
    hf_client_free(c);
}

static int save_failed(struct server *s)
{
    const char *status = server_info(s, "rdb_last_bgsave_status");
    return status && strcmp(status, "err") == 0;
}

TEST(a_server_that_cannot_write_to_its_disk)
{
    const char *dir = keep_text("%s/gone", t_dir());
    CHECK_INT(mkdir(dir, 0700), 0);
    const char *args[] = { "--dir", dir, "--save", "3600 1", NULL };
    struct server *s = server_start(args);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *m = lock_of(c, "a", 20000);
    CHECK_INT(unlink(keep_text("%s/log", dir)), 0);
    CHECK_INT(rmdir(dir), 0);
    server_ask(s, "BGSAVE");
    CHECK_EVENTUALLY(save_failed(s), 10000);
    check_why(c, "a", "read-only", "could not write to its disk");
    CHECK_HF(hf_lock_try(m, NULL, &err), HF_ESERVER);
    CHECK_STR(hf_why_error(&err, NULL), "read-only");
    hf_lock_free(m);
    hf_client_free(c);
}

TEST(a_server_that_does_not_answer)
{
    struct server *s = server_start_opts(&(struct server_opts){ .tcp = 1 });
    hf_client *c = client_at(server_tcp_url(s), 500), *none = NULL;
    const char *advice = NULL;
    server_freeze(s);
    hf_why_info *why = why_of(c, "a");
    CHECK_STR(why->cause, "away");
    CHECK(!why->lock && why->advice && why->free_ms == -1);
    hf_why_free(why);
    server_thaw(s);
    CHECK_EVENTUALLY(is_cause(c, "a", "free"), 10000);
    server_kill(s);
    check_why(c, "a", "away", "127.0.0.1");
    CHECK_HF(hf_client_open(server_tcp_url(s), NULL, &none, &err), HF_ECONN);
    CHECK_STR(hf_why_error(&err, &advice), "away");
    CHECK(advice);
    hf_client_free(c);
    err = (hf_error){ .code = HF_EAUTH, .message = "no" };
    CHECK(!hf_why_error(&err, NULL));
    CHECK_HF(hf_why(NULL, hf_str("a"), 0, &why, &err), HF_EINVAL);
}

struct loading {
    struct server *s;
    int            opening;
};

static void *during_loading(void *arg)
{
    struct loading *l = arg;
    for (int64_t until = t_now_ms() + 8000; t_now_ms() < until; t_sleep_ms(2)) {
        hf_client *late = NULL;
        hf_error e = { 0 };
        if (hf_client_open(server_url(l->s), NULL, &late, &e)) {
            const char *cause = hf_why_error(&e, NULL);
            l->opening |= cause && strcmp(cause, "loading") == 0;
        } else {
            hf_client_free(late);
        }
        if (l->opening)
            break;
    }
    return NULL;
}

TEST(a_server_that_loads_its_data)
{
    server_needs(700, "loading-process-events-interval-bytes");
    const char *args[] = { "--key-load-delay", "400", "--loading-process-events-interval-bytes",
                           "1024", NULL };
    struct server *s = server_start_opts(&(struct server_opts){ .aof = 1, .args = args });
    struct loading l = { .s = s };
    for (int i = 0; i < 2500; i++)
        server_ask(s, "SET filler:%d xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", i);
    server_kill(s);
    pthread_t t;
    CHECK_INT(pthread_create(&t, NULL, during_loading, &l), 0);
    server_restart(s);
    CHECK_INT(pthread_join(t, NULL), 0);
    CHECK(l.opening);
}
