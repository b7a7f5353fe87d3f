/* SPDX-License-Identifier: MIT
 * run.c - one cell of the matrix: its servers, its crowd, its fault, its verdict.
 */
#include <sys/stat.h>

#include "faults/lib/matrix.h"

enum { CELLS_MAX = 200, GRANTS_MAX = 2000000, QUICK_S = 400, WHOLE_S = 1800, TRIES = 5 };

struct cell {
    struct t_test     test; /* first: t_current() is the cell */
    const struct row *row;
    char              topo;
    char              title[64];
};

static int is_whole(void)
{
    const char *tier = getenv("HF_FAULTS");
    return tier && strcmp(tier, "whole") == 0;
}

/* ---- topologies ---- */

static void check_tools(const struct setup *want)
{
    const char *missing = want->net ? net_missing() : NULL;
    if (want->mixed && !server_program("valkey-server"))
        missing = "no valkey-server here: tools/deps.sh valkey";
    if (missing && is_whole())
        SKIP(missing);
    if (missing)
        LEFT_OUT(missing);
}

static const char *const *server_args(const struct setup *want)
{
    static const char *const always[] = { "--appendfsync", "always", NULL };
    return want->fsync_always ? always : want->args;
}

static void start_servers(struct run *r, int n)
{
    const struct setup *w = &r->want;
    struct server_opts o = { .aof = !w->memory_only, .tcp = n > 1 || w->net,
                             .clockshim = w->clockshim, .diskshim = w->diskshim,
                             .args = server_args(w) };
    r->n = n;
    for (int i = 0; i < n; i++) {
        if (w->net)
            o.place = &net_places(r->net)[i];
        o.program = w->mixed && i % 2 ? server_program("valkey-server") : NULL;
        r->s[i] = server_start_opts(&o);
        r->p[i] = w->proxy ? proxy_start_tcp(r->s[i]) : NULL;
    }
}

static const char *address_of(struct run *r, int i)
{
    const char *url = r->p[i] ? proxy_url(r->p[i]) : server_tcp_url(r->s[i]);
    return strstr(url, "://") + 3;
}

static void start_single(struct run *r)
{
    start_servers(r, 1);
    r->url = r->p[0] ? proxy_url(r->p[0]) : r->want.net ? server_tcp_url(r->s[0])
                                                        : server_url(r->s[0]);
}

static void start_quorum(struct run *r)
{
    const char *url = "redis+quorum://";
    start_servers(r, 5);
    for (int i = 0; i < r->n; i++)
        url = keep_text("%s%s%s", url, i ? "," : "", address_of(r, i));
    r->url = url;
}

static void start_fleet(struct run *r)
{
    const struct place *places = r->net ? net_places(r->net) : NULL;
    r->f = fleet_start(&(struct fleet_opts){ .memory_only = r->want.memory_only,
                                             .diskshim = r->want.diskshim,
                                             .down_after_ms = r->want.down_after_ms,
                                             .args = server_args(&r->want),
                                             .place = places });
    r->n = FLEET;
    for (int i = 0; i < FLEET; i++)
        r->s[i] = r->f->node[i];
    r->url = r->f->url;
}

static void start_cluster(struct run *r)
{
    const struct place *places = r->net ? net_places(r->net) : NULL;
    r->cl = cluster_start(&(struct cluster_opts){ .memory_only = r->want.memory_only,
                                                  .clockshim = r->want.clockshim,
                                                  .node_timeout_ms = r->want.node_timeout_ms,
                                                  .args = server_args(&r->want),
                                                  .place = places });
    r->n = r->cl->nodes;
    for (int i = 0; i < r->n; i++)
        r->s[i] = r->cl->node[i];
    r->url = r->cl->url;
}

static void set_defaults(struct run *r)
{
    struct setup *w = &r->want;
    *w = r->row->want;
    w->ttl_ms = w->ttl_ms ? w->ttl_ms : 2000;
    w->down_after_ms = w->down_after_ms ? w->down_after_ms : 3000;
    w->node_timeout_ms = w->node_timeout_ms ? w->node_timeout_ms : 5000;
    if (!w->options && (r->topo == 'F' || r->topo == 'C'))
        w->options = "replicas=1";
}

static void start_topology(struct run *r)
{
    static const char *const plain[LOCKS] = { "a", "b", "c" };
    check_tools(&r->want);
    if (r->want.net)
        r->net = net_start();
    switch (r->topo) {
    case 'F': start_fleet(r); break;
    case 'C': start_cluster(r); break;
    case 'Q': start_quorum(r); break;
    default: start_single(r);
    }
    for (int i = 0; i < LOCKS; i++) {
        r->name[i] = r->cl ? cluster_name(r->cl, r->cl->node[i], 0) : plain[i];
        r->slot[i] = r->cl ? cluster_slot_of(r->cl, r->name[i]) : 0;
    }
    if (r->want.options && *r->want.options)
        r->url = url_with(r->url, r->want.options);
    if (r->want.quarantine && (r->f || r->topo == 'Q'))
        r->url = url_with(r->url, r->want.quarantine);
}

struct server *run_server(struct run *r, int lock)
{
    if (r->f)
        return fleet_master(r->f);
    if (r->cl) {
        struct server *s = NULL;
        for (int i = 0; i < 500 && !(s = cluster_owner(r->cl, r->slot[lock])); i++)
            t_sleep_ms(20);
        CHECK(s);
        return s;
    }
    return r->s[t_random((uint64_t)r->n)];
}

int run_any_lock(void)
{
    return (int)t_random(LOCKS);
}

const char *run_key(struct run *r, int lock)
{
    return keep_text("lock:%s", r->name[lock]);
}

long long run_info(struct run *r, const char *name, const char *field)
{
    long long sum = 0;
    for (int i = 0; i < r->n; i++) {
        if (!server_pid(r->s[i]) || server_is_frozen(r->s[i]))
            continue;
        const char *value = server_info(r->s[i], name);
        if (value && field)
            value = strstr(value, field);
        if (value)
            sum += atoll(value + (field ? strlen(field) + 1 : 0));
    }
    return sum;
}

static int times(const char *text, const char *part)
{
    int n = 0;
    for (; (text = strstr(text, part)); text++)
        n++;
    return n;
}

void run_outlast_quarantine(struct run *r)
{
    for (int i = 0; i < r->n && r->topo == 'Q'; i++)
        CHECK_EVENTUALLY(atoi(server_info(r->s[i], "uptime_in_seconds")) >= 4, 60000);
}

int run_logged(struct run *r, const char *text)
{
    int n = 0;
    for (int i = 0; i < r->n; i++)
        n += times(server_log(r->s[i]), text);
    return n;
}

/* By the logs: of one Sentinel, or of all nodes of a Cluster. */
int run_switches(struct run *r)
{
    if (r->f)
        return times(server_log(r->f->sentinel[0]), "+switch-master");
    return r->cl ? run_logged(r, "Failover election won") : 0;
}

/* ---- a cell ---- */

static void inject_all(struct run *r, int wanted)
{
    while (r->injected < wanted && r->tries < wanted * TRIES + 5) {
        r->tries++;
        t_sleep_ms((int64_t)t_random(60));
        r->injected += r->row->inject(r) != 0;
        crowd_let_go(r);
        crowd_go_on(r, 2);
    }
}

static void run_cell(void)
{
    const struct cell *c = (const struct cell *)t_current();
    struct run *r = keep_block(calloc(1, sizeof *r));
    struct verdict v = { 0 };
    r->row = c->row;
    r->topo = c->topo;
    r->quick = !is_whole();
    int64_t begun = t_now_ms();
    int wanted = r->quick ? c->row->quick : c->row->whole;
    t_note("%s on %c, %d times, SEED=%llu", c->row->about, c->topo, wanted,
           (unsigned long long)t_seed());
    set_defaults(r);
    start_topology(r);
    r->b = shared_memory(sizeof *r->b);
    r->h = history_new(GRANTS_MAX);
    if (c->row->prepare)
        c->row->prepare(r);
    int before = run_switches(r);
    crowd_start(r);
    inject_all(r, wanted);
    crowd_end(r);
    v.deposed = run_switches(r) - before - r->switches;
    if (c->row->finish)
        c->row->finish(r);
    v.i6 = judge_leftovers(r);
    judge(r, &v);
    v.seconds = (t_now_ms() - begun) / 1000;
    if (!table_line(r, &v))
        FAIL("%s on %c does not hold", c->row->about, c->topo);
}

/* ---- which cells ---- */

static int is_chosen(const struct row *row, char topo)
{
    const char *name = getenv("HF_FAULTS_ROW"), *topos = getenv("HF_FAULTS_TOPO");
    if (name && *name && !strstr(row->name, name))
        return 0;
    if (topos && *topos && !strchr(topos, topo))
        return 0;
    return is_whole() ? row->whole > 0 : row->quick > 0 && strchr(row->quick_on, topo) != NULL;
}

void matrix_add(const struct row *row, size_t n)
{
    static struct cell cell[CELLS_MAX];
    static int used;
    for (size_t i = 0; i < n; i++)
        for (const char *t = row[i].topos; *t; t++) {
            if (!is_chosen(&row[i], *t) || used == CELLS_MAX)
                continue;
            struct cell *c = &cell[used++];
            c->row = &row[i];
            c->topo = *t;
            snprintf(c->title, sizeof c->title, "%s_%c", row[i].name, *t);
            c->test = (struct t_test){ .name = c->title, .run = run_cell, .line = used,
                                       .seconds = is_whole() ? WHOLE_S : QUICK_S };
            t_register(&c->test);
        }
}
