// SPDX-License-Identifier: MIT
// main.go - the locks of redsync, bsm/redislock, rueidislock and etcd, with goroutines. The protocol
// is in ../README.md.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredislib "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

const lease = 10 * time.Second

var (
	started = time.Now()
	nothing = context.Background()
	lost    = make(chan (<-chan struct{}), 1) // of the lock in mode hold, if there is such a thing
)

// A locker makes what one worker needs; that takes the lock of this name, and returns what gives it
// back.
type taker func() (give func() error)
type locker func(name string) taker

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "peer:", err)
		os.Exit(1)
	}
}

func now() int64 { return int64(time.Since(started)) }

// The library closes it when a lock is lost.
func listen(c <-chan struct{}) {
	if os.Args[3] == "hold" {
		lost <- c
	}
}

func say(what any) { must(json.NewEncoder(os.Stdout).Encode(what)) }

func withRedsync(c *goredislib.Client, retry time.Duration) locker {
	rs := redsync.New(goredis.NewPool(c))
	return func(name string) taker {
		o := []redsync.Option{redsync.WithExpiry(lease), redsync.WithTries(1 << 30)}
		if retry > 0 {
			o = append(o, redsync.WithRetryDelay(retry))
		}
		m := rs.NewMutex(name, o...)
		return func() func() error {
			must(m.Lock())
			return func() error {
				ok, err := m.Unlock()
				if err == nil && !ok {
					err = errors.New("not ours any more")
				}
				return err
			}
		}
	}
}

// It has no retry of its own; 100 ms is what its example has.
func withRedislock(c *goredislib.Client, retry time.Duration) locker {
	rl := redislock.New(c)
	if retry == 0 {
		retry = 100 * time.Millisecond
	}
	return func(name string) taker {
		return func() func() error {
			ctx, cancel := context.WithTimeout(nothing, time.Hour)
			l, err := rl.Obtain(ctx, name, lease,
				&redislock.Options{RetryStrategy: redislock.LinearBackoff(retry)})
			must(err)
			return func() error { defer cancel(); return l.Release(ctx) }
		}
	}
}

// TryNextAfter is its time limit for an answer, 20 ms by default. When one comes later than that, as
// on a busy machine, its waiters may never be woken. There is no other key to try here: so it waits.
func withRueidislock(address string) locker {
	l, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: []string{address}},
		KeyMajority:    1,
		KeyValidity:    lease,
		NoLoopTracking: true,
		TryNextAfter:   time.Second,
	})
	must(err)
	return func(name string) taker {
		return func() func() error {
			ctx, cancel, err := l.WithContext(nothing, name)
			must(err)
			listen(ctx.Done())
			return func() error { cancel(); return nil }
		}
	}
}

// Mutexes of one session do not exclude each other: each worker needs its own.
func withEtcd(address string) locker {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{address}, DialTimeout: 5 * time.Second})
	must(err)
	return func(name string) taker {
		s, err := concurrency.NewSession(c, concurrency.WithTTL(int(lease/time.Second)))
		must(err)
		m := concurrency.NewMutex(s, "/"+name)
		return func() func() error {
			must(m.Lock(nothing))
			listen(s.Done())
			return func() error { return m.Unlock(nothing) }
		}
	}
}

type peer struct {
	open          locker
	workers       int
	warm, seconds time.Duration
	key           string
}

func (p *peer) each(work func(i int)) *sync.WaitGroup {
	var all sync.WaitGroup
	for i := 0; i < p.workers; i++ {
		all.Add(1)
		go func() { defer all.Done(); work(i) }()
	}
	return &all
}

func (p *peer) pairs() {
	takers := make([]taker, p.workers)
	p.each(func(i int) { takers[i] = p.open(p.key + ":" + strconv.Itoa(i)) }).Wait()
	begin := now() + int64(p.warm)
	end := begin + int64(p.seconds)
	took := make([][]float64, p.workers)
	p.each(func(i int) {
		for t := now(); t < end; {
			must(takers[i]()())
			before := t
			t = now()
			if before >= begin && t <= end {
				took[i] = append(took[i], float64(t-before)/1000)
			}
		}
	}).Wait()
	done, us := 0, []float64{}
	for _, t := range took {
		done += len(t)
	}
	if p.workers == 1 {
		us = took[0]
	}
	say(map[string]any{"pairs": done, "seconds": p.seconds.Seconds(), "us": us})
}

// The sleep of the system: that of Go may take a millisecond more.
func hold(ns int64) {
	t := syscall.NsecToTimespec(ns)
	_ = syscall.Nanosleep(&t, nil)
}

func (p *peer) contended() {
	takers := make([]taker, p.workers)
	p.each(func(i int) { takers[i] = p.open(p.key) }).Wait()
	begin := now() + int64(p.warm)
	end := begin + int64(p.seconds)
	var mu sync.Mutex
	events := []*[4]int64{}
	note := func(e *[4]int64, what int) { mu.Lock(); e[what] = now(); mu.Unlock() }
	p.each(func(i int) {
		for now() < end {
			e := &[4]int64{int64(i), now(), 0, 0}
			mu.Lock()
			events = append(events, e)
			mu.Unlock()
			give := takers[i]()
			note(e, 2)
			hold(rand.Int63n(int64(time.Millisecond)))
			note(e, 3)
			must(give())
			time.Sleep(time.Duration(p.workers) * 250 * time.Microsecond)
		}
	})
	time.Sleep(p.warm + p.seconds)
	mu.Lock()
	say(map[string]any{"begin": begin, "end": now(), "events": events})
	os.Exit(0)
}

func (p *peer) idle() {
	p.open(p.key)()
	say(map[string]any{"held": 1})
	p.each(func(int) { p.open(p.key)() })
	say(map[string]any{"waiting": p.workers})
	time.Sleep(10 * time.Minute)
}

func (p *peer) hold() {
	p.open(p.key)()
	say(map[string]any{"held": 1})
	select {
	case c := <-lost:
		<-c
		say(map[string]any{"lost": 1})
	case <-time.After(10 * time.Minute):
	}
	time.Sleep(10 * time.Minute)
}

func (p *peer) wait() {
	take := p.open(p.key)
	say(map[string]any{"waiting": 1})
	give := take()
	say(map[string]any{"got": 1})
	must(give())
}

func number(i int) float64 {
	n, err := strconv.ParseFloat(os.Args[i], 64)
	must(err)
	return n
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

func main() {
	address := "127.0.0.1:" + os.Args[2]
	retry := seconds(number(7) / 1000)
	p := peer{workers: int(number(4)), warm: seconds(number(5)), seconds: seconds(number(6)),
		key: os.Args[8]}
	switch os.Args[1] {
	case "redsync":
		p.open = withRedsync(goredislib.NewClient(&goredislib.Options{Addr: address}), retry)
	case "redislock":
		p.open = withRedislock(goredislib.NewClient(&goredislib.Options{Addr: address}), retry)
	case "rueidislock":
		p.open = withRueidislock(address)
	case "etcd":
		p.open = withEtcd(address)
	}
	map[string]func(){"pairs": p.pairs, "contended": p.contended, "idle": p.idle, "hold": p.hold,
		"wait": p.wait}[os.Args[3]]()
}
