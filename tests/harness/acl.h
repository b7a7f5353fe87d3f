/* SPDX-License-Identifier: MIT
 * acl.h - the users that docs/acl.md describes, as it describes them.
 */
#ifndef HARNESS_ACL_H
#define HARNESS_ACL_H

#include <stdio.h>
#include <string.h>

#include "harness/server.h"
#include "harness/t.h"

/* The command in the block ```BLOCK of that page, with the password pw; until the next call. */
static inline const char *acl_command(const char *block)
{
    static char line[2048];
    char begin[64];
    FILE *f = fopen("docs/acl.md", "r");
    CHECK(f);
    snprintf(begin, sizeof begin, "```%s\n", block);
    do
        CHECK(fgets(line, sizeof line, f));
    while (strcmp(line + strspn(line, " "), begin) != 0);
    CHECK(fgets(line, sizeof line, f));
    fclose(f);
    line[strcspn(line, "\n")] = '\0';
    char *password = strstr(line, "PASSWORD");
    if (password) {
        memmove(password + 2, password + 8, strlen(password + 8) + 1);
        memcpy(password, "pw", 2);
    }
    return line + strspn(line, " ");
}

/* Give s that user, or more rights to the one it has. */
static inline void acl_user(struct server *s, const char *block)
{
    CHECK_STR(server_ask(s, acl_command(block)), "OK");
}

#endif
