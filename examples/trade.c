/* SPDX-License-Identifier: MIT
 * trade.c - money goes from one account to another, and none is lost on the way.
 *
 *     trade ACCOUNTS TRADERS TRADES
 *
 * Each account is a file, and each trader a process. A trade changes two accounts, so it holds the
 * locks of both: taken in one call, all or none, two traders never wait for each other.
 */
#include <errno.h>
#include <holdfast.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { START = 100 };

/* -1: it cannot be read, and errno says why. */
static long balance(int account)
{
    char path[32];
    long n = -1;
    snprintf(path, sizeof path, "account.%d", account);
    FILE *f = fopen(path, "r");
    if (!f)
        return -1;
    int found = fscanf(f, "%ld", &n);
    fclose(f);
    if (found != 1)
        errno = ENODATA; /* empty, as after a crash while it was written: it is not ours to mend */
    return found == 1 ? n : -1;
}

static int set_balance(int account, long n)
{
    char path[32];
    snprintf(path, sizeof path, "account.%d", account);
    FILE *f = fopen(path, "w");
    if (f)
        fprintf(f, "%ld\n", n);
    return f ? fclose(f) : -1;
}

/* Under both locks: nobody else reads or writes these two. Both are read before one is written. */
static int move_money(int from, int to, long amount)
{
    long has = balance(from), gets = has < 0 ? -1 : balance(to);
    if (has < 0 || gets < 0)
        return -1;
    if (has < amount)
        return 0; /* not enough: no trade */
    return set_balance(from, has - amount) || set_balance(to, gets + amount);
}

static hf_err trade(hf_lock **account, int from, int to, long amount, hf_error *err)
{
    hf_lock *both[2] = { account[from], account[to] };
    hf_err e = hf_multi_acquire(both, 2, 30000, err);
    if (e)
        return e;
    int failed = move_money(from, to, amount), why = errno;
    e = hf_multi_release(both, 2, err); /* HF_ELOST: somebody may have read half of the trade */
    if (e || !failed)
        return e;
    snprintf(err->message, sizeof err->message, "account: %s", strerror(why));
    return HF_ESYS;
}

static int trader(int accounts, int trades)
{
    hf_client *c = NULL;
    hf_lock *lock[100] = { NULL };
    hf_error err;
    hf_err e = hf_client_open(NULL, NULL, &c, &err);
    for (int i = 0; i < accounts && !e; i++) {
        char name[32];
        snprintf(name, sizeof name, "account/%d", i);
        e = hf_lock_open(c, hf_str(name), NULL, &lock[i], &err);
    }
    srand((unsigned)getpid());
    for (int i = 0; i < trades && !e; i++) {
        int from = rand() % accounts, to = (from + 1 + rand() % (accounts - 1)) % accounts;
        e = trade(lock, from, to, rand() % 50, &err);
    }
    if (e)
        fprintf(stderr, "%s\n", err.message);
    for (int i = 0; i < accounts; i++)
        hf_lock_free(lock[i]);
    hf_client_free(c);
    return e != HF_OK;
}

int main(int argc, char **argv)
{
    int accounts = argc > 1 ? atoi(argv[1]) : 5, traders = argc > 2 ? atoi(argv[2]) : 4;
    int trades = argc > 3 ? atoi(argv[3]) : 50, failed = 0, status;
    long sum = 0;

    if (accounts < 2 || accounts > 100)
        return 1;
    for (int i = 0; i < accounts; i++)
        if (set_balance(i, START))
            return 1;
    for (int i = 0; i < traders; i++) {
        pid_t pid = fork(); /* before a client is opened: handles do not survive a fork */
        if (pid == 0)
            return trader(accounts, trades);
        failed += pid < 0;
    }
    while (wait(&status) > 0)
        failed += status != 0;
    for (int i = 0; i < accounts; i++)
        sum += balance(i);
    printf("%d accounts, %ld in all, %d traders failed\n", accounts, sum, failed);
    return failed != 0 || sum != (long)accounts * START;
}
