/* SPDX-License-Identifier: MIT
 * past.h - moments by the server's clock, for people and for programs. */
#ifndef CLI_PAST_H
#define CLI_PAST_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

/* "2026-11-16 06:13:43" in the time of this place, "-" if it is no time. Returns buf. */
char *past_local_time(char *buf, size_t size, int64_t unix_ms);
/* "06:13:43.120". Returns buf. */
char *past_clock(char *buf, size_t size, int64_t unix_ms);
/* "2026-11-16T06:13:43.120Z"; null if it is no time. */
json_t *json_when(int64_t unix_ms);
/* Now, by our own clock. */
int64_t past_now_ms(void);

#endif
