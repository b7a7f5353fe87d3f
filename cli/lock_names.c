/* SPDX-License-Identifier: MIT
 * lock_names.c - the names of the locks that a server knows, quickly or not at all.
 *
 * Somebody has pressed a key and waits for the next prompt: so no server is started for it, and a
 * server that does not answer costs less than a second. */
#include "lock_names.h"

#include "embedded.h"
#include "ending.h"
#include "exitcode.h"
#include "message.h"
#include "open.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LIMIT_MS = 700, MOST = 500, LONGEST = 200 };

struct names {
    unsigned    bit;
    const char *front;
    int         printed;
};

static int fits(const char *kind, unsigned bit)
{
    int latch = strcmp(kind, "latch") == 0, barrier = strcmp(kind, "barrier") == 0;
    if (bit & (C_STATUS | C_PATTERN | C_HELD))
        return 1;
    return bit == C_LATCH ? latch : bit == C_BARRIER ? barrier : !latch && !barrier;
}

static void describe(const hf_inspect_info *info, char *buf, size_t size)
{
    char host[TEXT_ESCAPED(64)] = "";
    const hf_party *p = info->holders ? info->holder[0] : NULL;
    if (p && p->host) {
        size_t len = strnlen(p->host, 64);
        text_escape(host, sizeof host, p->host, len);
    }
    if (host[0])
        snprintf(buf, size, "%s, held by %s pid %lld", info->kind, host, (long long)p->pid);
    else
        snprintf(buf, size, "%s%s", info->kind, p ? ", held" : "");
}

/* A name that a terminal cannot show as it is, or that a list would split, cannot be completed. Nor
 * one that a shell would take for our word on what comes next (complete.c). */
static int print_one(const hf_inspect_info *info, void *arg)
{
    struct names *n = arg;
    char shown[TEXT_ESCAPED(LONGEST)], words[TEXT_ESCAPED(64) + 80];
    if (info->name_len == 0 || info->name_len > LONGEST || memchr(info->name, ',', info->name_len)
        || memchr(info->name, '\\', info->name_len) || !fits(info->kind, n->bit)
        || (!n->front[0] && *(const char *)info->name == ':'))
        return 0;
    text_escape(shown, sizeof shown, info->name, info->name_len);
    if (strlen(shown) != info->name_len)
        return 0;
    describe(info, words, sizeof words);
    printf("%s%s\t%s\n", n->front, shown, words);
    return ++n->printed >= MOST;
}

/* What begins so, as a pattern. NULL: out of memory. */
static char *pattern_of(const char *begins)
{
    char *made = malloc(2 * strlen(begins) + 2), *to = made;
    if (!made)
        return NULL;
    for (; *begins; begins++) {
        if (strchr("*?[]^\\", *begins))
            *to++ = '\\';
        *to++ = *begins;
    }
    memcpy(to, "*", sizeof "*");
    return made;
}

static void print_from(const struct opts *o, struct names *n, const char *url, const char *begins)
{
    hf_client_opts co = { .size = sizeof co, .prefix = o->prefix, .protocol = o->protocol };
    hf_client *c = NULL;
    char *pattern = pattern_of(begins);
    if (pattern && hf_client_open(url, &co, &c, NULL) == HF_OK)
        (void)!hf_inspect_list(c, pattern, LIMIT_MS, print_one, n, NULL);
    client_close(c);
    free(pattern);
}

/* To be freed; NULL: no server runs. */
static char *url_of(const struct opts *o)
{
    char url[4096] = "", *dir = NULL, *made = NULL;
    hf_server_info info = { .size = sizeof info };
    if (o->url)
        snprintf(url, sizeof url, "%s", o->url);
    else if (hf_url_default(url, sizeof url, NULL) != HF_OK)
        return NULL;
    int embedded = embedded_dir(url, &dir);
    if (embedded == 0)
        made = strdup(url);
    else if (embedded > 0 && hf_server_status(dir, &info, NULL) == HF_OK && info.running)
        made = embedded_socket_url(url, info.socket);
    free(dir);
    explicit_bzero(url, sizeof url);
    return made;
}

void lock_names_print(const struct opts *o, unsigned bit, const char *front, const char *begins)
{
    struct names n = { .bit = bit, .front = front };
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ); /* what is there counts, whenever we are ended */
    ending_in(LIMIT_MS, EX_OKAY, NULL);
    char *url = url_of(o);
    if (!url)
        return;
    print_from(o, &n, url, begins);
    explicit_bzero(url, strlen(url));
    free(url);
}
