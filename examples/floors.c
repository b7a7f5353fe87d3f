/* SPDX-License-Identifier: MIT
 * floors.c - the posts of a thread are numbered 1, 2, 3: no gap, no number twice.
 *
 *     floors THREAD TEXT...
 *
 * One lock for each thread, so that threads do not wait for each other. A post and its number are
 * one line of the file THREAD.posts; the number is found and the line written under the lock.
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
    hf_lock *m = NULL;
    hf_error err;
    char buf[HF_NAME_MAX + 1];
    hf_bytes name;

    if (argc < 3 || strchr(argv[1], '/')) {
        fprintf(stderr, "usage: floors THREAD TEXT...\n");
        return 1;
    }
    hf_bytes part[] = { hf_str("thread"), hf_str(argv[1]), hf_str("floor") };
    int e = hf_name_join(part, 3, buf, sizeof buf, &name, &err) /* "thread/17/floor" */
            || hf_client_open(NULL, NULL, &c, &err)
            || hf_lock_open(c, name, NULL, &m, &err);
    for (int i = 2; i < argc && !e; i++) {
        e = hf_lock_acquire(m, 30000, NULL, &err);
        if (e)
            break;
        if (add_post(argv[1], argv[i]) != 0)
            perror(argv[1]);
        e = hf_lock_release(m, &err);
    }
    if (e)
        fprintf(stderr, "%s\n", err.message);
    hf_lock_free(m);
    hf_client_free(c);
    return e != 0;
}
