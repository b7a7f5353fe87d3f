/* SPDX-License-Identifier: MIT
 * quorum_tls.c - a quorum over TLS: names are verified, and who cannot prove its own does not vote.
 */
#include "harness/proc.h"
#include "harness/quorum.h"
#include "harness/waiting.h"

/* TLS alone, with certificates of the test's own CA. */
static struct members tls_start(int n)
{
    struct members q = { .n = n };
    struct server_opts o = { .aof = 1, .tls = 1 };
    for (int i = 0; i < n; i++)
        q.s[i] = server_start_opts(&o);
    return q;
}

/* Member odd (or none: -1) under this host name. */
static void tls_url(struct members *q, const char *ca, int odd, const char *host)
{
    int used = snprintf(q->url, sizeof q->url, "rediss+quorum://");
    for (int i = 0; i < q->n; i++)
        used += snprintf(q->url + used, sizeof q->url - (size_t)used, "%s%s:%d", i ? "," : "",
                         i == odd ? host : "127.0.0.1", server_port(q->s[i]));
    snprintf(q->url + used, sizeof q->url - (size_t)used, "?cacert=%s/tls/%s.crt", t_dir(), ca);
}

TEST(five_servers_over_tls)
{
    struct members q = tls_start(5);
    tls_url(&q, "ca", -1, NULL);
    hf_client *a = client_at(q.url, 0), *b = client_at(q.url, 0);
    CHECK_CONTAINS(hf_client_url(a), "rediss+quorum://127.0.0.1:");
    hf_lock *ma = lock_of(a, "a", 4000), *mb = lock_of(b, "a", 4000);
    uint64_t fence = lock_now(ma);
    struct locker l = { .m = mb, .wait_ms = 20000 };
    locker_start(&l);
    /* Hints come over TLS as well: it stands in line, and listens. */
    CHECK_EVENTUALLY(server_int(q.s[0], "ZCARD {lock:a}:w") == 1, 5000);
    CHECK_EVENTUALLY(strstr(server_ask(q.s[0], "PUBSUB CHANNELS"), "lock:holdfast:s:") != NULL,
                     5000);
    server_kill(q.s[2]);
    server_kill(q.s[4]);
    t_sleep_ms(1700); /* a renewal */
    CHECK_HF(hf_lock_verify(ma, &err), HF_OK);
    unlock_now(ma);
    locker_join(&l, HF_OK);
    CHECK(l.fence > fence);
    server_restart(q.s[4]);
    CHECK_EVENTUALLY(members_with(&q, "lock:a", hf_lock_owner(mb), 16) == 1, 5000);
    unlock_now(mb);
    hf_lock_free(ma);
    hf_lock_free(mb);
    hf_client_free(a);
    hf_client_free(b);
}

/* One member is what nobody can prove it is: it does not vote, and the others do. */
static void check_does_not_vote(struct members *q, int member, const char *why)
{
    struct logbook log = LOGBOOK;
    hf_client *c = client_with(q->url, (hf_client_opts){ .log = logbook_add, .log_arg = &log });
    hf_lock *m = lock_of(c, "a", 4000);
    lock_now(m);
    CHECK_INT(members_with(q, "lock:a", hf_lock_owner(m), 1u << member), 0);
    CHECK_EVENTUALLY(logbook_has(&log, "does not vote:") && logbook_has(&log, why), 5000);
    CHECK_INT(server_int(q->s[member], "EXISTS " FENCE_KEY), 0); /* it was told nothing */
    unlock_now(m);
    /* And without one of the others there is no majority. */
    server_kill(q->s[(member + 1) % q->n]);
    CHECK_HF(hf_lock_try(m, NULL, &err), HF_ENOQUORUM);
    CHECK_CONTAINS(err.message, why);
    hf_lock_free(m);
    hf_client_free(c);
}

TEST(a_name_that_is_not_in_the_certificate)
{
    struct members q = tls_start(2);
    static const char *const args[] = { "--bind", "127.0.0.1 127.0.0.9", NULL };
    q.s[q.n++] = server_start_opts(&(struct server_opts){ .aof = 1, .tls = 1, .args = args });
    tls_url(&q, "ca", 2, "127.0.0.9");
    check_does_not_vote(&q, 2, "certificate");
}

TEST(a_member_of_another_ca)
{
    struct members q = tls_start(2);
    char cert[300], key[300];
    snprintf(cert, sizeof cert, "%s/tls/stranger.crt", t_dir());
    snprintf(key, sizeof key, "%s/tls/stranger.key", t_dir());
    const char *const make[] = { "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                                 "ec_paramgen_curve:P-256", "-nodes", "-keyout", key, "-out", cert,
                                 "-days", "2", "-subj", "/CN=stranger", "-addext",
                                 "subjectAltName=IP:127.0.0.1", NULL };
    struct proc *p = proc_spawn(make, NULL);
    CHECK_INT(proc_wait(p, 10000), 0);
    const char *const args[] = { "--tls-cert-file", cert, "--tls-key-file", key, NULL };
    q.s[q.n++] = server_start_opts(&(struct server_opts){ .aof = 1, .tls = 1, .args = args });
    tls_url(&q, "ca", -1, NULL);
    check_does_not_vote(&q, 2, "certificate");
}

TEST(the_wrong_ca_for_all)
{
    struct members q = tls_start(3);
    hf_client *c = NULL;
    hf_client_opts o = { .size = sizeof o, .timeout_ms = 2000 };
    tls_url(&q, "other", -1, NULL);
    hf_err e = hf_client_open(q.url, &o, &c, &err);
    if (e == HF_OK)
        FAIL("servers of an unknown CA were believed");
    CHECK_CONTAINS(err.message, "certificate");
    CHECK(!c);
    for (int i = 0; i < 3; i++)
        CHECK_STR(server_keys(q.s[i]), "");
}
