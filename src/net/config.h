/* SPDX-License-Identifier: MIT
 * config.h - the file that names the server for the whole machine.
 */
#ifndef NET_CONFIG_H
#define NET_CONFIG_H

#include "base/err.h"

#define CONFIG_PATH "/etc/holdfast.conf" /* unless $HOLDFAST_CONFIG names another */

/* What it says; NULL: nothing. */
struct config {
    char *url; /* wiped by config_clear() */
    char *prefix, *passfile;
    char  shown[160]; /* the file's name, quoted for messages */
};

/* Read it. That there is no CONFIG_PATH is no error; everything else is: what cannot be read or
 * understood might have named the server. HF_ECONFIG, HF_ENOMEM. On failure *ret is clear. */
hf_err config_read(struct config *ret, hf_error *reterr);
void config_clear(struct config *cf);

#endif
