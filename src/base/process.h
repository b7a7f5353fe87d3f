/* SPDX-License-Identifier: MIT
 * process.h - what the system knows about this process.
 */
#ifndef BASE_PROCESS_H
#define BASE_PROCESS_H

#include <stddef.h>

/* When it was started, as a number of this machine's; with its id and the boot's it names a process
 * for ever. "0": not known. */
void process_start_time(char *ret, size_t size);
/* Another after each start of the machine. "": not known. */
void process_boot_id(char *ret, size_t size);
/* The program's name, without its folder. */
const char *process_name(void);
/* The environment, unless the program has more rights than whoever started it. */
const char *process_getenv(const char *name);
/* How many cores it may run on; 1 when that cannot be known. */
int process_cores(void);
/* Close every descriptor from this one on. Async-signal-safe. */
void process_close_from(unsigned first);

#endif
