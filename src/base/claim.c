/* SPDX-License-Identifier: MIT
 * claim.c - one embedded server for each user, as far as the kernel can tell.
 */
#include "base/claim.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/forkguard.h"

/* ---- the name -------------------------------------------------------------------------------- */

/* Of a folder whose path is too long for a name. */
static uint64_t digest(const char *s)
{
    uint64_t h = UINT64_C(14695981039346656037);
    for (; *s; s++)
        h = (h ^ (unsigned char)*s) * UINT64_C(1099511628211);
    return h;
}

#define NAME_SIZE (sizeof((struct sockaddr_un *)0)->sun_path - 1)

/* What follows the NUL of an abstract name. */
static void make_name(const char *named, char name[NAME_SIZE])
{
    unsigned long uid = (unsigned long)geteuid();
    if (!named)
        snprintf(name, NAME_SIZE, "holdfast:%lu", uid);
    else if ((size_t)snprintf(name, NAME_SIZE, "holdfast:%lu:%s", uid, named) >= NAME_SIZE)
        snprintf(name, NAME_SIZE, "holdfast:%lu:%016" PRIx64, uid, digest(named));
}

hf_err claim_take(const char *named, int *ret_fd, hf_error *reterr)
{
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    make_name(named, at.sun_path + 1);
    socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1
                                + strlen(at.sun_path + 1));
    *ret_fd = -1;
    int fd = forkguard_keep(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (fd < 0)
        return err_set(reterr, errno == ENOMEM ? HF_ENOMEM : HF_ESYS, "no socket can be made: %s",
                       strerror(errno));
    if (bind(fd, (struct sockaddr *)&at, len) == 0) {
        *ret_fd = fd;
        return HF_OK;
    }
    int why = errno;
    forkguard_close(fd);
    return why == EADDRINUSE ? HF_OK
                             : err_set(reterr, HF_ESYS, "the name of the embedded server cannot be "
                                       "claimed: %s", strerror(why));
}

/* ---- who has it ------------------------------------------------------------------------------ */

/* The inode of the socket with this name; 0: there is none. */
static unsigned long find_socket(const char *name)
{
    char line[512];
    unsigned long inode = 0;
    FILE *f = fopen("/proc/net/unix", "re");
    while (f && !inode && fgets(line, sizeof line, f)) {
        unsigned long number;
        int path = 0;
        line[strcspn(line, "\n")] = '\0';
        if (sscanf(line, "%*s %*s %*s %*s %*s %*s %lu %n", &number, &path) == 1 && path
            && line[path] == '@' && strcmp(line + path + 1, name) == 0)
            inode = number;
    }
    if (f)
        fclose(f);
    return inode;
}

static int has_socket(long pid, unsigned long inode)
{
    char path[64], want[64], got[64];
    struct stat st;
    snprintf(path, sizeof path, "/proc/%ld", pid);
    if (stat(path, &st) != 0 || st.st_uid != geteuid())
        return 0;
    snprintf(path, sizeof path, "/proc/%ld/fd/%d", pid, CLAIM_FD);
    snprintf(want, sizeof want, "socket:[%lu]", inode);
    ssize_t n = readlink(path, got, sizeof got - 1);
    if (n < 0)
        return 0;
    got[n] = '\0';
    return strcmp(got, want) == 0;
}

pid_t claim_holder(const char *named)
{
    char name[NAME_SIZE];
    make_name(named, name);
    unsigned long inode = find_socket(name);
    DIR *all = inode ? opendir("/proc") : NULL;
    pid_t found = 0;
    for (struct dirent *d; all && !found && (d = readdir(all));) {
        char *end;
        long pid = strtol(d->d_name, &end, 10);
        if (pid > 0 && *end == '\0' && has_socket(pid, inode))
            found = (pid_t)pid;
    }
    if (all)
        closedir(all);
    return found;
}

void claim_path(pid_t pid, const char *file, char ret[CLAIM_PATH_MAX])
{
    snprintf(ret, CLAIM_PATH_MAX, "/proc/%ld/cwd%s", (long)pid, file);
}

int claim_is_cut_off(pid_t pid)
{
    char path[CLAIM_PATH_MAX];
    struct stat st;
    claim_path(pid, "", path);
    return stat(path, &st) == 0 && st.st_nlink == 0;
}
