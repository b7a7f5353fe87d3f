/* SPDX-License-Identifier: MIT
 * stream_tls.c - TLS on a connected socket; the only file that uses OpenSSL.
 *
 *  - The server's certificate and its name are always verified.
 *  - An SSL object is not for two threads at once: mu is held around every SSL_* call, the socket
 *    does not block, and the wait in poll(2) is outside, so that a reader never keeps a writer.
 *  - What writev() took is ours: it is copied, and a record that did not fit into the socket is
 *    sent by the next write or read. OpenSSL must be given the very same bytes again after a full
 *    socket, and a caller that gave up a request would not do that.
 *  - Bytes go through our own BIO: OpenSSL's uses write(2), which raises SIGPIPE.
 *  - Nothing is said at the end: a forked child has the same keys and must not end the session.
 */
#include "base/mutex.h"
#include "net/stream.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/forkguard.h"
#include "base/mem.h"
#include "net/openssl.h"

#define RECORD_BYTES 16384 /* the most that one TLS record holds */

struct tls {
    struct stream   s; /* first: a struct stream * is a struct tls * */
    struct mutex    mu;
    SSL            *ssl;        /* guarded by mu, as is all below */
    int             io_errno;   /* of the socket, 0: none; ECONNRESET: it ended */
    size_t          out_len;    /* bytes of out that SSL_write() must be given again */
    char            cert_names[200]; /* while connecting: whom the server's certificate is for */
    char            out[RECORD_BYTES];
};

/* ---- bytes from and to the socket ---------------------------------------------------------- */

static BIO_METHOD *method; /* NULL: out of memory */
static pthread_once_t method_once = PTHREAD_ONCE_INIT;

static int bio_result(BIO *b, struct tls *t, ssize_t n, int retry_flag)
{
    BIO_clear_retry_flags(b);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        BIO_set_flags(b, retry_flag | BIO_FLAGS_SHOULD_RETRY);
    else if (n <= 0)
        t->io_errno = n < 0 ? errno : ECONNRESET;
    return (int)n;
}

static int bio_read(BIO *b, char *buf, int len)
{
    struct tls *t = BIO_get_data(b);
    return bio_result(b, t, recv(t->s.fd, buf, (size_t)len, MSG_DONTWAIT), BIO_FLAGS_READ);
}

static int bio_write(BIO *b, const char *buf, int len)
{
    struct tls *t = BIO_get_data(b);
    ssize_t n = send(t->s.fd, buf, (size_t)len, MSG_NOSIGNAL | MSG_DONTWAIT);
    return bio_result(b, t, n, BIO_FLAGS_WRITE);
}

static long bio_ctrl(BIO *b, int cmd, long num, void *ptr)
{
    (void)b, (void)num, (void)ptr;
    return cmd == BIO_CTRL_FLUSH;
}

static void make_method(void)
{
    /* Without an atexit() handler: a thread of ours may still be here when the program ends. */
    OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, NULL);
    method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "holdfast socket");
    if (!method)
        return;
    BIO_meth_set_read(method, bio_read);
    BIO_meth_set_write(method, bio_write);
    BIO_meth_set_ctrl(method, bio_ctrl);
}

/* ---- the stream ---------------------------------------------------------------------------- */

/* The server's alerts about our certificate. */
static int is_key_alert(unsigned long e)
{
    if (ERR_GET_LIB(e) != ERR_LIB_SSL)
        return 0;
    switch (ERR_GET_REASON(e)) {
    case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
    case SSL_R_TLSV1_ALERT_ACCESS_DENIED: return 1;
    default: return 0;
    }
}

/* What an SSL_* call left: 0 try again when *ret_events come, -1 over, with errno. */
static int after_call_locked(struct tls *t, int result, short *ret_events)
{
    mutex_assert_held(&t->mu);
    switch (SSL_get_error(t->ssl, result)) {
    case SSL_ERROR_WANT_READ: *ret_events = POLLIN; return 0;
    case SSL_ERROR_WANT_WRITE: *ret_events = POLLOUT; return 0;
    case SSL_ERROR_ZERO_RETURN: errno = ECONNRESET; return -1;
    default:
        if (is_key_alert(ERR_peek_error()))
            errno = EKEYREJECTED;
        else
            errno = t->io_errno ? t->io_errno : EPROTO;
        ERR_clear_error(); /* the queue is the thread's, and the application may use it as well */
        return -1;
    }
}

/* A TLS 1.3 server refuses our certificate after the handshake, by an alert and a close: writing
 * then fails first, while the reason waits to be read. */
static int write_failed_locked(struct tls *t)
{
    mutex_assert_held(&t->mu);
    char byte;
    short events;
    int why = errno;

    if (why == EKEYREJECTED)
        return -1;
    ERR_clear_error();
    int n = SSL_peek(t->ssl, &byte, 1);
    if (n > 0 || after_call_locked(t, n, &events) == 0 || errno != EKEYREJECTED)
        errno = why;
    return -1;
}

/* Send what an earlier write took. 1 all gone, 0 the socket is full, -1 broken. */
static int flush_out_locked(struct tls *t, short *ret_events)
{
    mutex_assert_held(&t->mu);
    if (t->out_len == 0)
        return 1;
    ERR_clear_error();
    int n = SSL_write(t->ssl, t->out, (int)t->out_len);
    if (n <= 0)
        return after_call_locked(t, n, ret_events) < 0 ? write_failed_locked(t) : 0;
    t->out_len -= (size_t)n;
    memmove(t->out, t->out + n, t->out_len);
    return t->out_len == 0;
}

/* > 0 bytes, 0 none yet, -1 over. */
static ssize_t read_once(struct tls *t, void *buf, size_t n, short *ret_events)
{
    short wanted = 0;

    mutex_lock(&t->mu);
    int flushed = flush_out_locked(t, &wanted), got = -1;
    if (flushed >= 0) {
        ERR_clear_error();
        got = SSL_read(t->ssl, buf, n < INT_MAX ? (int)n : INT_MAX);
        if (got <= 0)
            got = after_call_locked(t, got, ret_events);
        if (flushed == 0)
            *ret_events |= wanted;
    }
    int why = errno;
    mutex_unlock(&t->mu);
    errno = why;
    return got;
}

static ssize_t tls_read_now(struct stream *s, void *buf, size_t n)
{
    short events = 0;
    return read_once((struct tls *)s, buf, n, &events);
}

static ssize_t tls_read(struct stream *s, void *buf, size_t n)
{
    struct tls *t = (struct tls *)s;
    short events = 0;
    ssize_t got = read_once(t, buf, n, &events); /* SSL may have bytes that poll() cannot see */

    if (got != 0)
        return got;
    struct pollfd p = { .fd = s->fd, .events = events };
    if (poll(&p, 1, STREAM_TICK_MS) <= 0)
        return 0;
    return read_once(t, buf, n, &events);
}

/* Copy the bytes of iov that begin at skip; how many. */
static size_t gather(char *out, const struct iovec *iov, int n, size_t skip)
{
    size_t used = 0;
    for (int i = 0; i < n && used < RECORD_BYTES; i++) {
        if (skip >= iov[i].iov_len) {
            skip -= iov[i].iov_len;
            continue;
        }
        size_t len = iov[i].iov_len - skip;
        if (len > RECORD_BYTES - used)
            len = RECORD_BYTES - used;
        memcpy(out + used, (const char *)iov[i].iov_base + skip, len);
        used += len;
        skip = 0;
    }
    return used;
}

static ssize_t tls_writev(struct stream *s, const struct iovec *iov, int n)
{
    struct tls *t = (struct tls *)s;
    size_t taken = 0;
    short events;
    int state;

    mutex_lock(&t->mu);
    while ((state = flush_out_locked(t, &events)) > 0) {
        t->out_len = gather(t->out, iov, n, taken);
        if (t->out_len == 0)
            break;
        taken += t->out_len;
    }
    int why = errno;
    mutex_unlock(&t->mu);
    errno = why;
    return state < 0 ? -1 : (ssize_t)taken;
}

static void tls_close(struct stream *s, int reset)
{
    struct tls *t = (struct tls *)s;

    SSL_free(t->ssl);
    if (s->generation == forkguard_generation())
        mutex_destroy(&t->mu); /* in a child another thread may have held it for ever */
    stream_close_fd(s, reset);
    explicit_bzero(t->out, sizeof t->out); /* a login may have gone through it */
    mem_free(t);
}

static const struct stream_ops tls_ops = {
    .read = tls_read, .read_now = tls_read_now, .writev = tls_writev, .close = tls_close,
};

/* ---- certificates -------------------------------------------------------------------------- */

/* Add a name, printable, to a comma-separated list. */
static void add_name(char *list, size_t size, const void *name, int len)
{
    size_t used = strlen(list);
    char quoted[80];

    err_quote(quoted, sizeof quoted, name, len > 0 ? (size_t)len : 0);
    if (used + strlen(quoted) + 3 < size)
        snprintf(list + used, size - used, "%s%s", used ? ", " : "", quoted);
}

/* All that the certificate is for, as text: its alternative names, else its common name. */
static void list_names(X509 *cert, char *list, size_t size)
{
    GENERAL_NAMES *names = X509_get_ext_d2i(cert, NID_subject_alt_name, NULL, NULL);

    list[0] = '\0';
    for (int i = 0; i < sk_GENERAL_NAME_num(names); i++) {
        const GENERAL_NAME *name = sk_GENERAL_NAME_value(names, i);
        if (name->type != GEN_DNS && name->type != GEN_IPADD)
            continue;
        const unsigned char *data = ASN1_STRING_get0_data(name->d.ia5);
        int len = ASN1_STRING_length(name->d.ia5);
        char ip[INET6_ADDRSTRLEN];
        if (name->type == GEN_DNS)
            add_name(list, size, data, len);
        else if ((len == 4 || len == 16)
                 && inet_ntop(len == 4 ? AF_INET : AF_INET6, data, ip, sizeof ip))
            add_name(list, size, ip, (int)strlen(ip));
    }
    GENERAL_NAMES_free(names);
    char common[80];
    int len = X509_NAME_get_text_by_NID(X509_get_subject_name(cert), NID_commonName, common,
                                        sizeof common);
    if (!list[0] && len > 0)
        add_name(list, size, common, len);
}

/* Called for each certificate of the chain. Changes no verdict; notes whom the last is for, since
 * after a failure OpenSSL no longer has it. */
static int on_verify(int ok, X509_STORE_CTX *store)
{
    SSL *ssl = X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx());
    struct tls *t = ssl ? SSL_get_app_data(ssl) : NULL;
    X509 *cert = X509_STORE_CTX_get_current_cert(store);

    if (t && cert && !ok && X509_STORE_CTX_get_error_depth(store) == 0)
        list_names(cert, t->cert_names, sizeof t->cert_names);
    return ok;
}

/* An encrypted key: without this OpenSSL would ask on the terminal. */
static int no_passphrase(char *buf, int size, int writing, void *arg)
{
    (void)buf, (void)size, (void)writing, (void)arg;
    return -1;
}

static hf_err bad_file(hf_error *reterr, const char *option, const char *path)
{
    char quoted[200];
    const char *why = ERR_reason_error_string(ERR_peek_last_error());
    unsigned long first = ERR_peek_error();

    if (ERR_GET_LIB(first) == ERR_LIB_SYS) /* the file itself: OpenSSL's last word is vaguer */
        why = strerror(ERR_GET_REASON(first));
    err_quote(quoted, sizeof quoted, path, strlen(path));
    err_set(reterr, HF_ECONFIG, "cannot use %s=%s: %s: a readable PEM file%s is needed", option,
            quoted, why ? why : "unknown reason",
            strcmp(option, "key") == 0 ? " without a passphrase" : "");
    ERR_clear_error();
    return HF_ECONFIG;
}

static hf_err load_files(SSL_CTX *ctx, const struct url *u, hf_error *reterr)
{
    struct stat st;
    int ok;

    ERR_clear_error();
    SSL_CTX_set_default_passwd_cb(ctx, no_passphrase);
    if (!u->cacert)
        ok = SSL_CTX_set_default_verify_paths(ctx);
    else if (stat(u->cacert, &st) == 0 && S_ISDIR(st.st_mode))
        ok = SSL_CTX_load_verify_dir(ctx, u->cacert);
    else
        ok = SSL_CTX_load_verify_file(ctx, u->cacert);
    if (ok != 1)
        return bad_file(reterr, "cacert", u->cacert ? u->cacert : "(the system's)");
    if (!u->cert)
        return HF_OK;
    if (SSL_CTX_use_certificate_chain_file(ctx, u->cert) != 1)
        return bad_file(reterr, "cert", u->cert);
    if (SSL_CTX_use_PrivateKey_file(ctx, u->key, SSL_FILETYPE_PEM) == 1)
        return HF_OK;
    if (ERR_GET_REASON(ERR_peek_last_error()) != X509_R_KEY_VALUES_MISMATCH)
        return bad_file(reterr, "key", u->key);
    ERR_clear_error();
    return err_set(reterr, HF_ECONFIG, "key= does not belong to the certificate in cert=");
}

/* ---- the handshake ------------------------------------------------------------------------- */

/* The name that the certificate must have. */
static const char *wanted_name(const struct url *u, const struct url_host *host)
{
    return u->sni ? u->sni : host->host ? host->host : "localhost";
}

static int set_name(SSL *ssl, const char *name)
{
    unsigned char ip[16];

    SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    if (inet_pton(AF_INET, name, ip) == 1 || inet_pton(AF_INET6, name, ip) == 1)
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), name);
    return SSL_set1_host(ssl, name) == 1 && SSL_set_tlsext_host_name(ssl, name) == 1;
}

static int set_up(struct tls *t, SSL_CTX *ctx, const char *name)
{
    BIO *bio = BIO_new(method);

    t->ssl = SSL_new(ctx);
    if (!bio || !t->ssl) {
        BIO_free(bio);
        return 0;
    }
    BIO_set_data(bio, t);
    BIO_set_init(bio, 1);
    SSL_set_bio(t->ssl, bio, bio); /* takes it over */
    SSL_set_app_data(t->ssl, t);
    return set_name(t->ssl, name);
}

static hf_err untrusted(struct tls *t, const struct url *u, const char *address, const char *name,
                        hf_error *reterr)
{
    long verdict = SSL_get_verify_result(t->ssl);
    const char *why = X509_verify_cert_error_string(verdict);
    char quoted[100];

    switch (verdict) {
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
        return err_set(reterr, HF_EAUTH,
                       "the certificate of %s is not for %s but for %s: use a name that it has, "
                       "or give that with sni=NAME", address,
                       err_quote(quoted, sizeof quoted, name, strlen(name)),
                       t->cert_names[0] ? t->cert_names : "nobody");
    case X509_V_ERR_CERT_HAS_EXPIRED:
    case X509_V_ERR_CERT_NOT_YET_VALID:
        return err_set(reterr, HF_EAUTH,
                       "the certificate of %s is not valid today (%s): renew it, or set this "
                       "machine's clock", address, why);
    default:
        return err_set(reterr, HF_EAUTH, "the certificate of %s is not trusted (%s): %s", address,
                       why, u->cacert ? "is cacert= the CA that signed it?"
                                      : "give the CA that signed it with cacert=FILE");
    }
}

/* Say why the handshake ended. Looks at OpenSSL's queue and empties it. */
static hf_err explain(struct tls *t, const struct url *u, const char *address, const char *name,
                      hf_error *reterr)
{
    unsigned long e = ERR_peek_error();
    int reason = ERR_GET_LIB(e) == ERR_LIB_SSL ? ERR_GET_REASON(e) : 0;
    const char *text = ERR_reason_error_string(e);
    hf_err err;

    if (SSL_get_verify_result(t->ssl) != X509_V_OK)
        err = untrusted(t, u, address, name, reterr);
    else if (is_key_alert(e) || reason == SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE)
        err = err_set(reterr, HF_EAUTH, "%s refused TLS (%s): %s", address, text ? text : "?",
                      u->cert ? "does it trust the CA of cert=?"
                              : "it may want a certificate: give cert=FILE and key=FILE");
    else if (reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_HTTP_REQUEST)
        err = err_set(reterr, HF_ECONN, "%s does not speak TLS on this port: use its tls-port, or "
                      "redis:// if it has none", address);
    else if (t->io_errno)
        err = err_set(reterr, HF_ECONN, "%s ended the connection during the TLS handshake (%s): "
                      "is this port its tls-port?", address, strerror(t->io_errno));
    else
        err = err_set(reterr, HF_ECONN, "TLS with %s failed: %s", address, text ? text : "?");
    ERR_clear_error();
    return err;
}

static hf_err handshake(struct tls *t, const struct url *u, const struct url_host *host,
                        const struct limit *lim, hf_error *reterr)
{
    char address[300];

    stream_address(host, address, sizeof address);
    for (;;) {
        ERR_clear_error();
        int n = SSL_connect(t->ssl), what = SSL_get_error(t->ssl, n);
        if (n == 1)
            return HF_OK;
        if (what != SSL_ERROR_WANT_READ && what != SSL_ERROR_WANT_WRITE)
            return explain(t, u, address, wanted_name(u, host), reterr);
        short events = what == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT;
        if (limit_over(lim) || !stream_poll(t->s.fd, events, lim))
            return err_set(reterr, HF_ECONN, "%s gave no answer to TLS in time: does it speak TLS "
                           "on this port? If not, use redis://", address);
    }
}

static void ctx_freep(SSL_CTX **ctx)
{
    SSL_CTX_free(*ctx);
}

static hf_err no_memory(hf_error *reterr)
{
    ERR_clear_error();
    return err_set(reterr, HF_ENOMEM, "out of memory");
}

static hf_err start(struct tls *t, const struct url *u, const struct url_host *host,
                    const struct limit *lim, hf_error *reterr)
{
    pthread_once(&method_once, make_method);
    AUTO(ctx_freep) SSL_CTX *ctx = method ? SSL_CTX_new(TLS_client_method()) : NULL;
    if (!ctx || !SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION))
        return no_memory(reterr);
    SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, on_verify);
    hf_err err = load_files(ctx, u, reterr);
    if (err)
        return err;
    if (!set_up(t, ctx, wanted_name(u, host)))
        return no_memory(reterr);
    return handshake(t, u, host, lim, reterr);
}

hf_err stream_tls_ready(hf_error *reterr)
{
    return openssl_load(reterr);
}

hf_err stream_tls_start(int fd, const struct url *u, const struct url_host *host,
                        const struct limit *lim, struct stream **ret, hf_error *reterr)
{
    struct tls *t = mem_zalloc(sizeof *t);

    if (!t) {
        forkguard_close(fd);
        return no_memory(reterr);
    }
    t->s = (struct stream){ &tls_ops, fd, forkguard_generation() };
    mutex_init(&t->mu, MUTEX_TLS);
    hf_err err = start(t, u, host, lim, reterr);
    if (err)
        tls_close(&t->s, 0);
    else
        *ret = &t->s;
    return err;
}
