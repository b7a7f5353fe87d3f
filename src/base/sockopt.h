/* SPDX-License-Identifier: MIT
 * sockopt.h - what each system asks of a socket in its own way.
 */
#ifndef BASE_SOCKOPT_H
#define BASE_SOCKOPT_H

#include <stdint.h>
#include <sys/types.h>

/* Who is at the other end of a unix socket. ret_pid may be NULL. -1 with errno: not known. */
int sockopt_peer(int fd, uid_t *ret_uid, int64_t *ret_pid);

/* TCP: send at once, notice a peer that is gone by probes, and give up what it has not acknowledged
 * for so long. -1 with errno. */
int sockopt_tcp(int fd, int unacknowledged_ms);

#endif
