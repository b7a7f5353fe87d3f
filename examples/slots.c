/* SPDX-License-Identifier: MIT
 * slots.c - a counting semaphore: many workers, and at most so many of them at work.
 *
 *     slots SLOTS WORKERS
 *
 * Each worker is a process that needs one of SLOTS places. It waits for its turn, in the order in
 * which the workers came. The place of a worker that is killed is free again after its grace.
 */
#include <fcntl.h>
#include <holdfast.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* One line of what happened; a short write with O_APPEND is one piece. */
static void note(const char *what)
{
    char line[64];
    int n = snprintf(line, sizeof line, "%s %ld\n", what, (long)getpid());
    int fd = open("slots.log", O_WRONLY | O_APPEND | O_CREAT, 0644);
    if (fd < 0 || write(fd, line, (size_t)n) != n)
        perror("slots.log");
    if (fd >= 0)
        close(fd);
}

static int work(unsigned slots)
{
    hf_lock_opts o = hf_semaphore(slots);
    hf_client *c = NULL;
    hf_lock *place = NULL;
    hf_error err;
    int e = hf_client_open(NULL, NULL, &c, &err)
            || hf_lock_open(c, hf_str("encoder"), &o, &place, &err)
            || hf_lock_acquire(place, 60000, NULL, &err);
    if (!e) {
        note("in");
        usleep(20000); /* the work; the place is kept for as long as it takes */
        note("out");
        e = hf_lock_release(place, &err) != HF_OK;
    }
    if (e)
        fprintf(stderr, "%s\n", err.message);
    hf_lock_free(place);
    hf_client_free(c);
    return e;
}

/* How many were in at the same time, at most. */
static int most(void)
{
    int in = 0, most = 0;
    char what[8];
    FILE *f = fopen("slots.log", "r");
    while (f && fscanf(f, "%7s %*d", what) == 1) {
        in += what[0] == 'i' ? 1 : -1;
        most = in > most ? in : most;
    }
    if (f)
        fclose(f);
    return most;
}

int main(int argc, char **argv)
{
    int slots = argc > 1 ? atoi(argv[1]) : 3, workers = argc > 2 ? atoi(argv[2]) : 12;
    int failed = 0, status;

    remove("slots.log");
    for (int i = 0; i < workers; i++) {
        pid_t pid = fork(); /* before a client is opened: handles do not survive a fork */
        if (pid == 0)
            return work((unsigned)slots);
        failed += pid < 0;
    }
    while (wait(&status) > 0)
        failed += status != 0;
    printf("%d workers, at most %d at a time, %d failed\n", workers, most(), failed);
    return failed != 0 || most() > slots;
}
