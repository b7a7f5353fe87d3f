/* SPDX-License-Identifier: MIT
 * holdfast.cpp - what holdfast.hpp adds to the C interface: run by cpp.sh, silent when all is well.
 */
#include <holdfast.hpp>

#include <poll.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <set>
#include <thread>
#include <type_traits>
#include <vector>
#if __cplusplus >= 201402L
#include <shared_mutex>
#endif

#define CHECK(cond)                                                                       \
    do {                                                                                  \
        if (!(cond)) {                                                                    \
            std::fprintf(stderr, "%s:%d: CHECK(%s)\n", __FILE__, __LINE__, #cond);        \
            std::exit(1);                                                                 \
        }                                                                                 \
    } while (0)

using holdfast::ms;

template <class T> static void check_move_only()
{
    static_assert(!std::is_copy_constructible<T>::value, "a handle was copied");
    static_assert(!std::is_copy_assignable<T>::value, "a handle was copied");
    static_assert(std::is_nothrow_move_constructible<T>::value, "a handle cannot be moved");
    static_assert(std::is_move_assignable<T>::value, "a handle cannot be moved");
}

static void handles_move_and_are_not_copied(holdfast::client &c)
{
    check_move_only<holdfast::client>();
    check_move_only<holdfast::mutex>();
    check_move_only<holdfast::sequence>();
    check_move_only<holdfast::election>();
    holdfast::mutex a(c, "moved"), b(c, "other");
    a.lock();
    uint64_t fence = a.fence();
    holdfast::mutex moved(std::move(a));
    CHECK(!a && moved && moved.is_held() && moved.fence() == fence);
    b = std::move(moved); /* frees what b was */
    CHECK(b.is_held() && b.fence() == fence);
    b.unlock();
    CHECK(!b.is_held() && b.unlocked() == HF_OK);
}

static void readers_permits_and_several_at_once(holdfast::client &c)
{
    holdfast::mutex a(c, "rw"), b(c, "rw"), w(c, "rw"), other(c, "other");
    a.lock_shared();
    CHECK(b.try_lock_shared() && !w.try_lock() && !w.try_lock_for(ms(300)));
    a.unlock_shared();
    b.unlock_shared();
    {
        std::lock_guard<holdfast::mutex> guard(w);
        CHECK(!a.try_lock_shared_for(ms(20)));
        w.downgrade();
        CHECK(a.try_lock_shared());
        a.unlock();
    }
#if __cplusplus >= 201402L
    {
        std::shared_lock<holdfast::mutex> r(a), s(b);
        CHECK(r.owns_lock() && s.owns_lock() && !w.try_lock());
    }
#endif
    holdfast::semaphore one(c, "pool", 2), two(c, "pool", 2), three(c, "pool", 2),
                        both(c, "pool", 2, 2);
    one.lock();
    std::lock_guard<holdfast::semaphore> guard(two);
    CHECK(!three.try_lock() && !both.try_lock());
    CHECK(holdfast::semaphore::resize(c, "pool", 3) == 2);
    CHECK(three.try_lock());
    three.unlock();
    one.unlock();
    CHECK(holdfast::semaphore::resize(c, "pool", 2) == 3);
    holdfast::lock_all({ &a, &other });
    CHECK(a.is_held() && other.is_held());
    CHECK(!holdfast::try_lock_all({ &b, &one }) && !one.is_held());
    a.unlock();
    other.unlock();
    CHECK(holdfast::try_lock_all({ &b, &one }, ms(1000)));
    b.unlock();
    one.unlock();
    try {
        holdfast::lock_all({ &b, &b });
        CHECK(false);
    } catch (const holdfast::error &e) {
        CHECK(e.code() == HF_EINVAL);
    }
}

static void latches_and_barriers(holdfast::client &c)
{
    check_move_only<holdfast::latch>();
    check_move_only<holdfast::barrier>();
    holdfast::latch l(c, "latch");
    l.set(2);
    CHECK(l.count() == 2 && l.count_down() == 1 && !l.wait_for(ms(20)));
    std::thread waits([&c] { holdfast::latch(c, "latch").wait(); });
    CHECK(l.count_down() == 0);
    waits.join();
    try {
        holdfast::barrier(c, "latch", 2).wait(ms(0));
        CHECK(false);
    } catch (const holdfast::error &e) {
        CHECK(e.code() == HF_ETYPE);
    }
    std::atomic<unsigned> sum(0);
    std::vector<std::thread> parties;
    for (int i = 0; i < 3; i++)
        parties.emplace_back([&c, &sum] { sum += holdfast::barrier(c, "barrier", 3).wait(); });
    for (std::thread &t : parties)
        t.join();
    CHECK(sum == 0 + 1 + 2);
}

static void guards_of_the_standard_library_work(holdfast::client &c)
{
    holdfast::mutex a(c, "a"), b(c, "b"), other(c, "a");
    {
        std::lock_guard<holdfast::mutex> guard(a);
        CHECK(a.is_held() && a.state() == HF_STATE_SAFE && a.time_left() > ms(0));
        CHECK(a.full_time() > ms(0) && !a.owner().empty() && a.fence() > 0);
        CHECK(!other.try_lock());
        CHECK(!other.try_lock_for(ms(300)));
        CHECK(!other.try_lock_for(std::chrono::microseconds(-5)));
        CHECK(!other.try_lock_until(std::chrono::steady_clock::now() + ms(20)));
    }
    CHECK(!a.is_held());
    {
        std::unique_lock<holdfast::mutex> l(other, std::try_to_lock);
        CHECK(l.owns_lock());
        l.unlock();
        CHECK(l.try_lock_for(std::chrono::seconds(5)));
    }
    {
        std::lock(a, b);
        std::lock_guard<holdfast::mutex> ga(a, std::adopt_lock), gb(b, std::adopt_lock);
        CHECK(a.is_held() && b.is_held());
    }
#if __cplusplus >= 201703L
    {
        std::scoped_lock both(a, b);
        CHECK(a.is_held() && b.is_held());
    }
#endif
    CHECK(!a.is_held() && !b.is_held());
    try { /* an exception lets go of the lock */
        std::lock_guard<holdfast::mutex> guard(a);
        throw 1;
    } catch (int) {
    }
    CHECK(other.try_lock());
}

/* They do not fit into a count of milliseconds: of hours::max() a negative wait was made. */
static void waits_without_end_and_moments_long_past(holdfast::client &c)
{
    using moment = std::chrono::time_point<std::chrono::system_clock, std::chrono::hours>;
    holdfast::mutex a(c, "long"), b(c, "long");
    CHECK(a.try_lock_for(std::chrono::hours::max()));
    a.unlock();
    CHECK(a.try_lock_shared_for(std::chrono::minutes::max()));
    a.unlock();
    CHECK(a.try_lock_for(std::chrono::duration<double>(1e300)));
    a.unlock();
    CHECK(a.try_lock_until(moment::max()));
    a.unlock();
    CHECK(a.try_lock_until(std::chrono::steady_clock::time_point::max()));
    CHECK(!b.try_lock_for(std::chrono::hours::min()));
    CHECK(!b.try_lock_until(std::chrono::system_clock::time_point::min()));
    CHECK(!b.try_lock_until(moment::min()));
    std::thread waits([&b] {
        CHECK(b.try_lock_for(std::chrono::nanoseconds::max()));
        b.unlock();
    });
    a.unlock();
    waits.join();
}

static void failures_are_exceptions_or_results(holdfast::client &c)
{
    holdfast::mutex m(c, "a", ms(5000));
    hf_error err = hf_error();
    try {
        m.extend(ms(1000));
        CHECK(!"thrown");
    } catch (const holdfast::error &e) {
        CHECK(e.code() == HF_ENOTHELD && e.known() == HF_KNOWN_NOT_HELD && *e.what());
        CHECK(dynamic_cast<const std::runtime_error *>(&e));
    }
    CHECK(m.verify(err) == HF_ENOTHELD && err.code == HF_ENOTHELD);
    CHECK(m.unlock(err) == HF_ENOTHELD);
    m.unlock(); /* throws nothing */
    CHECK(m.unlocked() == HF_ENOTHELD);
    CHECK(m.lock(ms(0), err) == HF_OK);
    m.extend(ms(60000));
    m.verify();
    m.detach(ms(200));
    CHECK(!m.is_held());
    try {
        holdfast::mutex bad(c, "");
        CHECK(!"thrown");
    } catch (const holdfast::error &e) {
        CHECK(e.code() == HF_EINVAL);
    }
    holdfast::mutex bad(c, "", holdfast::options<hf_lock_opts>(), err);
    CHECK(!bad && err.code == HF_EINVAL);
    try {
        holdfast::client nobody("unix:///nonexistent/sock");
        CHECK(!"thrown");
    } catch (const holdfast::error &e) {
        CHECK(e.code() == HF_ECONN);
    }
    holdfast::client none("unix:///nonexistent/sock", nullptr, err);
    CHECK(!none && err.code == HF_ECONN);
}

static void events_reach_a_function_object(holdfast::client &c)
{
    std::atomic<int> seen(-1);
    holdfast::mutex m(c, "event", ms(5000), [&seen](hf_state s) { seen = s; });
    m.lock();
    holdfast::mutex moved(std::move(m)); /* the callback moves along */
    int fd = moved.fd();
    hf_error err = hf_error();
    CHECK(hf_owner_release(c.get(), hf_str("event"), hf_str(moved.owner().c_str()), &err) == HF_OK);
    pollfd p = { fd, POLLIN, 0 };
    CHECK(poll(&p, 1, 10000) == 1);
    CHECK(moved.poll() == HF_STATE_LOST && moved.loss() == HF_LOSS_RELEASED && !moved.is_held());
    for (int i = 0; i < 1000 && seen != HF_STATE_LOST; i++)
        std::this_thread::sleep_for(ms(10));
    CHECK(seen == HF_STATE_LOST);
    CHECK(moved.unlock(err) == HF_ELOST);
}

static void requests_without_blocking(holdfast::client &c)
{
    holdfast::mutex m(c, "async");
    int done = 0;
    m.lock_async(ms(5000), [&](hf_err e, const hf_error *err) {
        CHECK(e == HF_OK && !err);
        done++;
        m.extend_async(ms(9000), [&](hf_err e2, const hf_error *) {
            CHECK(e2 == HF_OK);
            done++;
            m.unlock_async([&](hf_err e3, const hf_error *) {
                CHECK(e3 == HF_OK);
                done++;
            });
        });
    });
    while (done < 3) {
        pollfd p = { c.fd(), POLLIN, 0 };
        CHECK(poll(&p, 1, 10000) == 1);
        c.dispatch();
    }
    CHECK(!m.is_held());
}

static void everything_else_without_blocking(holdfast::client &c)
{
    holdfast::mutex m(c, "shared");
    holdfast::latch lt(c, "async latch"), same(c, "async latch");
    holdfast::barrier b(c, "alone", 1);
    holdfast::election el(c, "el");
    int done = 0;
    lt.set(1);
    auto good = [&](hf_err e, const hf_error *) {
        CHECK(e == HF_OK);
        done++;
    };
    m.lock_shared_async(ms(5000), good);
    lt.wait_async(ms(10000), good);
    b.wait_async(ms(5000), good);
    el.campaign_async("me", ms(5000), [&](hf_err e, const hf_error *err) {
        good(e, err);
        same.count_down_async(1, [&](hf_err e2, const hf_error *err2) {
            CHECK(e2 == HF_OK && !err2);
            done++;
        });
        el.resign_async([&](hf_err e2, const hf_error *err2) {
            CHECK(e2 == HF_OK && !err2);
            done++;
        });
    });
    while (done < 6) {
        pollfd p = { c.fd(), POLLIN, 0 };
        CHECK(poll(&p, 1, 10000) == 1);
        c.dispatch();
    }
    m.unlock();
    CHECK(m.unlocked() == HF_OK);
}

static void sequences_are_shared_by_threads(holdfast::client &c)
{
    auto o = holdfast::options<hf_sequence_opts>();
    o.block = 7;
    o.start = 100;
    holdfast::sequence q(c, "ids", o);
    std::mutex mu;
    std::set<uint64_t> ids;
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; i++)
        threads.emplace_back([&] {
            for (int k = 0; k < 100; k++) {
                uint64_t id = q.next();
                std::lock_guard<std::mutex> guard(mu);
                CHECK(id >= 100 && ids.insert(id).second);
            }
        });
    for (auto &t : threads)
        t.join();
    CHECK(ids.size() == 800);
    uint64_t id = 0;
    hf_error err = hf_error();
    CHECK(q.next(id, err) == HF_OK && id == 900);
    holdfast::sequence bad(c, "", o, err);
    CHECK(!bad && err.code == HF_EINVAL);
}

static void elections(holdfast::client &c)
{
    holdfast::election a(c, "lead"), b(c, "lead");
    holdfast::leader seen = holdfast::election::leader(c, "lead");
    CHECK(!seen.leads() && !seen.has_value());
    uint64_t term = a.campaign(std::string("zero\0byte", 9));
    CHECK(a.is_leader() && a.term() == term && a.state() == HF_STATE_SAFE && a.time_left() > ms(0));
    CHECK(holdfast::election::observe(c, "lead", seen));
    CHECK(seen.leads() && seen.term() == term && seen.value() == std::string("zero\0byte", 9));
    CHECK(seen.pid() > 0 && !seen.host().empty() && seen.ttl() > ms(0) && !seen.owner().empty());
    CHECK(!holdfast::election::observe(c, "lead", seen, ms(20)));
    try {
        b.campaign("b", std::chrono::seconds(0) + ms(20));
        CHECK(!"elected beside another");
    } catch (const holdfast::error &e) {
        CHECK(e.code() == HF_ETIMEDOUT);
    }
    CHECK(!b.try_campaign("b") && !b.try_campaign("b", ms(20)));
    std::thread other([&] { CHECK(b.campaign("b") > term); });
    a.set_value("changed");
    CHECK(holdfast::election::observe(c, "lead", seen) && seen.value() == "changed");
    a.resign();
    other.join();
    CHECK(!a.is_leader() && b.is_leader());
    CHECK(holdfast::election::observe(c, "lead", seen, ms(5000)));
    hf_error err = hf_error();
    CHECK(a.resign(err) == HF_ENOTHELD);
    try {
        a.set_value("x");
        CHECK(!"thrown");
    } catch (const holdfast::error &e) {
        CHECK(e.code() == HF_ENOTHELD);
    }
    a.cancel();
    CHECK(a.campaign("a", holdfast::forever(), err) == HF_ECANCELED);
    holdfast::election moved(std::move(b));
    CHECK(!b && moved.is_leader());
}

static void a_wrong_time_limit_closes_nothing()
{
    holdfast::client c;
    holdfast::mutex a(c, "closing");
    a.lock();
    hf_error err = hf_error();
    CHECK(c.close(holdfast::forever(), err) == HF_EINVAL && c && a.is_held());
    CHECK(c.close(ms(5000), err) == HF_OK && !c);
}

int main()
{
    auto o = holdfast::options<hf_client_opts>();
    o.info = "the C++ test";
    holdfast::client c(o);
    CHECK(c && !c.url().empty() && c.held().empty());
    handles_move_and_are_not_copied(c);
    guards_of_the_standard_library_work(c);
    readers_permits_and_several_at_once(c);
    latches_and_barriers(c);
    waits_without_end_and_moments_long_past(c);
    failures_are_exceptions_or_results(c);
    events_reach_a_function_object(c);
    requests_without_blocking(c);
    everything_else_without_blocking(c);
    sequences_are_shared_by_threads(c);
    elections(c);
    a_wrong_time_limit_closes_nothing();
    holdfast::mutex left(c, "a");
    CHECK(left.try_lock_for(ms(5000)));
    c.unlock_all();
    CHECK(!left.is_held());
    holdfast::client gone(std::move(c));
    gone = holdfast::client(); /* a client may go before what was made from it */
    return 0;
}
