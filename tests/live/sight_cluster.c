/* SPDX-License-Identifier: MIT
 * sight_cluster.c - the locks of a cluster of which a part is away.
 */
#include "harness/cluster.h"
#include "harness/live.h"
#include "harness/quorum.h"

struct seen {
    int  n, strangers, unknown;
    char names[4096];
};

static int note_one(const hf_inspect_info *info, void *arg)
{
    struct seen *s = arg;
    s->n++;
    s->strangers += info->holders && info->holder[0]->host == NULL;
    s->unknown += strcmp(info->kind, "unknown") == 0;
    strncat(s->names, info->name, sizeof s->names - strlen(s->names) - 2);
    strcat(s->names, " ");
    return 0;
}

static int all_known(hf_client *c, int n)
{
    struct seen seen = { 0 };
    return hf_inspect_list(c, NULL, 0, note_one, &seen, NULL) == HF_OK && seen.n == n
           && seen.strangers == 0;
}

/* One master of three is dead, and nobody follows it. */
TEST(the_locks_of_a_cluster_are_listed_without_those_of_a_dead_master)
{
    struct cluster *k = cluster_start(&(struct cluster_opts){ .no_replicas = 1 });
    hf_client *c = client_at(k->url, 1000), *eye = client_at(k->url, 1000);
    hf_lock *m[6];
    const char *name[6];
    for (int i = 0; i < 6; i++) {
        name[i] = cluster_name(k, k->node[i % 3], i / 3);
        m[i] = lock_of(c, name[i], 60000);
        lock_now(m[i]);
    }
    CHECK_EVENTUALLY(all_known(eye, 6), 20000);
    /* Its record lies somewhere: whichever server that is, and then one of the others. */
    for (int dead = 2; dead >= 1; dead--) {
        server_freeze(k->node[dead]);
        struct seen seen = { 0 };
        int64_t from = t_now_ms();
        CHECK_HF(hf_inspect_list(eye, NULL, 0, note_one, &seen, &err), HF_ECONN);
        CHECK(strstr(err.message, keep_text("%d", server_port(k->node[dead]))));
        CHECK_TOOK(t_now_ms() - from, 0, 20000);
        CHECK_INT(seen.n, 4);
        for (int i = 0; i < 6; i++)
            CHECK((strstr(seen.names, keep_text("%s ", name[i])) != NULL) == (i % 3 != dead));
        server_thaw(k->node[dead]);
        CHECK_EVENTUALLY(all_known(eye, 6), 20000);
    }
    /* The others notice it, and answer no question about a key any more: the names are left. */
    for (int i = 0; i < 6; i++)
        CHECK_HF(hf_lock_detach(m[i], 60000, &err), HF_OK); /* or it could not be given back */
    server_kill(k->node[2]);
    CHECK_EVENTUALLY(strstr(server_ask(k->node[0], "GET %s", keep_text("lock:%s", name[0])),
                            "CLUSTERDOWN"), 20000);
    struct seen seen = { 0 };
    CHECK_HF(hf_inspect_list(eye, NULL, 0, note_one, &seen, &err), HF_ECONN);
    CHECK_INT(seen.n, 4);
    CHECK_INT(seen.unknown, 4);
    for (int i = 0; i < 6; i++)
        hf_lock_free(m[i]);
    hf_client_free(c);
    hf_client_free(eye);
}

/* More keys than one answer to SCAN has. */
TEST(no_lock_is_left_out_among_thousands_of_other_keys)
{
    enum { LOCKS = 9 };
    struct cluster *k = cluster_start(&(struct cluster_opts){ .no_replicas = 1 });
    struct members q = members_start(3, kept);
    const char *urls[] = { k->url, q.url };
    for (int i = 0; i < 3; i++) {
        CHECK_STR(server_ask(k->node[i], "DEBUG POPULATE 20000 junk"), "OK");
        CHECK_STR(server_ask(q.s[i], "DEBUG POPULATE 20000 junk"), "OK");
    }
    for (int u = 0; u < 2; u++) {
        hf_client *c = client_at(urls[u], 20000);
        hf_lock *m[LOCKS];
        struct seen seen = { 0 };
        for (int i = 0; i < LOCKS; i++) {
            m[i] = lock_of(c, cluster_name(k, k->node[i % 3], i / 3), 120000);
            lock_now(m[i]);
        }
        CHECK_HF(hf_inspect_list(c, NULL, 60000, note_one, &seen, &err), HF_OK);
        CHECK_INT(seen.n, LOCKS);
        for (int i = 0; i < LOCKS; i++) {
            unlock_now(m[i]);
            hf_lock_free(m[i]);
        }
        hf_client_free(c);
    }
    hf_client *c = NULL;
    CHECK_HF(hf_client_open(url_with(k->url, "prefix=a%7Bb"), NULL, &c, &err), HF_ECONFIG);
    CHECK_CONTAINS(err.message, "prefix");
}
