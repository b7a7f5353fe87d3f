/* SPDX-License-Identifier: MIT
 * servererr.c - what each error of the server means for the request that got it.
 *
 * The one table. Everything that decides about "may I send this again?" asks here.
 */
#include "net/servererr.h"

#include "base/err.h"

static const struct {
    const char          *code; /* first word of the error */
    enum server_verdict  verdict;
    hf_err               err;
    const char          *advice;
} table[] = {
    { "NOSCRIPT",    SERVER_NOSCRIPT,  HF_ESERVER, "" },
    { "LOADING",     SERVER_RETRY,     HF_ECONN,   "it is still loading its data" },
    { "BUSY",        SERVER_RETRY,     HF_ESERVER, "a script or module blocks it" },
    { "TRYAGAIN",    SERVER_RETRY,     HF_ECONN,   "a slot is being moved" },
    { "CLUSTERDOWN", SERVER_RETRY,     HF_ECONN,   "the cluster is down" },
    { "MASTERDOWN",  SERVER_RETRY,     HF_ECONN,   "its master is down" },
    { "READONLY",    SERVER_RECONNECT, HF_ESERVER, "it is a replica: connect to the master" },
    { "MOVED",       SERVER_REDIRECT,  HF_ECONFIG,
      "it is part of a cluster: use redis+cluster://" },
    { "ASK",         SERVER_REDIRECT,  HF_ECONFIG,
      "it is part of a cluster: use redis+cluster://" },
    { "CROSSSLOT",   SERVER_REFUSED,   HF_ECONFIG,
      "it is part of a cluster: use redis+cluster://" },
    { "NOREPLICAS",  SERVER_REFUSED,   HF_ESERVER, "min-replicas-to-write is not met" },
    { "OOM",         SERVER_REFUSED,   HF_ESERVER, "its maxmemory is used up" },
    { "MISCONF",     SERVER_REFUSED,   HF_ESERVER, "it cannot save to disk" },
    { "NOAUTH",      SERVER_REFUSED,   HF_EAUTH,   "give a password: see docs/urls.md" },
    { "WRONGPASS",   SERVER_REFUSED,   HF_EAUTH,   "wrong user name or password" },
    { "NOPERM",      SERVER_REFUSED,   HF_EAUTH,   "the user lacks a right: see docs/acl.md" },
    { "WRONGTYPE",   SERVER_REFUSED,   HF_ETYPE,   "the key holds another kind of data" },
    { "EXECABORT",   SERVER_REFUSED,   HF_ESERVER, "" },
    { "NOTBUSY",     SERVER_REFUSED,   HF_ESERVER, "" },
    { "UNKILLABLE",  SERVER_RETRY,     HF_ESERVER, "a script blocks it" },
};

/* The first word of the error, without what servers before 7.0 put before that of a command which a
 * script called: "ERR Error running script (call to f_SHA): @user_script:9: ... 9: -OOM command",
 * or "@user_script: 9: -OOM command" if the script returned it. None of our scripts puts bytes of
 * others into an error. */
static const char *first_word(const struct reply *rp, size_t *ret_len)
{
    static const char thrown[] = "ERR Error running script (call to f_", given[] = "@user_script: ";
    const char *word = rp->str;
    if (strncmp(word, thrown, sizeof thrown - 1) == 0
        || strncmp(word, given, sizeof given - 1) == 0) {
        const char *inner = strstr(word, ": -");
        word = inner ? inner + 3 : word;
    }
    *ret_len = strcspn(word, " ");
    return word;
}

/* Of a script that the server began though the cluster is down, because reading is allowed then: it
 * ends at its first write, so nothing was written. */
#define CLUSTER_DOWN "while the cluster is down"

/* Plain ERRs that say something all the same. */
static const struct {
    const char *text;
    hf_err      err;
    const char *advice;
} plain[] = {
    { "invalid password", HF_EAUTH, "wrong password" },
    { "without any password configured", HF_EAUTH, "it has no password: leave yours out" },
    { "user executing the script can't", HF_EAUTH, "the user lacks a right: see docs/acl.md" },
    /* since 7.2 */
    { "ACL failure in script", HF_EAUTH, "the user lacks a right: see docs/acl.md" },
    { "max number of clients reached", HF_ECONN, "raise its maxclients" },
    { "unknown command", HF_ESERVER, "the command is disabled, or the server is too old" },
    { "DB index is out of range", HF_ECONFIG, "it has fewer databases" },
    { "invalid DB index", HF_ECONFIG, "it has fewer databases" },
    { CLUSTER_DOWN, HF_ECONN, "the cluster is down" },
};

static int lookup_plain(const struct reply *rp)
{
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++)
        if (strstr(rp->str, plain[i].text))
            return (int)i;
    return -1;
}

static int lookup(const struct reply *rp)
{
    size_t n;
    const char *word = first_word(rp, &n);
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (strlen(table[i].code) == n && memcmp(table[i].code, word, n) == 0)
            return (int)i;
    return -1;
}

enum server_verdict server_judge(const struct reply *rp, hf_err *ret_code)
{
    int i = lookup(rp);
    if (i >= 0) {
        *ret_code = table[i].err;
        return table[i].verdict;
    }
    i = lookup_plain(rp);
    if (i >= 0) {
        *ret_code = plain[i].err;
        return strstr(rp->str, CLUSTER_DOWN) ? SERVER_RETRY : SERVER_REFUSED;
    }
    /* ERR and anything new: a script may have failed after its first write. */
    *ret_code = HF_ESERVER;
    return SERVER_UNKNOWN;
}

hf_err server_error(const struct reply *rp, hf_err code, hf_error *e)
{
    char words[200];
    int i = lookup(rp), k = lookup_plain(rp);
    const char *advice = i >= 0 ? table[i].advice : k >= 0 ? plain[k].advice : "";

    err_quote(words, sizeof words, rp->str, rp->len);
    return err_set(e, code, "the server answered %s%s%s", words, *advice ? ": " : "", advice);
}

bool server_is_loading(const hf_error *e)
{
    return strstr(e->message, "answered \"LOADING") != NULL;
}

hf_err server_refusal(const struct reply *rp, hf_error *e)
{
    hf_err code;
    enum server_verdict v = server_judge(rp, &code);
    if (v == SERVER_RETRY)
        code = HF_EBUSY;
    return server_error(rp, code, e);
}
