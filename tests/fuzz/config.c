/* SPDX-License-Identifier: MIT
 * config.c - fuzz: the configuration file and the password file: read as they are meant or refused,
 * and nothing of a secret is shown. The first byte says which of the two the rest is.
 */
#include "net/config.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "net/url.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int holds)
{
    if (!holds)
        abort();
}

/* One file in memory, which has a path. */
static const char *file_with(const uint8_t *data, size_t size)
{
    static char path[64];
    static int fd = -1;
    if (fd < 0) {
        fd = memfd_create("fuzz", 0);
        must(fd >= 0 && fchmod(fd, 0600) == 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        setenv("HOLDFAST_CONFIG", path, 1);
    }
    must(ftruncate(fd, 0) == 0 && pwrite(fd, data, size, 0) == (ssize_t)size);
    return path;
}

static void check_message(const hf_error *e)
{
    must(e->code == HF_ECONFIG && e->message[0]);
    for (const char *p = e->message; *p; p++)
        must(*p >= ' ' && *p != 0x7f);
}

static void check_value(const char *text)
{
    size_t n = text ? strlen(text) : 0;
    must(!n || (text[0] != ' ' && text[n - 1] != ' ' && text[n - 1] != '\r'
                && !memchr(text, '\n', n)));
}

static void check_config(const uint8_t *data, size_t size)
{
    struct config cf;
    struct url *u = NULL;
    hf_error e = { 0 };
    file_with(data, size);
    hf_err err = config_read(&cf, &e);
    if (err) {
        check_message(&e);
        must(!cf.url && !cf.prefix && !cf.passfile);
        must(!memmem(data, size, "S3CR3T", 6) || !strstr(e.message, "S3CR3T"));
    }
    check_value(cf.url);
    check_value(cf.prefix);
    check_value(cf.passfile);
    must(!cf.passfile || cf.passfile[0]);
    /* Where it says a server, there is one; else locks would be of this machine alone. */
    if (!err && cf.url) {
        must(cf.url[0] != '\0');
        if (url_parse(cf.url, &u, &e) != HF_OK)
            check_message(&e);
    }
    url_free(u);
    config_clear(&cf);
}

static void check_passfile(const uint8_t *data, size_t size)
{
    char text[100];
    struct url *u = NULL;
    hf_error e = { 0 };
    const uint8_t *end = memchr(data, '\n', size);
    size_t len = end ? (size_t)(end - data) : size;
    snprintf(text, sizeof text, "redis://h?passfile=%s", file_with(data, size));
    must(url_parse(text, &u, NULL) == HF_OK);
    if (url_resolve_password(u, "another", &e) != HF_OK) {
        check_message(&e);
        must(!u->password);
    } else { /* exactly the first line */
        size_t got = strlen(u->password);
        must(got > 0 && (got == len || (got + 1 == len && end && data[got] == '\r')));
        must(memcmp(u->password, data, got) == 0);
    }
    url_free(u);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    if (data[0] == 'p')
        check_passfile(data + 1, size - 1);
    else
        check_config(data + 1, size - 1);
    return 0;
}
