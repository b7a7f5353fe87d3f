/* SPDX-License-Identifier: MIT
 * task.c - who waits for what is done in steps, without a server.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/t.h"
#include "net/task.h"

static atomic_int stop;

static void *come_and_go(void *arg)
{
    while (!atomic_load(&stop)) {
        task_conn_begins();
        task_conn_ends();
    }
    return arg;
}

/* With nothing that ASan's allocator would be needed for. */
TEST(a_child_forked_while_another_thread_opens_a_connection_can_open_one)
{
    pthread_t t;
    CHECK_INT(pthread_create(&t, NULL, come_and_go, NULL), 0);
    for (int i = 0; i < 500; i++) {
        int status = -1, pid = t_fork();
        if (pid == 0) {
            signal(SIGALRM, SIG_DFL);
            alarm(20);
            task_conn_begins();
            task_conn_ends();
            _exit(0);
        }
        CHECK_INT(waitpid(pid, &status, 0), pid);
        CHECK_INT(status, 0);
    }
    atomic_store(&stop, 1);
    CHECK_INT(pthread_join(t, NULL), 0);
}
