// SPDX-License-Identifier: MIT
// worker.go - the locks of redsync and of bsm/redislock, as a neighbour. See ../common.sh.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredislib "github.com/redis/go-redis/v9"
)

const lease = 10 * time.Second

var errBusy = errors.New("busy")

// A lock of one of the libraries: take it, once or for as long as it takes; give it back.
type locker func(wait bool) (release func() error, err error)

func withRedsync(c *goredislib.Client, key string) locker {
	rs := redsync.New(goredis.NewPool(c))
	return func(wait bool) (func() error, error) {
		tries := 1
		if wait {
			tries = 10000
		}
		m := rs.NewMutex(key, redsync.WithExpiry(lease), redsync.WithTries(tries),
			redsync.WithRetryDelay(5*time.Millisecond))
		err := m.Lock()
		var taken *redsync.ErrTaken
		if errors.As(err, &taken) || errors.Is(err, redsync.ErrFailed) {
			return nil, errBusy
		}
		return func() error {
			ok, err := m.Unlock()
			if err == nil && !ok {
				err = errors.New("not ours any more")
			}
			return err
		}, err
	}
}

func withRedislock(c *goredislib.Client, key string) locker {
	rl := redislock.New(c)
	return func(wait bool) (func() error, error) {
		var o redislock.Options
		if wait {
			o.RetryStrategy = redislock.LinearBackoff(5 * time.Millisecond)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Second)
		l, err := rl.Obtain(ctx, key, lease, &o)
		if err != nil {
			cancel()
			if errors.Is(err, redislock.ErrNotObtained) {
				err = errBusy
			}
			return nil, err
		}
		return func() error { defer cancel(); return l.Release(ctx) }, nil
	}
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
}

// The section that the lock protects.
func section(who, file string) {
	in, err := os.OpenFile(file+".in", os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		fmt.Println("OVERLAP")
		os.Exit(1)
	}
	in.Close()
	text, err := os.ReadFile(file)
	must(err)
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	must(err)
	time.Sleep(2 * time.Millisecond)
	must(os.WriteFile(file, []byte(strconv.Itoa(n+1)+"\n"), 0o600))
	log, err := os.OpenFile(file+".log", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	must(err)
	fmt.Fprintln(log, who)
	log.Close()
	must(os.Remove(file + ".in"))
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// worker CLIENT try|hold|count SOCKET KEY ROUNDS FILE
func main() {
	client, what, socket, key, file := os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[6]
	rounds, err := strconv.Atoi(os.Args[5])
	must(err)
	c := goredislib.NewClient(&goredislib.Options{Network: "unix", Addr: socket})
	lock := withRedsync(c, key)
	if client == "redislock" {
		lock = withRedislock(c, key)
	}
	if what != "count" {
		rounds = 1
	}
	for i := 0; i < rounds; i++ {
		release, err := lock(what != "try")
		if errors.Is(err, errBusy) && what == "try" {
			os.Exit(3)
		}
		must(err)
		switch what {
		case "hold":
			must(os.WriteFile(file+".held", nil, 0o600))
			for !exists(file + ".go") {
				time.Sleep(10 * time.Millisecond)
			}
		case "count":
			section("theirs", file)
		}
		must(release())
		time.Sleep(20 * time.Millisecond)
	}
}
