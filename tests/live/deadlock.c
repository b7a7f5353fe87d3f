/* SPDX-License-Identifier: MIT
 * deadlock.c - waits that would never end: found after about a second, one of those in the circle
 * gives up, the others go on. What only takes long is left alone: deadlock_none.c.
 */
#include "harness/circle.h"

TEST(two_processes)
{
    const struct party p[] = { { .has = { { .name = "a" } }, .wants = { .name = "b" } },
                               { .has = { { .name = "b" } }, .wants = { .name = "a" } } };
    play_here(p, 2);
}

TEST(three_processes)
{
    const struct party p[] = { { .has = { { .name = "a" } }, .wants = { .name = "b" } },
                               { .has = { { .name = "b" } }, .wants = { .name = "c" } },
                               { .has = { { .name = "c" } }, .wants = { .name = "a" } } };
    play_here(p, 3);
}

TEST(ten_processes_with_names_of_all_sorts)
{
    static const char *const name[CIRCLE_MAX] = { "a", "b c", "{x}y", "d}e", "lock:f", "%g", "h\n",
                                                  "i:q", "j\"", "\xff" };
    struct party p[CIRCLE_MAX];
    for (int i = 0; i < CIRCLE_MAX; i++)
        p[i] = (struct party){ .has = { { .name = name[i] } },
                               .wants = { .name = name[(i + 1) % CIRCLE_MAX] } };
    play_here(p, CIRCLE_MAX);
}

TEST(readers_and_writers)
{
    const struct party p[] = {
        { .has = { { .name = "a", .shared = 1 } }, .wants = { .name = "b" } },
        { .has = { { .name = "b", .shared = 1 } }, .wants = { .name = "a" } },
    };
    play_here(p, 2);
}

/* The reader comes behind a writer, who waits for the same reader. */
TEST(a_reader_that_reads_again_behind_a_writer)
{
    const struct party p[] = { { .wants = { .name = "a" } },
                               { .has = { { .name = "a", .shared = 1 } },
                                 .wants = { .name = "a", .shared = 1 } } };
    play_here(p, 2);
}

TEST(all_permits_of_a_semaphore_are_in_the_circle)
{
    const struct party p[] = {
        { .has = { { .name = "a", .slots = 2 } }, .wants = { .name = "b" } },
        { .has = { { .name = "a", .slots = 2 } }, .wants = { .name = "b" } },
        { .has = { { .name = "b" } }, .wants = { .name = "a", .slots = 2 } },
    };
    play_here(p, 3);
}

/* One permit is somebody else's, but it would not be enough. */
TEST(a_semaphore_of_which_too_little_will_be_free)
{
    const struct party p[] = {
        { .has = { { .name = "a", .slots = 3, .permits = 2 } }, .wants = { .name = "b" } },
        { .has = { { .name = "a", .slots = 3 } }, .outside = 1 },
        { .has = { { .name = "b" } }, .wants = { .name = "a", .slots = 3, .permits = 2 } },
    };
    play_here(p, 3);
}
