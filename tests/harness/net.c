/* SPDX-License-Identifier: MIT
 * net.c - a network of our own; see net.h.
 */
#include "harness/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <net/route.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/keep.h"
#include "harness/net_tcp.h"
#include "harness/t.h"

/* 198.18.0.0/15 is set aside for tests of networks; nobody is reached by it. */
#define HOST "198.18.77.%d"

enum { FIRST = 1, PACKET_MAX = 2048, WAITING_MAX = 16384, MTU = 1500 };

struct net {
    struct place place[NET_PLACES];
    int          tun[NET_PLACES];
    struct rules { /* shared with the switch, which is a process */
        atomic_char cut[NET_PLACES][NET_PLACES];
        atomic_int  delay_ms, jitter_ms, loss, twice;
        atomic_int  reset_from, reset_first; /* reset_from is -1: none */
        atomic_long reset_left;
        atomic_long passed, delayed, lost, blocked, doubled, overtaken, resets;
    } *rules;
};

/* ---- the places ---- */

static int configure(const char *name, const char *host)
{
    struct ifreq ifr = { 0 };
    struct sockaddr_in *at = (struct sockaddr_in *)(void *)&ifr.ifr_addr;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), bad;
    snprintf(ifr.ifr_name, sizeof ifr.ifr_name, "%s", name);
    at->sin_family = AF_INET;
    bad = inet_pton(AF_INET, host, &at->sin_addr) != 1 || ioctl(fd, SIOCSIFADDR, &ifr) != 0;
    bad |= inet_pton(AF_INET, "255.255.255.0", &at->sin_addr) != 1
           || (strcmp(name, "lo") != 0 && ioctl(fd, SIOCSIFNETMASK, &ifr) != 0);
    bad |= ioctl(fd, SIOCGIFFLAGS, &ifr) != 0;
    ifr.ifr_flags = (short)(ifr.ifr_flags | IFF_UP | IFF_RUNNING);
    bad |= ioctl(fd, SIOCSIFFLAGS, &ifr) != 0;
    close(fd);
    return bad ? -1 : 0;
}

/* A namespace with one wire, whose other end is the descriptor. The caller is in it afterwards. */
static int make_place(struct place *p, int number)
{
    struct ifreq ifr = { .ifr_flags = IFF_TUN | IFF_NO_PI, .ifr_name = "wire" };
    if (unshare(CLONE_NEWNET) != 0)
        return -1;
    p->ns = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    p->host = keep_text(HOST, FIRST + number);
    int tun = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (p->ns < 0 || tun < 0 || ioctl(tun, TUNSETIFF, &ifr) != 0 || configure("lo", "127.0.0.1")
        || configure("wire", p->host))
        return -1;
    return tun;
}

/* Tried in a process of its own. */
const char *net_missing(void)
{
    int status = -1, pid = t_fork();
    if (pid == 0) {
        struct place p;
        _exit(make_place(&p, 0) >= 0 ? 0 : 1);
    }

    if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
        return "network namespaces and /dev/net/tun: run it as root";
    return NULL;
}

/* ---- the switch ---- */

struct packet {
    int64_t came_ns, due_ns;
    uint64_t number;
    int from, to;
    size_t len;
    unsigned char data[PACKET_MAX];
};

struct queue { /* a heap by time */
    struct packet *p[WAITING_MAX];
    int n;
};

static int earlier(const struct packet *a, const struct packet *b)
{
    return a->due_ns != b->due_ns ? a->due_ns < b->due_ns : a->number < b->number;
}

static void push(struct queue *q, struct packet *p)
{
    int i = q->n++;
    for (; i > 0 && earlier(p, q->p[(i - 1) / 2]); i = (i - 1) / 2)
        q->p[i] = q->p[(i - 1) / 2];
    q->p[i] = p;
}

static struct packet *pop(struct queue *q)
{
    struct packet *first = q->p[0], *last = q->p[--q->n];
    int i = 0;
    for (int k; (k = 2 * i + 1) < q->n; i = k) {
        if (k + 1 < q->n && earlier(q->p[k + 1], q->p[k]))
            k++;
        if (!earlier(q->p[k], last))
            break;
        q->p[i] = q->p[k];
    }
    q->p[i] = last;
    return first;
}

/* The last byte of the address says where it goes; -1: nowhere. */
static int place_of(const unsigned char *packet, size_t len)
{
    if (len < 20 || packet[0] >> 4 != 4)
        return -1;
    int to = packet[19] - FIRST;
    return to >= 0 && to < NET_PLACES ? to : -1;
}

static void take_in(struct net *n, struct queue *q, int from, const unsigned char *data, size_t len)
{
    static uint64_t number;
    struct rules *r = n->rules;
    int to = place_of(data, len);
    if (to < 0 || q->n >= WAITING_MAX - 2)
        return;
    if (r->cut[from][to]) {
        atomic_fetch_add(&r->blocked, 1);
        return;
    }
    if ((int)t_random(1000) < r->loss) {
        atomic_fetch_add(&r->lost, 1);
        return;
    }
    int copies = (int)t_random(1000) < r->twice ? 2 : 1;
    if (copies == 2)
        atomic_fetch_add(&r->doubled, 1);
    for (int i = 0; i < copies; i++) {
        struct packet *p = malloc(sizeof *p);
        CHECK(p);
        p->came_ns = t_now_ns();
        p->due_ns = p->came_ns + r->delay_ms * INT64_C(1000000)
                    + (int64_t)t_random((uint64_t)r->jitter_ms * 1000000 + 1);
        p->number = ++number;
        p->from = from;
        p->to = to;
        p->len = len;
        memcpy(p->data, data, len);
        push(q, p);
    }
}

/* 1: its connection is not to be reset yet. */
static int may_pass(struct rules *r, const struct packet *p)
{
    if (p->from != atomic_load(&r->reset_from) || p->to < r->reset_first)
        return 1;
    long size = (long)tcp_payload(p->data, p->len);
    return size == 0 || atomic_fetch_sub(&r->reset_left, size) > size;
}

static int deliver(struct net *n, int to, const unsigned char *data, size_t len)
{
    return write(n->tun[to], data, len) == (ssize_t)len;
}

/* What may pass of it goes there; then both ends learn that it is over. */
static void reset(struct net *n, struct packet *p)
{
    unsigned char end[TCP_RESET_LEN];
    long size = (long)tcp_payload(p->data, p->len);
    long left = atomic_exchange(&n->rules->reset_left, 0) + size;
    atomic_store(&n->rules->reset_from, -1);
    p->len = tcp_shorten(p->data, p->len, (size_t)(left < size ? left : size));
    deliver(n, p->to, p->data, p->len);
    tcp_reset(p->data, p->len, 0, end);
    deliver(n, p->to, end, sizeof end);
    tcp_reset(p->data, p->len, 1, end);
    deliver(n, p->from, end, sizeof end);
    atomic_fetch_add(&n->rules->resets, 1);
}

static void send_due(struct net *n, struct queue *q)
{
    static uint64_t latest[NET_PLACES][NET_PLACES];
    while (q->n > 0 && q->p[0]->due_ns <= t_now_ns()) {
        struct packet *p = pop(q);
        if (latest[p->from][p->to] > p->number)
            atomic_fetch_add(&n->rules->overtaken, 1);
        else
            latest[p->from][p->to] = p->number;
        if (n->rules->cut[p->from][p->to])
            atomic_fetch_add(&n->rules->blocked, 1);
        else if (!may_pass(n->rules, p))
            reset(n, p);
        else if (deliver(n, p->to, p->data, p->len)) {
            atomic_fetch_add(&n->rules->passed, 1);
            atomic_fetch_add(&n->rules->delayed, p->due_ns >= p->came_ns + 1000000);
        }
        free(p);
    }
}

static void read_all(struct net *n, struct queue *q, int from)
{
    unsigned char data[PACKET_MAX];
    ssize_t len;
    for (int i = 0; i < 64 && (len = read(n->tun[from], data, sizeof data)) > 0; i++)
        take_in(n, q, from, data, (size_t)len);
}

/* At once, or when the next packet is due. */
static int time_to_wait(const struct queue *q, struct timespec *ret)
{
    int64_t ns = q->n ? q->p[0]->due_ns - t_now_ns() : 1000000000;
    ns = ns < 0 ? 0 : ns;
    *ret = (struct timespec){ ns / 1000000000, ns % 1000000000 };
    return 0;
}

__attribute__((noreturn)) static void switch_main(struct net *n)
{
    static struct queue q;
    struct pollfd fd[NET_PLACES];
    for (int i = 0; i < NET_PLACES; i++)
        fd[i] = (struct pollfd){ .fd = n->tun[i], .events = POLLIN };
    alarm(0);
    for (;;) {
        struct timespec wait;
        time_to_wait(&q, &wait);
        if (ppoll(fd, NET_PLACES, &wait, NULL) > 0)
            for (int i = 0; i < NET_PLACES; i++)
                if (fd[i].revents)
                    read_all(n, &q, i);
        send_due(n, &q);
    }
}

struct net *net_start(void)
{
    struct net *n = keep_block(calloc(1, sizeof *n));
    n->rules = mmap(NULL, sizeof *n->rules, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                    -1, 0);
    CHECK(n->rules != MAP_FAILED);
    n->rules->reset_from = -1;
    int home = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    CHECK(home >= 0);
    for (int i = 0; i < NET_PLACES; i++) {
        n->tun[i] = make_place(&n->place[i], i);
        CHECK(n->tun[i] >= 0);
    }
    CHECK_INT(setns(home, CLONE_NEWNET), 0);
    close(home);
    int pid = t_fork();
    CHECK(pid >= 0);
    if (pid == 0)
        switch_main(n);
    for (int i = 0; i < NET_PLACES; i++)
        close(n->tun[i]);
    return n;
}

const struct place *net_places(const struct net *n)
{
    return n->place;
}

void net_enter(const struct net *n, int place)
{
    CHECK_INT(setns(n->place[place].ns, CLONE_NEWNET), 0);
}

/* ---- what goes wrong ---- */

void net_cut(struct net *n, int from, int to, int cut)
{
    for (int i = 0; i < NET_PLACES; i++)
        for (int k = 0; k < NET_PLACES; k++)
            if ((from < 0 || from == i) && (to < 0 || to == k))
                n->rules->cut[i][k] = (char)cut;
}

void net_weather(struct net *n, int delay_ms, int jitter_ms, int loss, int twice)
{
    n->rules->delay_ms = delay_ms;
    n->rules->jitter_ms = jitter_ms;
    n->rules->loss = loss;
    n->rules->twice = twice;
}

void net_reset_after(struct net *n, int from, int first, long k)
{
    n->rules->reset_first = first;
    n->rules->reset_left = k;
    n->rules->reset_from = from;
}

long net_passed(const struct net *n)
{
    return n->rules->passed;
}

long net_delayed(const struct net *n)
{
    return n->rules->delayed;
}

long net_lost(const struct net *n)
{
    return n->rules->lost;
}

long net_blocked(const struct net *n)
{
    return n->rules->blocked;
}

long net_doubled(const struct net *n)
{
    return n->rules->doubled;
}

long net_overtaken(const struct net *n)
{
    return n->rules->overtaken;
}

long net_resets(const struct net *n)
{
    return n->rules->resets;
}
