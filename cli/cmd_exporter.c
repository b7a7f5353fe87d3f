/* SPDX-License-Identifier: MIT
 * cmd_exporter.c - holdfast exporter [PATTERN]: metrics of the locks, for Prometheus. */
#include "commands.h"
int cmd_exporter(const struct cmd *cmd, struct opts *o, int argc, char **argv)
{
    (void)o; (void)argc; (void)argv;
    return usage_error(cmd, "not yet");
}
