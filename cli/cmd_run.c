/* SPDX-License-Identifier: MIT
 * cmd_run.c - holdfast run NAME[,NAME...] -- CMD ARG... */
#include "child.h"
#include "clock.h"
#include "command.h"
#include "commands.h"
#include "exitcode.h"
#include "message.h"
#include "open.h"
#include "supervise.h"
#include "take.h"

#include <stdio.h>
#include <unistd.h>

/* CMD has ended. With --hold-min the lock outlives us for the rest of that time, so that a host
 * with a clock that is a little late does not run a short job a second time. 1: nothing is left to
 * do. */
static int let_go(struct taken *t, const struct opts *o, const struct child *c, int code)
{
    int64_t rest = o->hold_min_ms == GIVEN_NOT ? 0 : t->since_ms + o->hold_min_ms - clock_now_ms();
    char said[32];
    snprintf(said, sizeof said, "exit %d", code);
    if (c->pid > 0 && !c->exec_error)
        taken_note(t, said);
    taken_way_out(t, rest > o->ttl_ms ? rest : o->ttl_ms, "", code);
    if (c->left_alive)
        taken_abandon(t, rest > o->ttl_ms ? rest : o->ttl_ms);
    if (c->left_alive || (c->lost && taken_all_lost(t)))
        return 1;
    if (rest <= 0 || c->lost || c->pid <= 0 || c->exec_error)
        return taken_release(t);
    taken_leave(t, rest < HF_TTL_MIN_MS ? HF_TTL_MIN_MS : rest);
    return 1;
}

static int run_locked(struct taken *t, struct child *c, const struct opts *o,
                      const struct signals *s, const char *list, char **argv)
{
    int code = 0;
    if (!taken_wait(t, o, &code))
        return code;
    code = command_environment(t, list, o);
    if (code == 0)
        code = supervise(c, t, o, s, argv, environ);
    child_reap(c, let_go(t, o, c, code));
    return code;
}

int cmd_run(const struct cmd *cmd, struct opts *o, int argc, char **argv)
{
    struct taken t = { 0 };
    struct child c = { 0 };
    struct signals s;
    hf_client *client = NULL;
    int code = options_check_take(o, cmd);
    if (code)
        return code;
    char **command = command_find(cmd, o, argc, argv);
    if (!command)
        return EX_USE;
    signals_block(&s); /* before the library's threads inherit the mask */
    code = taken_names(&t, cmd, argv[0], ',');
    if (code == 0)
        code = client_await(o, command_program(command), &client);
    if (code == 0)
        client_tell_default(o);
    if (code == 0)
        code = taken_open(&t, client, o, 0);
    if (code == 0)
        code = run_locked(&t, &c, o, &s, argv[0], command);
    taken_end(&t, client, code);
    if (c.pid > 0)
        child_pass_interrupt(&c, &s);
    return code;
}
