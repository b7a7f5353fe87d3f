/* SPDX-License-Identifier: MIT
 * holdfast.h - distributed locks on Redis and Valkey.
 *
 * A lock is a lease: it ends when its ttl runs out, even if you are still working. The library
 * renews it in the background and tells you when it is lost. The resource itself is protected by
 * the fencing number (fencing token) that comes with every grant. Read docs/guarantees.md first.
 *
 *     hf_client *c;
 *     hf_lock *lock;
 *     uint64_t fence;
 *     hf_error err;
 *     if (hf_client_open(NULL, NULL, &c, &err) || hf_lock_open(c, hf_str("job"), NULL, &lock, &err)
 *         || hf_lock_acquire(lock, 10000, &fence, &err))
 *         errx(1, "%s", err.message);
 *     ... work, and pass fence along with every write ...
 *     hf_lock_release(lock, NULL);
 *     hf_lock_free(lock);
 *     hf_client_free(c);
 *
 * Which call for which lock
 *   mutex, exclusive lock     hf_lock_acquire(), hf_lock_try(), hf_lock_release()
 *   read-write lock           hf_lock_acquire_shared() to read, hf_lock_acquire() to write
 *   semaphore, N holders      hf_lock_open() with hf_semaphore(N), then as a mutex
 *   several locks at once     hf_multi_acquire()
 *   lock by owner id          hf_owner_acquire(), hf_owner_release(): no handle, no renewal
 *   event loop, no blocking   hf_lock_acquire_async() and the other _async calls
 *   leader election           hf_election_campaign()
 *   count-down latch          hf_latch_wait()
 *   barrier                   hf_barrier_wait()
 *   compute once, cache       hf_once_compute()
 *   optimistic lock, CAS      hf_update_run()
 *   unique ids                hf_sequence_next()
 *   who holds it              hf_inspect_lock(), hf_inspect_list()
 *   refuse a late writer      hf_guard_check(), hf_guard_set()
 *   what happens to it now    hf_watch()
 *   who held it last night    hf_history_read()
 *   how often, how long       hf_metrics_get()
 *
 * Threads   Any number of threads may use one hf_client. An hf_lock belongs to one thread at a
 *           time, except for the calls marked "Any thread". After fork() the child may only free
 *           its handles: every other call returns HF_EFORK, and the parent's locks are untouched.
 *           Calls are not pthread_cancel() cancellation points; end them with hf_lock_cancel().
 * Memory    You free what you open; freeing NULL is fine. What you pass is copied. Strings that you
 *           get live as long as the handle they came from.
 * Errors    Calls return 0 or a negative hf_err. On failure the last argument, which may be NULL,
 *           receives the code, a message, and what is known about the lock now, and the other
 *           results are left alone. On success it is left alone: test what the call returns, not
 *           err.code. A required pointer that is NULL gives HF_EINVAL.
 *           The comment of a call lists its results. Beyond that, every call can return HF_EINVAL,
 *           HF_ENOMEM and HF_EFORK; every call that asks a server HF_ECONN (nothing was sent),
 *           HF_EUNSURE (sent, but no answer came), HF_EAUTH, HF_ESERVER, HF_EPROTO and HF_ESYS, and
 *           on a quorum HF_ENOQUORUM; and HF_ENOTSUP where the protocol or a quorum cannot do it.
 *           No call returns anything else.
 * Time      int64_t milliseconds. Only monotonic clocks and the server's own clock are used.
 * Limits    No call blocks for ever unless you ask for it: a wait has its wait_ms, and every
 *           exchange with the server has the client's timeout_ms (5 s by default).
 * Growth    Structs that you pass begin with size = sizeof; structs that you get are read through
 *           pointers. Both can grow without breaking your program. Options that are newer than the
 *           library are refused with HF_EINVAL unless they are 0: begin with all of it 0.
 * Output    The library never prints, never aborts and installs no signal handler.
 */
#ifndef HOLDFAST_H
#define HOLDFAST_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HF_VERSION_MAJOR 0
#define HF_VERSION_MINOR 2
#define HF_VERSION_PATCH 0
#define HF_VERSION       "0.2.0"

#if defined(__GNUC__)
#define HF_API      __attribute__((visibility("default")))
#define HF_MUST_USE __attribute__((warn_unused_result))
#else
#define HF_API
#define HF_MUST_USE
#endif

/* ---- errors ---------------------------------------------------------------------------- */

/* What is known about the lock when a call has returned. */
typedef enum hf_known {
    HF_KNOWN_AS_ASKED,  /* the call did what it was asked to do */
    HF_KNOWN_UNCHANGED, /* it changed nothing: you hold what you held before, and nothing more */
    HF_KNOWN_NOT_HELD,  /* you do not hold the lock (any more) */
    HF_KNOWN_NOTHING    /* a request was sent and no answer came: the text of the call says what
                           you may still count on */
} hf_known;

/* The one list of errors: code, value, what is known about the lock then, text. */
#define HF_ERR_MAP(X)                                                                     \
    X(OK,          0, HF_KNOWN_AS_ASKED,  "success")                                      \
    X(EBUSY,      -1, HF_KNOWN_UNCHANGED, "held by another owner")                        \
    X(ETIMEDOUT,  -2, HF_KNOWN_UNCHANGED, "not obtained within the time limit")           \
    X(ELOST,      -3, HF_KNOWN_NOT_HELD,  "the lock was lost")                            \
    X(ENOTHELD,   -4, HF_KNOWN_NOT_HELD,  "this handle does not hold the lock")           \
    X(EUNSURE,    -5, HF_KNOWN_NOTHING,   "sent, but no reply came")                      \
    X(ECONN,      -6, HF_KNOWN_UNCHANGED, "the server cannot be reached")                 \
    X(EAUTH,      -7, HF_KNOWN_UNCHANGED, "login or permission refused by the server")    \
    X(EPROTO,     -8, HF_KNOWN_NOTHING,   "the server's answer makes no sense")           \
    X(ESERVER,    -9, HF_KNOWN_UNCHANGED, "the server refused the request")               \
    X(ETYPE,     -10, HF_KNOWN_UNCHANGED, "the key holds data that is not a lock")        \
    X(ECOUNTER,  -11, HF_KNOWN_UNCHANGED, "a counter on the server is unusable")          \
    X(EINVAL,    -12, HF_KNOWN_UNCHANGED, "invalid argument")                             \
    X(ECONFIG,   -13, HF_KNOWN_UNCHANGED, "bad configuration")                            \
    X(ENOMEM,    -14, HF_KNOWN_UNCHANGED, "out of memory")                                \
    X(ESYS,      -15, HF_KNOWN_UNCHANGED, "the operating system refused")                 \
    X(EFORK,     -16, HF_KNOWN_UNCHANGED, "handle used in a forked child")                \
    X(ECANCELED, -17, HF_KNOWN_UNCHANGED, "cancelled")                                    \
    X(ENOTOWNER, -18, HF_KNOWN_NOT_HELD,  "held by another owner or by nobody")           \
    X(ESTALE,    -19, HF_KNOWN_UNCHANGED, "a larger fencing number has been seen")        \
    X(EDEADLK,   -20, HF_KNOWN_UNCHANGED, "waiting would never end: deadlock")            \
    X(ENOQUORUM, -21, HF_KNOWN_UNCHANGED, "too few servers agreed")                       \
    X(EREPLICAS, -22, HF_KNOWN_UNCHANGED, "too few replicas acknowledged")                \
    X(ECONFLICT, -23, HF_KNOWN_UNCHANGED, "changed by others at every try")               \
    X(ENOTSUP,   -24, HF_KNOWN_UNCHANGED, "not supported here")                           \
    X(ELIMIT,    -25, HF_KNOWN_UNCHANGED, "another limit was agreed")                     \
    X(EBROKEN,   -26, HF_KNOWN_UNCHANGED, "broken or reset before it was complete")       \
    X(ENOTSET,   -27, HF_KNOWN_UNCHANGED, "nothing has been set under this name")

typedef enum hf_err {
#define HF_ERR_ENUM(name, value, known, text) HF_##name = value,
    HF_ERR_MAP(HF_ERR_ENUM)
#undef HF_ERR_ENUM
    HF_ERR_FORCE_INT = 0x7fffffff
} hf_err;

typedef struct hf_error {
    hf_err   code;
    hf_known known;
    int64_t  reserved[6];  /* for later versions */
    char     message[512]; /* what went wrong, with what, what to do next; never a password */
} hf_error;

HF_API const char *hf_err_text(hf_err code);  /* "held by another owner" */
HF_API const char *hf_err_name(hf_err code);  /* "HF_EBUSY" */
HF_API hf_known hf_err_known(hf_err code);
HF_API const char *hf_known_text(hf_known known); /* "nothing was changed" */
HF_API const char *hf_version(void);

/* ---- names and durations --------------------------------------------------------------- */

/* Names and values are bytes; NUL and newline may be among them. A lock's name has 1 to 1024. */
typedef struct hf_bytes {
    const void *data;
    size_t      len;
} hf_bytes;

static inline hf_bytes hf_str(const char *s)
{
    hf_bytes b;
    b.data = s;
    b.len = s ? strlen(s) : 0;
    return b;
}

#define HF_NAME_MAX 1024

/* Join parts to one path-like name, for a lock on a part of something: {"cart:7", "qty"} becomes
 * "cart:7/qty". Characters that could be mistaken ('/', '%', '{', '}', and the ':' of a leading
 * "holdfast:") are written %2F and so on, so that different parts never give the same name. *ret
 * points into buf (HF_NAME_MAX + 1 bytes are always enough), and a NUL follows it. Locks on parts
 * can deadlock: see docs/fine-grained.md.
 *
 *   HF_EINVAL  no parts, all of them empty, longer than HF_NAME_MAX, or buf is too small */
HF_API HF_MUST_USE hf_err hf_name_join(const hf_bytes *part, size_t parts, char *buf, size_t size,
                                       hf_bytes *ret, hf_error *reterr);

/* "500ms", "10s", "5m", "2h", "1d", "1w", "1h30m"; a bare number means seconds; fractions are
 * allowed ("1.5").
 * HF_EINVAL for anything else, for a negative value and for more than 100 years. */
HF_API HF_MUST_USE hf_err hf_duration_parse(const char *text, int64_t *ret_ms, hf_error *reterr);

/* ---- client ---------------------------------------------------------------------------- */

typedef struct hf_client hf_client;

typedef enum hf_log { HF_LOG_ERROR, HF_LOG_WARNING, HF_LOG_INFO, HF_LOG_DEBUG } hf_log;

/* Set size to sizeof(hf_client_opts), and leave the rest 0 where you have no wish:
 *     hf_client_opts o = { .size = sizeof o, .info = "nightly report" };              */
typedef struct hf_client_opts {
    size_t      size;
    const char *prefix;     /* put before every name; NULL: ?prefix= of the URL, else "lock:" */
    const char *password;   /* NULL: the URL's, ?passfile=, $HOLDFAST_PASSWORD, else that of the
                               configuration file */
    const char *program;    /* shown to others who ask who holds a lock, and in CLIENT LIST of
                               the server; NULL: the name of this program */
    const char *info;       /* free text that is shown beside it */
    int64_t     timeout_ms; /* the longest exchange with the server; 0: ?timeout= of the URL,
                               else 5 s */
    void (*log)(void *arg, hf_log level, const char *message); /* called from any thread */
    void       *log_arg;
    const char *protocol;   /* "script", "transaction" or "timestamp" (docs/protocols.md); NULL:
                               ?protocol= of the URL, else script, or transaction where the server
                               refuses scripts */
    int         replicas;   /* how many replicas must acknowledge each grant and each renewal, or
                               HF_MAJORITY (Sentinel and Cluster); 0: ?replicas= of the URL, else
                               none */
    int         no_repair;  /* 1, or ?repair=off in the URL: a lock without a ttl is left as it is.
                               0: a client that waits for it gives it one */
    int         confirm;    /* 1, or ?confirm=1: a hand-over is believed only after the server has
                               confirmed it, one round trip later (SECURITY.md) */
    int64_t     wait_ms;    /* how long hf_client_open() goes on trying a server that cannot be
                               reached or is loading, or HF_WAIT_FOREVER; 0: one attempt. With a
                               limit it takes no longer than that. The log gets a warning at the
                               first failure and when it is over. The embedded server is not
                               waited for */
    int         no_spin;    /* 1, or ?spin=off: a lone caller sleeps for its reply at once, and does
                               not look for it for up to 50 us first (docs/speed.md) */
    int         no_deadlock; /* 1, or ?deadlock=off: waits that would never end are not looked for
                               (docs/deadlock.md) */
    int         history;    /* how many past holds of each lock the server remembers, 1 to
                               HF_HISTORY_MAX: hf_history_read(); 0: ?history= of the URL, else
                               none are written */
} hf_client_opts;

#define HF_HISTORY_MAX 100000

#define HF_MAJORITY (-2)

/* Open a client. url NULL means $HOLDFAST_URL; if that is not set, the url of /etc/holdfast.conf or
 * of the file that $HOLDFAST_CONFIG names; if there is none, the embedded server. An empty URL is
 * an error: it is a variable that somebody forgot to set. Use "embedded:" for locks of this machine
 * alone. All forms, and the file: docs/urls.md. The call connects, logs in and reads the
 * server's settings before it returns; connections that break later are made again without your
 * help.
 *
 *   HF_ECONFIG    the URL or one of its options is wrong, or others can read a password file
 *   HF_ECONN      no server answers there (or the embedded one could not be started)
 *   HF_EAUTH      login or permission refused
 *   HF_ENOQUORUM  redis+quorum://: too few of the servers answer
 *   HF_ESERVER, HF_EPROTO, HF_ENOMEM, HF_ESYS, HF_EINVAL, HF_ENOTSUP                    */
HF_API HF_MUST_USE hf_err hf_client_open(const char *url, const hf_client_opts *opts,
                                         hf_client **ret, hf_error *reterr);

/* Close a client within timeout_ms (0: the client's own time limit): release the locks that it
 * still holds, then free it, whatever the result. Its handles may then only be freed. No other
 * thread may be in a call of it or of its handles: cancel what waits, and let it return first.
 *
 *   HF_EINVAL  timeout_ms is negative; the client is not freed
 *   HF_EUNSURE, HF_ECONN, ...  the first reason why a lock could not be released. Such a lock is
 *                              free when its ttl ends at the latest */
HF_API hf_err hf_client_close(hf_client *c, int64_t timeout_ms, hf_error *reterr);

/* hf_client_close() with the client's own time limit, the result ignored. Always returns NULL. */
HF_API hf_client *hf_client_free(hf_client *c);

/* Release every lock that this client holds; no other thread may use their handles meanwhile.
 * *ret_count (may be NULL) receives how many were released. If some cannot be released, the others
 * still are, and the first error is returned: as hf_lock_release(). */
HF_API HF_MUST_USE hf_err hf_client_release_all(hf_client *c, size_t *ret_count, hf_error *reterr);

/* The URL that hf_client_open() takes if none is given to it: that of $HOLDFAST_URL or of the
 * configuration file; empty if no server is named anywhere, so that the embedded one is used. It
 * may have a password in it.
 *
 *   HF_ECONFIG  as hf_client_open()        HF_ELIMIT  it does not fit        HF_ENOMEM  */
HF_API HF_MUST_USE hf_err hf_url_default(char *buf, size_t size, hf_error *reterr);

/* Where it is connected, without the password: "redis://db1:6379", "embedded:/run/holdfast". "":
 * not open yet. Any thread. */
HF_API const char *hf_client_url(const hf_client *c);

/* What a program that is run while this client holds its locks shall find in its environment as
 * HOLDFAST_HELD, so that deadlocks across both are found: the key and the number of each lock that
 * is held now, and what this process itself was started under. Nothing of it lets anybody release a
 * lock. "": nothing is held. Cut to whole entries that fit into size; 8192 bytes are enough.
 *
 *   HF_EINVAL  no buffer */
HF_API HF_MUST_USE hf_err hf_client_held(hf_client *c, char *buf, size_t size, hf_error *reterr);

/* The number of this thread, by which deadlocks are looked for: what a thread has acquired belongs
 * to what it waits for. No other thread of this process has it, nor had; never 0. */
HF_API uint64_t hf_thread_number(void);
/* From now on the blocking calls of this thread are those of the thread with that number, which
 * waits for them meanwhile; 0: its own again. For bindings to languages in which some thread cannot
 * wait in a call of C. */
HF_API void hf_thread_act_for(uint64_t number);

/* ---- lock ------------------------------------------------------------------------------ */

/* A lock that is held by one owner alone, shared by many, or by a limited number (a semaphore). */
typedef struct hf_lock hf_lock;

typedef enum hf_state {
    HF_STATE_FREE,     /* not held by this handle */
    HF_STATE_SAFE,     /* held, and the server has answered lately */
    HF_STATE_IN_DOUBT, /* held, but half of hf_lock_full_time_ms() has passed without an answer of
                          the server. For a moment also after this process stood still until past
                          the end: what has arrived meanwhile is read before the lock is called
                          lost; hf_lock_is_held() is 0 then */
    HF_STATE_LOST      /* no longer held, and this handle did not release it */
} hf_state;

typedef enum hf_loss {
    HF_LOSS_NONE,
    HF_LOSS_TAKEN,    /* the server says that the key is gone, or belongs to another owner */
    HF_LOSS_EXPIRED,  /* the lease ended by our own clock before the server answered */
    HF_LOSS_MAX_HOLD, /* max_hold_ms has passed */
    HF_LOSS_RELEASED, /* released on purpose, by hf_owner_release() with this owner's id */
    HF_LOSS_GRACE,    /* as HF_LOSS_EXPIRED, but it was the grace that ended: others may take over
                         then */
    HF_LOSS_PAUSED,   /* the lease or the grace ended while this process itself stood still:
                         stopped, suspended, or without processor time */
    HF_LOSS_BROKEN    /* somebody broke it, by hf_break(). Release the handle as soon as your work
                         has stopped: then the next in line gets the lock, else when its lease
                         ends */
} hf_loss;

/* Called in a thread of the library at the moment of the change, before hf_lock_fd() becomes
 * readable. Keep it short. Of this library it may use the calls marked "Any thread", so it can ask
 * for the loss and the fence (0 once the handle was released). A lock that others deleted is
 * noticed at the next contact with the server, normally within a second. */
typedef void (*hf_event_fn)(hf_lock *lock, hf_state state, void *arg);
/* The same when somebody asks the holder to let go, by hf_ask(): hf_lock_asked() says who. */
typedef void (*hf_ask_fn)(hf_lock *lock, void *arg);

#define HF_TTL_DEFAULT_MS 30000
#define HF_TTL_MIN_MS     100
#define HF_TTL_MAX_MS     INT64_C(31536000000) /* a year */
#define HF_NO_TAKEOVER    (-1)
#define HF_WAIT_FOREVER   (-1)

typedef struct hf_lock_opts {
    size_t      size;
    int64_t     ttl_ms;      /* the lease, renewed every third of it; 0: HF_TTL_DEFAULT_MS */
    int64_t     grace_ms;    /* how long our process must be seen gone before a waiter may take
                                over; 0: 3 s on a unix socket, 5 s over TCP, 15 s with Sentinel and
                                on a Cluster, at most half of the ttl; HF_NO_TAKEOVER: not before
                                the ttl ends. A quorum always behaves like HF_NO_TAKEOVER */
    int64_t     max_hold_ms; /* after this time the lease is no longer renewed; 0: no limit */
    int         no_renew;    /* 1: not renewed in the background; use hf_lock_extend() */
    hf_bytes    owner;       /* an owner id of your own, 1 to 256 bytes: the value of the key is
                                then exactly this id; empty: a fresh id for each grant, made of
                                a random part for each client and a counter */
    hf_event_fn on_event;    /* called at each change: in doubt, safe again, lost */
    void       *event_arg;
    int         whole_lease; /* 1: acquire returns with a whole lease. 0: if the last holder handed
                                the lock over, acquire returns at once with a lease of up to a
                                second, and the library makes it whole in the background: one round
                                trip less */
    int         shared;      /* 1: acquire shares the lock, as hf_lock_acquire_shared() does */
    unsigned    slots;       /* not 0: a semaphore with this many slots. All handles of the name
                                must give the same number */
    unsigned    permits;     /* how many of the slots one acquire takes; 0: one */
    int64_t     timeout_ms;  /* the longest that release, extend, verify, detach and downgrade may
                                take; 0: the client's timeout_ms */
    int         any_thread;  /* 1: another thread than the one that acquired it may release it, so
                                a wait of that one does not keep the lock: docs/deadlock.md */
    hf_ask_fn   on_ask;      /* called with event_arg when somebody asks for the lock */
} hf_lock_opts;

/* Ready-made options for a semaphore: hf_lock_opts five = hf_semaphore(5). With 0 slots
 * hf_lock_open() refuses them. */
static inline hf_lock_opts hf_semaphore(unsigned slots)
{
    hf_lock_opts o;
    memset(&o, 0, sizeof o);
    o.size = sizeof o;
    o.slots = slots;
    o.permits = 1;
    return o;
}

/* Ready-made options for a reader: hf_lock_acquire() then shares the lock. */
static inline hf_lock_opts hf_reader(void)
{
    hf_lock_opts o;
    memset(&o, 0, sizeof o);
    o.size = sizeof o;
    o.shared = 1;
    return o;
}

/* Make a handle; no server is asked. Set opts->size to sizeof(hf_lock_opts); opts may be NULL.
 *
 *   HF_EINVAL   the name is empty, too long, reserved, or could collide with the keys of another
 *               lock; or an option is out of range. The message says which
 *   HF_ENOTSUP  an option that the client's protocol cannot keep: see docs/protocols.md
 *   HF_ENOMEM                                                                              */
HF_API HF_MUST_USE hf_err hf_lock_open(hf_client *c, hf_bytes name, const hf_lock_opts *opts,
                                       hf_lock **ret, hf_error *reterr);

/* Free the handle; a lock that it still holds is released first. Always returns NULL. */
HF_API hf_lock *hf_lock_free(hf_lock *lock);

/* Acquire the lock; wait up to wait_ms (0: try once, HF_WAIT_FOREVER: no limit). If the server
 * does not answer at the end, taking the request back costs up to half a second more.
 *
 * On HF_OK the lock is yours, the library renews it in the background, and *ret_fence (may be NULL)
 * is larger than every earlier number of this name; it fits a signed 64-bit column. A handle that
 * already holds the lock gets HF_OK at once, with the same number; the lock is then free after as
 * many releases. Another handle with the same owner id gets HF_EBUSY.
 *
 *   HF_EBUSY      wait_ms was 0 and another owner holds it
 *   HF_ETIMEDOUT  wait_ms passed; or the grant came when its lease or its grace was over, and
 *                 is being given back: known is HF_KNOWN_NOT_HELD then
 *   HF_EUNSURE    a request was sent and no answer came in time. You do not hold the lock. It may
 *                 be taken, for nobody, until its ttl ends or the library has managed to cancel
 *                 the request. The handle can be used again
 *   HF_ECANCELED  hf_lock_cancel() was called
 *   HF_ELOST      this handle has lost it, and has not released it since: release it first. Or it
 *                 was handed over and broken (hf_break()) before it was held, as the message says
 *   HF_EDEADLK    the wait would never end: after a second it was found that this thread holds what
 *                 others need before they release this lock, and that its wait began last. You do
 *                 not hold the lock, and still hold the others: release them, so that the others
 *                 can go on. The message names them all (docs/deadlock.md). Also if the handle
 *                 shares the lock, and would wait for itself: release it first
 *   HF_ELIMIT     a semaphore that is in use has another number of slots
 *   HF_EREPLICAS  fewer replicas acknowledged the grant than the client asked for, or with fsync=1
 *                 the disk did not; the grant was undone. The message says which. While there is
 *                 time to wait, the library tries again
 *   HF_ECONN      no request was sent; the lock is as it was
 *   HF_ECONFLICT  protocol transaction: free at each look, taken by another at each try
 *   HF_ENOQUORUM  on a quorum: too few servers answered or may vote. You do not hold it; if known
 *                 is HF_KNOWN_NOTHING, as HF_EUNSURE (docs/quorum.md)
 *   HF_ENOTSUP    on a quorum, with a handle that is shared or has slots
 *   HF_EINVAL     wait_ms is wrong, or a request without blocking is under way on the handle
 *   HF_ETYPE, HF_ECOUNTER, HF_EAUTH, HF_ESERVER, HF_EPROTO, HF_ENOMEM, HF_EFORK */
HF_API HF_MUST_USE hf_err hf_lock_acquire(hf_lock *lock, int64_t wait_ms, uint64_t *ret_fence,
                                          hf_error *reterr);

/* As hf_lock_acquire() with wait_ms 0. */
HF_API HF_MUST_USE hf_err hf_lock_try(hf_lock *lock, uint64_t *ret_fence, hf_error *reterr);

/* Release the lock, or one of several acquisitions. Whatever the result, after the last release the
 * handle does not hold the lock and no renewal is under way.
 *
 *   HF_ELOST     it had been lost before; nothing of the present owner was touched
 *   HF_EUNSURE   no answer: released, or free when its ttl ends at the latest. The library tries
 *                again in the background
 *   HF_ENOTHELD  this handle held nothing
 *   HF_ECONN, HF_EAUTH, HF_ESERVER  not released; free when its ttl ends at the latest   */
HF_API hf_err hf_lock_release(hf_lock *lock, hf_error *reterr);

/* Set the lease to ttl_ms from now, longer or shorter, also for later renewals.
 *
 *   HF_ELOST      no longer the owner: nothing changed on the server
 *   HF_EUNSURE    no answer: the shorter of both leases counts; the lock is still held until then
 *   HF_EREPLICAS  too few replicas acknowledged it: the shorter of both leases counts
 *   HF_ENOTHELD, HF_EINVAL, HF_ECONN, HF_ESERVER, ...                                    */
HF_API HF_MUST_USE hf_err hf_lock_extend(hf_lock *lock, int64_t ttl_ms, hf_error *reterr);

/* Ask the server whether the lock is still ours: HF_OK, HF_ELOST (the handle is then lost),
 * HF_ENOTHELD, or the reason why the server did not answer. */
HF_API HF_MUST_USE hf_err hf_lock_verify(hf_lock *lock, hf_error *reterr);

/* Stop renewing, and let the lock end by itself ttl_ms from now (0: when its lease ends). The
 * handle then holds nothing. For a lock that outlives the process.
 *
 *   HF_ELOST, HF_ENOTHELD, HF_EUNSURE, HF_EREPLICAS  as hf_lock_extend(); it is still held then,
 *                 unless it is lost */
HF_API HF_MUST_USE hf_err hf_lock_detach(hf_lock *lock, int64_t ttl_ms, hf_error *reterr);

/* End a wait of another thread with this handle; if none is waiting, the next acquire or try, even
 * if the lock is free. Any thread. */
HF_API void hf_lock_cancel(hf_lock *lock);

/* 1 while the lock is certainly ours, by our own clock, without a round trip. Any thread. */
HF_API int hf_lock_is_held(const hf_lock *lock);

/* How long it is certainly still ours if no answer comes from now on: of the grace, usually a few
 * seconds, or of the ttl. 0 when not held. Any thread. */
HF_API int64_t hf_lock_time_left_ms(const hf_lock *lock);

/* What hf_lock_time_left_ms() starts from when all is well: the ttl, or the grace if that is
 * shorter and others may take over; 0 when not held. */
HF_API int64_t hf_lock_full_time_ms(const hf_lock *lock);

HF_API hf_state hf_lock_state(const hf_lock *lock); /* Any thread. */
HF_API const char *hf_state_text(hf_state state);   /* "in doubt" */
HF_API hf_loss hf_lock_loss(const hf_lock *lock);   /* Why it was lost. Any thread. */
HF_API const char *hf_loss_text(hf_loss loss);

/* The same in full, with times and the server: "its grace of 3.0 s ended: unix:///run/redis.sock
 * has not answered for 3.0 s". Cut to size; 300 bytes are usually enough. Returns buf; "" when it
 * is not lost. Any thread. */
HF_API const char *hf_lock_loss_text(const hf_lock *lock, char *buf, size_t size);

/* How often the holder was asked to let go since it acquired the lock; the last time is written to
 * buf (may be NULL): "ann@web3: I need it for a minute". 0: never. hf_lock_fd() becomes readable at
 * each. Any thread. */
HF_API unsigned hf_lock_asked(const hf_lock *lock, char *buf, size_t size);

/* The fencing number of the present or lost grant; 0 when not acquired. Pass it along with every
 * write that the lock protects, and let the resource refuse smaller ones (see hf_guard_check()).
 * Any thread. */
HF_API uint64_t hf_lock_fence(const hf_lock *lock);

/* The owner id of the present or lost grant, for hf_owner_release() and `holdfast release --owner`:
 * whoever knows it can release the lock. Empty when not acquired. */
HF_API const char *hf_lock_owner(const hf_lock *lock);

/* A few words of its holder for the history of the lock (hf_history_read()), such as "exit 3"; the
 * first 99 bytes count, and the last call before it is released. HF_ENOTHELD, HF_EINVAL. */
HF_API HF_MUST_USE hf_err hf_lock_note(hf_lock *lock, const char *text, hf_error *reterr);

/* A descriptor for poll() that becomes readable at each change of state; hf_lock_poll() empties it
 * and returns the state. Do not close it. */
HF_API HF_MUST_USE hf_err hf_lock_fd(hf_lock *lock, int *ret_fd, hf_error *reterr);
HF_API hf_state hf_lock_poll(hf_lock *lock);

/* ---- read-write lock and semaphore ----------------------------------------------------------
 * The same handle, calls and promises; but several owners may hold the lock at once.
 * docs/rwlock.md, docs/semaphore.md. */

/* Acquire the lock as a reader: many readers share it, or one writer has it alone by
 * hf_lock_acquire(). First come, first served: a waiting writer stops later readers, and readers
 * who waited behind one writer go together before the next. Otherwise as hf_lock_acquire().
 *
 *   HF_EDEADLK  hf_lock_acquire() with a handle that shares the lock: release it first
 *   HF_ELIMIT   the name is a semaphore in use
 *   HF_EINVAL   the handle has an owner id or slots                                       */
HF_API HF_MUST_USE hf_err hf_lock_acquire_shared(hf_lock *lock, int64_t wait_ms,
                                                 uint64_t *ret_fence, hf_error *reterr);

/* From writer to reader, with nobody in between; readers who are first in line come in. The number
 * stays the same, and so does how many releases are needed. A handle that shares the lock already
 * is left as it is.
 *
 *   HF_EUNSURE  no answer: held, but count on being a reader only
 *   HF_ELOST, HF_ENOTHELD, HF_EINVAL (an owner id), HF_ECONN ...                            */
HF_API HF_MUST_USE hf_err hf_lock_downgrade(hf_lock *lock, hf_error *reterr);

/* Change the number of slots of a semaphore. The new number applies to everybody: handles with the
 * old one go on working, and handles with any third number get HF_ELIMIT. No permit is revoked,
 * even if more are out than the new limit. The server remembers the new number until a week after
 * the last use. *ret_old (may be NULL) is what it was; 0: it was not in use.
 *
 *   HF_EBUSY    one owner or readers hold the lock: it is not a semaphore now
 *   HF_EINVAL, HF_ETYPE, HF_ECONN ...                                                      */
HF_API HF_MUST_USE hf_err hf_semaphore_resize(hf_client *c, hf_bytes name, unsigned slots,
                                              unsigned *ret_old, hf_error *reterr);

/* ---- several at once ------------------------------------------------------------------------
 * Handles of one client with different names, each with its own options: alone, shared, permits.
 * After that they are held, renewed and lost one by one, each with its own number and its own
 * events. docs/multi.md. */

#define HF_MULTI_MAX 100

/* Acquire all of them or none; wait up to wait_ms. The numbers are hf_lock_fence() of each. While
 * it waits for one it does not hold the others. Only a caller that others overtook again and again
 * takes them one after the other, in the byte order of their names, the same for everybody: so
 * nobody starves, and no deadlock arises.
 *
 *   HF_EBUSY, HF_ETIMEDOUT, HF_ECANCELED ...  as hf_lock_acquire(): none of them is held then. The
 *              message names the lock
 *   HF_EINVAL  no handle, more than HF_MULTI_MAX, two with one name or of different clients, or one
 *              that is held already */
HF_API HF_MUST_USE hf_err hf_multi_acquire(hf_lock *const *lock, size_t n, int64_t wait_ms,
                                           hf_error *reterr);
/* Release all of them. If some cannot be released, the others still are, and the first error is
 * returned: as hf_lock_release(). */
HF_API hf_err hf_multi_release(hf_lock *const *lock, size_t n, hf_error *reterr);
/* End hf_multi_acquire() of another thread with the same handles. Any thread. */
HF_API void hf_multi_cancel(hf_lock *const *lock, size_t n);

/* ---- inspecting: who holds it, who waits ---------------------------------------------------- */

typedef struct hf_party {
    char    *owner;   /* an owner id of the caller's choice, or the first digits of a random one,
                         with which nobody can release the lock */
    char    *host;    /* NULL, here and below: not known (a foreign client, or gone) */
    char    *user;
    char    *program;
    char    *info;
    int64_t  pid;     /* 0: not known */
    int64_t  age_ms;  /* how long it has held or waited; -1: not known */
    uint64_t fence;   /* 0: none (a foreign client) */
    unsigned permits; /* of a semaphore; a reader has 1, others 0 */
    char    *session; /* the first 16 of its 32 digits: the same for all that one client holds or
                         waits for, and nothing that one could release a lock with */
    char    *mode;    /* "exclusive", "shared" (a reader), "permits" (of a semaphore): how it holds
                         the lock, or wants to; NULL of a foreign client */
    int64_t  lease_ms;      /* length of its lease; here and below -1: not known */
    int64_t  renewed_ms;    /* how long ago it was renewed, or granted */
    int64_t  since_unix_ms; /* since when it has held or waited, by the server's clock */
    int      present;       /* 1: the server sees its session, 0: it does not, -1: not known, or
                               none is needed */
    char    *waits_for;     /* a lock for which this holder has waited for more than a second; NULL:
                               not known to wait */
    int64_t  waits_ms;      /* for how long */
    int64_t  ttl_ms;        /* of a holder: when its own lease ends */
    int64_t  grace_ms;      /* of a holder: how long it must be gone before a waiter takes over; 0:
                               that does not happen */
    int      renews;        /* of a holder. 1: in the background, 0: nobody renews it, as after
                               hf_lock_detach() */
    int      claiming;      /* of a holder. 1: it was handed the lock, and has not taken it yet */
} hf_party;

typedef struct hf_inspect_info {
    char      *name;     /* name_len bytes and a NUL */
    size_t     name_len;
    char      *kind;     /* "mutex", "election" (once its leader has told a value), "shared"
                            (readers), "semaphore", "latch", "barrier", "timestamp" (of that
                            protocol), "foreign" (a lock of another library), "wrong type";
                            of hf_inspect_list() also "unknown": nobody told */
    int64_t    ttl_ms;   /* what the server will still give it; 0: free; -1: for ever */
    size_t     holders;  /* how many are described, at most 100 */
    hf_party **holder;
    size_t     waiters;  /* how many are described, at most 100 */
    hf_party **waiter;   /* in order */
    size_t     waiters_total;
    size_t     holders_total;
    unsigned   slots, used; /* semaphore: its slots, and how many are out; readers: 0, and how many
                               there are; latch: what it was set to, and what is left; barrier:
                               parties, and how many have arrived */
    int        election; /* 1: its holder leads, with a value */
    char      *value;    /* of the leader: the first 1024 bytes at most, and a NUL; NULL: none */
    size_t     value_len;
    unsigned   resized, named; /* semaphore, used now or not: hf_semaphore_resize() set it to so
                                  many slots, and callers name so many (0: anything); 0: not */
    int64_t    now_unix_ms;    /* the server's clock */
    int64_t    absent_ms;      /* how long a holder has been seen to be gone; -1: it has not */
} hf_inspect_info;

/* Describe one lock, within timeout_ms (0: the client's time limit for each request). When nobody
 * holds it, holders is 0 and the kind is "mutex". Free *ret with hf_inspect_free(). */
HF_API HF_MUST_USE hf_err hf_inspect_lock(hf_client *c, hf_bytes name, int64_t timeout_ms,
                                          hf_inspect_info **ret, hf_error *reterr);
HF_API hf_inspect_info *hf_inspect_free(hf_inspect_info *info);

/* Describe every lock under the prefix whose name, without the prefix, matches the glob pattern
 * (NULL: all), in no order, within timeout_ms (0: no limit but the client's for each request).
 * info is freed after each() returns. each() returns 0 to go on; any other value ends the
 * listing. If some servers of a Cluster are away, the locks of the others are described, and then
 * HF_ECONN is returned, which names one that is. */
typedef int (*hf_inspect_fn)(const hf_inspect_info *info, void *arg);
HF_API HF_MUST_USE hf_err hf_inspect_list(hf_client *c, const char *pattern, int64_t timeout_ms,
                                          hf_inspect_fn each, void *arg, hf_error *reterr);

/* What is the matter with a lock, in one word that stays the same in later versions, which may
 * add others:
 *
 *   "free"        nobody holds it, or slots of it are free
 *   "held"        its holder is there, as far as can be seen
 *   "silent"      its holder has not renewed it for more than half of its lease
 *   "left"        nobody renews it: it was left behind, or its holder said so (no_renew)
 *   "absent"      its holder is gone, and its grace is not over yet
 *   "claim"       it was handed to a waiter that has not taken it yet
 *   "foreign"     a client of another library holds it
 *   "no-ttl"      its key has no time to live
 *   "not-a-lock"  its key holds something else
 *   "unknown"     a lock that hf_inspect_list() could only name
 *
 * hf_why() also knows
 *
 *   "deadlock"    its holder waits for a lock whose holder waits for it, over whatever others
 *   "read-only"   the server takes no writes: it is a replica, cannot write to its disk, or
 *                 has too few replicas
 *   "out-of-memory"  the server takes no writes, because its maxmemory is used up
 *   "moving"      the slot of the lock is being moved to another server of the Cluster
 *   "loading"     the server is loading its data
 *   "quarantine"  servers that may have lost their data do not count yet
 *   "no-quorum"   too few servers of a quorum answer
 *   "away"        the server does not answer */
HF_API const char *hf_inspect_cause(const hf_inspect_info *info);
/* The same as a sentence, of which each part is the more important the earlier it stands: "held by
 * ann@web3 for 3m12s (nightly), renewed 2.1s ago, pid 812, backup.sh". What others wrote is part of
 * it, whatever bytes these are: make it safe before a terminal shows it. Returns buf, which has
 * size bytes, at least one. */
HF_API char *hf_inspect_words(const hf_inspect_info *info, char *buf, size_t size);

typedef struct hf_why_info {
    const char *cause;   /* as above */
    char       *text;    /* a sentence, as hf_inspect_words() makes it */
    const char *advice;  /* what to do; NULL: nothing */
    int64_t     free_ms; /* it is free after this time at the latest; -1: nobody knows */
    hf_inspect_info *lock; /* what could be seen of it; NULL: nothing */
    size_t      cycle_len;
    char      **cycle;   /* deadlock: names of locks. The holder of each waits for the next one, and
                            that of the last for the first */
} hf_why_info;

/* Why can this lock not be taken? Asks the server about the lock, about those that its holders wait
 * for, and whether it takes writes; writes nothing. timeout_ms as in hf_inspect_lock(). Also a
 * server that does not answer is an answer, and HF_OK. Free *ret with hf_why_free(). Other results:
 * as hf_inspect_lock(). */
HF_API HF_MUST_USE hf_err hf_why(hf_client *c, hf_bytes name, int64_t timeout_ms,
                                 hf_why_info **ret, hf_error *reterr);
HF_API hf_why_info *hf_why_free(hf_why_info *why);
/* The same of an error, such as that of hf_client_open(): its cause, and in *ret_advice (may be
 * NULL) what to do. NULL: it is none of these. */
HF_API const char *hf_why_error(const hf_error *error, const char **ret_advice);
/* ---- watching: what happens to locks, as it happens ------------------------------------------
 * docs/watch.md. */

typedef struct hf_news {
    const char     *kind;     /* "watching": from here on everything is heard; again after a
                                 connection had broken: what happened in between is not told
                                 "queued", "left_queue", "granted", "held" (who it is, a moment
                                 later), "renewed", "released", "expired", "taken_over", "broken",
                                 "asked", "unseen" (it was held, and free again before we could
                                 look): seen on the server
                                 "in_doubt", "safe", "lost", "deadlock": told by its client */
    const char     *name;     /* of the lock, name_len bytes and a NUL; "": of none */
    size_t          name_len;
    const hf_party *party;    /* about whom; NULL: about nobody. What is not known of it is NULL */
    int64_t         unix_ms;  /* when it was seen, by the server's clock; -1: a client told it */
    int64_t         held_ms, waited_ms, ttl_ms; /* -1: not known, or it makes no sense here */
    unsigned        merged;   /* how many changes of the lock this look found at once: if more than
                                 1, short holds in between may not have been seen */
    const char     *text;     /* more, in words; "": nothing */
} hf_news;

/* The strings live until it returns. 0: go on; any other value ends the watching. */
typedef int (*hf_watch_fn)(const hf_news *news, void *arg);

/* Tell what happens to the locks under the prefix whose name, without the prefix, matches the glob
 * pattern (NULL: all), for wait_ms (HF_WAIT_FOREVER: no limit). Nobody who holds or wants a lock
 * does anything for it: the server itself says which keys change (CLIENT TRACKING, Redis 6 and
 * newer), and this call looks at them, each at most 40 times a second. Connections that break are
 * made again.
 *
 *   HF_ENOTSUP  on a quorum: watch one of its servers; or without scripts
 *   HF_ESERVER  the server is too old
 *   HF_EINVAL, HF_ECONN, HF_EAUTH, HF_EPROTO, HF_ENOMEM, HF_EFORK                        */
HF_API HF_MUST_USE hf_err hf_watch(hf_client *c, const char *pattern, int64_t wait_ms,
                                   hf_watch_fn each, void *arg, hf_error *reterr);

/* ---- history: who held it -----------------------------------------------------------------
 * Of clients that were opened with a history (hf_client_opts.history, ?history=N in the URL) the
 * server remembers each hold that is over: the last N of a lock, until a month after the last one.
 * It is written in the background; no release waits for it. docs/history.md. */

typedef struct hf_past {
    const char *owner;   /* as in hf_party; NULL, here and below: not known */
    const char *host, *user, *program, *info;
    const char *mode;    /* "exclusive", "shared", "permits" */
    const char *end;     /* "released", "lost", "left" (hf_lock_detach()), "taken over" (its process
                            was gone), "unsure" (its release was not confirmed) */
    const char *why;     /* in words; "": nothing to say */
    const char *note;    /* hf_lock_note(); NULL: none */
    int64_t     pid;     /* 0: not known */
    uint64_t    fence;   /* 0: not known */
    int64_t     waited_ms, held_ms; /* -1: not known */
    int64_t     ended_unix_ms; /* by the server's clock */
} hf_past;

/* The strings live until it returns. 0: go on; any other value ends the reading. */
typedef int (*hf_history_fn)(const hf_past *p, void *arg);

/* Tell the holds of a lock that are over, the newest first. Needs no history in this client.
 *
 *   HF_ETYPE    the key of the log holds something else
 *   HF_ENOTSUP  on a quorum, or without scripts
 *   HF_EINVAL, HF_ECONN, HF_EAUTH, HF_ESERVER, HF_EPROTO, HF_ENOMEM, HF_EFORK           */
HF_API HF_MUST_USE hf_err hf_history_read(hf_client *c, hf_bytes name, hf_history_fn each,
                                          void *arg, hf_error *reterr);

/* ---- locks by owner id, without a handle ------------------------------------------------
 * acquire(key, timeout, uid) and release(key, uid) as many programs know them: the owner id
 * travels between processes, and nothing is renewed in the background. The id of a lock acquired
 * with a handle (hf_lock_owner()) works too. Only the id is compared: an earlier grant of the same
 * id cannot be told from the present one. */

/* One try, for ttl_ms, which has no default. HF_OK and the fencing number, HF_EBUSY (also if the
 * same id holds it), or as hf_lock_acquire(). */
HF_API HF_MUST_USE hf_err hf_owner_acquire(hf_client *c, hf_bytes name, int64_t ttl_ms,
                                           hf_bytes owner, uint64_t *ret_fence, hf_error *reterr);
/* HF_ENOTOWNER: another owner holds it, or nobody; nothing was changed. */
HF_API HF_MUST_USE hf_err hf_owner_release(hf_client *c, hf_bytes name, hf_bytes owner,
                                           hf_error *reterr);
/* Set its lease to ttl_ms from now. HF_EINVAL: it lasts longer than that already; it is not
 * shortened, since a handle elsewhere may rely on it (hf_lock_extend() of that handle shortens).
 * HF_ENOTOWNER as above; HF_EREPLICAS: too few replicas acknowledged it. */
HF_API HF_MUST_USE hf_err hf_owner_extend(hf_client *c, hf_bytes name, hf_bytes owner,
                                          int64_t ttl_ms, hf_error *reterr);
/* HF_OK and what is left of the lease (may be NULL), or HF_ENOTOWNER. */
HF_API HF_MUST_USE hf_err hf_owner_check(hf_client *c, hf_bytes name, hf_bytes owner,
                                         int64_t *ret_ttl_ms, hf_error *reterr);
/* Release every lock under the client's prefix that this id holds. HF_ECONN on a Cluster may mean
 * that a part of it is away, and that those of the others were released. */
HF_API HF_MUST_USE hf_err hf_owner_release_all(hf_client *c, hf_bytes owner, size_t *ret_count,
                                               hf_error *reterr);

/* ---- breaking a lock, and asking for it -----------------------------------------------------
 * For operators: docs/break.md. Both need scripts. */

typedef enum hf_broken {
    HF_BROKEN_FREE,     /* nobody held it any more */
    HF_BROKEN_RELEASED, /* its holder has let go */
    HF_BROKEN_EXPIRED,  /* its holder did not answer, and its lease has ended */
    HF_BROKEN_GONE,     /* its holder's process was gone for its grace: the lock was handed on */
    HF_BROKEN_AT_ONCE,  /* with now: the holder may still believe that it has it */
    HF_BROKEN_MARKED    /* with HF_ETIMEDOUT: not free yet; it is not renewed any more */
} hf_broken;

typedef struct hf_break_opts {
    size_t      size;
    const char *reason;  /* up to HF_REASON_MAX bytes, told to the holder; NULL: none */
    int         now;     /* 1: hand the lock on at once, whatever the holder believes: for a moment
                            there may be two. Only where the holder is certainly gone, or everything
                            that it writes is fenced */
    int64_t     wait_ms; /* how long to wait until the lock has passed; 0: not at all;
                            HF_WAIT_FOREVER. A lease is not renewed any more, so it takes no longer
                            than that */
    hf_bytes    value;   /* of a lock without a fencing number (of another library), with fence 0
                            and now: the whole value of its key. It is deleted if it still has it */
} hf_break_opts;

typedef struct hf_break_info {
    hf_broken how;
    int64_t   after_ms;  /* how long it took */
    int64_t   left_ms;   /* HF_BROKEN_MARKED: it is free after that at the latest */
    int       present;   /* whether the server sees the holder's session: 1, 0; -1: not known */
    int       told;      /* 1: the holder has heard of it, and believes in the lock no more */
    int64_t   reserved[4]; /* for later versions */
} hf_break_info;

#define HF_REASON_MAX 300

/* Take a lock from the holder with this fencing number, as hf_inspect_lock() shows it. The holder
 * is told, stops believing in the lock, stops its work and gives it back; the next in line gets it.
 * If the holder does not answer, the lock passes when its lease has ended, or when its process has
 * been gone for its grace. Nobody else is granted it before. Of a shared lock the one holder with
 * this number is meant. *ret (may be NULL) is filled in on HF_OK and on HF_ETIMEDOUT.
 *
 *   HF_ETIMEDOUT  told, and not free yet: see ret. The lock is not renewed any more
 *   HF_ENOTOWNER  held under another number, which the message shows: nothing was done
 *   HF_ENOTSUP    the holder has no fencing number (another library): use now and value. Or it goes
 *                 on renewing (its version is older, or it uses no scripts): use now. Or this
 *                 client uses no scripts
 *   HF_ETYPE      the key holds something else: a latch, a barrier, or no lock
 *   HF_EINVAL     no number, a reason that is too long
 *   HF_EUNSURE    no answer: it may be marked. Call it again
 *   HF_ECONN, HF_EAUTH, HF_ESERVER, HF_EPROTO, HF_ENOQUORUM, HF_ECOUNTER, HF_ENOMEM, HF_EFORK */
HF_API HF_MUST_USE hf_err hf_break(hf_client *c, hf_bytes name, uint64_t fence,
                                   const hf_break_opts *opts, hf_break_info *ret,
                                   hf_error *reterr);

/* Ask the holder with this number (0: all holders, at most 100) to let go: what it does is its own
 * business (on_ask, hf_lock_asked(), `holdfast run --on-ask`). text: up to HF_REASON_MAX bytes, or
 * NULL. *ret_asked and *ret_heard (may be NULL): how many hold it, and how many of them have a
 * session that the server sees; the others read it at their next renewal.
 *
 *   HF_ENOTSET    nobody holds it
 *   HF_ENOTOWNER  held under other numbers
 *   HF_ENOTSUP    held by another library, or this client uses no scripts
 *   HF_ETYPE, HF_EINVAL, HF_EUNSURE, HF_ECONN, HF_EAUTH, HF_ESERVER, HF_EPROTO, HF_ENOMEM,
 *   HF_EFORK */
HF_API HF_MUST_USE hf_err hf_ask(hf_client *c, hf_bytes name, uint64_t fence, const char *text,
                                 size_t *ret_asked, size_t *ret_heard, hf_error *reterr);

/* ---- fencing: the side of the resource -------------------------------------------------- */

/* Remember fence as the newest number seen for this resource, or refuse it with HF_ESTALE if a
 * larger one has been seen: the caller's lock had passed to somebody else. The same number is
 * accepted again and again; 0 is HF_EINVAL. For resources that live elsewhere but are guarded from
 * here; for PostgreSQL see docs/fencing.md. */
HF_API HF_MUST_USE hf_err hf_guard_check(hf_client *c, hf_bytes resource, uint64_t fence,
                                         hf_error *reterr);

/* SET key value on this server, in one step, only if fence is not older than the newest number seen
 * for this key. The key is used as given, without the prefix. HF_ESTALE: nothing was written.
 * It does not share its numbers with hf_guard_check(). */
HF_API HF_MUST_USE hf_err hf_guard_set(hf_client *c, hf_bytes key, hf_bytes value, uint64_t fence,
                                       hf_error *reterr);

/* ---- election ---------------------------------------------------------------------------
 * One leader at a time among any number of candidates, and everybody can learn who it is. A leader
 * holds the lock of the same name, so everything said of an hf_lock is true of it: the lease, the
 * grace, the loss. Its term is the fencing number of that grant. docs/election.md. */

typedef struct hf_election hf_election;

#define HF_LEADER_VALUE_MAX 65536

typedef struct hf_election_opts {
    size_t      size;
    int64_t     ttl_ms;   /* as in hf_lock_opts */
    int64_t     grace_ms;
    hf_event_fn on_event; /* its first argument is hf_election_lock() */
    void       *event_arg;
} hf_election_opts;

/* Make a candidate; no server is asked. Threads, fork and client as for an hf_lock. Set opts->size
 * to sizeof(hf_election_opts); opts may be NULL. HF_EINVAL, HF_ENOMEM as hf_lock_open(). */
HF_API HF_MUST_USE hf_err hf_election_open(hf_client *c, hf_bytes name,
                                           const hf_election_opts *opts, hf_election **ret,
                                           hf_error *reterr);

/* Free the handle, before its client; a leader resigns first. Always returns NULL. */
HF_API hf_election *hf_election_free(hf_election *el);

/* Become leader; wait up to wait_ms for our turn (0: try once, HF_WAIT_FOREVER: no limit). On HF_OK
 * this candidate leads, everybody who asks sees value (at most HF_LEADER_VALUE_MAX bytes), and
 * *ret_term (may be NULL) is larger than every earlier term. A candidate that already leads just
 * changes its value; one that has lost its term may campaign again at once.
 *
 *   HF_EBUSY, HF_ETIMEDOUT, HF_ECANCELED  as hf_lock_acquire(); hf_lock_cancel() on
 *                 hf_election_lock() ends the wait
 *   HF_ELOST      elected, but the term was lost before the value could be published
 *   HF_EUNSURE    as hf_lock_acquire(); or elected, but it is not known whether the value arrived:
 *                 then it has resigned
 *   HF_ETYPE      the key of the lock or of the value holds another kind of data
 *   HF_EINVAL, HF_ECONN, HF_ECOUNTER, HF_EAUTH, HF_ESERVER, HF_EPROTO, HF_ENOMEM, HF_EFORK */
HF_API HF_MUST_USE hf_err hf_election_campaign(hf_election *el, hf_bytes value, int64_t wait_ms,
                                               uint64_t *ret_term, hf_error *reterr);

/* Change the leader's value.
 *
 *   HF_ELOST     it no longer leads; nothing was changed
 *   HF_ENOTHELD  it did not lead
 *   HF_EUNSURE   no answer came: others see the new value or the old one. Set it again
 *   HF_EINVAL, HF_ECONN, HF_ESERVER, ...                                                  */
HF_API HF_MUST_USE hf_err hf_election_set_value(hf_election *el, hf_bytes value, hf_error *reterr);

/* Stop leading: the next candidate in line takes over. Results as hf_lock_release(). */
HF_API hf_err hf_election_resign(hf_election *el, hf_error *reterr);

/* 1 while it certainly leads, by our own clock, without a round trip. Any thread. */
HF_API int hf_election_is_leader(const hf_election *el);

/* The present or lost term; 0: none since the last resignation. */
HF_API uint64_t hf_election_term(const hf_election *el);

/* Its lock, for hf_lock_state(), _loss(), _fence(), _time_left_ms(), _fd(), _poll(), _extend(),
 * _verify(), _cancel(). Do not acquire, release, detach or free it. */
HF_API hf_lock *hf_election_lock(hf_election *el);

typedef struct hf_leader {
    int       leads;     /* 0: nobody leads, and the rest means nothing */
    uint64_t  term;      /* 0: a foreign client holds the lock */
    char     *value;     /* value_len bytes and a NUL. NULL: elected this moment and not known yet,
                            or not a candidate at all (somebody's ordinary lock of that name) */
    size_t    value_len;
    int64_t   ttl_ms;    /* what the server will still give it if it is not renewed; -1: for ever */
    hf_party *party;     /* who it is; never NULL */
} hf_leader;

/* Who leads now. *ret has leads == 0 when nobody does. Free it with hf_leader_free().
 * HF_ETYPE, HF_EINVAL, HF_ECONN, HF_EAUTH, HF_ESERVER, HF_ENOMEM, HF_EFORK */
HF_API HF_MUST_USE hf_err hf_election_leader(hf_client *c, hf_bytes name, hf_leader **ret,
                                             hf_error *reterr);

/* Wait up to wait_ms until leader, term or value differ from *seen (NULL: do not wait), and return
 * them. seen stays yours. Whoever changes one of them wakes us; a leader that is gone without a
 * successor is noticed when its lease ends.
 *
 *   HF_ETIMEDOUT  nothing changed
 *   HF_ECONN      the server could not be reached for half a minute
 *   others        as hf_election_leader()                                                 */
HF_API HF_MUST_USE hf_err hf_election_observe(hf_client *c, hf_bytes name, const hf_leader *seen,
                                              int64_t wait_ms, hf_leader **ret, hf_error *reterr);

HF_API hf_leader *hf_leader_free(hf_leader *leader);

/* ---- latch ------------------------------------------------------------------------------
 * A count on the server that goes down to zero, and callers that wait for zero. Different processes
 * may set it, count it down and wait for it. A handle belongs to one thread at a time, except for
 * hf_latch_cancel(). More: docs/latch.md. */

typedef struct hf_latch hf_latch;

#define HF_LATCH_MAX            1000000
#define HF_LATCH_TTL_DEFAULT_MS 86400000 /* a day */

typedef struct hf_latch_opts {
    size_t  size;
    int64_t ttl_ms; /* how long a latch that nobody uses is kept; every set, count-down and wait
                       starts this time again; 0: HF_LATCH_TTL_DEFAULT_MS */
} hf_latch_opts;

/* Make a handle; no server is asked. Set opts->size to sizeof(hf_latch_opts); opts may be NULL.
 * HF_EINVAL as hf_lock_open(), HF_ENOMEM. */
HF_API HF_MUST_USE hf_err hf_latch_open(hf_client *c, hf_bytes name, const hf_latch_opts *opts,
                                        hf_latch **ret, hf_error *reterr);
/* Free the handle; the latch itself stays on the server. Always returns NULL. */
HF_API hf_latch *hf_latch_free(hf_latch *lt);

/* Set the latch to count, 1 to HF_LATCH_MAX, if there is none or it has reached zero.
 *
 *   HF_EBUSY    it is still counting down; nothing was changed. hf_latch_reset() would
 *   HF_EUNSURE  no answer: set or not; look with hf_latch_count()
 *   HF_ETYPE    the name belongs to a lock, a barrier or other data: nothing was changed
 *   HF_EINVAL, HF_ECOUNTER, HF_ECONN, HF_EAUTH, HF_ESERVER, HF_EPROTO, HF_EFORK          */
HF_API HF_MUST_USE hf_err hf_latch_set(hf_latch *lt, uint32_t count, hf_error *reterr);

/* The same even while it is counting down: callers that wait for it get HF_EBROKEN.
 * Errors as hf_latch_set(). */
HF_API HF_MUST_USE hf_err hf_latch_reset(hf_latch *lt, uint32_t count, hf_error *reterr);

/* Count down by n, 1 to HF_LATCH_MAX, but not below zero. *ret_left (may be NULL) receives what is
 * left; at 0 everybody who waits is told.
 *
 *   HF_ENOTSET  there is no latch of this name
 *   HF_EUNSURE  no answer: counted or not. Call it again with the same handle and n, within a
 *               minute: that is the same request, and counts once
 *   HF_ETYPE, HF_EINVAL, HF_ECONN, HF_EAUTH, HF_ESERVER, HF_EPROTO, HF_EFORK             */
HF_API HF_MUST_USE hf_err hf_latch_count_down(hf_latch *lt, uint32_t n, uint32_t *ret_left,
                                              hf_error *reterr);

/* How much is left, and what it was set to; both may be NULL. Errors as hf_latch_count_down(). */
HF_API HF_MUST_USE hf_err hf_latch_count(hf_latch *lt, uint32_t *ret_left, uint32_t *ret_total,
                                         hf_error *reterr);

/* Wait up to wait_ms (0: ask once, HF_WAIT_FOREVER: no limit) until the latch has reached zero. If
 * the latch is not there yet, the call waits until it is set and reaches zero.
 *
 *   HF_EBUSY      wait_ms was 0 and it is not at zero, or not set
 *   HF_ETIMEDOUT  wait_ms passed
 *   HF_EBROKEN    it was reset, or disappeared from the server, while we waited
 *   HF_ECANCELED  hf_latch_cancel() was called
 *   HF_ETYPE, HF_ECONN (no server for 30 s), HF_EAUTH, HF_ESERVER, HF_EPROTO, HF_EFORK,
 *   HF_ENOMEM                                                                            */
HF_API HF_MUST_USE hf_err hf_latch_wait(hf_latch *lt, int64_t wait_ms, hf_error *reterr);

/* End a wait of another thread; if none is waiting, the next one. Any thread. */
HF_API void hf_latch_cancel(hf_latch *lt);

/* ---- barrier ----------------------------------------------------------------------------
 * A given number of parties meet: each call waits until all have arrived, then all go on. It can be
 * used again and again: each meeting is a generation of its own. A party that dies, gives up or
 * runs out of time breaks the meeting for all, so that the others do not wait for ever; the next
 * arrival begins a new one. A handle belongs to one thread at a time, except for
 * hf_barrier_cancel(). More: docs/barrier.md. */

typedef struct hf_barrier hf_barrier;

#define HF_PARTIES_MAX 1000

typedef struct hf_barrier_opts {
    size_t  size;
    int64_t grace_ms; /* how long our process must be seen gone before the meeting is broken; 0:
                         depends on the topology, as for a lock; HF_NO_TAKEOVER: only silence
                         breaks it */
    int     leave;    /* 1: the parties also leave together. All of them must set it. After each
                         meeting every party calls hf_barrier_leave(), and the next meeting begins
                         when all have left; a party that dies inside breaks the leaving */
} hf_barrier_opts;

/* Make a handle for a barrier of 1 to HF_PARTIES_MAX parties; no server is asked. Set opts->size to
 * sizeof(hf_barrier_opts); opts may be NULL. HF_EINVAL as hf_lock_open(), HF_ENOMEM. */
HF_API HF_MUST_USE hf_err hf_barrier_open(hf_client *c, hf_bytes name, uint32_t parties,
                                          const hf_barrier_opts *opts, hf_barrier **ret,
                                          hf_error *reterr);
/* Free the handle. Freeing it inside, before leaving, breaks the leaving. Returns NULL. */
HF_API hf_barrier *hf_barrier_free(hf_barrier *b);

/* Arrive, and wait up to wait_ms until all parties have (0: do not wait, succeed only as the last
 * to arrive; HF_WAIT_FOREVER: no limit). *ret_index (may be NULL) receives our place in the order
 * of arrival, from 0; *ret_generation (may be NULL) the number of the meeting: the same for all
 * parties, larger each time.
 *
 *   HF_EBUSY      wait_ms was 0, and others are still missing; we have not arrived
 *   HF_ETIMEDOUT  wait_ms passed: the meeting is broken for the others too
 *   HF_EBROKEN    it was broken; the message says by whom
 *   HF_ECANCELED  hf_barrier_cancel() was called: broken for the others too
 *   HF_EINVAL     others wait for another number of parties, and the message gives both; or this
 *                 handle is still inside: leave first
 *   HF_EUNSURE, HF_ECONN  no answer from the server for 30 s, or not in wait_ms: the others will
 *                 find that we are gone, unless we were the last to arrive
 *   HF_ETYPE, HF_ECOUNTER, HF_EAUTH, HF_ESERVER, HF_EPROTO, HF_ENOMEM, HF_EFORK
 *
 * A call that gives up tells the others, which may take up to a second longer. If even that gets no
 * answer, they hear of it when this handle is used again or freed, or when its process ends; if the
 * parties do not leave together, within a minute. */
HF_API HF_MUST_USE hf_err hf_barrier_wait(hf_barrier *b, int64_t wait_ms, uint32_t *ret_index,
                                          uint64_t *ret_generation, hf_error *reterr);

/* Wait until all parties want to leave. Errors as hf_barrier_wait(); with opts.leave also
 * HF_ENOTHELD: this handle is not inside. Without it, this is just another meeting. */
HF_API HF_MUST_USE hf_err hf_barrier_leave(hf_barrier *b, int64_t wait_ms, hf_error *reterr);

/* End a wait of another thread; if none is waiting, the next one. Any thread. */
HF_API void hf_barrier_cancel(hf_barrier *b);

/* ---- once: a value that one caller at a time computes --------------------------------------
 * A cache on the server beside the lock of the same name. A caller that finds no fresh value
 * acquires the lock and computes it; the others wait for the lock, and then find the value.
 * docs/once.md. */

#define HF_VALUE_MAX (1024 * 1024) /* bytes of a value, here and in hf_update_run() */

typedef struct hf_value {
    void   *data;     /* len bytes and a NUL */
    size_t  len;
    int64_t age_ms;   /* since it was computed, by the server's clock */
    int64_t fresh_ms; /* how long it is still fresh; -5: it has not been for 5 ms */
    int     computed; /* 1: by this very call */
    int     cached;   /* 1: others get it too. 0: too large, or the server could not be reached */
} hf_value;

HF_API hf_value *hf_value_free(hf_value *v); /* always NULL */

/* Compute the value; lock is held, for hf_lock_is_held() and hf_lock_fence(). *ret_value must stay
 * valid until hf_once_compute() has returned. An hf_err of your choice is what hf_once_compute()
 * then returns: nothing is cached, and the next caller computes. reterr is never NULL. */
typedef hf_err (*hf_once_fn)(void *arg, hf_lock *lock, hf_bytes *ret_value, hf_error *reterr);

typedef struct hf_once_opts {
    size_t   size;
    int64_t  ttl_ms;   /* how long a value that we compute is fresh; must be given */
    int64_t  stale_ms; /* for so long after that, callers may get the old value while somebody
                          computes a new one; 0: never */
    size_t   max_size; /* larger values are not cached; 0: HF_VALUE_MAX, which is the maximum */
    int      refresh;  /* 1: compute even if there is a fresh value */
    int64_t  lease_ms; /* the lease of the lock, which is renewed; 0: HF_TTL_DEFAULT_MS */
    int64_t  grace_ms; /* as in hf_lock_opts */
} hf_once_opts;

/* The cached value of this name, or compute() it. wait_ms as for hf_lock_acquire().
 *
 *   HF_OK         *ret, to be freed with hf_value_free()
 *   HF_ELOST      the lock was lost while compute() ran: its value is neither cached nor returned
 *   HF_EBUSY, HF_ETIMEDOUT  others compute it, and were not done in time
 *   HF_ETYPE      the key of the lock or of the value holds something else
 *   what compute() returned, and otherwise as hf_lock_open() and as hf_lock_acquire() */
HF_API HF_MUST_USE hf_err hf_once_compute(hf_client *c, hf_bytes name, const hf_once_opts *opts,
                                          int64_t wait_ms, hf_once_fn compute, void *arg,
                                          hf_value **ret, hf_error *reterr);

/* The two halves, for callers that compute the value themselves: read what is cached, fresh or not
 * (*ret is NULL when nothing is); and cache a value while lock, of the same name, is held.
 * HF_ELOST: the server knows that it no longer is; nothing was written. HF_EINVAL: too large.
 * HF_ETYPE: the key of the value holds something else. */
HF_API HF_MUST_USE hf_err hf_once_get(hf_client *c, hf_bytes name, hf_value **ret,
                                      hf_error *reterr);
HF_API HF_MUST_USE hf_err hf_once_put(hf_client *c, hf_bytes name, const hf_lock *lock,
                                      hf_bytes value, int64_t ttl_ms, int64_t stale_ms,
                                      hf_error *reterr);

/* Forget the cached value, if there is one. A computation under way is not disturbed. Errors
 * as hf_once_get(). */
HF_API HF_MUST_USE hf_err hf_once_drop(hf_client *c, hf_bytes name, hf_error *reterr);

/* ---- optimistic update -------------------------------------------------------------------
 * Read a key, compute, and write it back only if nobody wrote it meanwhile (WATCH, MULTI, EXEC);
 * otherwise start again. No lock is held and nobody waits: for short computations on keys that are
 * not written all the time. When to use which: docs/update.md. */

#define HF_KEEP_TTL 0
#define HF_NO_TTL   (-1)

typedef enum hf_change {
    HF_CHANGE_NOTHING, /* leave it as it is: hf_update_run() returns HF_OK */
    HF_CHANGE_SET,     /* write *ret_new */
    HF_CHANGE_DELETE   /* delete the key, or the field */
} hf_change;

/* Decide what becomes of the value old (data is NULL when there is none). For HF_CHANGE_SET point
 * *ret_new to the new value, which must stay valid until the next call of this function or the end
 * of hf_update_run(). It is called again for each try, so it must have no other effect. It may use
 * the library, and the same client. */
typedef hf_change (*hf_update_fn)(void *arg, hf_bytes old, hf_bytes *ret_new);

typedef struct hf_update_opts {
    size_t   size;
    hf_bytes field;    /* data not NULL: a field of the hash at key; otherwise key is a string */
    int64_t  ttl_ms;   /* HF_KEEP_TTL: as it was; HF_NO_TTL: none; otherwise the new ttl of the
                          key */
    unsigned tries;    /* 0: 100 */
    size_t   max_size; /* of the value, old and new; 0: HF_VALUE_MAX, which is the maximum */
} hf_update_opts;

/* Update a key, which is used as given, without the prefix. opts may be NULL. A lost reply does not
 * make the change twice: beside the key the server remembers the last update of each client for a
 * minute, and the library asks for it.
 *
 *   HF_ECONFLICT  others changed it at every try (the message says how many); nothing was written
 *   HF_ETYPE      the key holds another kind of data; nothing was written
 *   HF_EUNSURE    the write was sent, no answer came, and none could be had for as long as the
 *                 client's time limit: written once, or not at all
 *   HF_EINVAL     an argument is wrong, or the value is larger than max_size
 *   HF_ENOTSUP    on a quorum: a value kept by majorities can be changed twice
 *   HF_ECONN, HF_EAUTH, HF_ESERVER, HF_EPROTO, HF_ENOMEM, HF_EFORK: nothing was written */
HF_API HF_MUST_USE hf_err hf_update_run(hf_client *c, hf_bytes key, const hf_update_opts *opts,
                                        hf_update_fn change, void *arg, hf_error *reterr);

/* ---- sequence --------------------------------------------------------------------------- */

/* Increasing ids, unique over all clients of the server, with gaps: a handle reserves a block of
 * them, and those that it does not use are lost. The counter is data, not a lock: it stays on the
 * server for ever. If it is lost (FLUSHALL, a restart without persistence), ids begin again and
 * repeat: read docs/sequence.md, and see from_time. */
typedef struct hf_sequence hf_sequence;

#define HF_BLOCK_DEFAULT 1000
#define HF_BLOCK_MAX     1000000

typedef struct hf_sequence_opts {
    size_t   size;
    uint64_t block;     /* how many ids one round trip reserves, up to HF_BLOCK_MAX; 0:
                           HF_BLOCK_DEFAULT; 1: ids increase in real time over all clients */
    uint64_t start;     /* the first id, if there is no counter yet; 0: 1 */
    int      from_time; /* 1: no id is below the server's time in microseconds, so that a lost
                           counter repeats nothing */
} hf_sequence_opts;

/* Make a handle; no server is asked. The name follows the rules of a lock's name, but a lock of the
 * same name is something else. Set opts->size to sizeof(hf_sequence_opts); opts may be NULL.
 *
 *   HF_EINVAL  the name or an option; the message says which
 *   HF_ENOMEM                                                                              */
HF_API HF_MUST_USE hf_err hf_sequence_open(hf_client *c, hf_bytes name,
                                           const hf_sequence_opts *opts, hf_sequence **ret,
                                           hf_error *reterr);

/* The next id, larger than every one that this handle gave before. Any thread, and any number of
 * them at once: one asks the server, the others wait for it.
 *
 *   HF_ECOUNTER  the key holds something that is not a counter, or the ids are used up (2^53 - 1)
 *   HF_EUNSURE   no answer came: at worst there is a gap. Call it again
 *   HF_ECONN, HF_EAUTH, HF_ESERVER, HF_EPROTO, HF_ENOMEM, HF_EFORK                        */
HF_API HF_MUST_USE hf_err hf_sequence_next(hf_sequence *s, uint64_t *ret_id, hf_error *reterr);

/* Free the handle; the rest of its block becomes a gap. No thread may be using it. Always returns
 * NULL. */
HF_API hf_sequence *hf_sequence_free(hf_sequence *s);

/* ---- without blocking ---------------------------------------------------------------------
 * For programs with an event loop: poll hf_client_fd() for reading, and call hf_client_dispatch()
 * when it is readable. It does what there is to do, and calls done() in your thread. Requests move
 * only when it is called: no thread of the library works for them, and ten thousand of them share
 * one connection. Locks that you hold are renewed in the background, and a loss is reported,
 * however long your loop is busy. But if your loop does not take its turn in a queue within a
 * second, the turn passes to the next in line; the request goes on waiting. */

/* result and err are what the blocking call would give; err is NULL on success. Called once, by
 * hf_client_dispatch(), or by hf_client_free(), which ends what is under way with HF_ECANCELED.
 * From here on the handle may be used again, and freed; the client may be used, but not freed. */
typedef void (*hf_done_fn)(hf_err result, const hf_error *err, void *arg);

/* Each of these is the blocking call of the same name, with the same arguments, results and limits,
 * but it returns at once. HF_OK: done() will be called. Any other result, HF_EINVAL above all: it
 * will not, and nothing was done.
 *   What you pass is copied, except for arg and the places of results (ret_left, ret ...): those
 * must stay valid until done(). They are filled in just before it, on HF_OK. The fencing number is
 * hf_lock_fence().
 *   Until done() the handles are in use. Use them only in the calls marked "Any thread";
 * hf_lock_cancel(), hf_multi_cancel(), hf_latch_cancel() and hf_barrier_cancel() end a wait. A call
 * without a handle ends by its wait_ms, or when the client is freed. Nobody knows what belongs to
 * what in your loop, so a wait is looked at for deadlocks only if its handle has an owner id, and
 * with it what other handles of this client hold under that id (docs/deadlock.md).
 *   The library uses a thread only to open a client, to reconnect, to run compute(), and for the
 * protocols without scripts. docs/lifecycle.md. */
HF_API HF_MUST_USE hf_err hf_lock_acquire_async(hf_lock *lock, int64_t wait_ms, hf_done_fn done,
                                                void *arg, hf_error *reterr);
HF_API HF_MUST_USE hf_err hf_lock_acquire_shared_async(hf_lock *lock, int64_t wait_ms,
                                                       hf_done_fn done, void *arg,
                                                       hf_error *reterr);
HF_API HF_MUST_USE hf_err hf_lock_release_async(hf_lock *lock, hf_done_fn done, void *arg,
                                                hf_error *reterr);
HF_API HF_MUST_USE hf_err hf_lock_extend_async(hf_lock *lock, int64_t ttl_ms, hf_done_fn done,
                                               void *arg, hf_error *reterr);
HF_API HF_MUST_USE hf_err hf_lock_verify_async(hf_lock *lock, hf_done_fn done, void *arg,
                                               hf_error *reterr);
HF_API HF_MUST_USE hf_err hf_lock_downgrade_async(hf_lock *lock, hf_done_fn done, void *arg,
                                                  hf_error *reterr);
HF_API HF_MUST_USE hf_err hf_lock_detach_async(hf_lock *lock, int64_t ttl_ms, hf_done_fn done,
                                               void *arg, hf_error *reterr);

HF_API HF_MUST_USE hf_err hf_semaphore_resize_async(hf_client *c, hf_bytes name, unsigned slots,
                                                    unsigned *ret_old, hf_done_fn done, void *arg,
                                                    hf_error *reterr);

HF_API HF_MUST_USE hf_err hf_multi_acquire_async(hf_lock *const *lock, size_t n, int64_t wait_ms,
                                                 hf_done_fn done, void *arg, hf_error *reterr);
HF_API HF_MUST_USE hf_err hf_multi_release_async(hf_lock *const *lock, size_t n, hf_done_fn done,
                                                 void *arg, hf_error *reterr);

HF_API HF_MUST_USE hf_err hf_latch_set_async(hf_latch *lt, uint32_t count, hf_done_fn done,
                                             void *arg, hf_error *reterr);
HF_API HF_MUST_USE hf_err hf_latch_reset_async(hf_latch *lt, uint32_t count,
                                               hf_done_fn done, void *arg, hf_error *reterr);
HF_API HF_MUST_USE hf_err hf_latch_count_down_async(hf_latch *lt, uint32_t n,
                                                    uint32_t *ret_left, hf_done_fn done, void *arg,
                                                    hf_error *reterr);
HF_API HF_MUST_USE hf_err hf_latch_count_async(hf_latch *lt, uint32_t *ret_left,
                                               uint32_t *ret_total, hf_done_fn done, void *arg,
                                               hf_error *reterr);
HF_API HF_MUST_USE hf_err hf_latch_wait_async(hf_latch *lt, int64_t wait_ms,
                                              hf_done_fn done, void *arg, hf_error *reterr);

HF_API HF_MUST_USE hf_err hf_barrier_wait_async(hf_barrier *b, int64_t wait_ms,
                                                uint32_t *ret_index, uint64_t *ret_generation,
                                                hf_done_fn done, void *arg, hf_error *reterr);
HF_API HF_MUST_USE hf_err hf_barrier_leave_async(hf_barrier *b, int64_t wait_ms,
                                                 hf_done_fn done, void *arg, hf_error *reterr);

/* A wait is ended by hf_lock_cancel() on hf_election_lock(). */
HF_API HF_MUST_USE hf_err hf_election_campaign_async(hf_election *el, hf_bytes value,
                                                     int64_t wait_ms, uint64_t *ret_term,
                                                     hf_done_fn done, void *arg,
                                                     hf_error *reterr);
HF_API HF_MUST_USE hf_err hf_election_set_value_async(hf_election *el, hf_bytes value,
                                                      hf_done_fn done, void *arg,
                                                      hf_error *reterr);
HF_API HF_MUST_USE hf_err hf_election_resign_async(hf_election *el, hf_done_fn done,
                                                   void *arg, hf_error *reterr);
HF_API HF_MUST_USE hf_err hf_election_leader_async(hf_client *c, hf_bytes name,
                                                   hf_leader **ret, hf_done_fn done,
                                                   void *arg, hf_error *reterr);
HF_API HF_MUST_USE hf_err hf_election_observe_async(hf_client *c, hf_bytes name,
                                                    const hf_leader *seen, int64_t wait_ms,
                                                    hf_leader **ret, hf_done_fn done,
                                                    void *arg, hf_error *reterr);

HF_API HF_MUST_USE hf_err hf_once_get_async(hf_client *c, hf_bytes name, hf_value **ret,
                                            hf_done_fn done, void *arg, hf_error *reterr);
HF_API HF_MUST_USE hf_err hf_once_put_async(hf_client *c, hf_bytes name, const hf_lock *lock,
                                            hf_bytes value, int64_t ttl_ms, int64_t stale_ms,
                                            hf_done_fn done, void *arg, hf_error *reterr);
HF_API HF_MUST_USE hf_err hf_once_drop_async(hf_client *c, hf_bytes name, hf_done_fn done,
                                             void *arg, hf_error *reterr);
/* compute() may block: it runs in a thread of the library, not in yours, and that thread exists as
 * long as the computation does. One computation, one thread; finding the value and waiting for the
 * lock need none. What *ret_value points to must stay valid until done(). hf_client_free() waits
 * for a computation that is under way. */
HF_API HF_MUST_USE hf_err hf_once_compute_async(hf_client *c, hf_bytes name,
                                                const hf_once_opts *opts, int64_t wait_ms,
                                                hf_once_fn compute, void *compute_arg,
                                                hf_value **ret, hf_done_fn done, void *arg,
                                                hf_error *reterr);

HF_API HF_MUST_USE hf_err hf_owner_acquire_async(hf_client *c, hf_bytes name, int64_t ttl_ms,
                                                 hf_bytes owner, uint64_t *ret_fence,
                                                 hf_done_fn done, void *arg, hf_error *reterr);
HF_API HF_MUST_USE hf_err hf_owner_release_async(hf_client *c, hf_bytes name, hf_bytes owner,
                                                 hf_done_fn done, void *arg, hf_error *reterr);
HF_API HF_MUST_USE hf_err hf_owner_extend_async(hf_client *c, hf_bytes name, hf_bytes owner,
                                                int64_t ttl_ms, hf_done_fn done, void *arg,
                                                hf_error *reterr);
HF_API HF_MUST_USE hf_err hf_owner_check_async(hf_client *c, hf_bytes name, hf_bytes owner,
                                               int64_t *ret_ttl_ms, hf_done_fn done, void *arg,
                                               hf_error *reterr);
HF_API HF_MUST_USE hf_err hf_inspect_lock_async(hf_client *c, hf_bytes name,
                                                int64_t timeout_ms, hf_inspect_info **ret,
                                                hf_done_fn done, void *arg, hf_error *reterr);
HF_API HF_MUST_USE hf_err hf_break_async(hf_client *c, hf_bytes name, uint64_t fence,
                                         const hf_break_opts *opts, hf_break_info *ret,
                                         hf_done_fn done, void *arg, hf_error *reterr);
HF_API HF_MUST_USE hf_err hf_ask_async(hf_client *c, hf_bytes name, uint64_t fence,
                                       const char *text, size_t *ret_asked, size_t *ret_heard,
                                       hf_done_fn done, void *arg, hf_error *reterr);

HF_API HF_MUST_USE hf_err hf_guard_check_async(hf_client *c, hf_bytes resource, uint64_t fence,
                                               hf_done_fn done, void *arg, hf_error *reterr);
HF_API HF_MUST_USE hf_err hf_guard_set_async(hf_client *c, hf_bytes key, hf_bytes value,
                                             uint64_t fence, hf_done_fn done, void *arg,
                                             hf_error *reterr);

/* Open a client. *ret is there at once, but until done() only hf_client_fd(), hf_client_dispatch()
 * and hf_client_free() may be called with it; other calls return HF_EINVAL. A thread of the library
 * connects, and then ends. If done() reports a failure, the client is of no use: free it, but not
 * in done(). A wrong URL or option is reported at once, and then there is no client. */
HF_API HF_MUST_USE hf_err hf_client_open_async(const char *url, const hf_client_opts *opts,
                                               hf_client **ret, hf_done_fn done, void *arg,
                                               hf_error *reterr);

/* Readable when there is something to do: a reply has come, a time is up, a request has finished.
 * The descriptor belongs to the client; do not close or read it. Watch it with epoll, poll or
 * select. */
HF_API HF_MUST_USE hf_err hf_client_fd(hf_client *c, int *ret_fd, hf_error *reterr);
/* Do what there is to do, and call done() for everything that has finished; never waits. Returns
 * how many there were. One thread at a time: a second one that calls it meanwhile gets 0. */
HF_API size_t hf_client_dispatch(hf_client *c);

/* ---- doctor ------------------------------------------------------------------------------
 * What `holdfast doctor` shows: can this server keep the promises? docs/topologies.md. */

typedef enum hf_grade {
    HF_GRADE_FINE,
    HF_GRADE_NOTE,  /* worth knowing */
    HF_GRADE_RISK,  /* it works, but some promise is weaker than it could be */
    HF_GRADE_FAULT  /* it does not work */
} hf_grade;

typedef struct hf_finding {
    hf_grade    grade;
    const char *where;  /* which server: "127.0.0.1:6379", "sentinel 127.0.0.1:26379" */
    const char *topic;  /* one word: reach rights url version role persistence memory replicas clock
                           fence sentinels quorum cluster session */
    const char *text;   /* what was found */
    const char *advice; /* what to do; NULL: nothing */
} hf_finding;

/* The strings live until it returns. */
typedef void (*hf_doctor_fn)(const hf_finding *f, void *arg);

/* Examine the servers behind a URL, as hf_client_open() would use them, and report what is found,
 * good and bad. A lock with a random name is acquired and released, in a cluster one at each
 * master; nothing else is written. HF_OK even when no server can be reached: that is a finding too.
 *
 *   HF_ECONFIG, HF_EINVAL  the URL or an option is wrong
 *   HF_ENOMEM, HF_ENOTSUP, HF_ESYS */
HF_API HF_MUST_USE hf_err hf_doctor_examine(const char *url, const hf_client_opts *opts,
                                            hf_doctor_fn each, void *arg, hf_error *reterr);

/* Repair a fencing counter that holds something else (HF_ECOUNTER): it is renamed to
 * <prefix>holdfast:fence:broken, and a new one begins above every number ever given, a minute ahead
 * of the server's time. In a cluster each slot has a counter, and all are examined. *ret_repaired
 * (may be NULL): how many were repaired; 0: all were usable, and nothing was done.
 *
 *   HF_ECONN, HF_EAUTH (RENAME, TYPE and SET are needed), HF_ESERVER ...
 *   HF_ENOTSUP  on a quorum: each server has its own counter, to be repaired there */
HF_API HF_MUST_USE hf_err hf_doctor_repair_fence(const char *url, const hf_client_opts *opts,
                                                 size_t *ret_repaired, hf_error *reterr);

/* ---- metrics -----------------------------------------------------------------------------
 * What a client counts, from its opening on: cheap, always on, asked for without a round trip.
 * docs/metrics.md. */

#define HF_BUCKETS    18
#define HF_LOSSES_MAX 16

typedef struct hf_histogram {
    uint64_t count, sum_ms;
    uint64_t bucket[HF_BUCKETS]; /* how many were longer than hf_bucket_ms(i - 1) and not longer
                                    than hf_bucket_ms(i) */
} hf_histogram;

typedef struct hf_metrics {
    size_t       size;            /* set to sizeof(hf_metrics) before the call */
    uint64_t     acquires;        /* grants; entering a lock again that the handle holds is none */
    uint64_t     contended;       /* calls that found it held, or others waiting; whatever came of
                                     them */
    uint64_t     busy;            /* calls that ended with HF_EBUSY or HF_ETIMEDOUT */
    uint64_t     failed;          /* calls that ended with another error, but for HF_ECANCELED */
    uint64_t     deadlocks;       /* calls that ended with HF_EDEADLK */
    uint64_t     releases;        /* confirmed by the server */
    uint64_t     renewals, renewals_failed; /* of leases, in the background */
    uint64_t     in_doubt;        /* how often a lock became so */
    uint64_t     takeovers;       /* dead holders whose lock this client handed on, to itself or to
                                     the first in line */
    uint64_t     connects;        /* connections for requests that were made, ... */
    uint64_t     reconnects;      /* ... and those of them that had stood before */
    uint64_t     notes_dropped;   /* events and history entries that could not be written */
    uint64_t     lost[HF_LOSSES_MAX]; /* by hf_loss */
    hf_histogram wait;            /* of those that were granted */
    hf_histogram hold;            /* from the grant until it was given back, left or lost */
} hf_metrics;

/* HF_EINVAL, HF_EFORK. Any thread. */
HF_API HF_MUST_USE hf_err hf_metrics_get(hf_client *c, hf_metrics *ret, hf_error *reterr);
/* The longest time that belongs to bucket i; INT64_MAX for the last one. */
HF_API int64_t hf_bucket_ms(unsigned i);

/* One of them with its name, as Prometheus likes it: "holdfast_client_acquires_total". */
typedef struct hf_metric {
    const char         *name;
    const char         *kind;        /* "counter" or "histogram" */
    const char         *help;
    const char         *label;       /* "cause"; NULL: it has none */
    const char         *label_value;
    uint64_t            value;       /* of a histogram: its count */
    const hf_histogram *times;       /* NULL: it is no histogram */
} hf_metric;

/* Call each() for everything in *m, which hf_metrics_get() has filled in; those of one name follow
 * one another. HF_EINVAL: m or each is NULL, or m->size is too small. */
typedef void (*hf_metric_fn)(const hf_metric *m, void *arg);
HF_API HF_MUST_USE hf_err hf_metrics_each(const hf_metrics *m, hf_metric_fn each, void *arg,
                                          hf_error *reterr);

/* ---- the embedded server ---------------------------------------------------------------- */

typedef struct hf_server_info {
    size_t  size;        /* set to sizeof(hf_server_info) before the call */
    int     running;
    int64_t pid;
    int64_t uptime_s;
    char    dir[256];
    char    socket[108];
    char    version[64]; /* "redis 7.0.15" */
} hf_server_info;

/* The private server behind the URL "embedded:". dir is what stands behind "embedded:"; NULL: the
 * user's own (docs/urls.md). Clients start it when they need it; these calls are for doing it by
 * hand. Starting one that runs, and stopping one that does not, is HF_OK.
 * HF_ECONFIG, HF_ECONN, HF_EAUTH, HF_ESERVER, HF_EINVAL, HF_ENOMEM, HF_ESYS */
HF_API HF_MUST_USE hf_err hf_server_start(const char *dir, hf_server_info *ret, hf_error *reterr);
HF_API HF_MUST_USE hf_err hf_server_stop(const char *dir, hf_error *reterr);
HF_API HF_MUST_USE hf_err hf_server_status(const char *dir, hf_server_info *ret, hf_error *reterr);

/* ---- memory ------------------------------------------------------------------------------ */

/* Replace malloc, realloc and free for everything that the library allocates itself. Only before
 * the first other call. */
HF_API void hf_allocator_set(void *(*alloc)(size_t), void *(*resize)(void *, size_t),
                             void (*release)(void *));

#ifdef __cplusplus
}
#endif
#endif
