/* SPDX-License-Identifier: MIT
 * platform.h - what holdfast(1) asks of Linux alone; clock.h has the clock. */
#ifndef CLI_PLATFORM_H
#define CLI_PLATFORM_H

#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* A descriptor that is readable once it was rung; -1 and errno. */
int platform_bell(void);
void platform_bell_ring(int fd);

/* A close-on-exec descriptor for blocked signals; -1 and errno. fd not -1: that one is for these
 * from now on. */
int platform_signal_fd(int fd, const sigset_t *set);
int platform_signal_read(int fd); /* the next one that has come; 0: none */

/* This process. As others see it; SIGKILL once its parent has died; no core file. All three may be
 * called after a fork. */
void platform_name(const char *name);
void platform_die_with_parent(void);
void platform_one_heap(void); /* for all threads: a heap for each takes time to make */
void platform_no_core(void);

/* Close the descriptors from first to last; ~0u: all. May be called after a fork. */
void platform_close_range(unsigned first, unsigned last);

/* A descriptor of a process, readable once that is gone; -1 and errno. Its number may be another's
 * by then, and the descriptor never is. */
int platform_process(int64_t pid);
void platform_process_signal(int fd, int sig);
/* The name of its program, in buf; NULL: not known. */
const char *platform_program(int64_t pid, char *buf, size_t size);

/* A variable of the environment; NULL also in a setuid program. */
const char *platform_getenv(const char *name);

/* Whether it is a thread of the kernel. */
int platform_is_kernel_thread(int64_t pid);

/* Zombies are members of a group too, for as long as init takes to reap them; in many containers
 * nobody ever does. They do not count. 1 also when it cannot be told. Async-signal-safe. */
int platform_group_alive(pid_t group);
/* Whether nothing of it runs: all are stopped, or zombies. Async-signal-safe, as the other. */
int platform_group_stopped(pid_t group);

/* Become this same program again; returns only on failure. Async-signal-safe. */
void platform_run_self(char *const argv[], char *const env[]);

#endif
