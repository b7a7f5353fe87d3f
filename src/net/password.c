/* SPDX-License-Identifier: MIT
 * password.c - where the password comes from when the URL has none.
 */
#include "net/url.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"

#define MAX_PASSWORD 4096 /* in a file */

static void closep(int *fd)
{
    if (*fd >= 0)
        close(*fd);
}

/* Why fd cannot be a password file; NULL: it can. */
static const char *passfile_fault(int fd)
{
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return strerror(errno);
    if (!S_ISREG(st.st_mode))
        return "not a regular file";
    if (st.st_mode & (S_IRGRP | S_IROTH))
        return "others may read it: chmod 600 it";
    if (st.st_mode & (S_IWGRP | S_IWOTH)) /* and so choose who we are */
        return "others may write it: chmod 600 it";
    if (st.st_uid != geteuid() && st.st_uid != 0)
        return "it belongs to another user: chown it to yours, or to root";
    return NULL;
}

/* Fill buf with what fd has; the number of bytes, or -1. */
static ssize_t read_all(int fd, char *buf, size_t size)
{
    size_t used = 0;
    while (used < size) {
        ssize_t n = read(fd, buf + used, size - used);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        if (n == 0)
            break;
        used += (size_t)n;
    }
    return (ssize_t)used;
}

static hf_err read_passfile(const char *file, char **ret, hf_error *reterr)
{
    char buf[MAX_PASSWORD + 1], path[160];
    /* Non-blocking, so that the name of a fifo gives an error instead of hanging. */
    AUTO(closep) int fd = open(file, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    const char *fault = passfile_fault(fd);
    ssize_t n = fault ? 0 : read_all(fd, buf, sizeof buf);
    hf_err err = HF_OK;

    if (n < 0)
        fault = strerror(errno);
    size_t len = 0, max = n > 0 ? (size_t)n : 0;
    while (len < max && buf[len] != '\n')
        len++;
    if (!fault && len > MAX_PASSWORD)
        fault = "its first line is too long for a password";
    else if (!fault && memchr(buf, '\0', len))
        fault = "its first line has a NUL byte: a password is text";
    if (len < max && len > 0 && buf[len - 1] == '\r') /* CRLF is a newline, too */
        len--;
    if (!fault && len == 0)
        fault = "its first line, the password, is empty";
    if (fault)
        err = err_set(reterr, HF_ECONFIG, "cannot use the password file %s: %s",
                      err_quote(path, sizeof path, file, strlen(file)), fault);
    else if (!(*ret = mem_copy(buf, len)))
        err = err_set(reterr, HF_ENOMEM, "out of memory");
    explicit_bzero(buf, sizeof buf);
    return err;
}

static hf_err resolve(const char *file, const char *fallback, char **ret, hf_error *reterr)
{
    if (*ret)
        return HF_OK;
    if (file)
        return read_passfile(file, ret, reterr);
    if (fallback && *fallback && !(*ret = mem_copy(fallback, strlen(fallback))))
        return err_set(reterr, HF_ENOMEM, "out of memory");
    return HF_OK;
}

hf_err url_resolve_password(struct url *u, const char *fallback, hf_error *reterr)
{
    return resolve(u->passfile, fallback, &u->password, reterr);
}

hf_err url_resolve_sentinel_password(struct url *u, const char *fallback, hf_error *reterr)
{
    hf_err e = resolve(u->sentinel_passfile, fallback, &u->sentinel_password, reterr);
    if (!e && u->sentinel_user && !u->sentinel_password)
        e = err_set(reterr, HF_ECONFIG,
                    "sentinel_user= is given without a password: add sentinel_passfile=, or set "
                    "$HOLDFAST_SENTINEL_PASSWORD");
    return e;
}

void url_set_password(struct url *u, const char *password)
{
    if (u->password)
        explicit_bzero(u->password, strlen(u->password));
    mem_free(u->password);
    u->password = mem_copy(password, strlen(password));
}
