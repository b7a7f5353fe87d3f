/* SPDX-License-Identifier: MIT
 * cmd_elect.c - holdfast elect NAME -- CMD ARG...: CMD runs where the leader is.
 *
 *   campaign -> CMD runs -> it ends by itself, or we are told to end: resign, exit
 *                        -> the lock is lost: CMD is stopped in time, campaign again; unless a
 *                           part of CMD could not be ended */
#include "child.h"
#include "command.h"
#include "commands.h"
#include "ending.h"
#include "exitcode.h"
#include "message.h"
#include "open.h"
#include "platform.h"
#include "supervise.h"

#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#define PAUSE_MS 1000

/* Wait a little before the next try. A signal that came meanwhile, or 0. */
static int pause_for(const struct signals *s, int ms)
{
    struct pollfd p = { .fd = signals_fd(s, signals_ending), .events = POLLIN };
    int sig = 0;
    poll(&p, 1, ms);
    if (p.fd >= 0) {
        sig = platform_signal_read(p.fd);
        close(p.fd);
    }
    return sig;
}

/* A server that is away for a while is no reason to give up; it has been told. */
static int worth_another_try(int code)
{
    return code == EX_SERVER || code == EX_LOST;
}

static int lead_and_follow(struct taken *t, struct child *c, const struct opts *o,
                           const struct signals *s, char **argv)
{
    const char *name = t->lock[0].name;
    for (;;) {
        int code = 0;
        *c = (struct child){ 0 };
        if (!taken_wait(t, o, &code)) {
            if (!worth_another_try(code))
                return code;
            int sig = pause_for(s, PAUSE_MS);
            if (sig == SIGTSTP)
                signals_stop(SIGTSTP, 0);
            else if (sig)
                return EX_SIGNAL + sig;
            continue;
        }
        code = command_environment(t, name, o);
        if (code == 0)
            code = supervise(c, t, o, s, argv, environ);
        int over = !c->lost || c->told_to_end || c->left_alive;
        if (over)
            taken_way_out(t, o->ttl_ms, "", code);
        else
            ending_on_signal(); /* CMD is gone */
        if (c->left_alive)
            taken_abandon(t, o->ttl_ms);
        int released = c->left_alive || taken_release(t);
        ending_off();
        child_reap(c, released || !over);
        if (over)
            return code;
        msg_note_about("campaigning again");
    }
}

/* Others look for the leader on some host: that much we know of us. */
static const char *default_value(char *buf, size_t size)
{
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    snprintf(buf, size, "%s:%ld", host, (long)getpid());
    return buf;
}

int cmd_elect(const struct cmd *cmd, struct opts *o, int argc, char **argv)
{
    struct taken t = { 0 };
    struct child c = { 0 };
    struct signals s;
    hf_client *client = NULL;
    char value[300];
    int code = options_check_take(o, cmd);
    if (code)
        return code;
    char **command = command_find(cmd, o, argc, argv);
    if (!command)
        return EX_USE;
    signals_block(&s); /* before the library's threads inherit the mask */
    code = taken_names(&t, cmd, argv[0], 0);
    if (code == 0)
        code = client_await(o, command_program(command), &client);
    if (code == 0)
        code = taken_open_election(&t, client, o,
                                   o->value ? o->value : default_value(value, sizeof value));
    if (code == 0)
        code = lead_and_follow(&t, &c, o, &s, command);
    taken_end(&t, client, code);
    if (c.pid > 0)
        child_pass_interrupt(&c, &s);
    return code;
}
