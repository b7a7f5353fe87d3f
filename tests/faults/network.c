/* SPDX-License-Identifier: MIT
 * network.c - rows about what is between clients and servers: a proxy on S and Q, a network of our
 * own on all.
 */
#include "faults/lib/matrix.h"

/* ---- by a proxy ---- */

static struct proxy *some_proxy(struct run *r)
{
    return r->p[t_random((uint64_t)r->n)];
}

/* Requests arrive, replies do not; those connections stay silent. */
static int drop_replies(struct run *r)
{
    struct proxy *p = some_proxy(r);
    long before = proxy_dropped(p);
    proxy_drop_replies(p);
    t_sleep_ms(100 + (int64_t)t_random(600));
    proxy_pass(p);
    return proxy_dropped(p) > before;
}

/* Requests arrive when their senders have given up, after what they sent later. */
static int hold_requests(struct run *r)
{
    long before = 0, after = 0;
    for (int i = 0; i < r->n; i++) {
        before += proxy_late(r->p[i]);
        proxy_hold(r->p[i]);
    }
    t_sleep_ms(800 + (int64_t)t_random(1200));
    for (int i = 0; i < r->n; i++)
        proxy_pass(r->p[i]);
    crowd_go_on(r, 1);
    for (int i = 0; i < r->n; i++)
        after += proxy_late(r->p[i]);
    return after > before;
}

/* After one more byte each time; the replies of all clients together have some hundred. */
static int cut_reply(struct run *r)
{
    struct proxy *p = some_proxy(r);
    long before = proxy_cuts(p);
    int64_t until = t_now_ms() + 20000;
    proxy_cut_after(p, (size_t)(1 + r->mark++ % 400));
    while (proxy_cuts(p) == before && t_now_ms() < until)
        t_sleep_ms(1);
    return proxy_cuts(p) > before;
}

static int trouble(struct run *r)
{
    struct proxy *p = some_proxy(r);
    long before = proxy_dropped(p) + proxy_cuts(p) + proxy_delayed(p) + proxy_refused(p)
                  + proxy_connections(p);
    proxy_trouble(p);
    proxy_pass(p);
    return proxy_dropped(p) + proxy_cuts(p) + proxy_delayed(p) + proxy_refused(p)
               + proxy_connections(p) > before;
}

/* ---- a network of our own ---- */

static int delay(struct run *r)
{
    long before = net_delayed(r->net);
    net_weather(r->net, 1 + (int)t_random(500), 0, 0, 0);
    t_sleep_ms(1500);
    net_weather(r->net, 0, 0, 0, 0);
    return net_delayed(r->net) > before;
}

/* What is sent now arrives when its sender has given up, so whatever a server does after a moment
 * is such a request. */
static int late_packets(struct run *r)
{
    net_weather(r->net, 700 + (int)t_random(800), 0, 0, 0);
    t_sleep_ms(200);
    long long before = run_info(r, "cmdstat_evalsha", "calls");
    t_sleep_ms(2000);
    long long after = run_info(r, "cmdstat_evalsha", "calls");
    net_weather(r->net, 0, 0, 0, 0);
    return after > before;
}

/* Loss, reordering, doubling, jitter. */
static int bad_weather(struct run *r)
{
    long lost = net_lost(r->net), twice = net_doubled(r->net), over = net_overtaken(r->net);
    net_weather(r->net, 1 + (int)t_random(10), 1 + (int)t_random(30), 10 + (int)t_random(290),
                50);
    t_sleep_ms(1500);
    net_weather(r->net, 0, 0, 0, 0);
    return net_lost(r->net) > lost && net_doubled(r->net) > twice
           && net_overtaken(r->net) > over;
}

/* Where the server of some lock is. */
static int some_place(struct run *r)
{
    int at = -1;
    struct server *s = run_server(r, run_any_lock());
    for (int i = 0; i < r->n; i++)
        at = r->s[i] == s ? i : at;
    return at;
}

/* After one more byte each time; the replies of all clients together have some hundred. */
static int reset_reply(struct run *r)
{
    long before = net_resets(r->net);
    int64_t until = t_now_ms() + 20000;
    net_reset_after(r->net, some_place(r), CLIENTS_AT, 1 + r->mark++ % 400);
    while (net_resets(r->net) == before && t_now_ms() < until)
        t_sleep_ms(1);
    return net_resets(r->net) > before;
}

/* What one server sends is lost, though it hears everything: half-open connections. */
static int deaf_ends(struct run *r)
{
    int at = some_place(r);
    long before = net_blocked(r->net);
    for (int k = 0; k < 2; k++)
        net_cut(r->net, at, CLIENTS_AT + k, 1);
    t_sleep_ms(300 + (int64_t)t_random(1200));
    for (int k = 0; k < 2; k++)
        net_cut(r->net, at, CLIENTS_AT + k, 0);
    return net_blocked(r->net) > before;
}

static void part(struct run *r, const int *inside, int cut)
{
    for (int i = 0; i < NET_PLACES; i++)
        for (int k = 0; k < NET_PLACES; k++)
            if (inside[i] != inside[k])
                net_cut(r->net, i, k, cut);
}

/* Up to two of the servers, with half of the clients, on one side; the others on the other. */
static int partition(struct run *r)
{
    int inside[NET_PLACES] = { 0 };
    long before = net_blocked(r->net);
    inside[t_random((uint64_t)r->n)] = 1;
    inside[t_random((uint64_t)r->n)] = 1;
    inside[CLIENTS_AT + t_random(2)] = 1;
    part(r, inside, 1);
    t_sleep_ms(1000 + (int64_t)t_random(2000));
    part(r, inside, 0);
    return net_blocked(r->net) > before;
}

/* The master of a lock, and half of the clients, for so long that another one takes its place. */
static int isolate_master(struct run *r)
{
    int inside[NET_PLACES] = { 0 }, lock = run_any_lock();
    long before = net_blocked(r->net);
    struct server *old = run_server(r, lock);
    crowd_hold(r, lock);
    for (int i = 0; i < r->n; i++)
        inside[i] = r->s[i] == old;
    inside[CLIENTS_AT + t_random(2)] = 1;
    part(r, inside, 1);
    struct server *now = old;
    int64_t until = t_now_ms() + 40000;
    while (now == old && t_now_ms() < until) {
        t_sleep_ms(50);
        now = run_server(r, lock);
    }
    r->switches += now != old;
    crowd_let_go(r);
    t_sleep_ms(1000 + (int64_t)t_random(2000));
    part(r, inside, 0);
    crowd_go_on(r, 1);
    if (r->cl)
        cluster_wait(r->cl);
    else
        CHECK_EVENTUALLY(strncmp(server_ask(old, "ROLE"), "slave", 5) == 0, 60000);
    return now != old && net_blocked(r->net) > before;
}

/* Its replicas hear nothing of a master for a while, and then it dies: what it granted meanwhile is
 * lost, if it granted anything. */
static int cut_and_crash(struct run *r)
{
    int lock = run_any_lock(), inside[NET_PLACES] = { 0 };
    struct server *old = run_server(r, lock);
    long before = net_blocked(r->net);
    crowd_hold(r, lock); /* while somebody can: without its replicas it grants nothing */
    for (int i = 0; i < NET_PLACES; i++)
        inside[i] = i < r->n && r->s[i] != old;
    for (int i = 0; i < NET_PLACES; i++)
        for (int k = 0; k < r->n; k++)
            if (r->s[k] == old && inside[i])
                net_cut(r->net, k, i, 1);
    t_sleep_ms(300 + (int64_t)t_random(400));
    server_kill(old);
    net_cut(r->net, -1, -1, 0);
    struct server *now = r->f ? fleet_wait_switch(r->f, old)
                              : cluster_wait_switch(r->cl, r->slot[lock], old);
    r->switches++;
    server_restart(old);
    crowd_let_go(r);
    crowd_go_on(r, 1);
    if (r->cl)
        cluster_wait(r->cl);
    else
        CHECK_EVENTUALLY(atoi(server_info(fleet_master(r->f), "connected_slaves")) == 2, 60000);
    return now != old && net_blocked(r->net) > before;
}

#define REPLACED .stall_ms = REPLACED_MS
#define SOON .net = 1, .ttl_ms = 20000, .grace_ms = 10000, .down_after_ms = 1000, \
             .node_timeout_ms = 2000

static const struct row rows[] = {
    { "replies_dropped", "replies are lost", "SQ", "S", 3, 25, .may = MAY_PASS | MAY_FAIL,
      .want = { .proxy = 1, .timeout_ms = 700 }, .inject = drop_replies },
    { "late_requests", "requests arrive after they were given up", "SQ", "S", 3, 25,
      .may = MAY_PASS | MAY_FAIL, .want = { .proxy = 1, .timeout_ms = 400 },
      .inject = hold_requests },
    { "late_packets", "all packets arrive after they were given up", "FC", "", 0, 20,
      .may = MAY_PASS | MAY_FAIL,
      .want = { .net = 1, .timeout_ms = 400, .down_after_ms = 10000, .node_timeout_ms = 10000 },
      .inject = late_packets },
    { "cut_bytes", "cut after byte 1, 2, 3 ... of replies", "SQ", "S", 25, 400,
      .may = MAY_PASS | MAY_FAIL, .want = { .proxy = 1 }, .inject = cut_reply },
    { "trouble", "one of the proxy's faults at random", "SQ", "Q", 4, 40,
      .may = MAY_PASS | MAY_FAIL, .want = { .proxy = 1, .timeout_ms = 700 }, .inject = trouble },
    { "delay", "packets take 1 to 500 ms", "SFCQ", "", 0, 20, .may = MAY_PASS | MAY_FAIL,
      .want = { .net = 1 }, .inject = delay },
    { "weather", "loss 1 to 30 %, jitter, reordered, doubled", "SFCQ", "S", 2, 20,
      .may = MAY_PASS | MAY_FAIL, .want = { .net = 1 }, .inject = bad_weather },
    { "resets", "reset after byte 1, 2, 3 ... of replies", "SFCQ", "", 0, 400,
      .may = MAY_PASS | MAY_FAIL, .want = { .net = 1 }, .inject = reset_reply },
    { "half_open", "what a server sends is lost", "SFCQ", "", 0, 20, .may = MAY_PASS | MAY_FAIL,
      .want = { .net = 1, .timeout_ms = 1000, .down_after_ms = 5000 }, .inject = deaf_ends },
    { "partition", "a minority and half of the clients cut off", "QC", "Q", 2, 20,
      .may = MAY_PASS | MAY_FAIL, .want = { .net = 1, .timeout_ms = 1000 }, .inject = partition },
    { "isolate_master", "the master and half of the clients cut off", "FC", "", 0, 20,
      .may = MAY_PASS | MAY_FAIL, REPLACED,
      .want = { .timeout_ms = 1000, SOON }, .inject = isolate_master },
    { "cut_crash", "cut off from its replicas, then killed; replicas=1", "FC", "", 0, 20,
      .may = MAY_PASS | MAY_FAIL, REPLACED, .want = { SOON }, .inject = cut_and_crash },
    { "cut_crash_nowait", "the same with replicas=0", "FC", "", 0, 20, .out = "FC",
      .may = MAY_PASS | MAY_LOSE | MAY_FAIL, REPLACED, .want = { .options = "", SOON },
      .inject = cut_and_crash },
};
ROWS(rows)
