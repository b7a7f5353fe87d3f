/* SPDX-License-Identifier: MIT
 * proc.h - other processes in a test: forked workers, and programs with their output captured.
 *
 * All of them die with the test. Call these from the main thread (see t_fork()).
 */
#ifndef HARNESS_PROC_H
#define HARNESS_PROC_H

#include <stddef.h>
#include <stdint.h>

/* ---- workers: this program's own code in n processes ----
 * A worker ends well by returning from fn; a failed check in it makes it fail. t_random() gives
 * each its own numbers. */
struct workers;
struct workers *workers_start(int n, void (*fn)(int index, void *arg), void *arg);
int workers_pid(const struct workers *w, int index);
/* Signal one; SIGKILL also waits until it is gone. */
void workers_signal(struct workers *w, int index, int sig);
/* Another one in the place of one that was killed. */
void workers_again(struct workers *w, int index);
/* Wait for all. Fails the test when one failed by itself (not by workers_signal(SIGKILL)) or when
 * they are not done after limit_ms. Frees w. */
void workers_join(struct workers *w, int64_t limit_ms);
/* Start and join. */
void workers_run(int n, void (*fn)(int index, void *arg), void *arg, int64_t limit_ms);

/* ---- programs ---- */
struct proc;
struct proc_opts {
    const char *input;        /* its stdin; NULL: empty */
    int open_stdin;           /* instead: stdin is a pipe until proc_close_stdin() */
    const char *const *env;   /* "NAME=value" added to the environment, NULL at the end */
    const char *dir;          /* where it runs; NULL: here */
    int own_session;          /* setsid(): outside of our process group */
};
/* Start argv (NULL at the end), found on PATH. opts may be NULL. */
struct proc *proc_spawn(const char *const *argv, const struct proc_opts *opts);
int proc_pid(const struct proc *p);
/* 1 while it runs. */
int proc_running(struct proc *p);
/* Its exit status, or 128 + signal. Fails the test, showing the output, after limit_ms. */
int proc_wait(struct proc *p, int64_t limit_ms);
void proc_signal(struct proc *p, int sig);
void proc_write(struct proc *p, const char *text);
void proc_close_stdin(struct proc *p);
/* What it has written so far; valid until the test ends. */
const char *proc_out(struct proc *p);
const char *proc_err(struct proc *p);
/* Spawn and wait (30 s): proc_run("ls", "-l", NULL); then proc_wait(p, 0) is its status. */
struct proc *proc_run(const char *program, ...) __attribute__((sentinel));

/* The holdfast program under test: $HOLDFAST, else the one of this build. */
const char *proc_holdfast(void);

#endif
