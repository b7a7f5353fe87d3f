/* SPDX-License-Identifier: MIT
 * commands.h - one function per command. argv holds the operands alone. Each returns the exit
 * status of the program. */
#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H

#include "options.h"

/* The table of commands, in the order of --help. NULL: behind the last; there is none of that
 * name. */
const struct cmd *command_at(int i);
const struct cmd *command_named(const char *name);

int cmd_run(const struct cmd *cmd, struct opts *o, int argc, char **argv);
int cmd_once(const struct cmd *cmd, struct opts *o, int argc, char **argv);
int cmd_acquire(const struct cmd *cmd, struct opts *o, int argc, char **argv);
int cmd_extend(const struct cmd *cmd, struct opts *o, int argc, char **argv);
int cmd_release(const struct cmd *cmd, struct opts *o, int argc, char **argv);
int cmd_check(const struct cmd *cmd, struct opts *o, int argc, char **argv);
int cmd_held(const struct cmd *cmd, struct opts *o, int argc, char **argv);
int cmd_resize(const struct cmd *cmd, struct opts *o, int argc, char **argv);
int cmd_why(const struct cmd *cmd, struct opts *o, int argc, char **argv);
int cmd_status(const struct cmd *cmd, struct opts *o, int argc, char **argv);
int cmd_ls(const struct cmd *cmd, struct opts *o, int argc, char **argv);
int cmd_break(const struct cmd *cmd, struct opts *o, int argc, char **argv);
int cmd_ask(const struct cmd *cmd, struct opts *o, int argc, char **argv);
int cmd_elect(const struct cmd *cmd, struct opts *o, int argc, char **argv);
int cmd_leader(const struct cmd *cmd, struct opts *o, int argc, char **argv);
int cmd_sequence(const struct cmd *cmd, struct opts *o, int argc, char **argv);
int cmd_latch(const struct cmd *cmd, struct opts *o, int argc, char **argv);
int cmd_barrier(const struct cmd *cmd, struct opts *o, int argc, char **argv);
int cmd_doctor(const struct cmd *cmd, struct opts *o, int argc, char **argv);
int cmd_bench(const struct cmd *cmd, struct opts *o, int argc, char **argv);
int cmd_top(const struct cmd *cmd, struct opts *o, int argc, char **argv);
int cmd_web(const struct cmd *cmd, struct opts *o, int argc, char **argv);
int cmd_graph(const struct cmd *cmd, struct opts *o, int argc, char **argv);
int cmd_watch(const struct cmd *cmd, struct opts *o, int argc, char **argv);
int cmd_history(const struct cmd *cmd, struct opts *o, int argc, char **argv);
int cmd_exporter(const struct cmd *cmd, struct opts *o, int argc, char **argv);
int cmd_server(const struct cmd *cmd, struct opts *o, int argc, char **argv);

#endif
