/* SPDX-License-Identifier: MIT
 * take.c - one lock or several, all or nothing, with a wait that signals can end.
 *
 * hf_mutex_lock() blocks the main thread. A second thread, alive only during the wait, reads the
 * signals and cancels the wait; a third tells who looks on whom we wait for. */
#include "take.h"

#include "clock.h"
#include "exitcode.h"
#include "message.h"
#include "output.h"
#include "waiting.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

/* ---- names ------------------------------------------------------------------------------- */

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static size_t find(const struct taken *t, const char *name)
{
    size_t i = 0;
    while (strcmp(t->lock[i].name, name) != 0)
        i++;
    return i;
}

static int out_of_memory(void)
{
    msg_error("out of memory");
    return EX_SYSTEM;
}

/* Cut text at the separators; word has room for all of them. */
static void cut(char *text, char separator, const char **word)
{
    size_t n = 0;
    word[n++] = text;
    for (char *p = text; separator && *p; p++) {
        if (*p == separator) {
            *p = '\0';
            word[n++] = p + 1;
        }
    }
}

int taken_names(struct taken *t, const struct cmd *cmd, const char *list, char separator)
{
    t->words = strdup(list);
    t->given = 1;
    for (const char *p = list; separator && *p; p++)
        t->given += *p == separator;
    const char **word = calloc(t->given, sizeof *word), **sorted = calloc(t->given, sizeof *sorted);
    t->lock = calloc(t->given, sizeof *t->lock);
    t->order = calloc(t->given, sizeof *t->order);
    int bad = !t->words || !word || !sorted || !t->lock || !t->order;
    int empty = 0;
    if (!bad) {
        cut(t->words, separator, word);
        memcpy(sorted, word, t->given * sizeof *sorted);
        qsort(sorted, t->given, sizeof *sorted, by_bytes);
        for (size_t i = 0; i < t->given; i++)
            if (i == 0 || strcmp(sorted[i], sorted[i - 1]) != 0)
                t->lock[t->n++].name = sorted[i];
        for (size_t i = 0; i < t->given; i++)
            t->order[i] = find(t, word[i]);
        empty = sorted[0][0] == '\0';
    }
    free(word);
    free(sorted);
    if (bad)
        return out_of_memory();
    return empty ? usage_error(cmd, "a lock's name is empty") : 0;
}

int taken_open(struct taken *t, hf_client *c, const struct opts *o, int outlive)
{
    hf_mutex_opts mo = { .size = sizeof mo, .ttl_ms = o->ttl_ms, .owner = hf_str(o->owner),
                         .whole_lease = 1 };
    mo.no_renew = outlive;
    if (outlive || o->grace_ms == 0)
        mo.grace_ms = HF_NO_TAKEOVER;
    else if (o->grace_ms != GIVEN_NOT)
        mo.grace_ms = o->grace_ms;
    t->c = c;
    for (size_t i = 0; i < t->n; i++) {
        hf_error err;
        hf_err e = hf_mutex_open(c, hf_str(t->lock[i].name), &mo, &t->lock[i].m, &err);
        if (e != HF_OK)
            return msg_failed(e, &err);
    }
    return 0;
}

/* ---- the thread beside the wait ---------------------------------------------------------- */

struct beside {
    pthread_t           thread;
    int                 signal_fd, hangup_fd, end_fd;
    _Atomic(hf_mutex *) waits_for;
    atomic_int          signal; /* the one that ended the wait; -1: hang-up */
    struct waiting      waiting;
};

static void cancel(struct beside *b, int sig)
{
    /* In this order: take_each() sets waits_for, then looks at signal. One of us sees the other. */
    atomic_store(&b->signal, sig);
    hf_mutex *m = atomic_load(&b->waits_for);
    if (m)
        hf_mutex_cancel(m);
}

static void read_signal(struct beside *b)
{
    struct signalfd_siginfo si;
    if (read(b->signal_fd, &si, sizeof si) != (ssize_t)sizeof si)
        return;
    if (si.ssi_signo == SIGTSTP) {
        msg_status_clear();
        signals_stop(SIGTSTP, 0);
    } else {
        cancel(b, (int)si.ssi_signo);
    }
}

static void *beside_main(void *arg)
{
    struct beside *b = arg;
    struct pollfd p[] = { { .fd = b->end_fd, .events = POLLIN },
                          { .fd = b->signal_fd, .events = POLLIN },
                          { .fd = b->hangup_fd, .events = POLLIN } };
    for (;;) {
        if (poll(p, 3, -1) < 0) {
            if (errno != EINTR)
                return NULL;
            continue;
        }
        if (p[0].revents)
            return NULL;
        if (p[1].revents)
            read_signal(b);
        if (p[2].revents) {
            cancel(b, -1);
            p[2].fd = -1;
        }
    }
}

static int beside_start(struct beside *b, struct taken *t, const struct opts *o,
                        const struct signals *s)
{
    b->signal_fd = signals_fd(s, signals_ending);
    b->end_fd = eventfd(0, EFD_CLOEXEC);
    b->waiting.end_fd = -1;
    if (b->signal_fd >= 0 && b->end_fd >= 0 &&
        pthread_create(&b->thread, NULL, beside_main, b) == 0) {
        if (!o->nonblock)
            waiting_start(&b->waiting, t->c);
        return 0;
    }
    msg_error("cannot wait: %s", strerror(errno));
    if (b->signal_fd >= 0)
        close(b->signal_fd);
    if (b->end_fd >= 0)
        close(b->end_fd);
    return EX_SYSTEM;
}

static void beside_end(struct beside *b)
{
    uint64_t one = 1;
    ssize_t n = write(b->end_fd, &one, sizeof one);
    (void)n;
    pthread_join(b->thread, NULL);
    waiting_end(&b->waiting);
    close(b->signal_fd);
    close(b->end_fd);
}

/* ---- taking ------------------------------------------------------------------------------ */

static int busy(const struct taken *t, const struct opts *o, hf_err e, const char *name)
{
    char who[1024], shown[TEXT_ESCAPED(1024) + 8], waited[32];
    text_escape(shown, sizeof shown, name, strlen(name));
    if (o->skip_ok) {
        msg_verbose("%s is busy: skipped", shown);
        return EX_OKAY;
    }
    holder_ask(who, sizeof who, t->c, name);
    if (e == HF_ETIMEDOUT)
        msg_note("%s not obtained within %s: %s", shown,
                 text_duration(waited, sizeof waited, o->wait_ms), who[0] ? who : "busy");
    else
        msg_note("%s is %s", shown, who[0] ? who : "busy");
    return o->busy_code;
}

/* HF_OK, or what kept *ret_i from being taken. */
static hf_err take_each(struct taken *t, const struct opts *o, struct beside *b, size_t *ret_i,
                        hf_error *reterr)
{
    int64_t wait = o->nonblock ? 0 : o->wait_ms == GIVEN_NOT ? HF_WAIT_FOREVER : o->wait_ms;
    int64_t start = clock_now_ms();
    for (size_t i = 0; i < t->n; i++) {
        struct taken_lock *l = &t->lock[i];
        int64_t left = wait;
        if (wait > 0 && (left -= clock_now_ms() - start) < 0)
            left = 0;
        *ret_i = i;
        atomic_store(&b->waits_for, l->m);
        atomic_store(&b->waiting.name, l->name);
        if (atomic_load(&b->signal))
            return HF_ECANCELED;
        hf_err e = hf_mutex_lock(l->m, left, &l->fence, reterr);
        /* Out of time between two names is out of time, not a single failed try. */
        if (e == HF_EBUSY && wait > 0)
            return HF_ETIMEDOUT;
        atomic_store(&b->waiting.name, NULL);
        if (e != HF_OK)
            return e;
    }
    t->since_ms = clock_now_ms();
    return HF_OK;
}

/* While we waited for the last of several the first may have been lost. */
static int all_held(const struct taken *t)
{
    char name[TEXT_ESCAPED(1024) + 8];
    for (size_t i = 0; i < t->n; i++) {
        const char *s = t->lock[i].name;
        if (hf_mutex_is_held(t->lock[i].m))
            continue;
        msg_error("%s was lost again before all were taken: %s",
                  text_escape(name, sizeof name, s, strlen(s)),
                  hf_loss_text(hf_mutex_loss(t->lock[i].m)));
        return 0;
    }
    return 1;
}

static void tell_taken(const struct taken *t, int64_t asked_ms)
{
    char name[TEXT_ESCAPED(1024) + 8], waited[32];
    for (size_t i = 0; i < t->n; i++)
        msg_verbose("%s taken, fence %" PRIu64 ", after %s",
                    text_escape(name, sizeof name, t->lock[i].name, strlen(t->lock[i].name)),
                    t->lock[i].fence, text_duration(waited, sizeof waited, t->since_ms - asked_ms));
}

int taken_wait(struct taken *t, const struct opts *o, const struct signals *s, int hangup_fd,
               int *ret_code)
{
    struct beside b = { .hangup_fd = hangup_fd };
    hf_error err = { 0 };
    int64_t asked_ms = clock_now_ms();
    size_t i = 0;
    *ret_code = beside_start(&b, t, o, s);
    if (*ret_code)
        return 0;
    hf_err e = take_each(t, o, &b, &i, &err);
    beside_end(&b);
    int sig = atomic_load(&b.signal);
    if (!sig && e == HF_OK && all_held(t)) {
        tell_taken(t, asked_ms);
        return 1;
    }
    taken_release(t);
    if (sig)
        *ret_code = sig > 0 ? EX_SIGNAL + sig : EX_BUG;
    else if (e == HF_EBUSY || e == HF_ETIMEDOUT)
        *ret_code = busy(t, o, e, t->lock[i].name);
    else
        *ret_code = e == HF_OK ? EX_LOST : msg_failed(e, &err);
    return 0;
}

/* ---- letting go -------------------------------------------------------------------------- */

static void not_released(const struct taken_lock *l, hf_err e, const hf_error *err)
{
    char name[TEXT_ESCAPED(1024) + 8];
    text_escape(name, sizeof name, l->name, strlen(l->name));
    if (e == HF_ELOST)
        msg_error("%s had been lost before it was released: %s", name,
                  hf_loss_text(hf_mutex_loss(l->m)));
    else
        msg_error("%s: %s", name, err->message[0] ? err->message : hf_err_text(e));
}

void taken_release(struct taken *t)
{
    for (size_t i = t->n; i-- > 0;) {
        hf_error err = { 0 };
        int was_lost = hf_mutex_state(t->lock[i].m) == HF_LOST;
        if (hf_mutex_state(t->lock[i].m) == HF_FREE)
            continue;
        hf_err e = hf_mutex_unlock(t->lock[i].m, &err);
        if (e != HF_OK && !was_lost)
            not_released(&t->lock[i], e, &err);
    }
}

void taken_leave(struct taken *t, int64_t ms)
{
    for (size_t i = t->n; i-- > 0;) {
        hf_error err = { 0 };
        if (hf_mutex_state(t->lock[i].m) == HF_LOST || hf_mutex_state(t->lock[i].m) == HF_FREE)
            continue;
        hf_err e = hf_mutex_leave(t->lock[i].m, ms, &err);
        if (e != HF_OK)
            not_released(&t->lock[i], e, &err);
    }
}

void taken_free(struct taken *t)
{
    for (size_t i = t->n; i-- > 0;)
        hf_mutex_free(t->lock[i].m);
    free(t->lock);
    free(t->order);
    free(t->words);
    *t = (struct taken){ 0 };
}

/* ---- what CMD is told -------------------------------------------------------------------- */

static char *joined(const struct taken *t, int owners)
{
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return NULL;
    for (size_t i = 0; i < t->given; i++) {
        const struct taken_lock *l = &t->lock[t->order[i]];
        if (i)
            putc(',', f);
        if (owners)
            fputs(hf_mutex_owner(l->m), f);
        else
            fprintf(f, "%" PRIu64, l->fence);
    }
    int bad = ferror(f);
    if (fclose(f) == 0 && !bad)
        return text;
    free(text);
    return NULL;
}

char *taken_fences(const struct taken *t)
{
    return joined(t, 0);
}

char *taken_owners(const struct taken *t)
{
    return joined(t, 1);
}

int taken_environment(const struct taken *t, const char *list, const struct opts *o)
{
    char *fences = taken_fences(t), *owners = taken_owners(t), ttl[32];
    snprintf(ttl, sizeof ttl, "%" PRId64, o->ttl_ms);
    int bad = !fences || !owners || setenv("HOLDFAST_NAME", list, 1) != 0 ||
              setenv("HOLDFAST_FENCE", fences, 1) != 0 ||
              setenv("HOLDFAST_OWNER", owners, 1) != 0 || setenv("HOLDFAST_TTL_MS", ttl, 1) != 0;
    free(fences);
    free(owners);
    return bad ? out_of_memory() : 0;
}
