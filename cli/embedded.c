/* SPDX-License-Identifier: MIT
 * embedded.c - the URL of the embedded server. */
#include "embedded.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static void decode_percent(char *s)
{
    char *to = s;
    for (; *s; s++) {
        if (s[0] == '%' && isxdigit((unsigned char)s[1]) && isxdigit((unsigned char)s[2])) {
            char hex[3] = { s[1], s[2], '\0' };
            *to++ = (char)strtol(hex, NULL, 16);
            s += 2;
        } else {
            *to++ = *s;
        }
    }
    *to = '\0';
}

int embedded_dir(const char *url, char **ret)
{
    const char scheme[] = "embedded:";
    size_t n = sizeof scheme - 1;
    *ret = NULL;
    if (!*url)
        return 1;
    if (strncasecmp(url, scheme, n) != 0)
        return 0;
    size_t len = strcspn(url + n, "?");
    if (len == 0)
        return 1;
    *ret = strndup(url + n, len);
    if (!*ret)
        return -1;
    decode_percent(*ret);
    return 1;
}

char *embedded_socket_url(const char *url, const char *socket)
{
    static const char scheme[] = "unix://";
    const char *options = url + strcspn(url, "?");
    size_t size = sizeof scheme + 3 * strlen(socket) + strlen(options);
    char *made = malloc(size), *to = made;
    if (!made)
        return NULL;
    to += sprintf(to, "%s", scheme);
    for (; *socket; socket++)
        to += sprintf(to, isalnum((unsigned char)*socket) || strchr("/._-", *socket) ? "%c"
                                                                                     : "%%%02X",
                      (unsigned char)*socket);
    memcpy(to, options, strlen(options) + 1);
    return made;
}
