/* SPDX-License-Identifier: MIT
 * tls.c - what goes wrong with TLS is told by its cause: who does not speak it, certificates that
 * have ended, keys that cannot be read. How it is verified: net.c.
 */
#include <string.h>
#include <unistd.h>

#include "harness/fake.h"
#include "harness/live.h"
#include "harness/sockets.h"

/* hf_client_open() fails so, with this in its message. */
static void fails(const char *url, hf_err want, const char *part)
{
    hf_client_opts o = { .size = sizeof o, .timeout_ms = 20000 };
    hf_client *c = NULL;
    CHECK_HF(hf_client_open(url, &o, &c, &err), want);
    CHECK_CONTAINS(err.message, part);
}

/* 0: done. */
static int shell(const char *command)
{
    return system(keep_text("cd '%s' && { %s; } > out 2>&1", server_make_certs(), command));
}

/* ---- who does not speak it ---- */

static int say(void *arg, int fd, char *buf, size_t n)
{
    (void)buf;
    (void)n;
    const char *text = arg;
    if (*text && write(fd, text, strlen(text)) < 0)
        return -1;
    return *text ? 0 : -1;
}

static void check_answer(const char *text, const char *part)
{
    static atomic_long connections;
    int port, listener = socket_listen(16, &port);
    char said[100];
    snprintf(said, sizeof said, "%s", text);
    fake_serve(listener, say, keep_text("%s", said), &connections);
    fails(keep_text("rediss://127.0.0.1:%d", port), HF_ECONN, part);
    CHECK(atomic_load(&connections) > 0);
}

TEST(a_port_without_tls_is_told)
{
    check_answer("-ERR unknown command\r\n", "does not speak TLS on this port");
    check_answer("HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak TLS on this port");
    check_answer("", "TLS"); /* it hangs up */
}

/* ---- files ---- */

TEST(a_key_with_a_pass_phrase_is_refused_and_nobody_is_asked_for_it)
{
    struct server *s = server_start_opts(&(struct server_opts){ .tls = 1 });
    const char *certs = server_make_certs();
    CHECK_INT(shell("openssl pkey -aes128 -passout pass:secret -in client.key -out locked.key"), 0);
    fails(keep_text("%s&cert=%s/client.crt&key=%s/locked.key", server_tls_url(s), certs, certs),
          HF_ECONFIG, "key=");
    fails(keep_text("%s&cert=%s/client.crt&key=%s/missing.key", server_tls_url(s), certs, certs),
          HF_ECONFIG, "key=");
    fails(keep_text("%s&cert=%s/client.key&key=%s/client.key", server_tls_url(s), certs, certs),
          HF_ECONFIG, "cert=");
}

TEST(a_folder_of_authorities)
{
    struct server *s = server_start_opts(&(struct server_opts){ .tls = 1 });
    CHECK_INT(shell("mkdir all && cp ca.crt all/ca.pem && openssl rehash all"), 0);
    hf_client *c = client_at(keep_text("rediss://127.0.0.1:%d?cacert=%s/all", server_port(s),
                                       server_make_certs()), 0);
    hf_client_free(c);
}

TEST(a_certificate_that_has_ended)
{
    if (shell("openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -days -1 -extfile "
              "server.ext -out ended.crt"))
        LEFT_OUT("an openssl(1) that makes such a certificate");
    const char *ended = keep_text("%s/ended.crt", server_make_certs());
    const char *args[] = { "--tls-cert-file", ended, NULL };
    struct server *s = server_start_opts(&(struct server_opts){ .tls = 1, .args = args });
    fails(server_tls_url(s), HF_EAUTH, "is not valid today");
}
