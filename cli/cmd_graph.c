/* SPDX-License-Identifier: MIT
 * cmd_graph.c - holdfast graph [PATTERN]: who waits for whom. */
#include "clock.h"
#include "commands.h"
#include "exitcode.h"
#include "gather.h"
#include "graph.h"
#include "message.h"
#include "open.h"

static int print(const struct opts *o, const struct scene *s)
{
    struct graph g;
    if (graph_build(&g, s) != 0)
        return msg_failed(HF_ENOMEM, NULL);
    if (o->dot)
        graph_print_dot(&g, stdout);
    else if (o->svg)
        graph_print_svg(&g, stdout, 1);
    else if (o->output != OUT_TABLE)
        json_line(graph_json(&g));
    else if (g.n)
        graph_print_text(&g, stdout);
    else
        msg_note("nobody waits");
    graph_free(&g);
    return EX_OKAY;
}

int cmd_graph(const struct cmd *cmd, struct opts *o, int argc, char **argv)
{
    struct scene s = { 0 };
    hf_client *c = NULL;
    hf_error err;
    if (argc > 1)
        return usage_error(cmd, "one pattern at most: quote it, so that the shell does not "
                                "expand it");
    if (!!o->dot + !!o->svg + (o->output != OUT_TABLE) > 1)
        return usage_error(cmd, "of --dot, --svg and -o only one can be used");
    int code = client_open(o, NULL, &c);
    if (code)
        return code;
    hf_err e = gather_look(c, argc ? argv[0] : NULL, &s, NULL, &err);
    if (e == HF_OK || s.partial)
        code = print(o, &s);
    if (e != HF_OK) {
        fflush(stdout);
        code = msg_failed(e, &err);
    }
    scene_free(&s);
    client_close(c);
    return code;
}
