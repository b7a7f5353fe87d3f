/* SPDX-License-Identifier: MIT
 * flash_sale.c - many buyers, few items, none sold twice.
 *
 *     flash_sale STOCK BUYERS
 *
 * Each buyer is a process. The shop is two files, stock.txt and orders.txt: like many shops, it can
 * be read and written, but not both in one step. The lock of the item makes it one step.
 */
#include <holdfast.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BOUGHT = 0, FAILED = 1, SOLD_OUT = 3 };

static int stock(void)
{
    int n = -1;
    FILE *f = fopen("stock.txt", "r");
    if (f && fscanf(f, "%d", &n) != 1)
        n = -1;
    if (f)
        fclose(f);
    return n;
}

static int set_stock(int n)
{
    FILE *f = fopen("stock.txt", "w");
    if (f)
        fprintf(f, "%d\n", n);
    return f ? fclose(f) : -1;
}

static int write_order(const char *mode, const char *order)
{
    FILE *f = fopen("orders.txt", mode);
    if (f)
        fputs(order, f);
    return f ? fclose(f) : -1;
}

/* Under the lock: nobody reads the stock between our read and our write. */
static int sell_one(uint64_t number)
{
    int left = stock();
    char order[80];
    if (left <= 0)
        return left == 0 ? SOLD_OUT : FAILED;
    snprintf(order, sizeof order, "%llu buyer %ld\n", (unsigned long long)number, (long)getpid());
    return write_order("a", order) || set_stock(left - 1) ? FAILED : BOUGHT;
}

static int buy(void)
{
    hf_client *c = NULL;
    hf_lock *lock = NULL;
    hf_error err;
    uint64_t number;
    int result = FAILED;

    if (hf_client_open(NULL, NULL, &c, &err)
        || hf_lock_open(c, hf_str("sale/42"), NULL, &lock, &err)
        || hf_lock_acquire(lock, 30000, &number, &err)) {
        fprintf(stderr, "%s\n", err.message);
    } else {
        result = sell_one(number);
        if (hf_lock_release(lock, &err)) { /* lost: another may have sold the same item */
            fprintf(stderr, "%s\n", err.message);
            result = FAILED;
        }
    }
    hf_lock_free(lock);
    hf_client_free(c);
    return result;
}

int main(int argc, char **argv)
{
    int buyers = argc > 2 ? atoi(argv[2]) : 50, count[4] = { 0 }, status;

    if (set_stock(argc > 1 ? atoi(argv[1]) : 10) || write_order("w", ""))
        return 1;
    for (int i = 0; i < buyers; i++) {
        pid_t pid = fork(); /* before a client is opened: handles do not survive a fork */
        if (pid == 0)
            return buy();
        if (pid < 0)
            count[FAILED]++;
    }
    while (wait(&status) > 0)
        count[WIFEXITED(status) ? WEXITSTATUS(status) & 3 : FAILED]++;
    printf("sold %d, sold out for %d, failed %d, left %d\n", count[BOUGHT], count[SOLD_OUT],
           count[FAILED], stock());
    return count[FAILED] != 0;
}
