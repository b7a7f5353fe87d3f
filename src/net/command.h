/* SPDX-License-Identifier: MIT
 * command.h - one command as it goes over the wire, put together argument by argument.
 *
 *     struct command cmd = { 0 };
 *     command_add(&cmd, hf_str("GET"));
 *     command_add(&cmd, key);
 *     if (command_end(&cmd)) ... no memory ...
 *
 * How many arguments there are stands at the beginning and is known at the end: so the beginning is
 * written last, into room that is left for it.
 */
#ifndef NET_COMMAND_H
#define NET_COMMAND_H

#include <stdbool.h>
#include <stdint.h>

#include "holdfast.h"

#define COMMAND_MAX_ARGS (1024 * 1024) /* the server takes no more either */

struct command {
    char  *bytes; /* mem_free() */
    size_t begin; /* the command is bytes + begin, of len bytes */
    size_t len;
    size_t size;
    size_t args;  /* so far */
    bool   short_of_memory, too_long;
};

void command_add(struct command *cmd, hf_bytes arg);
void command_add_text(struct command *cmd, const char *text);
void command_add_int(struct command *cmd, int64_t n);

/* Put what is known last before all that was added: the first words. */
void command_head(struct command *cmd, const hf_bytes *word, size_t words);
/* A whole command of one word before a complete one. HF_ENOMEM: it stays as it was. */
hf_err command_precede(struct command *cmd, const char *word);
/* It is complete. HF_OK; HF_ENOMEM; HF_EINVAL: no argument, or too many, or more than 512 MB. On
 * failure nothing is left of it. */
hf_err command_end(struct command *cmd);
void command_free(struct command *cmd);

/* All at once. */
hf_err command_make(struct command *cmd, int argc, const hf_bytes *argv);

#endif
