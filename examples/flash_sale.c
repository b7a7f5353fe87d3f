/* SPDX-License-Identifier: MIT
 * flash_sale.c - many buyers, few items, none sold twice.
 *
 *     flash_sale STOCK BUYERS
 *
 * Each buyer is a process. The shop is two files, stock.txt and orders.txt: something that, like many
 * a shop, can be read and written but cannot by itself be asked to do both in one step. The lock of
 * the item makes it one step.
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

static int write_line(const char *name, const char *mode, const char *format, long long a, long long b)
{
    FILE *f = fopen(name, mode);
    if (!f)
        return -1;
    fprintf(f, format, a, b);
    return fclose(f);
}

/* With the lock: nobody reads the stock between our reading and our writing. */
static int sell_one(uint64_t number)
{
    int left = stock();
    if (left <= 0)
        return left == 0 ? SOLD_OUT : FAILED;
    if (write_line("orders.txt", "a", "%lld buyer %lld\n", (long long)number, (long long)getpid()) ||
        write_line("stock.txt", "w", "%lld\n", left - 1, 0))
        return FAILED;
    return BOUGHT;
}

static int buy(void)
{
    hf_client *c = NULL;
    hf_mutex *m = NULL;
    hf_error err;
    uint64_t number;
    int result = FAILED;

    if (hf_client_open(NULL, NULL, &c, &err) ||
        hf_mutex_open(c, hf_str("sale/42"), NULL, &m, &err) ||
        hf_mutex_lock(m, 30000, &number, &err)) {
        fprintf(stderr, "%s\n", err.message);
    } else {
        result = sell_one(number);
        if (hf_mutex_unlock(m, &err)) { /* lost meanwhile: another may have sold the same item */
            fprintf(stderr, "%s\n", err.message);
            result = FAILED;
        }
    }
    hf_mutex_free(m);
    hf_client_free(c);
    return result;
}

int main(int argc, char **argv)
{
    int buyers = argc > 2 ? atoi(argv[2]) : 50, count[4] = { 0 }, status;

    if (write_line("stock.txt", "w", "%lld\n", argc > 1 ? atoi(argv[1]) : 10, 0) ||
        write_line("orders.txt", "w", "", 0, 0))
        return 1;
    for (int i = 0; i < buyers; i++) {
        pid_t pid = fork(); /* before any client is opened: handles do not survive a fork */
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
