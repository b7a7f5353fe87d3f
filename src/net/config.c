/* SPDX-License-Identifier: MIT
 * config.c - the file that names the server for the whole machine.
 *
 * Whoever can change it can send all locks elsewhere, so only root and we ourselves may. A mistake
 * in it is an error and never means "no server named": then every machine would be alone with its
 * locks, and nobody would notice.
 */
#include "net/config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/process.h"

#define MAX_FILE 65536

static void closep(int *fd)
{
    if (*fd >= 0)
        close(*fd);
}

void config_clear(struct config *cf)
{
    if (cf->url)
        explicit_bzero(cf->url, strlen(cf->url));
    mem_free(cf->url);
    mem_free(cf->prefix);
    mem_free(cf->passfile);
    cf->url = cf->prefix = cf->passfile = NULL;
}

static hf_err fault(const struct config *cf, hf_error *reterr, const char *why)
{
    return err_set(reterr, HF_ECONFIG, "cannot use the configuration file %s: %s", cf->shown, why);
}

/* ---- lines --------------------------------------------------------------------------------- */

static bool blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* Without blanks at both ends; text is cut in place. */
static char *trimmed(char *text)
{
    while (blank(*text))
        text++;
    size_t n = strlen(text);
    while (n > 0 && blank(text[n - 1]))
        n--;
    text[n] = '\0';
    return text;
}

/* A # begins a comment at the start of the line or behind a blank: inside of a word it belongs to
 * a path or a prefix. */
static void cut_comment(char *line)
{
    for (char *p = line; *p; p++) {
        if (*p == '#' && (p == line || blank(p[-1]))) {
            *p = '\0';
            return;
        }
    }
}

static char **field_of(struct config *cf, const char *key)
{
    return strcmp(key, "url") == 0        ? &cf->url
           : strcmp(key, "prefix") == 0   ? &cf->prefix
           : strcmp(key, "passfile") == 0 ? &cf->passfile
                                          : NULL;
}

/* Nothing of the line but a known key is shown: the rest may hold a password. */
static hf_err take_line(struct config *cf, char *line, int number, hf_error *reterr)
{
    cut_comment(line);
    line = trimmed(line);
    if (!*line)
        return HF_OK;
    char *equals = strchr(line, '=');
    if (equals)
        *equals = '\0';
    char *key = trimmed(line), *value = equals ? trimmed(equals + 1) : NULL;
    char **to = field_of(cf, key);
    if (!equals || !to)
        return err_set(reterr, HF_ECONFIG,
                       "configuration file %s, line %d: %s. Lines are: key = value, and the keys "
                       "are url, prefix and passfile", cf->shown, number,
                       equals ? "unknown key" : "no = in it");
    if (*to)
        return err_set(reterr, HF_ECONFIG, "configuration file %s, line %d: %s for the second time",
                       cf->shown, number, key);
    if (!*value && to != &cf->prefix)
        return err_set(reterr, HF_ECONFIG, "configuration file %s, line %d: %s is empty. Give it a "
                       "value, or remove the line", cf->shown, number, key);
    *to = mem_copy(value, strlen(value));
    return *to ? HF_OK : err_set(reterr, HF_ENOMEM, "out of memory");
}

static hf_err take_lines(struct config *cf, char *text, hf_error *reterr)
{
    hf_err e = HF_OK;
    int number = 0;
    for (char *next = text; next && !e;) {
        char *line = next, *end = strchr(line, '\n');
        next = end ? end + 1 : NULL;
        if (end)
            *end = '\0';
        e = take_line(cf, line, ++number, reterr);
    }
    return e;
}

/* ---- the file ------------------------------------------------------------------------------ */

/* Why the file cannot be trusted; NULL: it can. */
static const char *distrust(const struct stat *st)
{
    if (!S_ISREG(st->st_mode))
        return "not a regular file";
    if (st->st_uid != 0 && st->st_uid != geteuid())
        return "it belongs to another user: only root or you may own it (chown it)";
    if (st->st_mode & (S_IWGRP | S_IWOTH))
        return "others can write to it: chmod go-w it";
    return st->st_size > MAX_FILE ? "it is too large" : NULL;
}

/* user:password@ in the part in front of the path. */
static bool has_password(const char *url)
{
    const char *from = url ? strstr(url, "//") : NULL;
    const char *at = from ? strrchr(from, '@') : NULL;
    return at && memchr(from + 2, ':', (size_t)(at - from) - 2);
}

/* All that fd has, with a NUL behind it; NULL and errno: not read. */
static char *read_text(int fd, size_t *ret_len)
{
    size_t used = 0;
    char *text = mem_zalloc(MAX_FILE + 1);
    ssize_t n = 1;
    while (text && used < MAX_FILE && n != 0) {
        n = read(fd, text + used, MAX_FILE - used);
        if (n > 0)
            used += (size_t)n;
        else if (n < 0 && errno != EINTR)
            return mem_free(text), NULL;
    }
    *ret_len = used;
    return text;
}

static hf_err read_from(struct config *cf, int fd, hf_error *reterr)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return fault(cf, reterr, strerror(errno));
    const char *why = distrust(&st);
    if (why)
        return fault(cf, reterr, why);
    size_t len = 0;
    char *text = read_text(fd, &len);
    if (!text)
        return fault(cf, reterr, strerror(errno));
    hf_err e = memchr(text, '\0', len) ? fault(cf, reterr, "it has a NUL byte: it is not text")
                                       : take_lines(cf, text, reterr);
    explicit_bzero(text, len);
    mem_free(text);
    if (!e && has_password(cf->url) && (st.st_mode & S_IROTH))
        e = fault(cf, reterr, "its url has a password, and everybody can read the file: chmod o-r "
                  "it, or put the password into a file of its own and name it with passfile =");
    return e;
}

hf_err config_read(struct config *ret, hf_error *reterr)
{
    const char *env = process_getenv("HOLDFAST_CONFIG"), *path = env ? env : CONFIG_PATH;
    *ret = (struct config){ 0 };
    err_quote(ret->shown, sizeof ret->shown, path, strlen(path));
    if (!*path)
        return err_set(reterr, HF_ECONFIG, "HOLDFAST_CONFIG is set but empty: name the "
                       "configuration file, or unset it");
    if (strcmp(path, "/dev/null") == 0) /* the usual way to say: none, whatever the machine has */
        return HF_OK;
    /* Non-blocking, so that the name of a fifo gives an error instead of hanging. */
    AUTO(closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0 && !env && (errno == ENOENT || errno == ENOTDIR))
        return HF_OK;
    hf_err e = fd < 0 ? fault(ret, reterr, strerror(errno)) : read_from(ret, fd, reterr);
    if (e)
        config_clear(ret);
    return e;
}
