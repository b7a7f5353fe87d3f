/* SPDX-License-Identifier: MIT
 * syscalls.c - the system refuses a thread, a descriptor, a socket, random numbers, at each call in
 * turn: no crash, no leak, an honest result, and the next attempt works. HF_SOAK=1: at each call of
 * all topologies.
 *
 * The calls are those of this program: it has them before libc does. Memory: oom.c.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

#include "harness/answered.h"
#include "harness/cluster.h"
#include "harness/failing.h"
#include "harness/fleet.h"
#include "harness/quorum.h"

/* ---- the calls ---- */

enum { THREAD, EVENT, TIMER, EPOLL, SOCKET, RANDOM, KINDS };
static struct {
    atomic_bool armed, after;
    atomic_long asked, at, injected;
    atomic_long of[KINDS]; /* how many of each were refused, in all */
} refuse;

/* As failing.h counts allocations. */
static bool refused(int kind, int why)
{
    if (!atomic_load(&refuse.armed))
        return false;
    long n = atomic_fetch_add(&refuse.asked, 1) + 1, k = atomic_load(&refuse.at);
    if (n != k && !(atomic_load(&refuse.after) && n > k))
        return false;
    atomic_fetch_add(&refuse.injected, 1);
    atomic_fetch_add(&refuse.of[kind], 1);
    errno = why;
    return true;
}

static void refuse_from(long k, bool after)
{
    atomic_store(&refuse.asked, 0);
    atomic_store(&refuse.injected, 0);
    atomic_store(&refuse.at, k);
    atomic_store(&refuse.after, after);
    atomic_store(&refuse.armed, true);
}

static void *real(const char *name)
{
    void *p = dlsym(RTLD_NEXT, name);
    if (!p)
        abort();
    return p;
}

/* The sanitizer's: clang links it into the program, where it is not the next one. */
int __interceptor_pthread_create(pthread_t *ret, const pthread_attr_t *attr,
                                 void *(*main_fn)(void *), void *arg) __attribute__((weak));

int pthread_create(pthread_t *ret, const pthread_attr_t *attr, void *(*main_fn)(void *), void *arg)
{
    int (*call)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *)
        = __interceptor_pthread_create;
    if (!call)
        *(void **)&call = real("pthread_create");
    return refused(THREAD, EAGAIN) ? EAGAIN : call(ret, attr, main_fn, arg);
}

int eventfd(unsigned count, int flags)
{
    int (*call)(unsigned, int);
    *(void **)&call = real("eventfd");
    return refused(EVENT, EMFILE) ? -1 : call(count, flags);
}

int timerfd_create(int id, int flags)
{
    int (*call)(int, int);
    *(void **)&call = real("timerfd_create");
    return refused(TIMER, EMFILE) ? -1 : call(id, flags);
}

int epoll_create1(int flags)
{
    int (*call)(int);
    *(void **)&call = real("epoll_create1");
    return refused(EPOLL, EMFILE) ? -1 : call(flags);
}

int socket(int domain, int type, int protocol)
{
    int (*call)(int, int, int);
    *(void **)&call = real("socket");
    return refused(SOCKET, EMFILE) ? -1 : call(domain, type, protocol);
}

ssize_t getrandom(void *buf, size_t size, unsigned flags)
{
    ssize_t (*call)(void *, size_t, unsigned);
    *(void **)&call = real("getrandom");
    return refused(RANDOM, ENOSYS) ? -1 : call(buf, size, flags);
}

/* ---- what is done meanwhile ---- */

static const char *protocol; /* NULL: scripts */

/* What a call may answer: where something went wrong before, it may have no time left, too. */
static void judge(hf_err e, const char *what)
{
    bool honest = e == HF_OK || e == HF_ESYS || e == HF_ECONN || e == HF_EUNSURE
                  || e == HF_ETIMEDOUT || e == HF_ENOQUORUM || e == HF_EREPLICAS
                  || (e == HF_ELOST && strstr(err.message, " ended: "));
    if (!honest || (e && !err.message[0]))
        FAIL("call %ld of the system refused: %s: %s: %s", atomic_load(&refuse.at), what,
             hf_err_name(e), err.message);
    err.message[0] = '\0';
}

static void hold(hf_lock *m)
{
    int fd;
    hf_err e = hf_lock_acquire(m, 1000, NULL, &err);
    judge(e, "acquire");
    CHECK_INT(hf_lock_is_held(m), e == HF_OK);
    judge(hf_lock_fd(m, &fd, &err), "fd");
    if (e)
        return;
    judge(hf_lock_verify(m, &err), "verify");
    judge(hf_lock_release(m, &err), "release");
}

static void without_blocking(hf_client *c, hf_lock *m)
{
    struct answer a = { 0 }, b = { 0 };
    hf_err e = answered(c, hf_lock_acquire_async(m, 1000, note, &a, &err), &a, 40000);
    judge(e, "acquire_async");
    if (!e)
        judge(answered(c, hf_lock_release_async(m, note, &b, &err), &b, 40000), "release_async");
}

/* Every call must cope with what came before. */
static void scenario(const char *url)
{
    hf_client *c = NULL;
    hf_lock *m = NULL, *other = NULL;
    hf_client_opts co = { .size = sizeof co, .timeout_ms = 500, .protocol = protocol };
    hf_lock_opts o = { .size = sizeof o, .ttl_ms = 10000 };
    hf_err e = hf_client_open(url, &co, &c, &err);
    judge(e, "open");
    CHECK(!e == (c != NULL));
    if (!c)
        return;
    judge(hf_lock_open(c, hf_str("a"), &o, &m, &err), "lock");
    judge(hf_lock_open(c, hf_str("b"), &o, &other, &err), "lock");
    if (m && other) {
        hold(m);
        without_blocking(c, other);
    }
    hf_lock_free(m);
    hf_lock_free(other);
    hf_client_free(c);
}

static int descriptors(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    CHECK(d != NULL);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

/* Wherever the key is now. */
static void forget_locks(const char *url)
{
    hf_client *c = client_with(url, (hf_client_opts){ .protocol = protocol });
    hf_lock *m[2] = { lock_of(c, "a", 4000), lock_of(c, "b", 4000) };
    for (int i = 0; i < 2; i++) { /* nothing that was left lasts longer than its ttl */
        lock_now(m[i]);
        unlock_now(m[i]);
        hf_lock_free(m[i]);
    }
    hf_client_free(c);
}

static void each_call(const char *url, bool after, long stride)
{
    hf_allocator_set(failing_alloc, failing_resize, failing_free);
    scenario(url); /* what is made once for all is there then */
    int before = descriptors();
    long k, total = 0, step = getenv("HF_SOAK") ? 1 : stride;
    for (k = 1;; k += step > 1 ? 1 + (long)t_random((uint64_t)step) : 1) {
        refuse_from(k, after);
        scenario(url);
        atomic_store(&refuse.armed, false);
        total += atomic_load(&refuse.injected);
        /* A look-up or a connector may end a moment later. */
        CHECK_EVENTUALLY(descriptors() <= before, 20000);
        CHECK_EVENTUALLY(failing_live() == 0, 20000);
        if (atomic_load(&refuse.injected) == 0)
            break;
        CHECK(k < 5000);
    }
    forget_locks(url);
    CHECK(total > 0);
    t_note("%ld calls refused: threads %ld, bells %ld, timers %ld, pollers %ld, sockets %ld, "
           "random numbers %ld", total, refuse.of[THREAD], refuse.of[EVENT], refuse.of[TIMER],
           refuse.of[EPOLL], refuse.of[SOCKET], refuse.of[RANDOM]);
}

static const char *one_server(void)
{
    struct server_opts o = { .tcp = 1 };
    return server_url(server_start_opts(&o));
}

TEST_TIMEOUT(each_call_of_the_system_is_refused_in_turn, 180)
{
    each_call(one_server(), false, 1);
    for (int i = 0; i < KINDS; i++)
        CHECK(refuse.of[i] > 0);
}

TEST_TIMEOUT(so_it_is_without_scripts, 180)
{
    protocol = "transaction";
    each_call(one_server(), false, 1);
}

TEST_TIMEOUT(the_system_refuses_for_good_from_some_call_on, 180)
{
    each_call(one_server(), true, 1);
}

TEST_TIMEOUT(so_it_is_on_a_quorum, 180)
{
    struct members q = members_start(3, kept);
    each_call(q.url, false, 2);
}

TEST_TIMEOUT(so_it_is_through_sentinels, 180)
{
    each_call(fleet_start(NULL)->url, false, 3);
}

TEST_TIMEOUT(so_it_is_in_a_cluster, 180)
{
    each_call(cluster_start(&(struct cluster_opts){ .no_replicas = 1 })->url, false, 3);
}
