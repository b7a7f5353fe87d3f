/* SPDX-License-Identifier: MIT
 * fuzz_main.c - replays a fuzz target's corpus as a plain test, without libFuzzer.
 *
 *   prog DIR    every file of DIR once, and the empty input
 *   prog FILE   that one, to look at a crash
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* An exact-size copy, so that a read past the end is seen by the sanitizer. */
static int replay(const char *path)
{
    struct stat st;
    FILE *f = fopen(path, "rb");
    if (!f || fstat(fileno(f), &st) != 0) {
        perror(path);
        return -1;
    }
    size_t size = (size_t)st.st_size;
    uint8_t *data = malloc(size ? size : 1);
    if (!data || fread(data, 1, size, f) != size) {
        perror(path);
        return -1;
    }
    fclose(f);
    LLVMFuzzerTestOneInput(data, size);
    free(data);
    return 0;
}

int main(int argc, char **argv)
{
    struct stat st;
    char path[4096];
    int n = 0;
    if (argc < 2) {
        fprintf(stderr, "usage: %s DIR|FILE\n", argv[0]);
        return 2;
    }
    alarm(300);
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (stat(argv[1], &st) == 0 && S_ISREG(st.st_mode))
        return replay(argv[1]) ? 1 : 0;

    LLVMFuzzerTestOneInput((const uint8_t *)"", 0);
    DIR *d = opendir(argv[1]);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (e->d_name[0] == '.')
            continue;
        /* Told before it runs: a crash ends the program, and this line names the culprit. */
        printf("# %s\n", e->d_name);
        snprintf(path, sizeof path, "%s/%s", argv[1], e->d_name);
        if (replay(path) != 0)
            return 1;
        n++;
    }
    if (d)
        closedir(d);
    if (n == 0) {
        printf("not ok 1 - no corpus in %s\n# passed 0 failed 1 skipped 0\n", argv[1]);
        return 1;
    }
    const char *name = strrchr(argv[0], '/');
    printf("ok 1 - fuzz corpus of %s, %d inputs\n# passed 1 failed 0 skipped 0\n",
           name ? name + 1 : argv[0], n);
    return 0;
}
