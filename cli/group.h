/* SPDX-License-Identifier: MIT
 * group.h - is anybody of a process group alive? */
#ifndef CLI_GROUP_H
#define CLI_GROUP_H

#include <sys/types.h>

/* Zombies are members of a group too, for as long as init takes to reap them; in many containers
 * nobody ever does. They do not count. 1 also when it cannot be told. Async-signal-safe. */
int group_alive(pid_t group);

#endif
