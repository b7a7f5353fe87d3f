/* SPDX-License-Identifier: MIT
 * holdfast.hpp - holdfast.h for C++: handles that free themselves, exceptions, std::chrono.
 *
 *     holdfast::client c;                          // $HOLDFAST_URL, or a private server
 *     holdfast::mutex m(c, "counter");
 *     std::lock_guard<holdfast::mutex> guard(m);   // also std::unique_lock, std::scoped_lock
 *     write(file, m.fence());
 *
 * C++11 or later, header only: link with libholdfast. It adds nothing to the C interface, whose
 * header says what each call does, and what it promises.
 *
 * Errors    Calls throw holdfast::error, which is a std::runtime_error with code() and known().
 *           Each has an overload with an hf_error & at the end that returns an hf_err and throws
 *           nothing of its own; of a constructor with one the object is empty after a failure.
 * Handles   Can be moved, not copied. Empty after having been moved from: only destroy it, assign
 *           to it, or ask it for its bool. get() is the handle of the C interface. A client may go
 *           before what was made from it; that can only be destroyed then.
 * Threads   As in C. A holdfast::mutex keeps out other processes and other handles, not other
 *           threads with the same handle: it is re-entrant. Give each thread a handle of its own.
 * Unlocking unlock() never throws, since guards call it in their destructors; whether the lock had
 *           been lost is told by the overload with an hf_error &, or later by unlocked().
 */
#ifndef HOLDFAST_HPP
#define HOLDFAST_HPP

#include <holdfast.h>

#include <chrono>
#include <functional>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace holdfast {

using ms = std::chrono::milliseconds;

/* As a wait: no limit. */
inline ms forever()
{
    return ms(HF_WAIT_FOREVER);
}

/* ---- errors ---------------------------------------------------------------------------- */

class error : public std::runtime_error {
public:
    error(hf_err code, const hf_error &e)
        : std::runtime_error(e.message[0] ? e.message : hf_err_text(code)), code_(code),
          known_(e.code == code ? e.known : hf_err_known(code))
    {
    }
    hf_err code() const noexcept { return code_; }
    hf_known known() const noexcept { return known_; } /* about the lock, now */

private:
    hf_err   code_;
    hf_known known_;
};

/* An options struct of the C interface with its size set and the rest 0:
 *     auto o = holdfast::options<hf_lock_opts>();
 *     o.ttl_ms = 5000;                                                                     */
template <class Opts> Opts options()
{
    Opts o = Opts();
    o.size = sizeof o;
    return o;
}

namespace detail {

template <class T, T *(*Free)(T *)> struct deleter {
    void operator()(T *p) const noexcept { Free(p); }
};
template <class T, T *(*Free)(T *)> using handle = std::unique_ptr<T, deleter<T, Free>>;

/* Results of the C interface; throws unless it is HF_OK. */
struct checked {
    hf_error err;
    checked() : err() {}
    void operator()(hf_err e) const
    {
        if (e != HF_OK)
            throw error(e, err);
    }
    /* true, or false for one of the two codes that are no failure */
    bool unless(hf_err e, hf_err a, hf_err b) const
    {
        if (e == a || e == b)
            return false;
        (*this)(e);
        return true;
    }
};

inline hf_bytes bytes(const std::string &s)
{
    hf_bytes b;
    b.data = s.data();
    b.len = s.size();
    return b;
}

inline std::string text(const char *s)
{
    return s ? std::string(s) : std::string();
}

/* Holds what no count of milliseconds or nanoseconds can, such as hours::max(). */
using rough = std::chrono::duration<long double, std::milli>;

/* Never shorter than asked for, up to a hundred years; never by accident for ever. */
template <class Rep, class Period>
int64_t wait_of(const std::chrono::duration<Rep, Period> &d)
{
    const ms longest(100 * HF_TTL_MAX_MS);
    if (!(d > std::chrono::duration<Rep, Period>::zero())) /* nor is it NaN */
        return 0;
    if (rough(d) >= rough(longest))
        return longest.count();
    ms whole = std::chrono::duration_cast<ms>(d);
    return (whole < d ? whole + ms(1) : whole).count();
}

/* What every kind of lock has in common, made of its two primitives:
 *     hf_err take(int64_t wait_ms, hf_error &err);  hf_err unlock(hf_error &err);           */
template <class Lock> class lockable {
public:
    /* Waits for as long as it takes. */
    void lock()
    {
        checked ok;
        ok(self().take(HF_WAIT_FOREVER, ok.err));
    }
    hf_err lock(ms wait, hf_error &err) { return self().take(wait.count(), err); }

    /* False: another holds it. */
    bool try_lock()
    {
        checked ok;
        return ok.unless(self().take(0, ok.err), HF_EBUSY, HF_EBUSY);
    }

    /* False: not within that time. */
    template <class Rep, class Period>
    bool try_lock_for(const std::chrono::duration<Rep, Period> &wait)
    {
        checked ok;
        return ok.unless(self().take(wait_of(wait), ok.err), HF_EBUSY, HF_ETIMEDOUT);
    }
    template <class Clock, class Duration>
    bool try_lock_until(const std::chrono::time_point<Clock, Duration> &until)
    {
        return try_lock_for(rough(until.time_since_epoch())
                            - rough(Clock::now().time_since_epoch()));
    }

    void unlock() noexcept
    {
        hf_error err = hf_error();
        unlocked_ = self().unlock(err);
    }
    /* What the last unlock() without an argument came to. */
    hf_err unlocked() const noexcept { return unlocked_; }

protected:
    lockable() : unlocked_(HF_OK) {}

private:
    Lock &self() { return static_cast<Lock &>(*this); }
    hf_err unlocked_;
};

} // namespace detail

/* ---- without blocking ------------------------------------------------------------------- */

/* The end of a request without blocking; err is null on success. Called by client::dispatch(). The
 * calls that take one return at once; done is called once, unless they throw, and what they were
 * called on may not be moved before. It may not throw: it is called through C. */
using done_fn = std::function<void(hf_err, const hf_error *)>;

namespace detail {

inline void finished(hf_err result, const hf_error *err, void *arg) noexcept
{
    std::unique_ptr<done_fn> done(static_cast<done_fn *>(arg));
    (*done)(result, err);
}
template <class Start> void async(done_fn done, Start start)
{
    std::unique_ptr<done_fn> copy(new done_fn(std::move(done)));
    checked ok;
    ok(start(finished, copy.get(), &ok.err));
    copy.release(); /* finished() frees it */
}

} // namespace detail

/* ---- client ---------------------------------------------------------------------------- */

class client {
public:
    client() { open(nullptr, nullptr); }
    explicit client(const std::string &url) { open(url.c_str(), nullptr); }
    client(const std::string &url, const hf_client_opts &o) { open(url.c_str(), &o); }
    explicit client(const hf_client_opts &o) { open(nullptr, &o); }
    /* url and o may be null */
    client(const char *url, const hf_client_opts *o, hf_error &err) { set(open(url, o, err)); }

    void unlock_all()
    {
        detail::checked ok;
        ok(hf_client_release_all(get(), nullptr, &ok.err));
    }
    /* Empty afterwards, whatever the result; ms(0): the client's own time limit. Only a negative
     * one (HF_EINVAL), such as forever(), leaves it as it is. */
    void close(ms limit = ms(0))
    {
        detail::checked ok;
        ok(close(limit, ok.err));
    }
    hf_err close(ms limit, hf_error &err)
    {
        hf_client *c = limit < ms(0) ? h_.get() : h_.release();
        return hf_client_close(c, limit.count(), &err);
    }
    std::string url() const { return detail::text(hf_client_url(get())); }
    /* For the environment of a program that is started now: HOLDFAST_HELD. */
    std::string held()
    {
        char text[8192];
        detail::checked ok;
        ok(hf_client_held(get(), text, sizeof text, &ok.err));
        return text;
    }

    /* For an event loop. */
    int fd()
    {
        int fd = -1;
        detail::checked ok;
        ok(hf_client_fd(get(), &fd, &ok.err));
        return fd;
    }
    std::size_t dispatch() { return hf_client_dispatch(get()); }

    hf_client *get() const noexcept { return h_.get(); }
    explicit operator bool() const noexcept { return static_cast<bool>(h_); }

private:
    static hf_client *open(const char *url, const hf_client_opts *o, hf_error &err)
    {
        hf_client *c = nullptr;
        return hf_client_open(url, o, &c, &err) == HF_OK ? c : nullptr;
    }
    void open(const char *url, const hf_client_opts *o)
    {
        hf_client *c = nullptr;
        detail::checked ok;
        ok(hf_client_open(url, o, &c, &ok.err));
        set(c);
    }
    void set(hf_client *c) { h_.reset(c); }

    detail::handle<hf_client, hf_client_free> h_;
};

/* ---- mutex ----------------------------------------------------------------------------- */

/* Runs in a thread of the library, and may not throw. */
using event_fn = std::function<void(hf_state)>;

class mutex : public detail::lockable<mutex> {
public:
    mutex(client &c, const std::string &name) { open(c, name, options<hf_lock_opts>()); }
    mutex(client &c, const std::string &name, ms ttl, event_fn on_event = event_fn())
    {
        hf_lock_opts o = options<hf_lock_opts>();
        o.ttl_ms = ttl.count();
        open(c, name, o, std::move(on_event));
    }
    /* With on_event, that of o is not used. */
    mutex(client &c, const std::string &name, const hf_lock_opts &o,
          event_fn on_event = event_fn())
    {
        open(c, name, o, std::move(on_event));
    }
    mutex(client &c, const std::string &name, const hf_lock_opts &o, hf_error &err)
    {
        hf_lock *m = nullptr;
        if (hf_lock_open(c.get(), detail::bytes(name), &o, &m, &err) == HF_OK)
            h_.reset(m);
    }

    mutex(mutex &&) noexcept = default;
    mutex &operator=(mutex &&other) noexcept
    {
        h_ = std::move(other.h_); /* the old handle goes first: until then it may call its event */
        event_ = std::move(other.event_);
        lockable::operator=(other);
        return *this;
    }

    /* lock(), try_lock(), try_lock_for(), try_lock_until(), unlock(): detail::lockable */
    using lockable::unlock;
    hf_err take(int64_t wait_ms, hf_error &err)
    {
        return hf_lock_acquire(get(), wait_ms, nullptr, &err);
    }
    hf_err unlock(hf_error &err) { return hf_lock_release(get(), &err); }

    /* Beside other readers: what std::shared_lock calls. */
    void lock_shared()
    {
        detail::checked ok;
        ok(lock_shared(forever(), ok.err));
    }
    hf_err lock_shared(ms wait, hf_error &err)
    {
        return hf_lock_acquire_shared(get(), wait.count(), nullptr, &err);
    }
    bool try_lock_shared()
    {
        detail::checked ok;
        return ok.unless(lock_shared(ms(0), ok.err), HF_EBUSY, HF_EBUSY);
    }
    template <class Rep, class Period>
    bool try_lock_shared_for(const std::chrono::duration<Rep, Period> &wait)
    {
        detail::checked ok;
        return ok.unless(lock_shared(ms(detail::wait_of(wait)), ok.err), HF_EBUSY, HF_ETIMEDOUT);
    }
    void unlock_shared() noexcept { unlock(); }
    /* From having it alone to sharing it, with nobody in between. */
    void downgrade()
    {
        detail::checked ok;
        ok(downgrade(ok.err));
    }
    hf_err downgrade(hf_error &err) { return hf_lock_downgrade(get(), &err); }

    void extend(ms ttl)
    {
        detail::checked ok;
        ok(extend(ttl, ok.err));
    }
    hf_err extend(ms ttl, hf_error &err) { return hf_lock_extend(get(), ttl.count(), &err); }
    void verify()
    {
        detail::checked ok;
        ok(verify(ok.err));
    }
    hf_err verify(hf_error &err) { return hf_lock_verify(get(), &err); }
    void detach(ms ttl = ms(0))
    {
        detail::checked ok;
        ok(detach(ttl, ok.err));
    }
    hf_err detach(ms ttl, hf_error &err) { return hf_lock_detach(get(), ttl.count(), &err); }
    void cancel() { hf_lock_cancel(get()); }

    bool is_held() const { return hf_lock_is_held(get()) != 0; }
    ms time_left() const { return ms(hf_lock_time_left_ms(get())); }
    ms full_time() const { return ms(hf_lock_full_time_ms(get())); }
    hf_state state() const { return hf_lock_state(get()); }
    hf_loss loss() const { return hf_lock_loss(get()); }
    std::string loss_text() const
    {
        char text[400];
        return hf_lock_loss_text(get(), text, sizeof text);
    }
    uint64_t fence() const { return hf_lock_fence(get()); }
    std::string owner() const { return hf_lock_owner(get()); }

    int fd()
    {
        int fd = -1;
        detail::checked ok;
        ok(hf_lock_fd(get(), &fd, &ok.err));
        return fd;
    }
    hf_state poll() { return hf_lock_poll(get()); }

    void lock_async(ms wait, done_fn done)
    {
        detail::async(std::move(done), [&](hf_done_fn fn, void *arg, hf_error *err) {
            return hf_lock_acquire_async(get(), wait.count(), fn, arg, err);
        });
    }
    void lock_shared_async(ms wait, done_fn done)
    {
        detail::async(std::move(done), [&](hf_done_fn fn, void *arg, hf_error *err) {
            return hf_lock_acquire_shared_async(get(), wait.count(), fn, arg, err);
        });
    }
    void unlock_async(done_fn done)
    {
        detail::async(std::move(done), [&](hf_done_fn fn, void *arg, hf_error *err) {
            return hf_lock_release_async(get(), fn, arg, err);
        });
    }
    void extend_async(ms ttl, done_fn done)
    {
        detail::async(std::move(done), [&](hf_done_fn fn, void *arg, hf_error *err) {
            return hf_lock_extend_async(get(), ttl.count(), fn, arg, err);
        });
    }

    hf_lock *get() const noexcept { return h_.get(); }
    explicit operator bool() const noexcept { return static_cast<bool>(h_); }

private:
    static void happened(hf_lock *, hf_state state, void *arg) noexcept
    {
        (*static_cast<event_fn *>(arg))(state);
    }
    void open(client &c, const std::string &name, hf_lock_opts o, event_fn on_event = event_fn())
    {
        hf_lock *m = nullptr;
        detail::checked ok;
        if (on_event) {
            event_.reset(new event_fn(std::move(on_event)));
            o.on_event = happened;
            o.event_arg = event_.get();
        }
        ok(hf_lock_open(c.get(), detail::bytes(name), &o, &m, &ok.err));
        h_.reset(m);
    }

    std::unique_ptr<event_fn> event_; /* outlives the handle, which may still call it */
    detail::handle<hf_lock, hf_lock_free> h_;
};

/* ---- semaphore, and several at once -------------------------------------------------------- */

/* A mutex of which so many can be held at once: lock() takes `permits` of its slots. */
class semaphore : public mutex {
public:
    semaphore(client &c, const std::string &name, unsigned slots, unsigned permits = 1)
        : mutex(c, name, sized(options<hf_lock_opts>(), slots, permits))
    {
    }
    semaphore(client &c, const std::string &name, unsigned slots, unsigned permits,
              const hf_lock_opts &o, event_fn on_event = event_fn())
        : mutex(c, name, sized(o, slots, permits), std::move(on_event))
    {
    }

    /* For all who use it; what it was. */
    static unsigned resize(client &c, const std::string &name, unsigned slots)
    {
        unsigned old = 0;
        detail::checked ok;
        ok(hf_semaphore_resize(c.get(), detail::bytes(name), slots, &old, &ok.err));
        return old;
    }

private:
    static hf_lock_opts sized(hf_lock_opts o, unsigned slots, unsigned permits)
    {
        o.slots = slots;
        o.permits = permits;
        return o;
    }
};

/* All of them, or none; each is unlocked by itself afterwards. std::scoped_lock and std::lock take
 * them one by one, in many round trips; this in one:
 *     holdfast::lock_all({ &from, &to });
 *     std::lock_guard<holdfast::mutex> a(from, std::adopt_lock), b(to, std::adopt_lock);   */
inline hf_err lock_all(std::initializer_list<mutex *> locks, ms wait, hf_error &err)
{
    std::vector<hf_lock *> m;
    for (mutex *l : locks)
        m.push_back(l->get());
    return hf_multi_acquire(m.data(), m.size(), wait.count(), &err);
}
inline void lock_all(std::initializer_list<mutex *> locks)
{
    detail::checked ok;
    ok(lock_all(locks, forever(), ok.err));
}
/* False: not within that time. */
inline bool try_lock_all(std::initializer_list<mutex *> locks, ms wait = ms(0))
{
    detail::checked ok;
    return ok.unless(lock_all(locks, wait, ok.err), HF_EBUSY, HF_ETIMEDOUT);
}

/* ---- sequence -------------------------------------------------------------------------- */

class sequence {
public:
    sequence(client &c, const std::string &name) { open(c, name, options<hf_sequence_opts>()); }
    sequence(client &c, const std::string &name, const hf_sequence_opts &o) { open(c, name, o); }
    sequence(client &c, const std::string &name, const hf_sequence_opts &o, hf_error &err)
    {
        hf_sequence *s = nullptr;
        if (hf_sequence_open(c.get(), detail::bytes(name), &o, &s, &err) == HF_OK)
            h_.reset(s);
    }

    /* Any number of threads at once. */
    uint64_t next()
    {
        uint64_t id = 0;
        detail::checked ok;
        ok(next(id, ok.err));
        return id;
    }
    hf_err next(uint64_t &id, hf_error &err) { return hf_sequence_next(get(), &id, &err); }

    hf_sequence *get() const noexcept { return h_.get(); }
    explicit operator bool() const noexcept { return static_cast<bool>(h_); }

private:
    void open(client &c, const std::string &name, const hf_sequence_opts &o)
    {
        hf_sequence *s = nullptr;
        detail::checked ok;
        ok(hf_sequence_open(c.get(), detail::bytes(name), &o, &s, &ok.err));
        h_.reset(s);
    }

    detail::handle<hf_sequence, hf_sequence_free> h_;
};

/* ---- latch and barrier --------------------------------------------------------------------- */

class latch {
public:
    latch(client &c, const std::string &name) { open(c, name, options<hf_latch_opts>()); }
    latch(client &c, const std::string &name, const hf_latch_opts &o) { open(c, name, o); }

    void set(uint32_t count)
    {
        detail::checked ok;
        ok(hf_latch_set(get(), count, &ok.err));
    }
    void reset(uint32_t count)
    {
        detail::checked ok;
        ok(hf_latch_reset(get(), count, &ok.err));
    }
    /* What is left. */
    uint32_t count_down(uint32_t n = 1)
    {
        uint32_t left = 0;
        detail::checked ok;
        ok(hf_latch_count_down(get(), n, &left, &ok.err));
        return left;
    }
    uint32_t count()
    {
        uint32_t left = 0;
        detail::checked ok;
        ok(hf_latch_count(get(), &left, nullptr, &ok.err));
        return left;
    }
    void wait()
    {
        detail::checked ok;
        ok(wait(forever(), ok.err));
    }
    /* False: not within that time. */
    bool wait_for(ms time)
    {
        detail::checked ok;
        return ok.unless(wait(time, ok.err), HF_EBUSY, HF_ETIMEDOUT);
    }
    hf_err wait(ms time, hf_error &err) { return hf_latch_wait(get(), time.count(), &err); }
    void wait_async(ms time, done_fn done)
    {
        detail::async(std::move(done), [&](hf_done_fn fn, void *arg, hf_error *err) {
            return hf_latch_wait_async(get(), time.count(), fn, arg, err);
        });
    }
    void count_down_async(uint32_t n, done_fn done)
    {
        detail::async(std::move(done), [&](hf_done_fn fn, void *arg, hf_error *err) {
            return hf_latch_count_down_async(get(), n, nullptr, fn, arg, err);
        });
    }
    void cancel() { hf_latch_cancel(get()); }

    hf_latch *get() const noexcept { return h_.get(); }
    explicit operator bool() const noexcept { return static_cast<bool>(h_); }

private:
    void open(client &c, const std::string &name, const hf_latch_opts &o)
    {
        hf_latch *l = nullptr;
        detail::checked ok;
        ok(hf_latch_open(c.get(), detail::bytes(name), &o, &l, &ok.err));
        h_.reset(l);
    }

    detail::handle<hf_latch, hf_latch_free> h_;
};

class barrier {
public:
    barrier(client &c, const std::string &name, uint32_t parties)
    {
        open(c, name, parties, options<hf_barrier_opts>());
    }
    barrier(client &c, const std::string &name, uint32_t parties, const hf_barrier_opts &o)
    {
        open(c, name, parties, o);
    }

    /* Until all are there: which one this was to arrive, from 0. */
    uint32_t wait(ms time = forever())
    {
        uint32_t index = 0;
        detail::checked ok;
        ok(hf_barrier_wait(get(), time.count(), &index, nullptr, &ok.err));
        return index;
    }
    /* With opts.leave: until all are done. */
    void leave(ms time = forever())
    {
        detail::checked ok;
        ok(hf_barrier_leave(get(), time.count(), &ok.err));
    }
    void wait_async(ms time, done_fn done)
    {
        detail::async(std::move(done), [&](hf_done_fn fn, void *arg, hf_error *err) {
            return hf_barrier_wait_async(get(), time.count(), nullptr, nullptr, fn, arg, err);
        });
    }
    void leave_async(ms time, done_fn done)
    {
        detail::async(std::move(done), [&](hf_done_fn fn, void *arg, hf_error *err) {
            return hf_barrier_leave_async(get(), time.count(), fn, arg, err);
        });
    }
    void cancel() { hf_barrier_cancel(get()); }

    hf_barrier *get() const noexcept { return h_.get(); }
    explicit operator bool() const noexcept { return static_cast<bool>(h_); }

private:
    void open(client &c, const std::string &name, uint32_t parties, const hf_barrier_opts &o)
    {
        hf_barrier *b = nullptr;
        detail::checked ok;
        ok(hf_barrier_open(c.get(), detail::bytes(name), parties, &o, &b, &ok.err));
        h_.reset(b);
    }

    detail::handle<hf_barrier, hf_barrier_free> h_;
};

/* ---- election -------------------------------------------------------------------------- */

/* Who leads, as it was when somebody looked. Empty: nobody has looked yet. */
class leader {
public:
    leader() {}
    bool leads() const { return h_ && h_->leads; }
    uint64_t term() const { return h_ ? h_->term : 0; }
    bool has_value() const { return h_ && h_->value; }
    std::string value() const
    {
        return has_value() ? std::string(h_->value, h_->value_len) : std::string();
    }
    ms ttl() const { return ms(h_ ? h_->ttl_ms : 0); }
    std::string owner() const { return detail::text(h_ ? h_->party->owner : nullptr); }
    std::string host() const { return detail::text(h_ ? h_->party->host : nullptr); }
    std::string program() const { return detail::text(h_ ? h_->party->program : nullptr); }
    int64_t pid() const { return h_ ? h_->party->pid : 0; }

    const hf_leader *get() const noexcept { return h_.get(); }
    void reset(hf_leader *l) { h_.reset(l); }

private:
    detail::handle<hf_leader, hf_leader_free> h_;
};

class election {
public:
    election(client &c, const std::string &name) { open(c, name, options<hf_election_opts>()); }
    election(client &c, const std::string &name, const hf_election_opts &o) { open(c, name, o); }
    election(client &c, const std::string &name, const hf_election_opts &o, hf_error &err)
    {
        hf_election *el = nullptr;
        if (hf_election_open(c.get(), detail::bytes(name), &o, &el, &err) == HF_OK)
            h_.reset(el);
    }

    /* The term. */
    uint64_t campaign(const std::string &value)
    {
        detail::checked ok;
        ok(campaign(value, forever(), ok.err));
        return term();
    }
    /* False: another leads, and did so for that long. */
    /* Throws an error with HF_ETIMEDOUT when the time is over: campaign("a", 1s). */
    uint64_t campaign(const std::string &value, ms wait)
    {
        detail::checked ok;
        ok(campaign(value, wait, ok.err));
        return term();
    }
    bool try_campaign(const std::string &value, ms wait = ms(0))
    {
        detail::checked ok;
        return ok.unless(campaign(value, wait, ok.err), HF_EBUSY, HF_ETIMEDOUT);
    }
    hf_err campaign(const std::string &value, ms wait, hf_error &err)
    {
        return hf_election_campaign(get(), detail::bytes(value), wait.count(), nullptr, &err);
    }
    void set_value(const std::string &value)
    {
        detail::checked ok;
        ok(set_value(value, ok.err));
    }
    hf_err set_value(const std::string &value, hf_error &err)
    {
        return hf_election_set_value(get(), detail::bytes(value), &err);
    }
    void resign()
    {
        detail::checked ok;
        ok(resign(ok.err));
    }
    hf_err resign(hf_error &err) { return hf_election_resign(get(), &err); }
    void campaign_async(const std::string &value, ms wait, done_fn done)
    {
        detail::async(std::move(done), [&](hf_done_fn fn, void *arg, hf_error *err) {
            return hf_election_campaign_async(get(), detail::bytes(value), wait.count(), nullptr,
                                              fn, arg, err);
        });
    }
    void resign_async(done_fn done)
    {
        detail::async(std::move(done), [&](hf_done_fn fn, void *arg, hf_error *err) {
            return hf_election_resign_async(get(), fn, arg, err);
        });
    }

    bool is_leader() const { return hf_election_is_leader(get()) != 0; }
    uint64_t term() const { return hf_election_term(get()); }
    ms time_left() const { return ms(hf_lock_time_left_ms(lock())); }
    hf_state state() const { return hf_lock_state(lock()); }
    hf_loss loss() const { return hf_lock_loss(lock()); }
    std::string loss_text() const
    {
        char text[400];
        return hf_lock_loss_text(lock(), text, sizeof text);
    }
    void cancel() { hf_lock_cancel(lock()); }
    hf_lock *lock() const { return hf_election_lock(get()); }

    hf_election *get() const noexcept { return h_.get(); }
    explicit operator bool() const noexcept { return static_cast<bool>(h_); }

    /* Who leads now. */
    static holdfast::leader leader(client &c, const std::string &name)
    {
        hf_leader *l = nullptr;
        detail::checked ok;
        ok(hf_election_leader(c.get(), detail::bytes(name), &l, &ok.err));
        holdfast::leader found;
        found.reset(l);
        return found;
    }
    /* Wait until it is not as seen any more, and see that. False: nothing changed in that time. */
    static bool observe(client &c, const std::string &name, holdfast::leader &seen,
                        ms wait = forever())
    {
        hf_leader *l = nullptr;
        detail::checked ok;
        if (!ok.unless(hf_election_observe(c.get(), detail::bytes(name), seen.get(), wait.count(),
                                           &l, &ok.err), HF_ETIMEDOUT, HF_ETIMEDOUT))
            return false;
        seen.reset(l);
        return true;
    }

private:
    void open(client &c, const std::string &name, const hf_election_opts &o)
    {
        hf_election *el = nullptr;
        detail::checked ok;
        ok(hf_election_open(c.get(), detail::bytes(name), &o, &el, &ok.err));
        h_.reset(el);
    }

    detail::handle<hf_election, hf_election_free> h_;
};

} // namespace holdfast

#endif
