/* SPDX-License-Identifier: MIT
 * url.c - URLs as people write them, right and wrong; durations; password files.
 */
#include "net/url.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "harness/t.h"

static struct url *good(const char *text)
{
    struct url *u = NULL;
    hf_error e = { 0 };
    if (url_parse(text, &u, &e) != HF_OK)
        t_fail(__FILE__, __LINE__, "%s: %s", text, e.message);
    return u;
}

/* The text is refused with a message that contains part. */
static void refused(const char *text, const char *part)
{
    struct url *u = NULL;
    hf_error e = { 0 };
    CHECK_INT(url_parse(text, &u, &e), HF_ECONFIG);
    CHECK(u == NULL);
    CHECK_CONTAINS(e.message, part);
}

static void redacted(const char *text, const char *want)
{
    char *got = url_redact(text);
    CHECK_STR(got, want);
    mem_free(got);
}

TEST(embedded)
{
    static const char *const texts[] = { NULL, "embedded:" };
    for (size_t i = 0; i < 2; i++) {
        struct url *u = good(texts[i]);
        CHECK_INT(u->topology, URL_EMBEDDED);
        CHECK_STR(u->dir, NULL);
        CHECK_INT(u->nhosts, 0);
        CHECK_INT(u->timeout_ms, -1);
        CHECK_INT(u->replicas, -1);
        CHECK_STR(u->prefix, NULL);
        url_free(u);
    }
    struct url *u = good("embedded:/var/a%20b?prefix=x:&timeout=500ms");
    CHECK_STR(u->dir, "/var/a b");
    CHECK_STR(u->prefix, "x:");
    CHECK_INT(u->timeout_ms, 500);
    url_free(u);
    u = good("embedded:?prefix=");
    CHECK_STR(u->dir, NULL);
    CHECK_STR(u->prefix, "");
    url_free(u);
    refused("embedded://x", "embedded:DIR");
}

TEST(empty_is_not_the_embedded_server)
{
    refused("", "the URL is empty");
    refused(" ", "");
}

TEST(single)
{
    struct url *u = good("redis://alice:s%40cret@db.example:6380/3");
    CHECK_INT(u->topology, URL_SINGLE);
    CHECK_INT(u->tls, 0);
    CHECK_STR(u->user, "alice");
    CHECK_STR(u->password, "s@cret");
    CHECK_INT(u->nhosts, 1);
    CHECK_STR(u->hosts[0].host, "db.example");
    CHECK_STR(u->hosts[0].path, NULL);
    CHECK_INT(u->hosts[0].port, 6380);
    CHECK_INT(u->db, 3);
    url_free(u);
    u = good("rediss://:pass@[::1]");
    CHECK_INT(u->tls, 1);
    CHECK_STR(u->user, NULL);
    CHECK_STR(u->password, "pass");
    CHECK_STR(u->hosts[0].host, "::1");
    CHECK_INT(u->hosts[0].port, 6379);
    CHECK_INT(u->db, 0);
    url_free(u);
    u = good("redis://bob@[fe80::1%eth0]:1/?db=16383");
    CHECK_STR(u->user, "bob");
    CHECK_STR(u->password, NULL);
    CHECK_STR(u->hosts[0].host, "fe80::1%eth0");
    CHECK_INT(u->db, 16383);
    url_free(u);
    url_free(NULL);
}

TEST(unix_socket)
{
    struct url *u = good("unix:///run/a%3Fb.sock?db=2");
    CHECK_STR(u->hosts[0].path, "/run/a?b.sock");
    CHECK_STR(u->hosts[0].host, NULL);
    CHECK_INT(u->db, 2);
    url_free(u);
    u = good("unix://u:p@/x@y:z.sock");
    CHECK_STR(u->user, "u");
    CHECK_STR(u->password, "p");
    CHECK_STR(u->hosts[0].path, "/x@y:z.sock");
    url_free(u);
    refused("unix://run/a.sock", "unix:///path");
    refused("unix://", "whole path");
    refused("unix:/run/a.sock", "must be one of");
}

TEST(several_servers)
{
    struct url *u = good("redis+sentinel://u:p@h1:1,h2,[::1]:3/my%20master/4");
    CHECK_INT(u->topology, URL_SENTINEL);
    CHECK_INT(u->nhosts, 3);
    CHECK_INT(u->hosts[0].port, 1);
    CHECK_INT(u->hosts[1].port, 26379);
    CHECK_STR(u->hosts[2].host, "::1");
    CHECK_STR(u->master, "my master");
    CHECK_INT(u->db, 4);
    url_free(u);
    u = good("rediss+cluster://h1,h2:7?cacert=/ca.pem");
    CHECK_INT(u->topology, URL_CLUSTER);
    CHECK_INT(u->tls, 1);
    CHECK_STR(u->cacert, "/ca.pem");
    CHECK_INT(u->hosts[1].port, 7);
    url_free(u);
    u = good("redis+quorum://h1,h2,h1:6380/");
    CHECK_INT(u->topology, URL_QUORUM);
    CHECK_INT(u->nhosts, 3);
    url_free(u);
    refused("redis+quorum://h1,h2,H1:6379", "twice");
    u = good("redis+quorum://h1,h2,h3?quarantine=5m");
    CHECK_INT(u->quarantine_ms, 300000);
    url_free(u);
    u = good("redis+quorum://h1,h2,h3?quarantine=0");
    CHECK_INT(u->quarantine_ms, 0);
    url_free(u);
    refused("redis://h1?quarantine=5m", "redis+quorum://");
    refused("redis+sentinel://h1,h2,h1:26379/m", "twice"); /* its vote would count twice */
    refused("redis+sentinel://h1,h2", "master's name is missing");
    refused("redis+cluster://h1,h2/1", "db 0");
    refused("redis://h1,h2", "redis+quorum://");
    refused("redis+quorum://h1,,h2", "host is missing");
}

TEST(options)
{
    struct url *u = good("rediss://h?prefix=a%26b&timeout=2&connect_timeout=1.5s&cacert=a&cert=b"
                         "&key=c&sni=d&passfile=e&protocol=timestamp&replicas=2&db=1&");
    CHECK_STR(u->prefix, "a&b");
    CHECK_INT(u->timeout_ms, 2000);
    CHECK_INT(u->connect_timeout_ms, 1500);
    CHECK_STR(u->cert, "b");
    CHECK_STR(u->key, "c");
    CHECK_STR(u->sni, "d");
    CHECK_STR(u->passfile, "e");
    CHECK_STR(u->protocol, "timestamp");
    CHECK_INT(u->replicas, 2);
    CHECK_INT(u->db, 1);
    url_free(u);
    refused("redis://h?colour=red", "unknown option \"colour\"");
    refused("redis://h?colour=red", "connect_timeout, cacert, cert, key, sni, passfile");
    refused("redis://h?Timeout=1", "unknown option");
    refused("redis://h?timeout=1&timeout=1", "timeout is given twice");
    refused("redis://h/1?db=1", "db is given twice");
    refused("redis://h?timeout=soon", "500ms");
    refused("redis://h?timeout=0", "timeout");
    refused("redis://h?timeout", "no value");
    refused("redis://h?cacert=x", "rediss://");
    refused("unix:///x?sni=x", "TLS only");
    refused("rediss://h?cert=x", "come together");
    refused("redis://h?protocol=magic", "script, transaction or timestamp");
    refused("redis://h?db=16384", "0 to 16383");
    refused("redis://h?db=-1", "0 to 16383");
    refused("redis://h?db=1e1", "0 to 16383");
    refused("redis://h?replicas=101", "replicas");
    refused("redis://u:p@h?passfile=x", "both given");
    refused("redis://h?prefix=%00", "not an escape");
    refused("redis://h?prefix=%4", "not an escape");
}

TEST(options_of_sentinel_and_replicas)
{
    struct url *u = good("redis+sentinel://h1,h2/m?replicas=majority&fsync=1&sentinel_user=su"
                         "&sentinel_passfile=f&quarantine=90s");
    CHECK_INT(u->replicas, URL_MAJORITY);
    CHECK_INT(u->fsync, 1);
    CHECK_STR(u->sentinel_user, "su");
    CHECK_STR(u->sentinel_passfile, "f");
    CHECK_INT(u->quarantine_ms, 90000);
    url_free(u);
    u = good("redis+sentinel://h1/m?quarantine=0&fsync=0");
    CHECK_INT(u->quarantine_ms, 0);
    CHECK_INT(u->fsync, 0);
    CHECK_INT(u->replicas, -1);
    hf_error err;
    CHECK_INT(url_resolve_sentinel_password(u, "pw", &err), HF_OK);
    CHECK_STR(u->sentinel_password, "pw");
    CHECK_STR(u->password, NULL);
    url_free(u);
    u = good("redis+sentinel://u:p@h1/m?sentinel_user=su");
    CHECK_INT(url_resolve_sentinel_password(u, NULL, &err), HF_ECONFIG);
    CHECK_STR(u->sentinel_password, NULL);
    url_free(u);
    refused("redis://h?sentinel_user=u", "Sentinels only");
    refused("unix:///x?sentinel_passfile=u", "Sentinels only");
    refused("redis://h?replicas=most", "or majority");
    refused("redis://h?fsync=2", "0 to 1");
    refused("redis://h?repair=0", "on or off");
    u = good("redis://h?spin=off");
    CHECK_INT(u->spin, 0);
    url_free(u);
    u = good("redis://h?history=50");
    CHECK_INT(u->history, 50);
    url_free(u);
    refused("redis://h?history=100001", "0 to 100000");
    refused("redis://h?history=all", "0 to 100000");
    refused("redis://h?confirm=yes", "0 to 1");
    u = good("redis://h?confirm=1");
    CHECK_INT(u->confirm, 1);
    url_free(u);
    u = good("redis://h?repair=off");
    CHECK_INT(u->repair, 0);
    url_free(u);
    u = good("redis://h?repair=on");
    CHECK_INT(u->repair, 1);
    url_free(u);
    refused("redis+sentinel://h/m?quarantine=x", "quarantine is not a duration");
}

TEST(malformed)
{
    static const char *const texts[] = {
        "x", "redis", "redis:", "redis:/", "redis://", "http://h", "redis://h:", "redis://h:0",
        "redis://h:65536", "redis://h:6379x", "redis://::1", "redis://[::1", "redis://[::1]6",
        "redis://[]", "redis://h/x", "redis://h/0/1", "redis://h h", "redis://h\n", "redis://\xff",
        "redis://@", "redis://[abc]", "redis+sentinel:///m", "redis+sentinel://h/m/x",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        refused(texts[i], "bad URL ");
    char many[1000] = "redis+quorum://h";
    for (int i = 0; i < 64; i++)
        sprintf(many + strlen(many), ",h%d", i);
    refused(many, "more than 64 hosts");
}

/* However wrong the text is: the password shows nowhere. */
TEST(password_never_shown)
{
    static const char *const texts[] = {
        "redis://u:SEC@RET@host", "redis//user:SECRET@host", "redis:/user:SECRET@host",
        "redis://u:SEC/RET@host", "redis://u:SEC?RET@host", "redis://u:SEC?prefix=RET@host:x",
        "redis://u:SEC?RET&RET=RET@host", "redis://u:12/RET@host", "redis://u:1/2?RET@host",
        "redis://:SECRET", "redis://user:SECRET", "user:SECRET@host", "user:SECRET", "u:SEC//RET@h",
        "redis://SECRET@host:x", "redis://u:SECRET@host?bogus=1", "redis://u:SECRET@host:x",
        "http://u:SECRET@host", "redis://host?password=SECRET", "redis://h?x=1&pass=SECRET&db=1",
        "redis://u:SEC%RET@host", "redis://u:SEC,RET@a,b", "unix://u:SECRET@host/x",
        "unix://u:SEC/RET@/x?y=1", "redis+sentinel://u:SECRET@h", "redis://u:[SECRET@",
        "redis:SECRET",
        "redis://u:SECRET@h:1:2", "redis://[::1]:SECRET", "redis://h:1,h2:SECRET",
        "REDIS//u:SECRET@h",
        "redis://h?timeout=1s?password=SECRET", "redis://h?db=0;password=SECRET",
        "redis://h;password=SECRET", "redis://h?db=0;pw=SECRET", "redis://h?timeout=1s?auth=SECRET",
        "redis://h:1;pw=SECRET", "redis://h;pw=SECRET", "redis://h/0;PASSWORD=SECRET",
        "redis://h,password=SECRET", "redis://h/password=SECRET", "redis://h password SECRET",
        "redis://h?db=0#pass.SECRET", "redis://h?passSECRET", "redis://h?pass.SECRET",
        "redis://h?x;password:SECRET", "redis://h?prefix=a&passfile=/x;password=SECRET&db=x",
        "redis://h?passfilepassword=SECRET", "redis+sentinel://h?password=SECRET",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct url *u = NULL;
        hf_error e = { 0 };
        char *shown = url_redact(texts[i]);
        if (url_parse(texts[i], &u, &e) == HF_OK || strstr(e.message, "SEC")
            || strstr(e.message, "RET") || strstr(shown, "SEC") || strstr(shown, "RET"))
            t_fail(__FILE__, __LINE__, "%s: %s, %s", texts[i], shown, e.message);
        mem_free(shown);
    }
}

TEST(redact)
{
    redacted("redis://u:p@host:6379/0?prefix=a@b:c", "redis://u:***@host:6379/0?prefix=a@b:c");
    redacted("redis://:p@host", "redis://:***@host");
    redacted("redis://u:@host?passfile=/x", "redis://u:@host?passfile=/x");
    redacted("redis://host:6379/1?prefix=a@b", "redis://host:6379/1?prefix=a@b");
    redacted("unix:///run/a:b@c.sock", "unix:///run/a:b@c.sock");
    redacted("embedded:/home/u:x@y", "embedded:/home/u:x@y");
    redacted("redis://word@host", "redis://***@host");
    redacted("redis://u:p@ss@host", "redis://u:***@host");
    redacted("redis//user:secret@host", "redis//user:***@host");
    redacted("redis://[::1]:6379/x", "redis://[::1]:6379/x");
    redacted("redis://h?password=x&db=1", "redis://h?pass***");
    redacted("redis://h?auth=x&db=1", "redis://h?auth=***&db=1");
    redacted("redis://h/x?passfile=/pw&db=1", "redis://h/x?passfile=/pw&db=1");
    redacted(NULL, "");
}

static void passfile(const char *content, size_t len, int mode, const char *want, const char *fault)
{
    char *path = t_path("pw"), text[300];
    hf_error e = { 0 };
    FILE *f = fopen(path, "w");
    CHECK(f && fwrite(content, 1, len, f) == len && fclose(f) == 0);
    CHECK_INT(chmod(path, (mode_t)mode), 0);
    snprintf(text, sizeof text, "redis://h?passfile=%s", path);
    struct url *u = good(text);
    CHECK_INT(url_resolve_password(u, "fallback", &e), want ? HF_OK : HF_ECONFIG);
    CHECK_STR(u->password, want);
    if (fault)
        CHECK_CONTAINS(e.message, fault);
    url_free(u);
    free(path);
}

TEST(password_file)
{
    passfile("s3cret\nmore\n", 12, 0600, "s3cret", NULL);
    passfile("s3cret", 6, 0400, "s3cret", NULL);
    passfile("s3 cret\r\n", 9, 0600, "s3 cret", NULL);
    passfile("s3cret\n", 7, 0640, NULL, "chmod 600");
    passfile("s3cret\n", 7, 0604, NULL, "chmod 600");
    passfile("s3cret\n", 7, 0620, NULL, "others may write it: chmod 600");
    passfile("s3cret\n", 7, 0602, NULL, "others may write it: chmod 600");
    passfile("s3cret\n", 7, 0622, NULL, "others may write it: chmod 600");
    passfile("", 0, 0600, NULL, "empty");
    passfile("\nx\n", 3, 0600, NULL, "empty");
    passfile("a\0b\n", 4, 0600, NULL, "NUL");
    char big[5000];
    memset(big, 'x', sizeof big);
    passfile(big, sizeof big, 0600, NULL, "too long");
    char longest[4097];
    memset(longest, 'x', 4096);
    longest[4096] = '\0';
    big[4096] = '\n';
    passfile(big, sizeof big, 0600, longest, NULL);
}

/* Only root can make such a file; and root is who would be led by it. */
TEST(password_file_of_another_user)
{
    char *path = t_path("pw"), text[300];
    hf_error e = { 0 };
    FILE *f = fopen(path, "w");
    CHECK(f && fputs("s3cret\n", f) >= 0 && fclose(f) == 0 && chmod(path, 0600) == 0);
    if (geteuid() != 0 || chown(path, 65534, (gid_t)-1) != 0) {
        free(path);
        return;
    }
    snprintf(text, sizeof text, "redis://h?passfile=%s", path);
    struct url *u = good(text);
    CHECK_INT(url_resolve_password(u, NULL, &e), HF_ECONFIG);
    CHECK_CONTAINS(e.message, "belongs to another user");
    CHECK_STR(u->password, NULL);
    url_free(u);
    free(path);
}

TEST(password_sources)
{
    hf_error e = { 0 };
    struct url *u = good("redis://h?passfile=/does/not/exist");
    CHECK_INT(url_resolve_password(u, "x", &e), HF_ECONFIG);
    CHECK_CONTAINS(e.message, "No such file");
    url_free(u);
    u = good("redis://h?passfile=/");
    CHECK_INT(url_resolve_password(u, "x", &e), HF_ECONFIG);
    url_free(u);
    u = good("redis://:own@h");
    CHECK_INT(url_resolve_password(u, "other", &e), HF_OK);
    CHECK_STR(u->password, "own");
    url_free(u);
    u = good("redis://h");
    CHECK_INT(url_resolve_password(u, NULL, &e), HF_OK);
    CHECK_STR(u->password, NULL);
    CHECK_INT(url_resolve_password(u, "other", &e), HF_OK);
    CHECK_STR(u->password, "other");
    url_free(u);
}

static long allocations_left;

static void *short_alloc(size_t n)
{
    return allocations_left-- > 0 ? malloc(n) : NULL;
}

TEST(out_of_memory_at_every_step)
{
    const char *text = "rediss+sentinel://u:p@h1,h2/m?prefix=a&cacert=b&cert=c&key=d&timeout=1";
    int failures = 0;
    hf_allocator_set(short_alloc, realloc, free);
    for (long n = 0;; n++, failures++) {
        struct url *u = NULL;
        hf_error e = { 0 };
        allocations_left = n;
        hf_err err = url_parse(text, &u, &e);
        url_free(u);
        if (err == HF_OK)
            break;
        CHECK_INT(err, HF_ENOMEM);
        CHECK_INT(e.code, HF_ENOMEM);
    }
    CHECK(failures >= 10);
}

static int64_t ms(const char *text)
{
    int64_t got = -7;
    hf_err err = hf_duration_parse(text, &got, NULL);
    CHECK(err == HF_OK || (err == HF_EINVAL && got == -7));
    return got;
}

TEST(durations)
{
    CHECK_INT(ms("500ms"), 500);
    CHECK_INT(ms("10s"), 10000);
    CHECK_INT(ms("5m"), 300000);
    CHECK_INT(ms("2h"), 7200000);
    CHECK_INT(ms("1d"), 86400000);
    CHECK_INT(ms("7"), 7000);
    CHECK_INT(ms("0"), 0);
    CHECK_INT(ms("1.5"), 1500);
    CHECK_INT(ms("0.25h"), 900000);
    CHECK_INT(ms("0.0001s"), 1); /* more than nothing stays more than nothing */
    CHECK_INT(ms("1.0000000000000000000000000000"), 1000);
    CHECK_INT(ms("36525d"), INT64_C(3155760000000));
    static const char *const wrong[] = {
        "", " 1", "1 ", "-1", "+1", "s", ".5", "5.", "1.s", "1e3", "0x1", "1S", "1 s", "1sec",
        "inf", "nan", "1.5.5", "36526d", "36525.00001d", "9223372036854775808",
        "99999999999999999999999999",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        CHECK_INT(ms(wrong[i]), -7);
    CHECK_INT(hf_duration_parse(NULL, &(int64_t){ 0 }, NULL), HF_EINVAL);
    CHECK_INT(hf_duration_parse("1", NULL, NULL), HF_EINVAL);
}
