/* SPDX-License-Identifier: MIT
 * folder.h - the embedded server's folder: ours alone, and two file locks in it.
 *
 *   DIR/lock  held while somebody starts or stops the server: one at a time.
 *   DIR       the folder itself, locked by the server for as long as it lives: the descriptor is
 *             handed down to it. Whoever gets this lock knows that no server is left, also one
 *             whose starter was killed or whose socket was deleted: two servers on one
 *             append-only file would grant one lock twice. systemd-tmpfiles leaves a locked
 *             folder alone, too.
 */
#ifndef EMBEDDED_FOLDER_H
#define EMBEDDED_FOLDER_H

#include <stdint.h>

#include "base/err.h"

/* Is it a folder of ours that others cannot enter, nor replace? *ret_there is 0 when there is
 * nothing at all. HF_ECONFIG when it is something else; nothing is changed then. */
hf_err folder_check(const char *dir, int *ret_there, hf_error *reterr);

/* Make it and what is missing above it, mode 0700, unless it is there; then check it. */
hf_err folder_make(const char *dir, hf_error *reterr);

/* Open DIR/lock without taking it. Close it with folder_unlock(). */
hf_err folder_open_lock(const char *dir, int *ret_fd, hf_error *reterr);

/* 1: taken, 0: somebody else has it, -1: errno. */
int folder_try_lock(int fd);
void folder_unlock(int fd);

/* Take the lock that a living server has on its folder. *ret_fd is -1 when one lives. Close it
 * with forkguard_close(): unlocking would take it from a server that inherited it as well. */
hf_err folder_try_life(const char *dir, int *ret_fd, hf_error *reterr);

#endif
