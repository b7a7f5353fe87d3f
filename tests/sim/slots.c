/* SPDX-License-Identifier: MIT
 * slots.c - the model of a cluster refuses what a real one refuses, with the same words, at each
 * stage of a slot's move.
 */
#include "sim/lib/slots.h"

#include <hiredis/hiredis.h>
#include <stdio.h>
#include <string.h>

#include "harness/cluster.h"
#include "harness/t.h"
#include "sim/lib/model.h"
#include "topo/slot_claims.h"

#define KEYS 3 /* that are there; the fourth never is */

static const char *const name[KEYS + 1] = { "lock:a", "{lock:a}:q", "{lock:a}:own", "{lock:a}:t" };
static const char *const channel = "{lock:a}:s:somebody";

static struct cluster *cl;
static struct server *node[MODEL_NODES]; /* the real ones: from, to */
static int asked;

/* "" when it is done, else its refusal: MOVED 0, ASK 1, TRYAGAIN; the number is the node. */
static void ask_model(int at, bool asking, int argc, const hf_bytes *argv, char ret[40])
{
    unsigned slot;
    int to;
    const char *word = slots_refuse(at, asking, argc, argv, &slot, &to);
    snprintf(ret, 40, "%s", word ? word : "");
    if (word && to >= 0)
        snprintf(ret, 40, "%s %d", word, to);
}

static void ask_real(int at, bool asking, int argc, const hf_bytes *argv, char ret[40])
{
    redisContext *c = redisConnect("127.0.0.1", server_port(node[at]));
    const char *arg[8];
    size_t len[8];
    CHECK(c && !c->err);
    for (int i = 0; i < argc; i++) {
        arg[i] = argv[i].data;
        len[i] = argv[i].len;
    }
    if (asking)
        freeReplyObject(redisCommand(c, "ASKING"));
    redisReply *r = redisCommandArgv(c, argc, arg, len);
    CHECK(r != NULL);
    const char *port = r->type == REDIS_REPLY_ERROR ? strrchr(r->str, ':') : NULL;
    ret[0] = '\0';
    if (r->type == REDIS_REPLY_ERROR)
        snprintf(ret, 40, "%.*s", (int)strcspn(r->str, " "), r->str);
    for (int i = 0; port && i < MODEL_NODES; i++)
        if (atoi(port + 1) == server_port(node[i]))
            snprintf(ret + strlen(ret), 40 - strlen(ret), " %d", i);
    freeReplyObject(r);
    redisFree(c);
}

static void compare(const char *stage, int at, bool asking, int argc, const hf_bytes *argv)
{
    char ours[40], theirs[40];
    ask_model(at, asking, argc, argv, ours);
    ask_real(at, asking, argc, argv, theirs);
    asked++;
    if (strcmp(ours, theirs) != 0)
        FAIL("%s, at node %d%s, %s %s %s: the server says '%s', the model '%s'", stage, at,
             asking ? " asking" : "", (const char *)argv[0].data, (const char *)argv[argc - 1].data,
             argc > 4 ? (const char *)argv[3].data : "", theirs, ours);
}

/* One key, two of them, the same one twice; and a channel. */
static void compare_all(const char *stage, int at)
{
    for (int asking = 0; asking < 2; asking++) {
        for (int i = 0; i <= KEYS; i++) {
            hf_bytes one[] = { hf_str("EVAL"), hf_str("return 1"), hf_str("1"), hf_str(name[i]) };
            compare(stage, at, asking, 4, one);
            for (int k = 0; k <= KEYS; k++) {
                hf_bytes two[] = { hf_str("EVAL"), hf_str("return 1"), hf_str("2"),
                                   hf_str(name[i]), hf_str(name[k]) };
                compare(stage, at, asking, 5, two);
            }
        }
        hf_bytes listen[] = { hf_str("SSUBSCRIBE"), hf_str(channel) };
        compare(stage, at, asking, 2, listen);
    }
}

/* What the model has moved now, the real one moves, too. */
static void send_key(struct cluster_move *mv)
{
    size_t had = model_node[1].store.n;
    CHECK(slots_send_key(NULL));
    CHECK_INT((long long)model_node[1].store.n, (long long)had + 1);
    CHECK_INT(cluster_move_key(mv, model_node[1].store.entry[had]->key.p), 1);
}

static void begin(void)
{
    cl = cluster_start(&(struct cluster_opts){ .no_replicas = 1 });
    unsigned slot = slot_of(name[0], strlen(name[0]));
    node[0] = cluster_owner(cl, (int)slot);
    node[1] = cl->node[0] == node[0] ? cl->node[1] : cl->node[0];
    model_reset(MODEL_NODES);
    CHECK_INT(slots_owner(slot), 0);
    for (int i = 0; i < KEYS; i++) {
        store_new(&model_node[0].store, hf_str(name[i]), ENTRY_STRING);
        CHECK_STR(server_ask(node[0], "SET %s x", name[i]), "OK");
    }
}

/* What a server says of itself in CLUSTER NODES, as the client reads it. */
static struct slot_claims claims_of(int at)
{
    const char *text = server_ask(node[at], "CLUSTER NODES");
    struct reply rp = { .type = REPLY_BULK, .str = (char *)text, .len = strlen(text) };
    struct slot_claims c;
    CHECK_INT(slot_claims_read(&c, &rp), HF_OK);
    return c;
}

/* Who has got the slot claims it, with a higher epoch than the one that had it. */
static void compare_claims(unsigned slot)
{
    struct slot_claims from = claims_of(0), to = claims_of(1);
    CHECK(slot_claims_has(&to, slot));
    CHECK(to.epoch > from.epoch);
    CHECK(slots_epoch(1, 1) > slots_epoch(0, 0));
}

static redisContext *subscribe(void)
{
    redisContext *c = redisConnect("127.0.0.1", server_port(node[0]));
    redisReply *r = redisCommand(c, "SSUBSCRIBE %s", channel);
    CHECK(r && r->type == REDIS_REPLY_ARRAY);
    freeReplyObject(r);
    return c;
}

/* Who listens at a server that has lost the slot is told. */
static void check_unsubscribed(redisContext *c)
{
    redisReply *r = NULL;
    CHECK_INT(redisGetReply(c, (void **)&r), REDIS_OK);
    CHECK_INT(r->type, REDIS_REPLY_ARRAY);
    CHECK_STR(r->element[0]->str, "sunsubscribe");
    CHECK_STR(r->element[1]->str, channel);
    CHECK_INT(r->element[2]->integer, 0);
    freeReplyObject(r);
    redisFree(c);
}

static char pushed[200];

static void push(void *conn, const char *text, size_t len)
{
    (void)conn;
    snprintf(pushed, sizeof pushed, "%.*s", (int)len, text);
}

TEST(the_model_of_a_cluster_refuses_what_a_cluster_refuses)
{
    begin();
    unsigned slot = slot_of(name[0], strlen(name[0]));
    hf_bytes listen[] = { hf_str("SSUBSCRIBE"), hf_str(channel) };
    struct model_way way = { .port = { 1, 2 } };
    redisContext *c = subscribe();
    char somebody;
    model_on_push(push);
    (void)model_do(&somebody, &way, 2, listen);
    for (int at = 0; at < MODEL_NODES; at++)
        compare_all("at rest", at);
    slots_send(slot);
    struct cluster_move mv = cluster_move_begin(cl, (int)slot, node[1]);
    for (int sent = 0; sent <= KEYS; sent++) {
        char stage[40];
        snprintf(stage, sizeof stage, "%d keys sent", sent);
        for (int at = 0; at < MODEL_NODES; at++)
            compare_all(stage, at);
        if (sent < KEYS)
            send_key(&mv);
    }
    CHECK(!slots_send_key(NULL));
    slots_arrive(); /* how soon the other one hears of it from this one nobody can say */
    CHECK_STR(server_ask(node[1], "CLUSTER SETSLOT %u NODE %s", slot, cluster_id(cl, node[1])),
              "OK");
    compare_all("arrived", 1);
    compare_claims(slot);
    slots_let_go();
    cluster_move_end(&mv);
    for (int at = 0; at < MODEL_NODES; at++)
        compare_all("both know", at);
    check_unsubscribed(c);
    CHECK_CONTAINS(pushed, "sunsubscribe");
    t_note("%d questions, the same answers", asked);
    model_on_push(NULL);
}
