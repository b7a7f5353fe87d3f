/* SPDX-License-Identifier: MIT
 * embedded.h - the URL of the embedded server. */
#ifndef CLI_EMBEDDED_H
#define CLI_EMBEDDED_H

/* 1: url is the embedded server's, which an empty one is, too. *ret is its folder, to be freed, or
 * NULL: the user's own. 0: it is another's. -1: out of memory. */
int embedded_dir(const char *url, char **ret);

/* The URL of the server that listens on socket, with the options of url, to be freed. NULL: out of
 * memory. */
char *embedded_socket_url(const char *url, const char *socket);

#endif
