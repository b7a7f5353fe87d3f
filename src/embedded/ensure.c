/* SPDX-License-Identifier: MIT
 * ensure.c - the private server that is there without set-up.
 *
 *  1  One server per folder, however many processes start it at the same moment and whichever of
 *     them are killed meanwhile (folder.h tells how); and one server per user, whatever each of its
 *     processes sees of the file system (claim.h).
 *  2  It outlives its starter. When it is killed the next client starts it again, with every lock
 *     still held (append-only file).
 *  3  Only its own user can reach it, and a server of somebody else is never used.
 */
#include "embedded/ensure.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/forkguard.h"
#include "base/mem.h"
#include "net/probe.h"
#include "base/claim.h"
#include "embedded/folder.h"
#include "embedded/launch.h"

#define LOOK_MS     5
#define LOOK_MAX_MS 50
#define ROOTS   "/run/holdfast"

/* By the user id alone, never by the environment: a cron job and a login shell of one user must
 * find the same server, and XDG_RUNTIME_DIR or TMPDIR is there for one and not for the other. Two
 * servers would be two sets of locks, and nobody would notice. */
static void default_dir(char dir[PATH_MAX])
{
    uid_t uid = geteuid();
    if (uid == 0 && (access(ROOTS, F_OK) == 0
                     || faccessat(AT_FDCWD, "/run", W_OK | X_OK, AT_EACCESS) == 0))
        snprintf(dir, PATH_MAX, "%s", ROOTS);
    else
        snprintf(dir, PATH_MAX, "/tmp/holdfast-%lu", (unsigned long)uid);
}

/* What the claim of its server is named after; NULL: it is the user's own. */
static const char *named(const char *dir)
{
    char own[PATH_MAX];
    snprintf(own, sizeof own, "/tmp/holdfast-%lu", (unsigned long)geteuid());
    bool is_own = strcmp(dir, own) == 0 || (geteuid() == 0 && strcmp(dir, ROOTS) == 0);
    return is_own ? NULL : dir;
}

pid_t embedded_holder(const char *dir)
{
    return claim_holder(named(dir));
}

hf_err embedded_dir(const char *dir, char **ret, hf_error *reterr)
{
    char path[PATH_MAX] = "";
    size_t at = 0;

    if (!dir || !*dir) {
        default_dir(path);
        dir = path;
    } else if (*dir != '/') {
        if (!getcwd(path, sizeof path))
            return err_set(reterr, HF_ESYS,
                           "the present folder has no name (%s), so embedded:DIR must begin "
                           "with /", strerror(errno));
        at = strlen(path);
    }
    size_t len = strlen(dir);
    while (len > 1 && dir[len - 1] == '/') /* "link/" would hide that it is a link */
        len--;
    char *made = mem_alloc(at + 1 + len + 1);
    if (!made)
        return err_set(reterr, HF_ENOMEM, "out of memory");
    if (at) {
        memcpy(made, path, at);
        if (path[at - 1] != '/')
            made[at++] = '/';
    }
    memcpy(made + at, dir, len);
    made[at + len] = '\0';
    *ret = made;
    return HF_OK;
}

hf_err embedded_socket(const char *dir, char **ret, hf_error *reterr)
{
    static const char name[] = "/redis.sock";
    size_t max = sizeof((struct sockaddr_un *)0)->sun_path - sizeof name, len = strlen(dir);

    if (len > max) {
        char q[160];
        return err_set(reterr, HF_ECONFIG,
                       "the embedded server's folder %s has a name of %zu bytes, and a socket in "
                       "it can be reached only with %zu or less: name another one with "
                       "embedded:DIR", err_quote(q, sizeof q, dir, len), len, max);
    }
    char *path = mem_alloc(len + sizeof name);
    if (!path)
        return err_set(reterr, HF_ENOMEM, "out of memory");
    memcpy(path, dir, len);
    memcpy(path + len, name, sizeof name);
    *ret = path;
    return HF_OK;
}

/* ---- starting ---- */

/* Between two looks. Whoever waits for a server that another process starts looks less and less
 * often: to look costs a walk through /proc, and a hundred who do that leave the other one no time
 * to start it. */
static void pause_between(const struct limit *lim, int64_t *look_ms)
{
    limit_sleep(lim, *look_ms);
    *look_ms = clock_earlier(*look_ms + *look_ms / 2, LOOK_MAX_MS);
}

static hf_err too_late(const struct launch *l, enum probe_state state, hf_error *reterr)
{
    char q[160];

    err_quote(q, sizeof q, l->dir, strlen(l->dir));
    if (state == PROBE_LOADING)
        return err_set(reterr, HF_ECONN,
                       "the embedded server in %s is still loading its data: try again, or allow "
                       "more time", q);
    if (state == PROBE_BUSY)
        return err_set(reterr, HF_ECONN,
                       "the embedded server in %s (process %ld) does not answer: see server.log "
                       "there; if it hangs, kill it, no lock is lost by that", q,
                       launch_pid_in(l->dir));
    if (l->pid)
        return err_set(reterr, HF_ECONN,
                       "the embedded server in %s (process %ld) was started and is not up in "
                       "time: see server.log there, try again, or allow more time", q,
                       (long)l->pid);
    if (l->claimed)
        return err_set(reterr, HF_ECONN,
                       "you have an embedded server already, and a second one in %s would grant "
                       "its locks again; but %s", q,
                       l->holder ? "it does not answer: try again"
                                 : "it cannot be reached from here: it is starting or ending just "
                                   "now, or its process is another user's or in another "
                                   "container; try again, and if that does not help, name a folder "
                                   "of its own with embedded:DIR, or use a server with --url");
    return err_set(reterr, HF_ECONN,
                   "an embedded server still runs in %s (process %ld by server.pid) but its "
                   "socket is gone: kill it and try again, no lock is lost by that", q,
                   launch_pid_in(l->dir));
}

static hf_err died(const struct launch *l, hf_error *reterr)
{
    char q[160], words[200];
    return err_set(reterr, HF_ECONN,
                   "the embedded server in %s ended at once; the end of its server.log: %s",
                   err_quote(q, sizeof q, l->dir, strlen(l->dir)),
                   launch_last_words(l, words, sizeof words));
}

static hf_err cut_off(const struct launch *l, pid_t pid, hf_error *reterr)
{
    char q[160];
    return err_set(reterr, HF_ECONN,
                   "the folder of your embedded server (process %ld) was removed while it runs, "
                   "and a second one beside it would grant its locks again: end it with kill %ld, "
                   "its locks end with it; then a new one starts in %s", (long)pid, (long)pid,
                   err_quote(q, sizeof q, l->dir, strlen(l->dir)));
}

/* There is a server, but not in this folder as we see it: it is used where it is. */
static hf_err join_elsewhere(struct launch *l, const struct limit *lim, hf_error *reterr)
{
    enum probe_state state = PROBE_ABSENT;
    l->claimed = true;
    l->holder = embedded_holder(l->dir);
    if (!l->holder)
        return HF_OK; /* starting, ending, or out of sight */
    if (claim_is_cut_off(l->holder))
        return cut_off(l, l->holder, reterr);
    claim_path(l->holder, "/redis.sock", l->elsewhere);
    hf_err e = probe_ping(l->elsewhere, lim, &state, reterr);
    if (e || state != PROBE_READY)
        l->elsewhere[0] = '\0';
    return e;
}

/* Nobody listens. Start a server unless one lives all the same: it has not got that far yet, or is
 * about to end, or is where we do not see its folder. */
static hf_err start_if_dead(struct launch *l, const struct limit *lim, hf_error *reterr)
{
    int life = -1, claim = -1;
    hf_err e = folder_try_life(l->dir, &life, reterr);
    if (e || life < 0)
        return e;
    if (l->pid) {
        e = died(l, reterr);
    } else if (!(e = claim_take(named(l->dir), &claim, reterr)) && claim < 0) {
        e = join_elsewhere(l, lim, reterr);
    } else if (!e) {
        l->life_fd = life;
        l->claim_fd = claim;
        e = launch_server(l, lim, reterr);
    }
    if (claim >= 0)
        forkguard_close(claim);
    forkguard_close(life);
    return e;
}

/* Holds: DIR/lock. */
static hf_err bring_up(struct launch *l, const struct limit *lim, hf_error *reterr)
{
    for (int64_t look_ms = LOOK_MS;;) {
        enum probe_state state = PROBE_ABSENT;
        hf_err e = probe_ping(l->socket, lim, &state, reterr);
        if (!e && state == PROBE_READY)
            return HF_OK;
        if (!e && state == PROBE_ABSENT)
            e = start_if_dead(l, lim, reterr);
        if (e || l->elsewhere[0])
            return e;
        if (limit_over(lim))
            return too_late(l, state, reterr);
        if (l->pid) /* ours: nobody else is kept from anything */
            look_ms = LOOK_MS;
        pause_between(lim, &look_ms);
    }
}

/* Can it be connected to? Its login and its state are then the caller's to find out. */
static hf_err is_there(const char *socket, int *ret, hf_error *reterr)
{
    int fd = -1;
    hf_err e = probe_connect(socket, &fd, NULL, reterr);
    *ret = !e && fd >= 0;
    if (*ret)
        forkguard_close(fd);
    return e == HF_ECONN ? HF_OK : e;
}

/* Take DIR/lock, unless the server is there before that. */
static hf_err take_lock(int fd, const struct launch *l, const struct limit *lim, int *ret_there,
                        hf_error *reterr)
{
    char q[160];

    err_quote(q, sizeof q, l->dir, strlen(l->dir));
    for (int64_t look_ms = LOOK_MS;;) {
        int got = folder_try_lock(fd);
        if (got < 0)
            return err_set(reterr, HF_ESYS, "lock in %s cannot be locked: %s; name a folder on "
                           "another file system with embedded:DIR", q, strerror(errno));
        if (got)
            return HF_OK;
        if (limit_over(lim))
            return err_set(reterr, HF_ECONN,
                           "another process is starting or stopping the embedded server in %s "
                           "and has not finished: try again", q);
        pause_between(lim, &look_ms);
        hf_err e = is_there(l->socket, ret_there, reterr);
        if (e || *ret_there)
            return e;
    }
}

hf_err embedded_find(const char *dir, char **ret_socket, pid_t *ret_elsewhere, hf_error *reterr)
{
    int there = 0;
    *ret_elsewhere = 0;
    hf_err e = embedded_socket(dir, ret_socket, reterr);
    if (!e && is_there(*ret_socket, &there, NULL) == HF_OK && there)
        return HF_OK;
    pid_t pid = e ? 0 : embedded_holder(dir);
    char path[CLAIM_PATH_MAX];
    if (pid)
        claim_path(pid, "/redis.sock", path);
    if (!pid || is_there(path, &there, NULL) || !there)
        return e;
    mem_free(*ret_socket);
    *ret_socket = mem_copy(path, strlen(path));
    *ret_elsewhere = pid;
    return *ret_socket ? HF_OK : err_set(reterr, HF_ENOMEM, "out of memory");
}

hf_err embedded_ensure(const char *dir, const struct limit *lim, const struct log *log,
                       char **ret_socket, hf_error *reterr)
{
    char *socket = NULL;
    int there = 0, fd = -1;

    hf_err e = embedded_socket(dir, &socket, reterr);
    if (!e)
        e = folder_make(dir, reterr);
    if (!e)
        e = is_there(socket, &there, reterr);
    if (!e && !there)
        e = folder_open_lock(dir, &fd, reterr);
    struct launch l = { .dir = dir, .socket = socket, .life_fd = -1, .claim_fd = -1 };
    if (!e && !there)
        e = take_lock(fd, &l, lim, &there, reterr);
    if (!e && !there)
        e = bring_up(&l, lim, reterr);
    if (fd >= 0)
        folder_unlock(fd);
    if (!e && l.pid && log)
        log_to(log, HF_LOG_INFO, "started the embedded server in %s, process %ld", dir,
               (long)l.pid);
    if (!e && l.elsewhere[0]) {
        mem_free(socket);
        socket = mem_copy(l.elsewhere, strlen(l.elsewhere));
        if (!socket)
            e = err_set(reterr, HF_ENOMEM, "out of memory");
    }
    if (e)
        mem_free(socket);
    else
        *ret_socket = socket;
    return e;
}
