/* SPDX-License-Identifier: MIT
 * past.c - moments by the server's clock, for people and for programs. */
#include "past.h"

#include <stdio.h>
#include <time.h>

static int split(int64_t unix_ms, int local, struct tm *ret)
{
    time_t s = (time_t)(unix_ms / 1000);
    return unix_ms >= 0 && (local ? localtime_r(&s, ret) : gmtime_r(&s, ret)) != NULL;
}

char *past_local_time(char *buf, size_t size, int64_t unix_ms)
{
    struct tm tm;
    if (!split(unix_ms, 1, &tm) || !strftime(buf, size, "%F %T", &tm))
        snprintf(buf, size, "-");
    return buf;
}

char *past_clock(char *buf, size_t size, int64_t unix_ms)
{
    struct tm tm;
    char day[16];
    if (split(unix_ms, 1, &tm) && strftime(day, sizeof day, "%T", &tm))
        snprintf(buf, size, "%s.%03d", day, (int)(unix_ms % 1000));
    else
        snprintf(buf, size, "-");
    return buf;
}

json_t *json_when(int64_t unix_ms)
{
    struct tm tm;
    char text[32], whole[48];
    if (!split(unix_ms, 0, &tm) || !strftime(text, sizeof text, "%FT%T", &tm))
        return json_null();
    snprintf(whole, sizeof whole, "%s.%03dZ", text, (int)(unix_ms % 1000));
    return json_string(whole);
}

int64_t past_now_ms(void)
{
    struct timespec ts = { 0 };
    clock_gettime(CLOCK_REALTIME, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}
