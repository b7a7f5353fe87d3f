/* SPDX-License-Identifier: MIT
 * floors.c - number the posts of a thread 1, 2, 3, with no gap and no number twice.
 *
 *     floors THREAD TEXT...
 *
 * Each thread has its own lock, so that threads do not wait for each other. A post and its number
 * are one line of the file THREAD.posts. Under the lock, the program finds the number and writes
 * the line.
 */
#include <holdfast.h>
#include <stdio.h>
#include <string.h>

static int add_post(const char *thread, const char *text)
{
    char path[300];
    int last = 0, c, bad;
    snprintf(path, sizeof path, "%s.posts", thread);
    FILE *f = fopen(path, "a+");
    if (!f)
        return -1;
    while ((c = getc(f)) != EOF)
        last += c == '\n';
    fprintf(f, "%d %s\n", last + 1, text);
    bad = ferror(f);
    if (fclose(f) != 0 || bad)
        return -1;
    printf("floor %d\n", last + 1);
    return 0;
}

int main(int argc, char **argv)
{
    hf_client *c = NULL;
    hf_lock *lock = NULL;
    hf_error err;
    char buf[HF_NAME_MAX + 1];
    hf_bytes name;

    int bad = argc < 3 || strchr(argv[1], '/');
    for (int i = 2; i < argc; i++)
        bad = bad || strchr(argv[i], '\n'); /* it would count as two posts */
    if (bad) {
        fprintf(stderr, "usage: floors THREAD TEXT...   (each TEXT is one line)\n");
        return 1;
    }
    hf_bytes part[] = { hf_str("thread"), hf_str(argv[1]), hf_str("floor") };
    int e = hf_name_join(part, 3, buf, sizeof buf, &name, &err) /* "thread/17/floor" */
            || hf_client_open(NULL, NULL, &c, &err)
            || hf_lock_open(c, name, NULL, &lock, &err);
    for (int i = 2; i < argc && !e && !bad; i++) {
        e = hf_lock_acquire(lock, 30000, NULL, &err);
        if (e)
            break;
        bad = add_post(argv[1], argv[i]) != 0;
        if (bad)
            perror(argv[1]);
        e = hf_lock_release(lock, &err);
    }
    if (e)
        fprintf(stderr, "%s\n", err.message);
    hf_lock_free(lock);
    hf_client_free(c);
    return e || bad;
}
