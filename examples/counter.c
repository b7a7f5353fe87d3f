/* SPDX-License-Identifier: MIT
 * counter.c - add one to the number in counter.txt, however many copies of this run at once. The
 * example of README.md, line for line.
 */
#include <holdfast.h>
#include <stdio.h>

int main(void)
{
    hf_client *c = NULL;
    hf_lock *lock = NULL;
    hf_error err;
    int n = 0, bad = 0, e = hf_client_open(NULL, NULL, &c, &err) /* $HOLDFAST_URL, or private */
                            || hf_lock_open(c, hf_str("counter"), NULL, &lock, &err)
                            || hf_lock_acquire(lock, 10000, NULL, &err); /* up to 10 seconds */
    if (!e) {
        FILE *f = fopen("counter.txt", "r+"); /* ours alone from here ... */
        if (!f) f = fopen("counter.txt", "w+"); /* the first time */
        bad = !f || !fscanf(f, "%d", &n) || fseek(f, 0, SEEK_SET) || fprintf(f, "%d\n", ++n) < 0;
        if (f) bad |= fclose(f) != 0;
        if (bad) perror("counter.txt");
        else printf("%d, under number %llu\n", n, (unsigned long long)hf_lock_fence(lock));
        e = hf_lock_release(lock, &err); /* ... to here; fails if the lock was lost meanwhile */
    }
    if (e) fprintf(stderr, "%s\n", err.message);
    hf_lock_free(lock);
    hf_client_free(c);
    return e || bad;
}
