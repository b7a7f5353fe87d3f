/* SPDX-License-Identifier: MIT
 * claim.h - one embedded server for each user, as far as the kernel can tell.
 *
 * A folder can be hidden or removed: a private tmp folder, a mount namespace, a cleaner. Then its
 * file locks say nothing, and a second server would grant every lock a second time. So the server
 * also keeps a socket open that is bound to an abstract name, which no mount hides. A starter that
 * cannot bind the name knows that a server lives, finds its process by that socket, and reaches its
 * folder through /proc/PID/cwd. Abstract names belong to a network namespace: a container with a
 * network of its own is a machine of its own.
 */
#ifndef BASE_CLAIM_H
#define BASE_CLAIM_H

#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"

#define CLAIM_FD       5  /* the number that the claim has in the server: how it is found */
#define CLAIM_PATH_MAX 64

/* Take the claim for the server of the folder named; NULL: for the user's own server, wherever its
 * folder is. *ret_fd is to be handed down to the server as CLAIM_FD, and closed with
 * forkguard_close(); -1: another has it. HF_ESYS, HF_ENOMEM. */
hf_err claim_take(const char *named, int *ret_fd, hf_error *reterr);

/* The server that has the claim; 0: none, one that is only starting, or one that cannot be seen
 * from here (another user's, or in another pid namespace). */
pid_t claim_holder(const char *named);

/* Its folder as it can be reached from here, whatever is mounted where. */
void claim_path(pid_t pid, const char *file, char ret[CLAIM_PATH_MAX]);

/* Its folder was removed: nobody can reach it any more. */
int claim_is_cut_off(pid_t pid);

#endif
