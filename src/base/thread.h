/* SPDX-License-Identifier: MIT
 * thread.h - starting and joining a background thread of the library.
 */
#ifndef BASE_THREAD_H
#define BASE_THREAD_H

#include <pthread.h>
#include <stdint.h>

/* As pthread_create(); the thread takes no signals: they are the program's. Its name, of at most 15
 * bytes, is seen in gdb and top. */
int thread_start(pthread_t *ret, const char *name, void *(*main_fn)(void *), void *arg);
void thread_join(pthread_t thread);

/* A number that no other thread of this process has, nor had; or that of the one for which this one
 * acts (hf_thread_act_for()). Never 0. */
uint64_t thread_number(void);

#endif
