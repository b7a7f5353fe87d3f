/* SPDX-License-Identifier: MIT
 * folder.c - the embedded server's folder: ours alone, and two file locks in it.
 */
#include "embedded/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/forkguard.h"

#define QUOTED 160 /* a path that holds a socket has at most 107 bytes */

static const char *quote(char *buf, const char *path)
{
    return err_quote(buf, QUOTED, path, strlen(path));
}

/* ---- what is above it ---- */

/* Who may be trusted with what is above: we, root, and who has the top. In a user namespace that
 * does not know root, all that is root's seems to be nobody's. */
static int is_trusted(uid_t uid)
{
    struct stat top;
    return uid == geteuid() || uid == 0 || (stat("/", &top) == 0 && uid == top.st_uid);
}

/* Who may write to a folder can put another one in the place of what is in it; where it is sticky,
 * only what belongs to him. */
static hf_err check_above(const char *dir, const char *above, hf_error *reterr)
{
    struct stat link, st;
    char q[QUOTED], p[QUOTED];

    if (lstat(above, &link) != 0 || stat(above, &st) != 0)
        return HF_OK; /* it is to be made, or using it will say why not */
    quote(q, dir);
    quote(p, above);
    uid_t owner = is_trusted(link.st_uid) ? st.st_uid : link.st_uid;
    if (!is_trusted(owner))
        return err_set(reterr, HF_ECONFIG,
                       "the embedded server's folder %s is below %s, which belongs to user id %lu, "
                       "who could put another one in its place: name one elsewhere with "
                       "embedded:DIR", q, p, (unsigned long)owner);
    if ((st.st_mode & 022) && !(st.st_mode & S_ISVTX))
        return err_set(reterr, HF_ECONFIG,
                       "the embedded server's folder %s is below %s, which others may write (mode "
                       "%04o), so that they could put another one in its place: chmod go-w that, "
                       "or name one elsewhere with embedded:DIR", q, p,
                       (unsigned)st.st_mode & 07777);
    return HF_OK;
}

/* Everything above path. */
static hf_err check_all_above(const char *dir, const char *path, hf_error *reterr)
{
    char above[PATH_MAX];
    hf_err e = HF_OK;

    for (const char *p = path; !e && (p = strchr(p, '/')); p++) {
        size_t len = p == path ? 1 : (size_t)(p - path);
        if (len >= sizeof above)
            break; /* too long for a socket, which is said elsewhere */
        memcpy(above, path, len);
        above[len] = '\0';
        e = check_above(dir, above, reterr);
    }
    return e;
}

/* As it is written and, if there are links in it, as it is. */
static hf_err check_place(const char *dir, hf_error *reterr)
{
    char real[PATH_MAX];
    hf_err e = check_all_above(dir, dir, reterr);
    if (!e && realpath(dir, real) && strcmp(real, dir) != 0)
        e = check_all_above(dir, real, reterr);
    return e;
}

/* ---- the folder itself ---- */

hf_err folder_check(const char *dir, int *ret_there, hf_error *reterr)
{
    struct stat st;
    char q[QUOTED];

    hf_err e = check_place(dir, reterr);
    if (e)
        return e;
    quote(q, dir);
    if (lstat(dir, &st) != 0) {
        if (errno != ENOENT)
            return err_set(reterr, HF_ECONFIG,
                           "the embedded server's folder %s cannot be looked at: %s; name another "
                           "one with embedded:DIR", q, strerror(errno));
        *ret_there = 0;
        return HF_OK;
    }
    if (S_ISLNK(st.st_mode))
        return err_set(reterr, HF_ECONFIG,
                       "the embedded server's folder %s is a symbolic link, which may lead "
                       "anywhere: name the real folder with embedded:DIR, or remove the link", q);
    if (!S_ISDIR(st.st_mode))
        return err_set(reterr, HF_ECONFIG,
                       "the embedded server's folder %s is not a folder: remove it, or name "
                       "another one with embedded:DIR", q);
    if (st.st_uid != geteuid())
        return err_set(reterr, HF_ECONFIG,
                       "the embedded server's folder %s belongs to user id %lu and you are %lu: "
                       "name one of your own with embedded:DIR", q, (unsigned long)st.st_uid,
                       (unsigned long)geteuid());
    if (st.st_mode & 077)
        return err_set(reterr, HF_ECONFIG,
                       "the embedded server's folder %s is open to others (mode %04o): close it "
                       "with chmod 700, or name another one with embedded:DIR", q,
                       (unsigned)st.st_mode & 07777);
    *ret_there = 1;
    return HF_OK;
}

/* mkdir -p, except that what we make is ours alone. */
static int make_path(const char *dir)
{
    char path[PATH_MAX];
    size_t len = strlen(dir);

    if (len >= sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(path, dir, len + 1);
    for (char *p = path + 1; (p = strchr(p, '/')); p++) {
        *p = '\0';
        if (mkdir(path, 0700) != 0 && errno != EEXIST) {
            int why = errno; /* a parent in a place where we may not write is no failure */
            if (access(path, F_OK) != 0) {
                errno = why;
                return -1;
            }
        }
        *p = '/';
    }
    return mkdir(path, 0700) == 0 || errno == EEXIST ? 0 : -1;
}

hf_err folder_make(const char *dir, hf_error *reterr)
{
    int there = 0;
    char q[QUOTED];

    /* Most often it is there. When not, make it first and look then: whoever made it, what counts
     * is what it is now. */
    hf_err e = folder_check(dir, &there, reterr);
    if (e || there)
        return e;
    if (make_path(dir) != 0)
        return err_set(reterr, HF_ECONFIG,
                       "the embedded server's folder %s cannot be made: %s; name another one with "
                       "embedded:DIR", quote(q, dir), strerror(errno));
    e = folder_check(dir, &there, reterr);
    if (!e && !there)
        e = err_set(reterr, HF_ESYS,
                    "the embedded server's folder %s was removed while it was made: try again",
                    quote(q, dir));
    return e;
}

/* ---- the two locks ---- */

static hf_err open_guarded(const char *dir, const char *name, int flags, int *ret_fd,
                           hf_error *reterr)
{
    char path[PATH_MAX], q[QUOTED];

    if ((size_t)snprintf(path, sizeof path, "%s%s", dir, name) >= sizeof path)
        return err_set(reterr, HF_ECONFIG, "the folder's name is too long: %s", quote(q, dir));
    int fd = open(path, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return err_set(reterr, HF_ESYS, "%s cannot be opened: %s", quote(q, path),
                       strerror(errno));
    /* A forked child of this process would keep the lock for as long as it lives. */
    if (forkguard_add(fd) != 0) {
        close(fd);
        return err_set(reterr, HF_ENOMEM, "out of memory");
    }
    *ret_fd = fd;
    return HF_OK;
}

hf_err folder_open_lock(const char *dir, int *ret_fd, hf_error *reterr)
{
    return open_guarded(dir, "/lock", O_RDWR | O_CREAT, ret_fd, reterr);
}

int folder_try_lock(int fd)
{
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno == EWOULDBLOCK)
            return 0;
        if (errno != EINTR)
            return -1;
    }
    return 1;
}

void folder_unlock(int fd)
{
    flock(fd, LOCK_UN);
    forkguard_close(fd);
}

hf_err folder_try_life(const char *dir, int *ret_fd, hf_error *reterr)
{
    int fd = -1;
    hf_err e = open_guarded(dir, "", O_RDONLY | O_DIRECTORY, &fd, reterr);
    if (e)
        return e;
    int got = folder_try_lock(fd);
    if (got < 0) {
        char q[QUOTED];
        e = err_set(reterr, HF_ESYS, "%s cannot be locked: %s; name a folder on another file "
                    "system with embedded:DIR", quote(q, dir), strerror(errno));
    }
    if (got <= 0) {
        forkguard_close(fd);
        fd = -1;
    }
    if (!e)
        *ret_fd = fd;
    return e;
}
