/* SPDX-License-Identifier: MIT
 * secrets.c - passwords leave argv and the environment as soon as they have been read.
 *
 * The bytes are overwritten in place: /proc/PID/cmdline and /proc/PID/environ show exactly the
 * memory that the program was started with. */
#include "secrets.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Generous on purpose: a URL that makes no sense may hold a password too, and one that is shown
 * with too many stars does no harm. All but scheme, user and what follows the last '@'. */
void secrets_hide_arg(char *url)
{
    char *from = strstr(url, "//"), *at = strrchr(url, '@');
    from = from ? from + 2 : url;
    if (!at || at < from || *from == '/')
        return;
    char *colon = memchr(from, ':', (size_t)(at - from));
    from = colon ? colon + 1 : from;
    memset(from, '*', (size_t)(at - from));
}

/* The same for a URL that has proved right and must stay so: only an '@' in front of the path
 * counts, and the password is cut out together with its colon. */
static void cut_password(char *url)
{
    char *user = strstr(url, "://");
    if (!user || user[3] == '/')
        return;
    user += 3;
    size_t authority = strcspn(user, "/?");
    char *at = memrchr(user, '@', authority);
    char *colon = memchr(user, ':', authority);
    if (!at || !colon || at < colon)
        return;
    size_t rest = strlen(at), cut = (size_t)(at - colon);
    memmove(colon, at, rest + 1);
    memset(colon + rest, 0, cut);
}

static char *kept[SECRETS_MAX + 1];

char *const *secrets_kept(void)
{
    return kept;
}

static void keep(const char *name)
{
    const char *value = getenv(name);
    int n = 0;
    while (n < SECRETS_MAX && kept[n])
        n++;
    if (value && n < SECRETS_MAX && asprintf(&kept[n], "%s=%s", name, value) < 0)
        kept[n] = NULL; /* whoever would need it does without */
}

void secrets_hide_env(void)
{
    static const char *const names[] = { "HOLDFAST_PASSWORD", "HOLDFAST_SENTINEL_PASSWORD" };
    char *url = getenv("HOLDFAST_URL");
    keep("HOLDFAST_URL");
    for (int i = 0; i < 2; i++) {
        keep(names[i]);
        char *password = getenv(names[i]);
        if (password)
            explicit_bzero(password, strlen(password));
        unsetenv(names[i]);
    }
    if (url)
        cut_password(url);
}
