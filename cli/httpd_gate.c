/* SPDX-License-Identifier: MIT
 * httpd_gate.c - where an HTTP server listens, and whom it answers. */
#include "httpd_gate.h"

#include "exitcode.h"
#include "message.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TOKEN_LEAST = 16, HOST_MOST = 255 };

/* ---- where ---------------------------------------------------------------------------------- */

static int port_of(const char *text)
{
    size_t digits = strspn(text, "0123456789");
    if (digits < 1 || digits > 5 || text[digits])
        return -1;
    int port = atoi(text);
    return port <= 65535 ? port : -1;
}

static void set_ip4(struct httpd *h, struct in_addr ip, int port)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr = ip,
                             .sin_port = htons((uint16_t)port) };
    memcpy(&h->address, &a, sizeof a);
    h->address_len = sizeof a;
    h->loopback = ntohl(ip.s_addr) >> 24 == 127;
}

static void set_ip6(struct httpd *h, const struct in6_addr *ip, int port)
{
    struct sockaddr_in6 a = { .sin6_family = AF_INET6, .sin6_addr = *ip,
                              .sin6_port = htons((uint16_t)port) };
    memcpy(&h->address, &a, sizeof a);
    h->address_len = sizeof a;
    h->loopback = IN6_IS_ADDR_LOOPBACK(ip);
}

int gate_address(struct httpd *h, const char *text)
{
    char host[64] = "127.0.0.1";
    const char *colon = strrchr(text, ':'), *port = colon ? colon + 1 : text;
    size_t len = colon ? (size_t)(colon - text) : 0;
    struct in_addr ip4;
    struct in6_addr ip6;
    if (port_of(port) < 0 || len >= sizeof host || (colon && len == 0))
        return -1;
    if (colon)
        snprintf(host, sizeof host, "%.*s", (int)len, text);
    if (strcmp(host, "localhost") == 0)
        strcpy(host, "127.0.0.1");
    if (host[0] == '[' && host[len - 1] == ']') {
        host[len - 1] = '\0';
        if (inet_pton(AF_INET6, host + 1, &ip6) != 1)
            return -1;
        set_ip6(h, &ip6, port_of(port));
        return 0;
    }
    if (inet_pton(AF_INET, host, &ip4) != 1)
        return -1;
    set_ip4(h, ip4, port_of(port));
    return 0;
}

void gate_show(const struct httpd *h, char *buf, size_t size)
{
    char ip[INET6_ADDRSTRLEN] = "?";
    struct sockaddr_in a4;
    struct sockaddr_in6 a6;
    if (h->address.ss_family == AF_INET6) {
        memcpy(&a6, &h->address, sizeof a6);
        inet_ntop(AF_INET6, &a6.sin6_addr, ip, sizeof ip);
        snprintf(buf, size, "[%s]:%u", ip, ntohs(a6.sin6_port));
    } else {
        memcpy(&a4, &h->address, sizeof a4);
        inet_ntop(AF_INET, &a4.sin_addr, ip, sizeof ip);
        snprintf(buf, size, "%s:%u", ip, ntohs(a4.sin_port));
    }
}

/* ---- the token ------------------------------------------------------------------------------ */

/* As for a password file; NULL: it can be used. */
static const char *fault_of(int fd)
{
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0)
        return strerror(errno);
    if (!S_ISREG(st.st_mode))
        return "it is not a regular file";
    if (st.st_mode & (S_IRWXG | S_IRWXO))
        return "others may read or write it: chmod 600 it";
    if (st.st_uid != geteuid() && st.st_uid != 0)
        return "it belongs to another user: chown it to yours, or to root";
    return NULL;
}

/* It goes into a header, and into the part of a URL behind the #. */
static const char *fault_in(const char *token)
{
    if (strlen(token) < TOKEN_LEAST)
        return "its first line, the token, must have 16 characters or more";
    if (token[strspn(token, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._~-")])
        return "its first line, the token, has other characters than A-Z a-z 0-9 . _ ~ -";
    return NULL;
}

int gate_token(struct httpd *h, const char *file)
{
    char shown[TEXT_ESCAPED(256)];
    /* Non-blocking, so that the name of a fifo gives an error instead of waiting. */
    int fd = open(file, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    const char *fault = fault_of(fd);
    ssize_t n = fault ? 0 : read(fd, h->token, sizeof h->token - 1);
    if (n < 0)
        fault = strerror(errno);
    if (fd >= 0)
        close(fd);
    h->token[n > 0 ? n : 0] = '\0';
    h->token[strcspn(h->token, "\r\n")] = '\0';
    if (!fault && strlen(h->token) == sizeof h->token - 1)
        fault = "its first line is too long for a token";
    if (!fault)
        fault = fault_in(h->token);
    if (!fault)
        return 0;
    h->token[0] = '\0';
    msg_error("cannot use the token file %s: %s",
              text_escape(shown, sizeof shown, file, strnlen(file, 255)), fault);
    return EX_SETTINGS;
}

int httpd_make_token(struct httpd *h)
{
    unsigned char random[16];
    if (h->token[0])
        return 0;
    if (getentropy(random, sizeof random) != 0) {
        msg_error("cannot make a token: %s", strerror(errno));
        return EX_SYSTEM;
    }
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(h->token + 2 * i, 3, "%02x", random[i]);
    return 0;
}

int gate_bearer(const struct httpd *h, const char *authorization)
{
    static const char scheme[] = "Bearer ";
    size_t n = strlen(h->token), given;
    unsigned char differs = 0;
    if (!n || !authorization || strncasecmp(authorization, scheme, sizeof scheme - 1) != 0)
        return 0;
    authorization += sizeof scheme - 1;
    given = strlen(authorization);
    for (size_t i = 0; i < given; i++)
        differs |= (unsigned char)(authorization[i] ^ h->token[i % n]);
    return given == n && differs == 0;
}

/* ---- the names of this server ----------------------------------------------------------------- */

/* An attacker can make a name of its own lead to us, but not an address. */
static int is_address(const char *name)
{
    struct in_addr ip4;
    struct in6_addr ip6;
    char inner[64];
    size_t n = strlen(name);
    if (name[0] != '[')
        return inet_pton(AF_INET, name, &ip4) == 1;
    if (n < 3 || n >= sizeof inner || name[n - 1] != ']')
        return 0;
    snprintf(inner, sizeof inner, "%.*s", (int)(n - 2), name + 1);
    return inet_pton(AF_INET6, inner, &ip6) == 1;
}

int gate_host(const struct httpd *h, const char *host)
{
    char name[HOST_MOST + 1], own[HOST_MOST + 1] = "";
    size_t n = host ? strlen(host) : 0;
    if (n == 0 || n > HOST_MOST)
        return 0;
    const char *colon = strrchr(host, ':');
    if (colon && !strchr(colon, ']')) {
        if (port_of(colon + 1) < 0)
            return 0;
        n = (size_t)(colon - host);
    }
    snprintf(name, sizeof name, "%.*s", (int)n, host);
    gethostname(own, sizeof own - 1);
    return is_address(name) || strcasecmp(name, "localhost") == 0
           || (own[0] && strcasecmp(name, own) == 0) || (h->host && strcasecmp(name, h->host) == 0);
}

int gate_origin(const char *origin, const char *host)
{
    const char *rest = strncmp(origin, "http://", 7) == 0    ? origin + 7
                       : strncmp(origin, "https://", 8) == 0 ? origin + 8
                                                             : NULL;
    return rest && strcasecmp(rest, host) == 0;
}
