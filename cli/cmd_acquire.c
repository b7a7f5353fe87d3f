/* SPDX-License-Identifier: MIT
 * cmd_acquire.c - holdfast acquire NAME: a lock that outlives this process.
 *
 * Without --hold-pid it is left to its ttl, and whoever has the owner id extends or releases it.
 * With --hold-pid a keeper process renews it as long as that process lives. */
#include "clock.h"
#include "commands.h"
#include "exitcode.h"
#include "holder.h"
#include "message.h"
#include "open.h"
#include "output.h"
#include "platform.h"
#include "take.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- what it prints ---------------------------------------------------------------------- */

/* NAME='value', whatever bytes the value has. */
static void print_assignment(const char *name, const char *value)
{
    printf("%s='", name);
    for (; *value; value++) {
        if (*value == '\'')
            fputs("'\\''", stdout);
        else
            putchar(*value);
    }
    fputs("' ", stdout);
}

static void print_sh(const char *name, const char *owner, const char *fence, const char *ttl)
{
    print_assignment("HOLDFAST_NAME", name);
    print_assignment("HOLDFAST_OWNER", owner);
    print_assignment("HOLDFAST_FENCE", fence);
    print_assignment("HOLDFAST_TTL_MS", ttl);
    puts("; export HOLDFAST_NAME HOLDFAST_OWNER HOLDFAST_FENCE HOLDFAST_TTL_MS");
}

/* 0, or an exit status after a message: a lock whose owner id nobody knows is worth nothing. */
static int print(struct opts *o, const char *name, const char *owner, uint64_t fence)
{
    char number[32], ttl[32], shown[TEXT_ESCAPED(1024) + 8];
    snprintf(number, sizeof number, "%" PRIu64, fence);
    snprintf(ttl, sizeof ttl, "%" PRId64, o->ttl_ms);
    if (o->sh) {
        print_sh(name, owner, number, ttl);
    } else if (o->json || o->output != OUT_TABLE) {
        json_t *j = json_object();
        json_set_name(j, name, strlen(name));
        json_object_set_new(j, "owner", json_bytes(owner, strlen(owner)));
        json_object_set_new(j, "fence", json_integer((json_int_t)fence));
        json_object_set_new(j, "ttl_ms", json_integer(o->ttl_ms));
        json_line(j);
    } else {
        printf("owner=%s fence=%s\n", text_escape(shown, sizeof shown, owner, strlen(owner)),
               number);
    }
    o->sh_told = fflush(stdout) == 0 && !ferror(stdout);
    if (o->sh_told)
        return 0;
    msg_error("cannot write the output: %s", strerror(errno));
    return EX_OUTPUT;
}

/* ---- left to its ttl --------------------------------------------------------------------- */

static int acquire_and_leave(const struct cmd *cmd, struct opts *o, const char *name)
{
    struct taken t = { 0 };
    struct signals s;
    hf_client *c = NULL;
    int code = taken_names(&t, cmd, name, 0);
    signals_block(&s);
    if (code == 0)
        code = client_await(o, NULL, &c);
    if (code == 0)
        code = taken_open(&t, c, o, 1);
    if (code == 0 && taken_wait(&t, o, &code)) {
        code = print(o, name, hf_lock_owner(t.lock[0].m), t.lock[0].fence);
        if (code)
            taken_way_out(&t, o->ttl_ms, "", code);
        if (code == 0)
            taken_leave(&t, 0);
        else
            taken_release(&t);
    }
    taken_end(&t, c, code);
    return code;
}

/* ---- kept for a process ------------------------------------------------------------------ */

#define ENDS_MS 1000 /* so long we wait for the end of the keeper at most */

/* The keeper sees the end of file, takes back what it asked for, and ends. We wait for that, so
 * that nothing is left behind when we are gone; but not for one that is stopped. */
static void dismiss_keeper(int fd)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };
    struct holder_report r;
    int64_t until = clock_now_ms() + ENDS_MS;
    shutdown(fd, SHUT_WR);
    for (int64_t left; (left = until - clock_now_ms()) > 0;)
        if (poll(&p, 1, (int)left) == 1 && recv(fd, &r, sizeof r, 0) <= 0)
            return;
}

/* The keeper's report, or 0. A signal ends the wait. */
static int wait_for_report(int fd, int signal_fd, struct holder_report *r, int *ret_code)
{
    struct pollfd p[] = { { .fd = fd, .events = POLLIN }, { .fd = signal_fd, .events = POLLIN } };
    for (;;) {
        poll(p, 2, -1);
        int sig = p[1].revents ? platform_signal_read(signal_fd) : 0;
        if (sig) {
            if (sig == SIGTSTP) {
                signals_stop(SIGTSTP, 0);
                continue;
            }
            dismiss_keeper(fd);
            *ret_code = EX_SIGNAL + sig;
            return 0;
        }
        if (!p[0].revents)
            continue;
        if (recv(fd, r, sizeof *r, 0) == (ssize_t)sizeof *r)
            return 1;
        msg_error_about("the keeper process has died");
        *ret_code = EX_BUG;
        return 0;
    }
}

static int acquire_and_keep(const struct cmd *cmd, struct opts *o, const char *name)
{
    struct holder_report r;
    struct signals s;
    int code = 0;
    int target = holder_target(cmd, o, &code);
    if (target < 0)
        return code;
    int fd = holder_start(cmd, o, name, target, &code);
    close(target);
    if (fd < 0)
        return code;
    signals_block(&s);
    int signal_fd = signals_fd(&s, signals_ending);
    if (wait_for_report(fd, signal_fd, &r, &code)) {
        code = r.code;
        if (r.held)
            code = print(o, name, r.owner, r.fence);
        if (r.held && code == 0)
            send(fd, "", 1, MSG_NOSIGNAL);
    }
    close(signal_fd);
    close(fd);
    return code;
}

int cmd_acquire(const struct cmd *cmd, struct opts *o, int argc, char **argv)
{
    if (argc != 1)
        return usage_error(cmd, argc ? "one lock at a time" : "the lock's name is missing");
    int code = options_check_take(o, cmd);
    if (code)
        return code;
    if (o->sh && o->output != OUT_TABLE)
        return usage_error(cmd, "--sh and -o cannot be used together");
    return o->hold_pid ? acquire_and_keep(cmd, o, argv[0]) : acquire_and_leave(cmd, o, argv[0]);
}
