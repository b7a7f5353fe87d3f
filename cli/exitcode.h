/* SPDX-License-Identifier: MIT
 * exitcode.h - the exit status of holdfast(1): a documented interface, one list. */
#ifndef CLI_EXITCODE_H
#define CLI_EXITCODE_H

#include <holdfast.h>
#include <stdio.h>

enum exit_code {
    EX_OKAY = 0,
    EX_FREE = 1, /* held: nobody holds it */
    EX_USE = 64,
    EX_SERVER = 69,
    EX_BUG = 70,
    EX_SYSTEM = 71,
    EX_OUTPUT = 74,
    EX_BUSY = 75,
    EX_LOGIN = 77,
    EX_SETTINGS = 78,
    EX_LOST = 79,
    EX_MAX_RUN = 80,
    EX_DEADLOCK = 81,
    EX_NOT_OWNER = 82,
    EX_CANNOT_RUN = 126,
    EX_NOT_FOUND = 127,
    EX_SIGNAL = 128 /* plus the signal's number */
};

/* The exit status for a result of the library. HF_ECANCELED has none of its own: it is the
 * caller who knows which signal cancelled. */
int exit_code_of(hf_err e);

/* The table of --help. */
void exit_codes_print(FILE *f);

#endif
