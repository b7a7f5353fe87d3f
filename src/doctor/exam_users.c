/* SPDX-License-Identifier: MIT
 * exam_users.c - who else may use the channels of the sessions?
 *
 * Whoever may publish there can tell a waiter that it is its turn; whoever may subscribe keeps a
 * session present whose process has died. Who may write to the locks themselves need not lie, and
 * is not told of.
 */
#include "doctor/exam.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "topo/keys.h"

#define NAMES_SIZE 200

struct samples { /* a channel and a lock as they may be */
    char *channel, *lock;
};

struct rights { /* of a user, or of one of its selectors */
    bool publish, subscribe, channel, locks, write;
};

/* Who may only look at a lock can lie about it as well as who has no right to it. */
static bool is_write(const char *name)
{
    static const char *const writes[] = { "@all", "@write", "@string", "@keyspace", "@slow",
                                          "@fast", "set", "del", "unlink", "getset", "getdel",
                                          "setex", "psetex", "rename", "restore", "copy" };
    for (size_t i = 0; i < sizeof writes / sizeof *writes; i++)
        if (strcmp(name, writes[i]) == 0)
            return true;
    return false;
}

/* One command or category: allowed or forbidden. */
static void read_command(struct rights *r, const char *name, bool allowed)
{
    bool all = strcmp(name, "@all") == 0 || strcmp(name, "@pubsub") == 0;
    if (all || strcmp(name, "publish") == 0 || strcmp(name, "spublish") == 0
        || strcmp(name, "@fast") == 0)
        r->publish = allowed;
    if (all || strcmp(name, "subscribe") == 0 || strcmp(name, "ssubscribe") == 0
        || strcmp(name, "@slow") == 0)
        r->subscribe = allowed;
    if (allowed)
        r->write |= is_write(name);
    else if (strcmp(name, "@all") == 0 || strcmp(name, "@write") == 0)
        r->write = false;
}

/* "%W~..." or "%RW~..." */
static bool may_write(const char *word, const char *pattern)
{
    return *word == '%' && memchr(word, 'W', (size_t)(pattern - word));
}

/* One word of a line of ACL LIST. */
static void read_word(struct rights *r, const char *word, const struct samples *s)
{
    const char *pattern = strchr(word, '~');
    if (*word == '+' || *word == '-')
        read_command(r, word + 1, *word == '+');
    else if (strcmp(word, "allcommands") == 0 || strcmp(word, "nocommands") == 0)
        read_command(r, "@all", *word == 'a');
    else if (strcmp(word, "allchannels") == 0 || strcmp(word, "resetchannels") == 0)
        r->channel = *word == 'a';
    else if (strcmp(word, "allkeys") == 0)
        r->locks = true;
    else if (*word == '&')
        r->channel |= fnmatch(word + 1, s->channel, 0) == 0;
    else if (pattern && (pattern == word || may_write(word, pattern)))
        r->locks |= fnmatch(pattern + 1, s->lock, 0) == 0;
}

static void add_up(struct rights *sum, const struct rights *r)
{
    sum->publish |= r->publish && r->channel;
    sum->subscribe |= r->subscribe && r->channel;
    sum->locks |= r->locks && r->write;
}

/* "user NAME on #... ~... &... -@all +... (~... +...)": what it may by any of its parts. Writes
 * into line. NULL: it is off, or no line of ACL LIST; else its name. */
static const char *read_user(char *line, const struct samples *s, struct rights *ret)
{
    char *save = NULL;
    const char *name = NULL;
    struct rights part = { 0 };
    bool on = false;
    *ret = (struct rights){ 0 };
    if (strncmp(line, "user ", 5) != 0 || !(name = strtok_r(line + 5, " ", &save)))
        return NULL;
    for (char *word; (word = strtok_r(NULL, " ", &save));) {
        if (*word == '(') { /* a selector: rights of its own */
            add_up(ret, &part);
            part = (struct rights){ 0 };
            word++;
        }
        word[strcspn(word, ")")] = '\0';
        on |= strcmp(word, "on") == 0;
        read_word(&part, word, s);
    }
    add_up(ret, &part);
    return on ? name : NULL;
}

static void add_name(char *names, const char *name)
{
    char shown[80];
    size_t used = strlen(names);
    err_quote(shown, sizeof shown, name, strlen(name));
    if (used + strlen(shown) + 8 < NAMES_SIZE)
        snprintf(names + used, NAMES_SIZE - used, "%s%s", used ? ", " : "", shown);
    else if (used < 3 || strcmp(names + used - 3, "...") != 0)
        snprintf(names + used, NAMES_SIZE - used, ", ...");
}

static void tell(struct exam *e, const char *publishers, const char *subscribers,
                 const struct samples *s)
{
    size_t head = strlen(s->channel) - 32;
    if (*publishers)
        exam_tell(e, HF_GRADE_RISK, "rights",
                  "take that channel from them (docs/acl.md), or use ?confirm=1",
                  "who may not write to the locks may publish to %.*s*, and tell a waiter that it "
                  "is its turn, which it believes if they can read its queue (P1): %s", (int)head,
                  s->channel, publishers);
    if (*subscribers)
        exam_tell(e, HF_GRADE_NOTE, "rights", "take that channel from them (docs/acl.md)",
                  "who may not write to the locks may subscribe to %.*s*, and so keep a holder "
                  "that died present until its ttl ends: %s", (int)head, s->channel, subscribers);
}

static void read_users(struct exam *e, const struct reply *users, const char *us,
                       const struct samples *s)
{
    char publishers[NAMES_SIZE] = "", subscribers[NAMES_SIZE] = "";
    for (size_t i = 0; i < users->len; i++) {
        struct rights r;
        if (users->item[i]->type != REPLY_BULK)
            continue;
        const char *name = read_user(users->item[i]->str, s, &r);
        if (!name || r.locks || strcmp(name, us) == 0)
            continue;
        if (r.publish)
            add_name(publishers, name);
        else if (r.subscribe)
            add_name(subscribers, name);
    }
    tell(e, publishers, subscribers, s);
}

void exam_users(struct exam *e, struct link *l)
{
    bool slotted = e->url->topology == URL_CLUSTER;
    AUTO(mem_freep) char *channel = keys_reserved(
        e->prefix, slotted ? "{0}:s:00000000000000000000000000000000"
                           : "s:00000000000000000000000000000000");
    AUTO(mem_freep) char *lock = mem_zalloc(strlen(e->prefix) + 2);
    if (!channel || !lock)
        return;
    snprintf(lock, strlen(e->prefix) + 2, "%sx", e->prefix);
    struct samples s = { channel, lock };
    struct reply *who = exam_ask(e, l, (const char *[]){ "ACL", "WHOAMI" }, 2, NULL);
    struct reply *users = exam_ask(e, l, (const char *[]){ "ACL", "LIST" }, 2, NULL);
    if (users && users->type == REPLY_ARRAY)
        read_users(e, users, who && who->type == REPLY_BULK ? who->str : "", &s);
    reply_free(who);
    reply_free(users);
}
